"""Forecast: what a sweep has done, and when it will have ended.

The seconds left of a study are those of its compilation, of its steps and of its evaluations. How many steps trials
take and how long a step takes is estimated from all trials of the sweep so far (``sweeps.speeds``). Reads no clock.
"""

import collections
import copy
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from harness.run import COMPILING, STARTING, TRAINING, RunProgress
from harness.runners import RUNNERS
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from sweeps.speeds import LifeTable, Pace, RemainingWork, Speeds, pace

_WAITING = RunProgress()  # as good as the progress of a study that waits


class TimeLeft(NamedTuple):
    """The seconds that a sweep will go on for; ``at_least`` if nothing was measured yet of some kind in it."""

    seconds: float
    at_least: bool


class _Recent:
    """A mean of seconds, in which each counts half as much as the one after it.

    What a process does first takes longest, and the load of a machine changes.
    """

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, seconds: float) -> None:
        """Takes in the latest."""
        self.value = (self.value + seconds) / 2 if self.value else seconds


class StudyRun:
    """A study of the sweep, and how far it has come.

    Attributes:
      study: its plan.
      trials: to be run, at most.
      progress: as last reported; None while it waits.
      since: seconds by the caller's clock, when it began to do what it does.
      heard: likewise, when it last reported.
      program: the number of its program among those of the sweep, from 1 in the order they were begun; None before.
      builds: whether it is the first of the sweep to build this program.
    """

    def __init__(self, study: Plan, trials: int):
        self.study, self.trials = study, trials
        self.pace = pace(study)
        self.progress: RunProgress | None = None
        self.since = self.heard = 0.0
        self.program: int | None = None
        self.builds = False

    @functools.cached_property
    def programs(self) -> Hashable:
        """The key of its programs."""
        return RUNNERS[self.study.kind].programs(self.study)


class Forecast:
    """What a sweep has done and still has to do.

    Args:
      studies: to be run.
      trials: how many of each are to be run, at most, by name.
      workers: processes that run studies side by side.
      limit: seconds of training and evaluating after which a study ends; None is no limit.
      elsewhere: whether studies run on a cluster. Each then starts a process of its own, and no more are taken to run
        side by side than have done so by now.

    Attributes:
      studies, trials: how many there are of them.
      ended: studies that have ended.
    """

    def __init__(
        self,
        studies: Sequence[Plan],
        trials: Mapping[str, int],
        workers: int,
        limit: float | None = None,
        *,
        elsewhere: bool = False,
    ):
        runs = [StudyRun(study, trials[study.name]) for study in studies]
        self.studies, self.trials, self.ended = len(runs), sum(run.trials for run in runs), 0
        self._workers, self._limit, self._elsewhere = workers, limit, elsewhere
        self._most_at_once = 1
        self._waiting = {run.study.name: run for run in runs}
        self._running: dict[str, StudyRun] = {}
        self._trials_ended = 0
        self._begun: dict[Hashable, int] = {}  # programs, by their numbers
        self._life, self._speeds = LifeTable(), Speeds()  # of studies that have ended
        self._starts: dict[str, _Recent] = collections.defaultdict(_Recent)  # by kind
        self._compilations: dict[tuple[str, bool], _Recent] = collections.defaultdict(
            _Recent
        )  # by kind, and whether first
        self._ends = _Recent()  # of the time between the last report and the end

    @functools.cached_property
    def programs(self) -> int:
        """How many programs there are of all studies."""
        runs = [*self._running.values(), *self._waiting.values()]
        return len(self._begun.keys() | {run.programs for run in runs})

    @property
    def waiting(self) -> list[StudyRun]:
        """The studies that have not been started."""
        return list(self._waiting.values())

    @property
    def running(self) -> list[StudyRun]:
        """The studies that run, in the order they were started."""
        return list(self._running.values())

    @property
    def trials_ended(self) -> int:
        """Trials that ended, or need not be run any more, of all studies."""
        return self._trials_ended + sum(_progress(run).trials_ended for run in self._running.values())

    def hear(self, study: Plan, progress: RunProgress | None, now: float) -> None:
        """Takes in how far a study has come by ``now``; None: it waits again, as its process died."""
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
        run.progress, run.heard = progress, now

    def end(self, study: Plan, now: float) -> None:
        """Takes in that a study has ended."""
        run = self._running.pop(study.name, None) or self._waiting.pop(study.name)
        self.ended += 1
        self._trials_ended += run.trials  # those that were not run need not be
        if run.progress is not None and run.progress.doing == TRAINING:
            self._life.add(study.budget_steps, run.progress)
            self._speeds.add(run.pace, run.progress)
            self._ends.add(now - run.heard)

    def left(self, now: float) -> TimeLeft | None:
        """The time left; None as long as no speed was measured."""
        work = self._work()
        begun = set(self._begun)
        known, unknown = [], 0
        for run in [*self._running.values(), *self._waiting.values()]:
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
        """A function that gives the seconds which the trials of a study will take; None where no speed is known."""
        life, speeds = copy.deepcopy(self._life), copy.deepcopy(self._speeds)
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
        """The seconds of a study from now, with those of starting, compiling and storing.

        What has taken longer than expected is expected to go on for as long as it is late.
        """
        doing, kind = _progress(run).doing, run.study.kind
        spent = now - run.heard if run.progress else 0.0
        if doing == TRAINING:
            return abs(seconds - spent) + self._ends.value
        compiling = self._compilations[kind, run.builds if doing == COMPILING else builds].value
        if doing == COMPILING:
            return abs(compiling - spent) + seconds + self._ends.value
        # Processes that run several studies were started at the beginning.
        starting = self._starts[kind].value if KINDS[kind].alone or self._elsewhere else 0.0
        return abs(starting - spent) + compiling + seconds + self._ends.value

    def _passed(self, run: StudyRun, doing: str, seconds: float) -> None:
        """Takes in how long a study took to start, or to compile."""
        if doing == STARTING:
            self._starts[run.study.kind].add(seconds)
        elif doing == COMPILING:
            self._compilations[run.study.kind, run.builds].add(seconds)


def _progress(run: StudyRun) -> RunProgress:
    return run.progress or _WAITING
