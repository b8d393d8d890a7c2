"""Speeds and lengths of trials, as measured so far: seconds of a step, and how far trials come before they end."""

import collections
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from harness.run import RunProgress
from harness.runners import RUNNERS
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.storage.commits import Commit, read_table

SHARES = np.geomspace(1e-4, 1.0, 65)  # of a budget: the edges of the life table


class Pace(NamedTuple):
    """What decides how fast the trials of a study are: studies of one pace are as fast as each other.

    Attributes:
      family: kind, data set and model.
      along: batch size, or number of cores.
      cost: of a step, in arbitrary units that compare studies of one kind.
      grid: int64[evaluations] as bytes, the steps that trials are evaluated at.
    """

    family: tuple[str, str, str]
    along: float
    cost: float
    grid: bytes

    @property
    def kind(self) -> str:
        return self.family[0]


def pace(study: Plan) -> Pace:
    """The pace of a study."""
    grid = np.asarray(RUNNERS[study.kind].evaluations(study), np.int64).tobytes()
    along = float(getattr(study, KINDS[study.kind].along))
    return Pace((study.kind, study.dataset, study.model_label), along, step_cost(study), grid)


def step_cost(study: Plan) -> float:
    """The cost of a step of a study, in arbitrary units that compare studies of one kind.

    A step costs its examples and, as measured on a small network, about as much as 8 more.
    """
    return (study.batch_size or 0) + 8.0


class Mean:
    """A mean of seconds, weighted by counts; 0 of nothing."""

    def __init__(self) -> None:
        self.sum = self.count = 0.0

    def add(self, seconds: float, count: float = 1.0) -> None:
        """Takes in seconds that ``count`` things took."""
        self.sum += seconds
        self.count += count

    @property
    def value(self) -> float:
        return self.sum / self.count if self.count else 0.0


class Speeds:
    """Seconds of a step by pace, and of an evaluation by family, as measured.

    A step that was not measured at a batch size (or number of cores) is interpolated between those of its family that
    were; without any, it costs what those of its kind do.
    """

    def __init__(self) -> None:
        self._steps: dict[tuple, dict[float, Mean]] = {}
        self._evaluations: dict[tuple, Mean] = collections.defaultdict(Mean)
        self._costs: dict[str, Mean] = collections.defaultdict(Mean)
        self._all_evaluations: dict[str, Mean] = collections.defaultdict(Mean)

    def add(self, of: Pace, progress: RunProgress) -> None:
        """Takes in what the trials of a study took."""
        if not progress.steps:
            return
        grid = np.frombuffer(of.grid, np.int64)
        counts = collections.Counter(progress.ended) + collections.Counter(progress.live)
        evaluations = sum(n * int(np.searchsorted(grid, steps, "right")) for steps, n in counts.items())
        cost = progress.steps * of.cost
        self._steps.setdefault(of.family, {}).setdefault(of.along, Mean()).add(progress.train_seconds, cost)
        self._costs[of.kind].add(progress.train_seconds, cost)
        others = max(0.0, progress.seconds - progress.train_seconds)
        self._evaluations[of.family].add(others, evaluations)
        self._all_evaluations[of.kind].add(others, evaluations)

    def of(self, of: Pace) -> tuple[float, float] | None:
        """The seconds of a step and of an evaluation; None if nothing of that kind was measured."""
        if of.kind not in self._costs:
            return None
        by_along = {along: mean.value for along, mean in self._steps.get(of.family, {}).items()}
        a_cost = _between(by_along, of.along) if by_along else self._costs[of.kind].value
        evaluation = self._evaluations.get(of.family, self._all_evaluations[of.kind])
        return a_cost * of.cost, evaluation.value


def _between(measured: Mapping[float, float], at: float) -> float:
    """A positive function of a positive number, interpolated between logarithms; beyond them the nearest."""
    known = sorted(measured)
    logs = [math.log(max(measured[each], 1e-12)) for each in known]
    return math.exp(float(np.interp(math.log(at), np.log(known), logs)))


class LifeTable:
    """The shares of their budgets that trials came to: how many went on past each, and how many ended there.

    Trials under way count as far as they have come, so that those that end early are not taken for all. Beyond what
    any has come to, all are taken to go on.
    """

    def __init__(self) -> None:
        self._ended = np.zeros(len(SHARES))
        self._past = np.zeros(len(SHARES))

    def add(self, budget_steps: int, progress: RunProgress) -> None:
        """Takes in the trials of a study."""
        for ended, by_steps in ((1, progress.ended), (0, progress.live)):
            for steps, count in by_steps.items():
                at = int(np.searchsorted(SHARES, steps / budget_steps * (1 - 1e-9)))
                self._past[: at + 1 - ended] += count  # one under way has gone on past its last evaluation
                self._ended[at] += count * ended * (steps < budget_steps)

    def survival(self, shares: np.ndarray) -> np.ndarray:
        """The share of trials that go on past each share of the budget, above 0, of the shape of ``shares``."""
        hazards = self._ended / (self._past + self._ended + 1.0)
        return np.interp(np.log(np.maximum(shares, SHARES[0])), np.log(SHARES), np.cumprod(1.0 - hazards))


class RemainingWork:
    """Of trials evaluated on one grid: the steps and the evaluations that are still to come, as expected.

    Args:
      grid: int64[evaluations] as bytes; the last is the budget.
      life: how far trials come.
    """

    def __init__(self, grid: bytes, life: LifeTable):
        self._grid = np.frombuffer(grid, np.int64)
        alive = np.concatenate([[1.0], life.survival(self._grid[:-1] / self._grid[-1])])
        self._steps = np.cumsum((np.diff(self._grid, prepend=0) * alive)[::-1])[::-1] / alive
        self._evaluations = np.cumsum(alive[::-1])[::-1] / alive

    def after(self, steps: int) -> tuple[float, float]:
        """Steps and evaluations still to come of a trial that has taken so many steps."""
        at = int(np.searchsorted(self._grid, steps, "right"))
        if at == len(self._grid):
            return 0.0, 0.0
        return float(self._steps[at]), float(self._evaluations[at])


class Lengths:
    """How many steps and evaluations trials are expected to take, by what those of a store took."""

    def __init__(self, commits: Iterable[Commit]):
        self._commits = list(commits)

    def of(self, study: Plan) -> tuple[float, float, bool]:
        """Steps and evaluations of a trial of a study, and whether the store told them."""
        grid = RUNNERS[study.kind].evaluations(study)
        life = self._life(_family(study))
        if life is None:
            return float(study.budget_steps), float(len(grid)), False
        steps, evaluations = RemainingWork(np.asarray(grid, np.int64).tobytes(), life).after(0)
        return steps, evaluations, True

    def _life(self, family: tuple[Any, ...]) -> LifeTable | None:
        return self._tables.get(family)

    @functools.cached_property
    def _tables(self) -> dict[tuple[Any, ...], LifeTable]:
        tables: dict[tuple[Any, ...], LifeTable] = {}
        for commit in self._commits:
            rows = read_table(commit, "trials")
            reasons = rows["reason"].to_pylist()
            ended = collections.Counter(
                steps
                for steps, reason in zip(rows["steps"].to_pylist(), reasons, strict=True)
                if steps and reason in (None, "pruned")
            )
            if ended:
                table = tables.setdefault(_family(commit.study), LifeTable())
                table.add(commit.study.budget_steps, RunProgress(ended=dict(ended)))
        return tables


def _family(study: Plan) -> tuple[Any, ...]:
    """What trials have in common whose lengths, as shares of their budgets, are alike."""
    targets = tuple((target.metric, target.value) for target in study.ends_at)
    return study.kind, study.dataset, study.model_label, study.optimizer, study.pruning, targets
