"""The trial scheduler: which trial runs next, and which may stop. Touches no device array."""

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from results.plans.batch_study import BatchStudy
from results.plans.study import Target, Trial

# Of a target: the fewest steps any trial took to it, and that trial's id (the smaller id wins a tie).
BestSteps = Mapping[Target, tuple[int, int]]


@dataclasses.dataclass
class Live:
    """A trial in its lane: the steps it has taken, and how many evaluations it has had."""

    trial: Trial
    lane: int
    step: int = 0
    evaluated: int = 0
    unreached: tuple[Target, ...] = ()


class Saved(NamedTuple):
    """A trial that goes on where it was: the steps it had taken, and its metrics (float32[]) by evaluation."""

    step: int
    evaluations: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended: its status, the reason if INCOMPLETE, and the steps taken at its last evaluation."""

    status: str
    reason: str | None
    steps: int


class TrialScheduler:
    """Feeds a study's trials into lanes, and ends each as soon as it is settled.

    Without pruning every live trial goes on to its next evaluation. Exact pruning: always the least advanced ones, and
    a trial ends once no target is left that it could still be the first to reach; ties go to the smaller id. What is
    pruned could not have changed an answer, so answers do not depend on pruning, on lanes or on order. What confirms
    the best trials comes after all others have ended, and is never pruned.

    Args:
      study: the plan.
      trials: in the order they are to start.
      lanes: numbers of the lanes, in the order they are to be filled.
      best: answers to prune against from the start.
    """

    def __init__(self, study: BatchStudy, trials: Sequence[Trial], lanes: Sequence[int], best: BestSteps):
        self.grid = study.evaluations
        self.trials = {trial.id: trial for trial in trials}
        self.outcomes: dict[int, TrialOutcome] = {}
        self.ended: Counter[int] = Counter()  # trials by the steps they had taken when they ended
        self._study = study
        self._queue = deque(trials)
        self._idle = list(lanes)[::-1]
        self._live: list[Live] = []
        self._best = dict(best)
        self._prunes = study.pruning == "exact"
        self._resumed: dict[int, Live] = {}

    def resume(self, trials: Iterable[Trial], saved: Mapping[int, Saved]) -> None:
        """Has those trials that were saved go on where they were, before any other starts.

        What they have reached counts at once: another trial is pruned against it.
        """
        for trial in trials:
            if trial.id in saved:
                live = self._resumed[trial.id] = Live(trial, -1, unreached=self._study.targets)
                for measured in saved[trial.id].evaluations:
                    self._take_in(live, measured)
                live.step = saved[trial.id].step

    def rounds(self, confirming: Callable[[], Sequence[Trial]] = lambda: ()) -> Iterator[list[Live]]:
        """The trials to advance to their next evaluation, time after time until all are settled.

        Args:
          confirming: called each time all trials have ended; returns further trials to run, which are never pruned.
        """
        yield from iter(self.next, [])
        self._prunes = False
        while further := [trial for trial in confirming() if trial.id not in self.outcomes]:
            self._queue.extend(further)
            self.trials |= {trial.id: trial for trial in further}
            yield from iter(self.next, [])

    def next(self) -> list[Live]:
        """The trials to advance to their next evaluation now; empty when all are settled."""
        while self._idle and self._queue:
            live = self._first()
            live.lane = self._idle.pop()
            self._live.append(live)
        if not self._prunes:
            return list(self._live)
        least = min((live.evaluated for live in self._live), default=0)
        return [live for live in self._live if live.evaluated == least]

    def _first(self) -> Live:
        """Takes the trial that is to start next from the queue: one that goes on, if there is any."""
        if not self._resumed:
            return Live(self._queue.popleft(), -1, unreached=self._study.targets)
        live = self._resumed.pop(next(iter(self._resumed)))
        self._queue.remove(live.trial)
        return live

    def stop(self, live: Live) -> int:
        """Steps the trial will have taken at its next evaluation."""
        return int(self.grid[live.evaluated])

    @property
    def live(self) -> list[Live]:
        """The trials in lanes."""
        return list(self._live)

    def record(self, live: Live, measured: Mapping[str, np.ndarray], finite: bool) -> None:
        """Takes in the evaluation a trial was advanced to: its metrics (float32[] by name) and whether it is finite."""
        self._take_in(live, measured)
        if not finite:
            self._end(live, "INFEASIBLE")
        elif (self._study.ends_at and not live.unreached) or live.step == self._study.budget_steps:
            self._end(live, "COMPLETE")

    def _take_in(self, live: Live, measured: Mapping[str, Any]) -> None:
        steps = live.step = self.stop(live)
        live.evaluated += 1
        reached = [t for t in live.unreached if bool(t.reached(measured[t.metric]))]
        live.unreached = tuple(t for t in live.unreached if t not in reached)
        for target in reached:
            self._best[target] = min(self._best.get(target, (steps, live.trial.id)), (steps, live.trial.id))

    def prune(self) -> None:
        """Ends the trials that can no longer be the first to reach any target; for after a round of ``record``."""
        if not self._prunes:
            return
        for live in list(self._live):
            earliest = (self.stop(live), live.trial.id)
            if all(t in self._best and earliest > self._best[t] for t in live.unreached):
                self._end(live, "INCOMPLETE", "pruned")

    def give_up(self, reason: str) -> None:
        """Ends every trial that is not settled as INCOMPLETE."""
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
