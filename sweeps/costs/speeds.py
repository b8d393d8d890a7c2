"""Speeds and lengths of the trials measured so far: seconds per step, and number of steps until trials end."""

import collections
import functools
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from harness.kinds import RUNNERS
from harness.run import RunProgress
from results.plans.kinds import along
from results.plans.plan import Plan
from results.storage.commits import Commit, read_table

SHARES = np.geomspace(1e-4, 1.0, 65)  # fractions of a budget: the edges of the life table


class Pace(NamedTuple):
    """The properties of a study that determine its speed. Studies with equal properties run at the same speed.

    Attributes:
      family: kind, data set and model.
      along: batch size or number of cores.
      cost: cost of a step, in units that are comparable within a kind.
      grid: int64[evaluations] as bytes, the steps at which trials are evaluated.
    """

    family: tuple[str, str, str]
    along: float
    cost: float
    grid: bytes

    @property
    def kind(self) -> str:
        return self.family[0]


def pace(study: Plan) -> Pace:
    """Returns the pace of a study."""
    grid = np.asarray(RUNNERS[study.kind].evaluations(study), np.int64).tobytes()
    return Pace((study.kind, study.labels.dataset, study.labels.model), float(along(study)), step_cost(study), grid)


def step_cost(study: Plan) -> float:
    """Returns the cost of a step of a study, in units that are comparable within a kind.

    The cost is the number of examples plus 8, a constant that was measured on a small network.
    """
    return RUNNERS[study.kind].examples(study) + 8.0


class Mean:
    """A mean of seconds, weighted by counts. It is 0 if there are no values."""

    def __init__(self) -> None:
        self.sum = self.count = 0.0

    def add(self, seconds: float, count: float = 1.0) -> None:
        """Adds the seconds of ``count`` items."""
        self.sum += seconds
        self.count += count

    @property
    def value(self) -> float:
        return self.sum / self.count if self.count else 0.0


class Speeds:
    """Measured seconds per step for each pace, and seconds per evaluation for each family.

    The seconds for batch sizes (or numbers of cores) that have not been measured are interpolated between measured ones
    of the same family. If the family has not been measured, the mean of its kind is used.
    """

    def __init__(self) -> None:
        self._steps: dict[tuple, dict[float, Mean]] = {}
        self._evaluations: dict[Hashable, Mean] = collections.defaultdict(Mean)  # by family, and by kind
        self._costs: dict[str, Mean] = collections.defaultdict(Mean)

    def add(self, of: Pace, progress: RunProgress) -> None:
        """Adds the times of the trials of a study."""
        if not progress.steps:
            return
        grid = np.frombuffer(of.grid, np.int64)
        counts = collections.Counter(progress.ended) + collections.Counter(progress.live)
        evaluations = sum(n * int(np.searchsorted(grid, steps, "right")) for steps, n in counts.items())
        cost = progress.steps * of.cost
        self._steps.setdefault(of.family, {}).setdefault(of.along, Mean()).add(progress.train_seconds, cost)
        self._costs[of.kind].add(progress.train_seconds, cost)
        others = max(0.0, progress.seconds - progress.train_seconds)
        for key in (of.family, of.kind):
            self._evaluations[key].add(others, evaluations)

    def of(self, of: Pace) -> tuple[float, float] | None:
        """Returns the seconds per step and per evaluation, or None if the kind has not been measured."""
        if of.kind not in self._costs:
            return None
        by_along = {along: mean.value for along, mean in self._steps.get(of.family, {}).items()}
        a_cost = _between(by_along, of.along) if by_along else self._costs[of.kind].value
        return a_cost * of.cost, self._evaluations.get(of.family, self._evaluations[of.kind]).value


def _between(measured: Mapping[float, float], at: float) -> float:
    """Interpolates a positive function in log-log space. Outside the measured range, returns the nearest value."""
    known = sorted(measured)
    logs = [math.log(max(measured[each], 1e-12)) for each in known]
    return math.exp(float(np.interp(math.log(at), np.log(known), logs)))


class LifeTable:
    """Counts the trials that passed each fraction of their budget, and the trials that ended there.

    Running trials are counted up to their current step, which avoids a bias towards trials that end early. Beyond the
    longest trial, all trials are assumed to continue.
    """

    def __init__(self) -> None:
        self._ended = np.zeros(len(SHARES))
        self._past = np.zeros(len(SHARES))

    def add(self, budget_steps: int, progress: RunProgress) -> None:
        """Adds the trials of a study."""
        for ended, by_steps in ((1, progress.ended), (0, progress.live)):
            for steps, count in by_steps.items():
                at = int(np.searchsorted(SHARES, steps / budget_steps * (1 - 1e-9)))
                self._past[: at + 1 - ended] += count  # a running trial has passed its last evaluation
                self._ended[at] += count * ended * (steps < budget_steps)

    def survival(self, shares: np.ndarray) -> np.ndarray:
        """Returns the fraction (> 0) of trials that pass each fraction of the budget, in the shape of ``shares``."""
        hazards = self._ended / (self._past + self._ended + 1.0)
        return np.interp(np.log(np.maximum(shares, SHARES[0])), np.log(SHARES), np.cumprod(1.0 - hazards))


class RemainingWork:
    """The expected remaining steps and evaluations of trials on the same grid.

    Args:
      grid: int64[evaluations] as bytes. The last step is the budget.
      life: life table of the trials.
    """

    def __init__(self, grid: bytes, life: LifeTable):
        self._grid = np.frombuffer(grid, np.int64)
        alive = np.concatenate([[1.0], life.survival(self._grid[:-1] / self._grid[-1])])
        self._steps = np.cumsum((np.diff(self._grid, prepend=0) * alive)[::-1])[::-1] / alive
        self._evaluations = np.cumsum(alive[::-1])[::-1] / alive

    def after(self, steps: int) -> tuple[float, float]:
        """Returns the expected remaining steps and evaluations of a trial, given its number of steps so far."""
        at = int(np.searchsorted(self._grid, steps, "right"))
        if at == len(self._grid):
            return 0.0, 0.0
        return float(self._steps[at]), float(self._evaluations[at])


class Lengths:
    """Expected steps and evaluations of trials, estimated from the trials in a store."""

    def __init__(self, commits: Iterable[Commit]):
        self._commits = list(commits)

    def of(self, study: Plan) -> tuple[float, float, bool]:
        """Returns the expected steps and evaluations of a study's trials, and whether they come from the store."""
        grid = RUNNERS[study.kind].evaluations(study)
        life = self._tables.get(_family(study))
        if life is None:
            return float(study.budget_steps), float(len(grid)), False
        steps, evaluations = RemainingWork(np.asarray(grid, np.int64).tobytes(), life).after(0)
        return steps, evaluations, True

    @functools.cached_property
    def _tables(self) -> dict[tuple, LifeTable]:
        tables: dict[tuple, LifeTable] = {}
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


def _family(study: Plan) -> tuple:
    """Returns a key. Trials of studies with equal keys have similar lengths relative to their budgets."""
    targets = tuple((target.metric, target.value) for target in study.search.ends_at)
    return study.kind, study.labels, study.search.pruning, targets
