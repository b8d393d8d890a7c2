"""Lengths of trials, estimated from the trials in a store: expected numbers of steps and evaluations."""

import functools
from collections.abc import Iterable

import numpy as np

from harness.kinds import RUNNERS
from results.plans.plan import Plan
from results.store import Commit, read_table

SHARES = np.geomspace(1e-4, 1.0, 65)  # fractions of a budget: the edges of the life table


class Lengths:
    """Expected steps and evaluations of trials, estimated from the trials in a store."""

    def __init__(self, commits: Iterable[Commit]):
        self._commits = list(commits)

    def of(self, study: Plan) -> tuple[float, float, bool]:
        """Returns the expected steps and evaluations of a study's trials, and whether they come from the store."""
        grid = np.asarray(RUNNERS[study.kind].evaluations(study), np.int64)
        survival = self._survival.get(_family(study))
        if survival is None:
            return float(study.budget_steps), float(len(grid)), False
        shares = np.maximum(grid[:-1] / grid[-1], SHARES[0])
        alive = np.concatenate([[1.0], np.interp(np.log(shares), np.log(SHARES), survival)])
        steps = np.cumsum((np.diff(grid, prepend=0) * alive)[::-1])[-1]
        return float(steps), float(np.cumsum(alive[::-1])[-1]), True

    @functools.cached_property
    def _survival(self) -> dict[tuple, np.ndarray]:
        """The fraction (> 0) of trials that pass each of ``SHARES``, float64[65], by family."""
        ends: dict[tuple, list[np.ndarray]] = {}  # of trials that were not interrupted, as fractions of the budget
        for commit in self._commits:
            rows = read_table(commit, "trials")
            reasons = rows["reason"].to_pylist()
            pairs = zip(rows["steps"].to_pylist(), reasons, strict=True)
            ended = [steps for steps, reason in pairs if steps and reason in (None, "pruned")]
            if ended:
                ends.setdefault(_family(commit.study), []).append(np.array(ended) / commit.study.budget_steps)
        return {family: _survival(np.concatenate(shares)) for family, shares in ends.items()}


def _survival(ends: np.ndarray) -> np.ndarray:
    """Returns the fraction of trials that pass each of ``SHARES``. Trials at the end of their budget pass all.

    Args:
      ends: fractions of their budgets at which trials ended, float64[trials].
    """
    positions = np.searchsorted(SHARES, ends * (1 - 1e-9))
    reached = np.bincount(positions, minlength=len(SHARES))
    ended = np.bincount(positions[ends < 1], minlength=len(SHARES))
    passed = len(ends) - np.cumsum(reached)
    return np.cumprod(1.0 - ended / (passed + ended + 1.0))


def _family(study: Plan) -> tuple:
    """Returns a key. Trials of studies with equal keys have similar lengths relative to their budgets."""
    targets = tuple((target.metric, target.value) for target in study.search.ends_at)
    return study.kind, study.labels, study.search.pruning, targets
