"""Tracks the progress of a sweep and estimates the time left.

The remaining time of a study is the sum of the times for compilation, steps and evaluations. The number and duration of
steps are estimated from all trials of the sweep so far (``sweeps.costs.speeds``). This module does not read the clock.
"""

import collections
import copy
import functools
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from harness.kinds import RUNNERS
from harness.run import COMPILING, STARTING, TRAINING, RunProgress
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from sweeps.configured_study import Studies
from sweeps.costs.speeds import LifeTable, Pace, RemainingWork, Speeds, pace

_WAITING = RunProgress()  # progress of a waiting study


class TimeLeft(NamedTuple):
    """The remaining seconds of a sweep. ``at_least`` is True if some kind of study has not been measured yet."""

    seconds: float
    at_least: bool


class _Recent:
    """A weighted mean of seconds. Each value has half the weight of the next value.

    Recent values count more, because the first runs are slower and the load on a machine changes.
    """

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, seconds: float) -> None:
        """Adds the latest value."""
        self.value = (self.value + seconds) / 2 if self.value else seconds


class StudyRun:
    """A study of a sweep and its progress.

    Attributes:
      study: plan of the study.
      trials: maximum number of trials to run.
      progress: last reported progress, or None while the study waits.
      since: start of the current activity, in seconds of the caller's clock.
      heard: time of the last report, in seconds of the same clock.
      program: number of its program in the sweep, counted from 1 in the order in which programs start, or None before
        it starts.
      builds: whether this study is the first in the sweep to build the program.
    """

    def __init__(self, study: Plan, trials: int):
        self.study = study
        self.trials = trials
        self.pace = pace(study)
        self.progress: RunProgress | None = None
        self.since = self.heard = 0.0
        self.program: int | None = None
        self.builds = False

    @functools.cached_property
    def programs(self) -> Hashable:
        """The key of the study's programs. Studies with equal keys share programs."""
        return RUNNERS[self.study.kind].programs(self.study)


class Forecast:
    """The progress of a sweep and its remaining work.

    Args:
      studies: studies to run.
      trials: maximum number of trials to run, by study name.
      workers: number of processes that run studies in parallel.
      limit: time limit of a study in seconds of training and evaluation, or None for no limit.
      elsewhere: whether studies run on a cluster. If so, each study starts a separate process, and the number of
        parallel studies is estimated as the maximum observed so far.

    Attributes:
      studies, trials: total number of studies and of trials.
      ended: number of ended studies.
    """

    def __init__(
        self,
        studies: Studies,
        trials: Mapping[str, int],
        workers: int,
        limit: float | None = None,
        *,
        elsewhere: bool = False,
    ):
        runs = [StudyRun(study, trials[study.name]) for study in studies]
        self.studies = len(runs)
        self.trials = sum(run.trials for run in runs)
        self.ended = 0
        self._workers = workers
        self._limit = limit
        self._elsewhere = elsewhere
        self._most_at_once = 1
        self._waiting = {run.study.name: run for run in runs}
        self._running: dict[str, StudyRun] = {}
        self._trials_ended = 0
        self._begun: dict[Hashable, int] = {}  # numbers of programs
        self._life = LifeTable()  # of ended studies
        self._speeds = Speeds()  # of ended studies
        self._starts: dict[str, _Recent] = collections.defaultdict(_Recent)  # by kind
        # By kind and by whether the program is new.
        self._compilations: dict[tuple[str, bool], _Recent] = collections.defaultdict(_Recent)
        self._ends = _Recent()  # time between the last report and the end of a study

    @functools.cached_property
    def programs(self) -> int:
        """Number of distinct programs of all studies."""
        return len(self._begun.keys() | {run.programs for run in self.running + self.waiting})

    @property
    def waiting(self) -> list[StudyRun]:
        """Studies that have not started."""
        return list(self._waiting.values())

    @property
    def running(self) -> list[StudyRun]:
        """Running studies, in the order in which they started."""
        return list(self._running.values())

    @property
    def trials_ended(self) -> int:
        """Number of trials of all studies that have ended or are no longer needed."""
        return self._trials_ended + sum(_progress(run).trials_ended for run in self._running.values())

    def hear(self, study: Plan, progress: RunProgress | None, now: float) -> None:
        """Handles the progress of a study at ``now``. None means that its process died and the study waits again."""
        if progress is None:
            run = self._waiting[study.name] = self._running.pop(study.name)
            run.progress = None
            return
        run = self._running.get(study.name) or self._waiting[study.name]
        if run.progress is None:
            self._running[study.name] = self._waiting.pop(study.name)
            self._most_at_once = max(self._most_at_once, len(self._running))
            run.since = now
        elif progress.doing != run.progress.doing:
            self._passed(run, run.progress.doing, now - run.since)
            run.since = now
        if progress.doing == COMPILING and run.program is None:
            run.builds = run.programs not in self._begun
            run.program = self._begun.setdefault(run.programs, len(self._begun) + 1)
        run.progress = progress
        run.heard = now

    def end(self, study: Plan, now: float) -> None:
        """Handles the end of a study."""
        run = self._running.pop(study.name, None) or self._waiting.pop(study.name)
        self.ended += 1
        self._trials_ended += run.trials  # trials that did not run are not needed
        if run.progress is not None and run.progress.doing == TRAINING:
            self._life.add(study.budget_steps, run.progress)
            self._speeds.add(run.pace, run.progress)
            self._ends.add(now - run.heard)

    def left(self, now: float) -> TimeLeft | None:
        """Returns the time left, or None as long as no speed has been measured."""
        work = self._work()
        begun = set(self._begun)
        known = []
        unknown = 0
        for run in self.running + self.waiting:
            seconds = work(run)
            if seconds is None:
                unknown += 1
            else:
                known.append((run, self._still(run, seconds, run.programs not in begun, now)))
                begun.add(run.programs)
        if not known:
            return None
        together = [seconds for run, seconds in known if not KINDS[run.study.kind].alone]
        alone = sum(seconds for run, seconds in known if KINDS[run.study.kind].alone)
        workers = min(self._workers, self._most_at_once) if self._elsewhere else self._workers
        shared = max(sum(together) / workers, *together) if together else 0.0
        return TimeLeft(shared + alone, unknown > 0)

    def _work(self) -> Callable[[StudyRun], float | None]:
        """Returns a function that estimates the remaining seconds of a study's trials (None if speeds are unknown)."""
        life = copy.deepcopy(self._life)
        speeds = copy.deepcopy(self._speeds)
        for run in self._running.values():
            life.add(run.study.budget_steps, _progress(run))
            speeds.add(run.pace, _progress(run))
        rest = functools.cache(lambda grid: RemainingWork(grid, life))

        def work(pace: Pace, trials: int, progress: RunProgress = _WAITING) -> float | None:
            speed = speeds.of(pace)
            if speed is None:
                return None
            fresh = max(0, trials - progress.trials_ended - sum(progress.live.values()))
            seconds = 0.0
            for taken, count in ((0, fresh), *progress.live.items()):
                steps, evaluations = rest(pace.grid).after(taken)
                seconds += count * (steps * speed[0] + evaluations * speed[1])
            return seconds if self._limit is None else min(seconds, max(0.0, self._limit - progress.seconds))

        waiting = functools.cache(work)
        return lambda run: work(run.pace, run.trials, run.progress) if run.progress else waiting(run.pace, run.trials)

    def _still(self, run: StudyRun, seconds: float, builds: bool, now: float) -> float:
        """Returns the remaining seconds of a study, including start-up, compilation and storage.

        If an activity is overdue, its remaining time is assumed to equal the delay so far.
        """
        doing = _progress(run).doing
        kind = run.study.kind
        spent = now - run.heard if run.progress else 0.0
        if doing == TRAINING:
            return abs(seconds - spent) + self._ends.value
        compiling = self._compilations[kind, run.builds if doing == COMPILING else builds].value
        if doing == COMPILING:
            return abs(compiling - spent) + seconds + self._ends.value
        # Processes that run several studies start only once.
        starting = self._starts[kind].value if KINDS[kind].alone or self._elsewhere else 0.0
        return abs(starting - spent) + compiling + seconds + self._ends.value

    def _passed(self, run: StudyRun, doing: str, seconds: float) -> None:
        """Adds the time that a study needed to start or to compile."""
        if doing == STARTING:
            self._starts[run.study.kind].add(seconds)
        elif doing == COMPILING:
            self._compilations[run.study.kind, run.builds].add(seconds)


def _progress(run: StudyRun) -> RunProgress:
    return run.progress or _WAITING
