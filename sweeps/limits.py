"""Limits of a sweep and of its studies: hours, device-hours and failures, after which what runs is saved and ends."""

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from results.bad_input import BadInput
from sweeps.run import StudyUpdate

_HOUR = 3600.0


class Bounds(NamedTuple):
    """The most of a sweep, or of each of its studies; None is no limit.

    Attributes:
      max_hours: since it began, in this run of the command.
      max_device_hours: of devices that run a study, whatever they do; a device is a core, a GPU or a TPU core.
      max_failures: of a sweep: studies that failed; of a study: attempts at it that failed, in earlier runs, too.
    """

    max_hours: float | None = None
    max_device_hours: float | None = None
    max_failures: int | None = None

    def check(self, key: str) -> None:
        """Raises BadInput for a bound under a key of the configuration that is not above 0."""
        for name, value in self._asdict().items():
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise BadInput(f"{key}.{name} must be above 0, not {value:g}")


_NONE = Bounds()
_told: list[bool] = []  # not empty once somebody else says that the time is up


def time_is_up() -> None:
    """Has all studies of this process end as at a limit of the sweep; for a signal's handler."""
    _told.append(True)


class Limits:
    """What a sweep has used of its limits so far.

    Attributes:
      ended: the limit of its own that a study has reached, by its name.

    Args:
      sweep: bounds of all of it.
      study: of each of its studies.
      devices: of a study, by its name.
    """

    def __init__(self, sweep: Bounds = _NONE, study: Bounds = _NONE, devices: Mapping[str, int] | None = None) -> None:
        self.sweep, self.study = sweep, study
        self._devices = devices or {}
        self._began = time.monotonic()
        self._running: dict[str, float] = {}  # since when
        self._used = 0.0  # device-seconds of what has ended
        self._failures = 0
        self.ended: dict[str, str] = {}

    def hear(self, update: StudyUpdate) -> None:
        """Takes in what happened to a study."""
        if update.silent is not None:
            return
        name, now = update.study.name, time.monotonic()
        if update.progress is not None:
            self._running.setdefault(name, now)
        elif name in self._running:
            self._used += (now - self._running.pop(name)) * self._devices.get(name, 1)
        self._failures += update.outcome is not None and update.outcome.failure is not None

    @property
    def reached(self) -> str | None:
        """The limit of the sweep that is reached, as its key and value; None if none is."""
        if _told:
            return "the limits of whoever started this"
        now = time.monotonic()
        used = self._used + sum((now - since) * self._devices.get(n, 1) for n, since in self._running.items())
        amounts = ((now - self._began) / _HOUR, used / _HOUR, self._failures)
        for (name, most), amount in zip(self.sweep._asdict().items(), amounts, strict=True):
            if most is not None and amount >= most:
                return f"limits.sweep.{name}={most:g}"
        return None

    def is_over(self, name: str) -> bool:
        """Whether a running study has come to a limit, its own or that of the sweep."""
        most = self.study.max_device_hours
        if most is not None and name in self._running:
            hours = (time.monotonic() - self._running[name]) * self._devices.get(name, 1) / _HOUR
            if hours >= most:
                self.ended[name] = f"limits.study.max_device_hours={most:g}"
                return True
        return self.reached is not None


def of_configuration(asked: Mapping[str, Any]) -> tuple[Bounds, Bounds]:
    """The bounds of a sweep and of each study from the configuration ``limits``; BadInput for what cannot be."""
    sweep, study = Bounds(**asked["sweep"]), Bounds(**asked["study"])
    sweep.check("limits.sweep")
    study.check("limits.study")
    return sweep, study
