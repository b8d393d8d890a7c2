"""The trial scheduler decides which trial runs next and which may stop. It does not access device arrays."""

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from results.aliases import Fields
from results.plans.batch_study import BatchStudy
from results.plans.study import Target, Trial

# For each target, the fewest steps in which any trial reached it, and that trial's id. The smaller id wins ties.
BestSteps = Mapping[Target, tuple[int, int]]


@dataclasses.dataclass
class Live:
    """A trial in a lane, with the number of its steps and evaluations so far."""

    trial: Trial
    lane: int
    step: int = 0
    evaluated: int = 0
    unreached: tuple[Target, ...] = ()


class Saved(NamedTuple):
    """The saved state of a trial: number of steps, and metrics (float32[]) by evaluation."""

    step: int
    evaluations: Sequence[Fields]


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """The outcome of a trial: its status, the reason if INCOMPLETE, and the steps taken at its last evaluation."""

    status: str
    reason: str | None
    steps: int


Outcomes = Mapping[int, TrialOutcome]


class TrialScheduler:
    """Assigns a study's trials to lanes, and ends each as soon as its outcome is settled.

    Without pruning, every live trial advances to its next evaluation. Exact pruning always advances the trials with the
    fewest steps, and ends a trial once it can no longer be the first to reach any remaining target. In a tie, the trial
    with the smaller id is first. A pruned trial could not have changed a result, so results do not depend on pruning,
    lanes or order. Trials that confirm the best trials run after all others have ended, and are never pruned.

    Args:
      study: plan of the study.
      trials: trials in the order in which they start.
      lanes: lane numbers, in the order in which they are filled.
      best: results of earlier trials, which trials are pruned against from the start.
    """

    def __init__(self, study: BatchStudy, trials: Sequence[Trial], lanes: Sequence[int], best: BestSteps):
        self.grid = study.evaluations
        self.trials = {trial.id: trial for trial in trials}
        self.outcomes: dict[int, TrialOutcome] = {}
        self.ended: Counter[int] = Counter()  # number of ended trials by steps taken
        self._study = study
        self._queue = deque(trials)
        self._idle = list(lanes)[::-1]
        self._live: list[Live] = []
        self._best = dict(best)
        self._prunes = study.pruning == "exact"
        self._resumed: dict[int, Live] = {}

    def resume(self, trials: Iterable[Trial], saved: Mapping[int, Saved]) -> None:
        """Resumes saved trials before any other trial starts.

        The targets that these trials have already reached count immediately, so other trials are pruned against them.
        """
        for trial in trials:
            if trial.id in saved:
                live = self._resumed[trial.id] = Live(trial, -1, unreached=self._study.targets)
                for measured in saved[trial.id].evaluations:
                    self._take_in(live, measured)
                live.step = saved[trial.id].step

    def rounds(self, confirming: Callable[[], Sequence[Trial]] = lambda: ()) -> Iterator[list[Live]]:
        """Yields, round by round, the trials to advance to their next evaluation.

        Args:
          confirming: called each time all trials have ended. Returns additional trials, which are never pruned.
        """
        yield from iter(self.next, [])
        self._prunes = False
        while repeats := [trial for trial in confirming() if trial.id not in self.outcomes]:
            self._queue.extend(repeats)
            self.trials |= {trial.id: trial for trial in repeats}
            yield from iter(self.next, [])

    def next(self) -> list[Live]:
        """Returns the trials to advance to their next evaluation, or an empty list once all trials are settled."""
        while self._idle and self._queue:
            live = self._first()
            live.lane = self._idle.pop()
            self._live.append(live)
        if not self._prunes:
            return list(self._live)
        reached = min((live.evaluated for live in self._live), default=0)
        return [live for live in self._live if live.evaluated == reached]

    def _first(self) -> Live:
        """Takes the next trial from the queue, resumed trials first."""
        if not self._resumed:
            return Live(self._queue.popleft(), -1, unreached=self._study.targets)
        live = self._resumed.pop(next(iter(self._resumed)))
        self._queue.remove(live.trial)
        return live

    def stop(self, live: Live) -> int:
        """Returns the step of the trial's next evaluation."""
        return int(self.grid[live.evaluated])

    def stop_after(self, live: Live, step: int) -> int:
        """Returns the step of the trial's first evaluation after a step, but never beyond its last evaluation."""
        index = live.evaluated + (step == self.stop(live))
        return int(self.grid[min(index, len(self.grid) - 1)])

    @property
    def live(self) -> list[Live]:
        """Returns the trials in lanes."""
        return list(self._live)

    def record(self, live: Live, measured: Mapping[str, np.ndarray], finite: bool) -> None:
        """Records an evaluation of a trial: its metrics (float32[] by name) and whether they are finite."""
        self._take_in(live, measured)
        if not finite:
            self._end(live, "INFEASIBLE")
        elif (self._study.search.ends_at and not live.unreached) or live.step == self._study.budget_steps:
            self._end(live, "COMPLETE")

    def _take_in(self, live: Live, measured: Fields) -> None:
        steps = live.step = self.stop(live)
        live.evaluated += 1
        reached = [t for t in live.unreached if bool(t.reached(measured[t.metric]))]
        live.unreached = tuple(t for t in live.unreached if t not in reached)
        for target in reached:
            self._best[target] = min(self._best.get(target, (steps, live.trial.id)), (steps, live.trial.id))

    def prune(self) -> None:
        """Ends trials that can no longer be the first to reach any target. Call it after each round of ``record``."""
        if not self._prunes:
            return
        for live in list(self._live):
            earliest = (self.stop(live), live.trial.id)
            if all(t in self._best and earliest > self._best[t] for t in live.unreached):
                self._end(live, "INCOMPLETE", "pruned")

    def give_up(self, reason: str) -> None:
        """Ends every unsettled trial as INCOMPLETE."""
        for live in list(self._live):
            self._end(live, "INCOMPLETE", reason)
        while self._queue:
            self._settle(self._first(), "INCOMPLETE", reason)

    def _end(self, live: Live, status: str, reason: str | None = None) -> None:
        self._settle(live, status, reason)
        self._live.remove(live)
        self._idle.append(live.lane)

    def _settle(self, live: Live, status: str, reason: str | None) -> None:
        steps = int(self.grid[live.evaluated - 1]) if live.evaluated else 0
        self.outcomes[live.trial.id] = TrialOutcome(status, reason, steps)
        self.ended[steps] += 1
