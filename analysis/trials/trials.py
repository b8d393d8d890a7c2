"""Trials: when each trial of a study reached a target, its outcome if it did not, and best errors within budgets."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.trials import steps_to_target
from results.catalog import scan
from results.plans import schema
from results.plans.kinds import KINDS, along
from results.plans.plan import Plan
from results.plans.study import ACCIDENTS, REASONS, Target
from results.rules.answers import MINIMUM, Rule
from results.rules.confirmation import ROLES, SEARCH
from results.store import Commit, read_table

COLUMNS = ("trial", "role", "status", "reason", "steps", "in_k", "outcome", "steps_low", "steps_high")
STATUSES = ("COMPLETE", "INFEASIBLE", "INCOMPLETE")
STRICT = Rule("released")  # strictly below the target; uses all trials, because it has no ``first``

REACHED, NOT_REACHED, UNDECIDED = "reached", "not_reached", "undecided"
OUTCOMES = (
    REACHED,  # an evaluation was at the target: it needed more than steps_low and at most steps_high steps
    NOT_REACHED,  # it diverged or used up its budget, so it never will
    UNDECIDED,  # it was stopped after steps_low steps: it may need any larger number, or never reach the target
)

_WORDS = {"role": ROLES, "status": STATUSES, "reason": REASONS, "outcome": OUTCOMES}
_TYPES = {name: pd.CategoricalDtype(list(words)) for name, words in _WORDS.items()}


class StudyTrials(NamedTuple):
    """The trials of one study, for one target.

    Attributes:
      study: plan of the study: its name, batch_size, space (metaparameter ranges) and pruning.
      target: metric and its value.
      rows: one row per trial, sorted by trial, with ``COLUMNS``, then float64 columns of the metaparameters by name.
        role is search, confirm (a repeat of one of the best trials with another seed) or extra (a repeat that is no
        longer requested). steps is the step of the last evaluation. in_k marks the rows in ``rows_in_k``. outcome is
        one of ``OUTCOMES``. steps_low and steps_high, float64, are NaN for not_reached, and steps_high is NaN for
        undecided. Text columns are categoricals, which compare like strings.
    """

    study: Plan
    target: Target
    rows: pd.DataFrame

    @property
    def metaparameters(self) -> list[str]:
        """Names of all metaparameters of any trial."""
        return list(self.rows.columns[len(COLUMNS) :])

    @property
    def k(self) -> int:
        """The number of trials that count as k in the best of k."""
        return int(self.rows["in_k"].to_numpy().sum())

    @property
    def rows_in_k(self) -> pd.DataFrame:
        """The rows that count for the search, without repeats of its best trials.

        Trials that ended by accident, or without a known evaluation, are omitted regardless of their result. Trials
        that were stopped by a time limit, or ended for an unrecorded reason, count. They may have been stopped for poor
        progress, so omitting them would make the search look better than it was. ``bounds`` allows for any later
        outcome.
        """
        return self.rows[self.rows["in_k"].to_numpy()]


def of_commits(commits: Sequence[Commit], target: Target, *, strict: bool = False) -> dict[str, StudyTrials]:
    """Returns the trials of studies, by sorted study name, in one pass over all measurements.

    Args:
      commits: the studies.
      target: metric and its value.
      strict: whether a trial must be strictly below the target, as in the published analysis, instead of at or below
          it.
    """
    by_name = sorted(commits, key=lambda commit: commit.name)
    return {commit.name: _of_study(commit, target, strict) for commit in by_name}


def bounds(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Returns the interval (low, high] of steps in which each trial reaches the target, +inf if it never does.

    Args:
      rows: rows of ``StudyTrials``.

    Returns:
      float64[n] each. Both are +inf for a trial that did not reach the target. Only high is +inf for an undecided
      trial.
    """
    low, high = (rows[name].to_numpy() for name in ("steps_low", "steps_high"))
    return np.where(np.isnan(low), np.inf, low), np.where(np.isnan(high), np.inf, high)


def _of_study(commit: Commit, target: Target, strict: bool) -> StudyTrials:
    study, table = commit.study, read_table(commit, "trials")
    reached = scan.reached(commit, target, STRICT if strict else MINIMUM, role=None)
    trial, last = table["trial"].to_numpy(), table["steps"].fill_null(0).to_numpy()
    status, reason = (table[name].to_numpy(zero_copy_only=False) for name in ("status", "reason"))
    role = table["role"].to_numpy(zero_copy_only=False)
    rows_at_target = np.searchsorted(trial, reached.trial)
    low, high = np.full(len(trial), np.nan), np.full(len(trial), np.nan)
    low[rows_at_target], high[rows_at_target] = reached.low, reached.high
    at_target = ~np.isnan(high)
    is_over = _is_over(study, target, status, last, strict) & (target.metric in commit.metrics) & ~at_target
    is_told = (status != "INCOMPLETE") | ((last > 0) | at_target) & ~np.isin(reason.astype(str), ACCIDENTS)
    columns = {
        "trial": trial,
        "role": pd.Categorical(role, dtype=_TYPES["role"]),
        "status": pd.Categorical(status, dtype=_TYPES["status"]),
        "reason": pd.Categorical(reason, dtype=_TYPES["reason"]),
        "steps": last,
        "in_k": is_told & (role == SEARCH),
        "outcome": pd.Categorical(np.select([at_target, is_over], OUTCOMES[:2], UNDECIDED), dtype=_TYPES["outcome"]),
        "steps_low": np.where(at_target | is_over, low, last),
        "steps_high": high,
    }
    reserved = {column.name for column in schema.TRIALS} | columns.keys()
    metaparameters = {name: table[name].to_numpy() for name in table.column_names if name not in reserved}
    return StudyTrials(study, target, pd.DataFrame(columns | metaparameters))


def _is_over(study: Plan, target: Target, status: np.ndarray, last: np.ndarray, strict: bool) -> np.ndarray:
    """Returns whether each trial missed the target and diverged or used up its budget, bool[n].

    A trial is also COMPLETE once it has reached all targets of its study. This may not decide another target.
    """
    budget_used = np.ones(len(last), bool)
    if not KINDS[study.kind].recorded:
        is_decided = bool(study.search.ends_at) and steps_to_target.is_exact(
            study.search.ends_at, target, STRICT if strict else MINIMUM
        )
        budget_used = budget_used if is_decided else last >= study.budget_steps
    return (status == "INFEASIBLE") | ((status == "COMPLETE") & budget_used)


class BestErrors(NamedTuple):
    """The best errors of one study.

    Attributes:
      batch_size: batch size in examples.
      trials: number of trials that count.
      errors: float64[budgets], the lowest value measured within each budget. NaN if there is no measurement, or if the
        study was not planned to run that long.
    """

    batch_size: int
    trials: int
    errors: np.ndarray


def best_within(commit: Commit, metric: str, trial_ids: Collection[int], steps: Sequence[float]) -> BestErrors:
    """Returns the best value of a metric within each budget.

    Args:
      commit: a visible study.
      metric: error to minimize.
      trial_ids: ids of the trials that count.
      steps: budgets in steps per trial, or infinity for all steps.
    """
    batch_size = along(commit.study)
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
    """Returns the maximum steps per trial. It is 0 if unknown, for example if a study has a time limit."""
    recorded = KINDS[commit.kind].recorded
    steps = commit.plan["details"].get("train_steps") if recorded else commit.plan.get("budget_steps")
    return steps if isinstance(steps, int) else 0


def budget_series(largest: Sequence[float], limit: int) -> list[int]:
    """Returns up to ``limit`` budgets from the series 1, 2, 5, 10, ... that are below the largest planned budget."""
    last = max(largest, default=0)
    steps = [digit * 10**power for power in range(12) for digit in (1, 2, 5)]
    return [step for step in steps if step <= last][-limit:]
