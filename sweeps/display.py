"""Shows the progress of a sweep (a bar on a terminal, otherwise a line every few seconds) and writes heartbeats."""

import dataclasses
import itertools
import math
import os
import sys
import time
from collections.abc import Hashable, Mapping
from types import TracebackType

from tqdm import tqdm

from harness.kinds import RUNNERS
from harness.run import COMPILING, TRAINING, RunProgress
from results import durable
from results.aliases import StringMap
from results.bad_input import printable
from results.durable import Folder
from results.plans.plan import Plan
from results.printing import say
from results.progress import FIRST_SECONDS, SECONDS
from results.storage import heartbeat
from results.storage.heartbeat import Heartbeat
from sweeps.configured_study import Studies
from sweeps.launchers.launcher import step_cost
from sweeps.study_run import StudyUpdate

BAR_SECONDS = 0.25  # interval between updates of the bar
SILENT_SECONDS = 300.0  # silence after which a study is reported
BAR_COLUMNS = 17  # width of the bar and its percentage


@dataclasses.dataclass
class StudyRun:
    """A study of a sweep and its progress.

    Attributes:
      study: plan of the study.
      trials: maximum number of trials to run.
      label: short name of the study.
      progress: last reported progress of a running study.
      has_ended: whether the study has ended.
      program: number of its program in the sweep, counted from 1 in the order in which programs start.
      silent: seconds of silence.
      beat_due: time at which the next heartbeat is due.
      has_beat: whether the study has a heartbeat.
    """

    study: Plan
    trials: int
    label: str
    progress: RunProgress | None = None
    has_ended: bool = False
    program: int | None = None
    silent: float = 0.0
    beat_due: float = 0.0
    has_beat: bool = False

    @property
    def programs(self) -> Hashable:
        """The key of the study's programs. Studies with equal keys share programs."""
        return RUNNERS[self.study.kind].programs(self.study)

    @property
    def trials_ended(self) -> int:
        """Number of trials that have ended or are not needed."""
        if self.has_ended:
            return self.trials
        return self.progress.trials_ended if self.progress else 0

    @property
    def work(self) -> float:
        """The work of all trials, if they use their whole budgets: steps times the cost of a step."""
        return self.trials * self.study.budget_steps * step_cost(self.study)

    @property
    def work_done(self) -> float:
        """The part of ``work`` that is done. Ended trials count with their whole budgets."""
        if self.has_ended:
            return self.work
        if self.progress is None:
            return 0.0
        live = sum(steps * count for steps, count in self.progress.live.items())
        steps = max(self.progress.steps, self.progress.trials_ended * self.study.budget_steps + live)
        return min(self.work, steps * step_cost(self.study))


class Display:
    """The display of a running sweep. Use it as a context manager. On exit, it removes its heartbeats.

    Args:
      store: folder of the store.
      studies: studies to run.
      trials: maximum number of trials to run, by study name.
      beats: whether to write heartbeats. Studies on a cluster write their own heartbeats.
    """

    def __init__(self, store: Folder, studies: Studies, trials: Mapping[str, int], *, beats: bool = True):
        self._store = store
        self._files = durable.system(store)
        labels = short_names({study.name: study.slug for study in studies})
        self._runs = {study.name: StudyRun(study, trials[study.name], labels[study.name]) for study in studies}
        self._programs = len({run.programs for run in self._runs.values()})
        self._begun: dict[Hashable, int] = {}  # numbers of programs
        self._writes_beats = beats
        self._began = time.monotonic()
        is_terminal = sys.stderr.isatty()
        self._due = self._began + (0.0 if is_terminal else FIRST_SECONDS)
        layout = "{percentage:3.0f}%|{bar}| {desc}"
        self._bar = tqdm(
            desc="starting workers", total=1.0, bar_format=layout, dynamic_ncols=True, disable=not is_terminal
        )

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in self._runs.values():
            self._remove_beat(run)
        self._bar.close()

    @property
    def _running(self) -> list[StudyRun]:
        return [run for run in self._runs.values() if run.progress is not None]

    def hear(self, update: StudyUpdate) -> None:
        """Handles an update and shows it."""
        now = time.monotonic()
        run = self._runs[update.study.name]
        earlier, run.silent = run.silent, update.silent or 0.0
        if update.silent is not None:
            if earlier < SILENT_SECONDS <= update.silent:
                self._write(
                    f"{update.study.name}: no sign of life for {SILENT_SECONDS / 60:.0f} minutes. "
                    "Set launcher.silence_seconds=… to end and retry such studies."
                )
        elif update.progress is None:
            run.progress = None
            run.has_ended = update.outcome is not None
            self._remove_beat(run)
            if update.outcome and update.outcome.failure:
                ended = f"[{self._studies_ended()}/{len(self._runs)}]"
                self._write(f"{ended} {update.study.name}: failed: {update.outcome.failure}")
        else:
            if run.progress is None or (self._files.is_local and run.progress.doing != update.progress.doing):
                # In a bucket, each heartbeat is a request that costs money.
                run.beat_due = now if self._files.is_local else now + self._files.heartbeat_seconds
            run.progress = update.progress
            if update.progress.doing == COMPILING:
                run.program = self._begun.setdefault(run.programs, len(self._begun) + 1)
        if update.outcome is not None and not self._bar.disable:
            self._due = now
        self.show()

    def show(self) -> None:
        """Shows pending updates. Call it at least every second."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + (SECONDS if self._bar.disable else BAR_SECONDS)
            if self._bar.disable:
                say(f"{_time()} {self._text(both=True)}")
            else:
                columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
                self._bar.n = self._share_done()
                self._bar.set_description_str(cut(self._text(), columns - BAR_COLUMNS))
        for run in self._running if self._writes_beats else ():
            if now >= run.beat_due:
                run.beat_due = now + self._files.heartbeat_seconds
                run.has_beat = True
                heartbeat.write(self._store / run.study.name, _heartbeat(run))

    def _remove_beat(self, run: StudyRun) -> None:
        if run.has_beat:
            run.has_beat = False
            heartbeat.remove(self._store / run.study.name)

    def _write(self, line: str) -> None:
        """Writes a line above the bar, or with the time of day if there is no bar."""
        self._bar.write(printable(f"{_time()} {line}" if self._bar.disable else line), file=sys.stderr)

    def _studies_ended(self) -> int:
        return sum(run.has_ended for run in self._runs.values())

    def _share_done(self) -> float:
        work = sum(run.work for run in self._runs.values())
        return sum(run.work_done for run in self._runs.values()) / work if work else 1.0

    def _text(self, *, both: bool = False) -> str:
        runs = self._runs.values()
        counts = [f"{self._studies_ended()}/{len(runs)} studies"] if both or len(runs) > 1 else []
        if both or not counts:
            ended, trials = sum(run.trials_ended for run in runs), sum(run.trials for run in runs)
            counts.append(f"{ended:,}/{trials:,} trials")
        share = self._share_done()
        if share and self._running:
            seconds = (time.monotonic() - self._began) * (1 - share) / share
            counts.append(f"{clock(seconds)} left")
        running = ", ".join(self._activity(run) for run in self._running)
        return ", ".join(counts) + (f": {running}" if running else "")

    def _activity(self, run: StudyRun) -> str:
        assert run.progress is not None
        if run.progress.doing == COMPILING:
            return f"compiling {run.label} (program {run.program} of {self._programs})"
        return run.label if run.progress.doing == TRAINING else f"{run.progress.doing} {run.label}"


def _heartbeat(run: StudyRun) -> Heartbeat:
    progress = run.progress
    assert progress is not None
    rate = progress.steps / progress.seconds if progress.seconds else 0.0
    ended = progress.trials_ended
    return Heartbeat(progress.doing, run.trials, ended, progress.steps, rate, run.silent)


def _time() -> str:
    return time.strftime("%H:%M:%S")


def short_names(slugs: StringMap) -> dict[str, str]:
    """Returns slugs without the leading words that all of them share, by the same keys."""
    words = {name: slug.split("-") for name, slug in slugs.items()}
    columns = list(zip(*words.values(), strict=False))
    shared = sum(itertools.accumulate((len(set(column)) == 1 for column in columns), min)) if len(words) > 1 else 0
    return {name: " ".join(parts[min(shared, len(parts) - 1) :]) for name, parts in words.items()}


def clock(seconds: float) -> str:
    """Formats a duration as 0:42, 1:23 or 2:03:00."""
    total = math.ceil(seconds)
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


def cut(text: str, width: int) -> str:
    """Truncates a text to a width and marks the truncation with …."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
