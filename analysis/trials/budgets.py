"""Budgets: the best error that any trial of a study had measured within so many steps or examples."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from results.plans.kinds import KINDS
from results.storage.commits import Commit, read_table


class BestErrors(NamedTuple):
    """The best errors of one study.

    Attributes:
      batch_size: examples.
      trials: how many of its trials count.
      errors: float64[budgets], the lowest value measured within each budget; NaN where nothing was, and where the study
        was not planned to run that long.
    """

    batch_size: int
    trials: int
    errors: np.ndarray


def best_within(commit: Commit, metric: str, trial_ids: Collection[int], steps: Sequence[float]) -> BestErrors:
    """The best values of a metric within budgets.

    Args:
      commit: a visible study.
      metric: an error.
      trial_ids: ids of the trials that count.
      steps: budgets, the most steps of a trial that are looked at; infinite for all there are.
    """
    batch_size = commit.study.batch_size or 0
    errors = np.full(len(steps), np.nan)
    if metric not in commit.metrics or not trial_ids:
        return BestErrors(batch_size, len(trial_ids), errors)
    table = read_table(commit, "measurements").select(["trial", "step", metric])
    rows = np.isin(table["trial"].to_numpy(), np.fromiter(trial_ids, np.int64))
    step = table["step"].to_numpy()[rows]
    measured = table[metric].to_numpy().astype(np.float64)[rows]
    order = np.argsort(step, kind="stable")
    lowest = np.fmin.accumulate(measured[order]) if len(order) else measured
    last = np.searchsorted(step[order], np.minimum(steps, 2.0**62), "right") - 1
    longest = max(planned_steps(commit), float(step.max(initial=0)))
    is_known = (last >= 0) & (np.isinf(steps) | (np.asarray(steps) <= longest))
    errors[is_known] = lowest[last[is_known]]
    return BestErrors(batch_size, len(trial_ids), errors)


def planned_steps(commit: Commit) -> int:
    """Steps that a trial may take; 0 where that is not known, as of a study limited by time."""
    recorded = KINDS[commit.kind].recorded
    steps = commit.plan["details"].get("train_steps") if recorded else commit.plan.get("budget_steps")
    return steps if isinstance(steps, int) else 0


def series(largest: Sequence[float], most: int) -> list[int]:
    """Up to ``most`` budgets of the series 1, 2, 5, 10, the largest below the largest of those that were planned."""
    last = max(largest, default=0)
    steps = [digit * 10**power for power in range(12) for digit in (1, 2, 5)]
    return [step for step in steps if step <= last][-most:]
