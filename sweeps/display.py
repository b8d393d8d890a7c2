"""Display: how a sweep gets on, as one bar on a terminal, elsewhere as a line every few seconds; and its heartbeats."""

import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from harness.run import COMPILING, TRAINING
from results.bad_input import printable
from results.cli import say
from results.plans.kinds import KINDS
from results.progress import FIRST_SECONDS, SECONDS
from results.storage import heartbeat
from results.storage.heartbeat import Heartbeat
from sweeps.forecast import Forecast, StudyRun, TimeLeft
from sweeps.notify import FAILURE, STALL
from sweeps.run import StudyUpdate

BAR_SECONDS = 0.25  # between two pictures of the bar
FORECAST_SECONDS = 1.0  # between forecasts, which take a while in large sweeps
SILENT_SECONDS = 300.0  # without a sign of life, after which a line tells of it
BAR_COLUMNS = 17  # of a line: the bar, its share and what is around them


def _nobody(event: str, line: str, **more: str) -> None:
    """Tells nobody of an event."""


class Display:
    """The display of a running sweep; a context that removes its heartbeats when it ends.

    Args:
      store: folder of the store.
      forecast: of the sweep, which this keeps up to date.
      beats: whether it writes heartbeats; not for studies that run elsewhere, and have their own.
      tell: told of studies that fail or stall, as ``notify.Hook.tell`` is.
    """

    def __init__(
        self,
        store: Path,
        forecast: Forecast,
        *,
        beats: bool = True,
        tell: Callable[..., None] = _nobody,
    ):
        from tqdm import tqdm

        self._store, self._forecast, self._tell = store, forecast, tell
        self._names = short_names({run.study.name: run.study.slug for run in forecast.waiting})
        self._left: TimeLeft | None = None
        self._writes_beats = beats
        self._began = self._forecast_at = time.monotonic()
        self._line_due = self._began + FIRST_SECONDS
        self._bar_due = 0.0
        self._beats: dict[str, float] = {}  # when the heartbeat of a study is due
        self._doing: dict[str, str] = {}  # what a study did when it was last heard of
        self._silent: dict[str, float] = {}  # since how many seconds it gave no sign of life
        layout, silent = "{percentage:3.0f}%|{bar}| {desc}", not sys.stderr.isatty()
        self._bar = tqdm(desc="starting workers", total=1.0, bar_format=layout, dynamic_ncols=True, disable=silent)

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in self._beats:
            heartbeat.remove(self._store / name)
        self._bar.close()

    def hear(self, update: StudyUpdate) -> None:
        """Takes in an update and shows it."""
        now, name = time.monotonic(), update.study.name
        before = self._silent.pop(name, 0.0)
        if update.silent is not None:
            self._silent[name] = update.silent
            if before < SILENT_SECONDS <= update.silent:
                since = f"no sign of life for {SILENT_SECONDS / 60:.0f} minutes"
                line = f"{name}: {since}; launcher.silence_seconds=… would end it and try again"
                self._write(line)
                self._tell(STALL, line, study=name)
            self.show()
            return
        if update.outcome is None:
            if update.progress is not None and update.progress.doing != self._doing.get(name):
                self._doing[name], self._beats[name] = update.progress.doing, now
            self._forecast.hear(update.study, update.progress, now)
        else:
            self._forecast.end(update.study, now)
            if update.outcome.failure:
                line = f"[{self._forecast.ended}/{self._forecast.studies}] {name}: failed: {update.outcome.failure}"
                self._write(line)
                self._tell(FAILURE, line, study=name)
        if update.progress is None and self._beats.pop(name, None) is not None:
            heartbeat.remove(self._store / name)
        self.show(changed=update.outcome is not None)

    def show(self, *, changed: bool = False) -> None:
        """Shows what is due; for at least every second."""
        now = time.monotonic()
        if now >= self._forecast_at:
            self._left, self._forecast_at = self._forecast.left(now), now + FORECAST_SECONDS
        if not self._bar.disable and (changed or now >= self._bar_due):
            self._bar_due = now + BAR_SECONDS
            self._draw(now)
        elif self._bar.disable and now >= self._line_due:
            self._line_due = now + SECONDS
            say(f"{_time()} {self._text(now, both=True)}")
        for run in self._forecast.running if self._writes_beats else ():
            if now >= self._beats.get(run.study.name, 0.0):
                self._beats[run.study.name] = now + heartbeat.SECONDS
                heartbeat.write(self._store / run.study.name, self._heartbeat(run, now))

    def _write(self, line: str) -> None:
        """Writes a line that stays: above the bar, or with the time of day where there is none."""
        self._bar.write(printable(f"{_time()} {line}" if self._bar.disable else line), file=sys.stderr)

    def _draw(self, now: float) -> None:
        seconds, done = self._seconds_left(now), now - self._began
        whole = self._forecast.ended == self._forecast.studies
        self._bar.n = 1.0 if whole else 0.0 if seconds is None else done / (done + seconds + 1e-9)
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        self._bar.set_description_str(cut(self._text(now), columns - BAR_COLUMNS))

    def _seconds_left(self, now: float) -> float | None:
        """As last forecast, less what has passed since."""
        return self._left and max(0.0, self._left.seconds - (now + FORECAST_SECONDS - self._forecast_at))

    def _text(self, now: float, *, both: bool = False) -> str:
        forecast = self._forecast
        counts = [f"{forecast.ended}/{forecast.studies} studies"] if both or forecast.studies > 1 else []
        if both or not counts:
            counts.append(f"{forecast.trials_ended:,}/{forecast.trials:,} trials")
        seconds = self._seconds_left(now)
        if seconds is not None and self._left is not None and forecast.running:
            counts.append(f"{'over ' if self._left.at_least else ''}{clock(seconds)} left")
        running = ", ".join(self._activity(run) for run in forecast.running)
        return ", ".join(counts) + (f": {running}" if running else "")

    def _activity(self, run: StudyRun) -> str:
        name = self._names[run.study.name]
        assert run.progress is not None
        if run.progress.doing == COMPILING:
            return f"compiling {name} (program {run.program} of {self._forecast.programs})"
        return name if run.progress.doing == TRAINING else f"{run.progress.doing} {name}"

    def _heartbeat(self, run: StudyRun, now: float) -> Heartbeat:
        progress, seconds = run.progress, self._seconds_left(now)
        assert progress is not None
        rate = progress.steps / progress.seconds if progress.seconds else 0.0
        ends = None if seconds is None else time.time() + seconds
        unit = KINDS[run.study.kind].unit
        silent = self._silent.get(run.study.name, 0.0)
        return Heartbeat(progress.doing, run.trials, progress.trials_ended, unit, progress.steps, rate, ends, silent)


def _time() -> str:
    return time.strftime("%H:%M:%S")


def short_names(slugs: Mapping[str, str]) -> dict[str, str]:
    """The slugs of studies without the words that all of them begin with, by the same keys."""
    words = {name: slug.split("-") for name, slug in slugs.items()}
    columns = list(zip(*words.values(), strict=False))
    shared = sum(itertools.accumulate((len(set(column)) == 1 for column in columns), min)) if len(words) > 1 else 0
    return {name: " ".join(each[min(shared, len(each) - 1) :]) for name, each in words.items()}


def clock(seconds: float) -> str:
    """A duration as 0:42, 1:23 or 2:03:00."""
    whole = math.ceil(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def cut(text: str, width: int) -> str:
    """The beginning of a text, at most so many characters wide, with … where something is left out."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
