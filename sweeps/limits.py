"""Limits of a sweep and its studies: hours, device-hours and failures. At a limit, studies are saved and ended."""

import math
import time
from collections.abc import Mapping

from results.bad_input import BadInput
from sweeps.configured_study import Config
from sweeps.schema import Bounds
from sweeps.study_run import StudyUpdate

_HOUR = 3600.0


NONE = Bounds()
_time_is_up: list[bool] = []  # not empty after ``time_is_up`` has been called


def time_is_up() -> None:
    """Ends all studies of this process, as if the sweep had reached a limit. Called from a signal handler."""
    _time_is_up.append(True)


class Limits:
    """Tracks usage against the limits of a sweep.

    Attributes:
      ended: limits that individual studies have reached, by study name.

    Args:
      sweep: limits of the sweep.
      study: limits of each study.
      devices: number of devices by study name.
    """

    def __init__(self, sweep: Bounds = NONE, study: Bounds = NONE, devices: Mapping[str, int] | None = None) -> None:
        self.sweep = sweep
        self.study = study
        self._devices = devices or {}
        self._began = time.monotonic()
        self._running: dict[str, float] = {}  # start times by study
        self._used = 0.0  # device-seconds of ended studies
        self._failures = 0
        self.ended: dict[str, str] = {}

    def hear(self, update: StudyUpdate) -> None:
        """Counts an update of a study."""
        if update.silent is not None:
            return
        name = update.study.name
        now = time.monotonic()
        if update.progress is not None:
            self._running.setdefault(name, now)
        elif name in self._running:
            self._used += (now - self._running.pop(name)) * self._devices.get(name, 1)
        self._failures += update.outcome is not None and update.outcome.failure is not None

    @property
    def reached(self) -> str | None:
        """The limit that the sweep has reached, as key and value, or None."""
        if _time_is_up:
            return "a limit of the command that started this one"
        now = time.monotonic()
        used = self._used + sum((now - since) * self._devices.get(n, 1) for n, since in self._running.items())
        amounts = ((now - self._began) / _HOUR, used / _HOUR, self._failures)
        for (name, limit), amount in zip(vars(self.sweep).items(), amounts, strict=True):
            if limit is not None and amount >= limit:
                return f"limits.sweep.{name}={limit:g}"
        return None

    def is_over(self, name: str) -> bool:
        """Returns whether a running study has reached one of its limits or one of the sweep's limits."""
        limit = self.study.max_device_hours
        if limit is not None and name in self._running:
            hours = (time.monotonic() - self._running[name]) * self._devices.get(name, 1) / _HOUR
            if hours >= limit:
                self.ended[name] = f"limits.study.max_device_hours={limit:g}"
                return True
        return self.reached is not None


def of_configuration(asked: Config) -> tuple[Bounds, Bounds]:
    """Returns the limits of a sweep and of each study from the ``limits`` configuration. Raises BadInput if invalid."""
    for key in ("sweep", "study"):
        for name, value in asked[key].items():
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise BadInput(f"limits.{key}.{name} must be above 0, not {value:g}")
    return Bounds(**asked["sweep"]), Bounds(**asked["study"])
