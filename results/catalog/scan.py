"""Scans the files of studies, one study at a time, to determine when trials reached a target."""

import numpy as np
import pyarrow as pa

from results.plans.study import Target
from results.rules import answers, confirmation
from results.rules.answers import MINIMUM, Reached, Rule
from results.rules.confirmation import CONFIRM, SEARCH
from results.storage.commits import Commit, read_columns


def reached(commit: Commit, target: Target, rule: Rule = MINIMUM, role: str | None = SEARCH) -> Reached:
    """Returns the trials of a study that reached a target and that ``rule`` counts, sorted.

    Args:
      commit: a visible study.
      target: metric and its value, which is compared in the column's type.
      rule: rule for counting and comparing trials.
      role: search, confirm (all repeats, requested or extra), or None for all trials.

    Raises:
      Damaged: a file cannot be read.
    """
    first = answers.of_table(_measured(commit, target.metric), target, rule)
    return first.where(_counts(commit, first.trial, rule, role))


def _measured(commit: Commit, metric: str) -> pa.Table:
    """Returns the trial, step and metric of each measurement, or no rows if the metric was not measured."""
    if metric not in commit.metrics:
        return pa.schema({"trial": pa.int32(), "step": pa.int32()}).empty_table()
    return read_columns(commit, "measurements", ["trial", "step", metric])


def _counts(commit: Commit, trial: np.ndarray, rule: Rule, role: str | None) -> np.ndarray:
    """Returns whether each trial has the role and counts under the rule, as bool[len(trial)]."""
    counts = np.ones(len(trial), bool)
    if role is not None:
        is_repeat = confirmation.is_repeat(trial) & bool(commit.repeats.confirm)
        counts = is_repeat if role == CONFIRM else ~is_repeat
    if rule.first is not None:
        trials = read_columns(commit, "trials", ["trial", "status"])
        complete = trials["trial"].to_numpy()[trials["status"].to_numpy(zero_copy_only=False) == "COMPLETE"]
        counts &= np.isin(trial, np.sort(complete)[: rule.first])
    return counts
