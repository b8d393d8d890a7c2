"""Shows the progress of a sweep (a bar on a terminal, otherwise a line every few seconds) and writes heartbeats."""

import itertools
import math
import os
import sys
import time
from types import TracebackType

from harness.run import COMPILING, TRAINING
from results import durable
from results.aliases import StringMap
from results.bad_input import printable
from results.durable import Folder
from results.plans.kinds import KINDS
from results.printing import say
from results.progress import FIRST_SECONDS, SECONDS
from results.storage import heartbeat
from results.storage.heartbeat import Heartbeat
from sweeps.costs.forecast import Forecast, StudyRun, TimeLeft
from sweeps.run import StudyUpdate

BAR_SECONDS = 0.25  # interval between updates of the bar
FORECAST_SECONDS = 1.0  # interval between forecasts, which are slow in large sweeps
SILENT_SECONDS = 300.0  # silence after which a study is reported
BAR_COLUMNS = 17  # width of the bar and its percentage


class Display:
    """The display of a running sweep. Use it as a context manager. On exit, it removes its heartbeats.

    Args:
      store: folder of the store.
      forecast: forecast of the sweep. The display updates it.
      beats: whether to write heartbeats. Studies on a cluster write their own heartbeats.
    """

    def __init__(self, store: Folder, forecast: Forecast, *, beats: bool = True):
        from tqdm import tqdm

        self._store = store
        self._forecast = forecast
        self._names = short_names({run.study.name: run.study.slug for run in forecast.waiting})
        self._left: TimeLeft | None = None
        self._writes_beats = beats
        self._files = durable.system(store)
        self._began = self._forecast_at = time.monotonic()
        self._line_due = self._began + FIRST_SECONDS
        self._bar_due = 0.0
        self._beats: dict[str, float] = {}  # times at which heartbeats are due, by study
        self._beaten: set[str] = set()  # studies that have a heartbeat
        self._doing: dict[str, str] = {}  # last reported activity by study
        self._silent: dict[str, float] = {}  # seconds of silence by study
        layout = "{percentage:3.0f}%|{bar}| {desc}"
        silent = not sys.stderr.isatty()
        self._bar = tqdm(desc="starting workers", total=1.0, bar_format=layout, dynamic_ncols=True, disable=silent)

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in self._beaten:
            heartbeat.remove(self._store / name)
        self._bar.close()

    def hear(self, update: StudyUpdate) -> None:
        """Handles an update and shows it."""
        now = time.monotonic()
        name = update.study.name
        before = self._silent.pop(name, 0.0)
        if update.silent is not None:
            self._silent[name] = update.silent
            if before < SILENT_SECONDS <= update.silent:
                self._write(
                    f"{name}: no sign of life for {SILENT_SECONDS / 60:.0f} minutes. "
                    "Set launcher.silence_seconds=… to end and retry such studies."
                )
            self.show()
            return
        if update.outcome is None:
            if update.progress is not None and update.progress.doing != self._doing.get(name):
                self._doing[name] = update.progress.doing
                # In a bucket, each heartbeat is a request that costs money.
                due = now if self._files.is_local else now + self._files.heartbeat_seconds
                self._beats[name] = due if self._files.is_local else self._beats.get(name, due)
            self._forecast.hear(update.study, update.progress, now)
        else:
            self._forecast.end(update.study, now)
            if update.outcome.failure:
                ended = f"[{self._forecast.ended}/{self._forecast.studies}]"
                self._write(f"{ended} {name}: failed: {update.outcome.failure}")
        if update.progress is None:
            self._beats.pop(name, None)
            if name in self._beaten:
                self._beaten.remove(name)
                heartbeat.remove(self._store / name)
        self.show(changed=update.outcome is not None)

    def show(self, *, changed: bool = False) -> None:
        """Shows pending updates. Call it at least every second."""
        now = time.monotonic()
        if now >= self._forecast_at:
            self._left = self._forecast.left(now)
            self._forecast_at = now + FORECAST_SECONDS
        if not self._bar.disable and (changed or now >= self._bar_due):
            self._bar_due = now + BAR_SECONDS
            self._draw(now)
        elif self._bar.disable and now >= self._line_due:
            self._line_due = now + SECONDS
            say(f"{_time()} {self._text(now, both=True)}")
        for run in self._forecast.running if self._writes_beats else ():
            if now >= self._beats.get(run.study.name, 0.0):
                self._beats[run.study.name] = now + self._files.heartbeat_seconds
                self._beaten.add(run.study.name)
                heartbeat.write(self._store / run.study.name, self._heartbeat(run, now))

    def _write(self, line: str) -> None:
        """Writes a line above the bar, or with the time of day if there is no bar."""
        self._bar.write(printable(f"{_time()} {line}" if self._bar.disable else line), file=sys.stderr)

    def _draw(self, now: float) -> None:
        seconds = self._seconds_left(now)
        done = now - self._began
        if self._forecast.ended == self._forecast.studies:
            self._bar.n = 1.0
        else:
            self._bar.n = 0.0 if seconds is None else done / (done + seconds + 1e-9)
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        self._bar.set_description_str(cut(self._text(now), columns - BAR_COLUMNS))

    def _seconds_left(self, now: float) -> float | None:
        """Returns the last forecast minus the time that has elapsed since then."""
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
        progress = run.progress
        seconds = self._seconds_left(now)
        assert progress is not None
        rate = progress.steps / progress.seconds if progress.seconds else 0.0
        ends = None if seconds is None else time.time() + seconds
        unit = KINDS[run.study.kind].unit
        silent = self._silent.get(run.study.name, 0.0)
        return Heartbeat(progress.doing, run.trials, progress.trials_ended, unit, progress.steps, rate, ends, silent)


def _time() -> str:
    return time.strftime("%H:%M:%S")


def short_names(slugs: StringMap) -> dict[str, str]:
    """Returns slugs without the leading words that all of them share, by the same keys."""
    words = {name: slug.split("-") for name, slug in slugs.items()}
    columns = list(zip(*words.values(), strict=False))
    shared = sum(itertools.accumulate((len(set(column)) == 1 for column in columns), min)) if len(words) > 1 else 0
    return {name: " ".join(each[min(shared, len(each) - 1) :]) for name, each in words.items()}


def clock(seconds: float) -> str:
    """Formats a duration as 0:42, 1:23 or 2:03:00."""
    whole = math.ceil(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def cut(text: str, width: int) -> str:
    """Truncates a text to a width and marks the truncation with …."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
