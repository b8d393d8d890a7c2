"""Answers: when trials reached a target, which metrics can select trials, and at which steps pruning cuts curves."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from results.bad_input import BadInput
from results.plans.plan import Plan
from results.plans.study import Target

if TYPE_CHECKING:
    import pandas as pd  # imported lazily elsewhere in this module: answers from envelopes must start fast
    import pyarrow as pa

RULES = ("minimum", "released")


class Rule(NamedTuple):
    """A rule for answers: which trials count, and when they reach a target.

    Attributes:
      name: minimum (at or below the target) or released (strictly below, as in the published analysis).
      first: number of COMPLETE trials that count, in order of their ids. By default, all trials count, regardless of
        how they ended.
    """

    name: str
    first: int | None = None

    @property
    def strict(self) -> bool:
        return self.name == "released"

    @property
    def sign(self) -> str:
        return "<" if self.strict else "≤"


MINIMUM = Rule("minimum")


class Answer(NamedTuple):
    """The answer for a study and a target: the best trial's steps lie in (``steps_low``, ``steps_high``].

    Both are 0 if the trial started at the target, which only published studies record. ``trial`` is the first trial
    that reached the target. Ties go to the smallest id.
    """

    steps_low: int
    steps_high: int
    trial: int


class Reached(NamedTuple):
    """The trials of a study that reached a target. The steps to target of each trial lie in (low, high].

    Attributes:
      trial: int[m], ids of trials. ``first_reached`` sorts them.
      low: int[m], step of the previous evaluation with the metric, or 0.
      high: int[m], step of the first evaluation at the target. If the trial started at the target, it is 0, like
        ``low``.
    """

    trial: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def of(self, ids: Iterable[int]) -> "Reached":
        """Returns the trials with these ids."""
        return self.where(np.isin(self.trial, list(ids)))

    def where(self, mask: np.ndarray) -> "Reached":
        """Returns the trials for which ``mask``, bool[m], is true."""
        return Reached(self.trial[mask], self.low[mask], self.high[mask])

    def answer(self) -> Answer | None:
        """Returns the answer from these trials, or None if there are no trials."""
        if not len(self.trial):
            return None
        fewest = self.high.min()
        return Answer(int(self.low.min()), int(fewest), int(self.trial[self.high == fewest].min()))


def first_reached(trial: np.ndarray, step: np.ndarray, value: np.ndarray, target: Target, rule: Rule) -> Reached:
    """Returns the trials that reached a target, with any status.

    Args:
      trial, step: int[n], trial and step of each evaluation of the metric, sorted by both.
      value: float[n], values of the metric. NaN counts as measured, but does not reach any target.
      target: the target. Its value is compared in the type of ``value``.
      rule: rule that defines how values are compared.
    """
    rows = np.flatnonzero(target.reached(value, strict=rule.strict))
    trial_at_target = trial[rows]
    rows = rows[np.append(True, trial_at_target[1:] != trial_at_target[:-1])[: len(rows)]]
    has_previous = (rows > 0) & (trial[rows - 1] == trial[rows])
    return Reached(trial[rows], np.where(has_previous, step[rows - 1], 0), step[rows])


def of_table(measurements: "pa.Table", target: Target, rule: Rule = MINIMUM) -> Reached:
    """Returns ``first_reached`` for a study's measurements.

    Args:
      measurements: rows (trial, step, metrics), sorted by trial and step. Null means not measured, and rows with null
        are ignored. If there is no column for the target's metric, the result is empty.
      target: metric and its value.
      rule: rule that defines how values are compared.
    """
    if target.metric not in measurements.column_names:
        return Reached(*(np.zeros(0, np.int32),) * 3)
    if measurements[target.metric].null_count:
        measurements = measurements.filter(measurements[target.metric].is_valid())
    trial, step, value = (measurements[name].to_numpy() for name in ("trial", "step", target.metric))
    return first_reached(trial, step, value, target, rule)


def of_frame(measurements: "pd.DataFrame", target: Target) -> Reached:
    """Returns ``first_reached`` for a study's measurements in a data frame.

    A data frame cannot distinguish a missing value from NaN, which means that the trial diverged. Here, both count as
    missing. ``low`` may therefore be lower than if it were computed from a table, but never higher.

    Args:
      measurements: rows (trial, step, metrics), sorted by trial and step.
      target: metric and its value.
    """
    import pyarrow as pa

    columns = measurements[[name for name in ("trial", "step", target.metric) if name in measurements]]
    return of_table(pa.Table.from_pandas(columns, preserve_index=False), target)  # NaN becomes null


def check_chooses(metric: str, measured: Collection[str]) -> None:
    """Raises BadInput for a target on a test metric if the study also measures that metric on validation data.

    Args:
      metric: metric of the target.
      measured: metrics measured in the study.
    """
    split, _, kind = metric.partition("_")
    if split == "test" and f"validation_{kind}" in measured:
        raise BadInput(f"{metric} is only reported and cannot select trials. Use validation_{kind}.")


def prune(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> "tuple[pd.DataFrame, np.ndarray]":
    """Cuts every curve at the step at which a scheduler that knew all answers from the start would have cut it.

    A real scheduler has less information, so it trains each trial at least as far. Pruning therefore only removes rows.
    A trial ends at the first evaluation at which it has reached, or can no longer be the first to reach, every target.

    Args:
      study: the plan, with ``pruning="exact"``.
      trials: rows (trial, role, status, reason, steps), one per trial. Repeats of the best trials are not changed.
      measurements: rows (study, trial, step, metrics), sorted.

    Returns:
      The trials with their new endings, and a mask of the measurements that remain, bool[rows].
    """
    import pandas as pd

    if not len(measurements):  # without evaluations there are no metrics
        return trials, np.ones(0, bool)
    searched = measurements["trial"].isin(trials.loc[trials["role"] == "search", "trial"]).to_numpy()
    trial, step = measurements["trial"].to_numpy(), measurements["step"].to_numpy()
    next_step = np.append(step[1:], 0)
    over = np.append(trial[1:] == trial[:-1], False)  # there is a next evaluation, and every target is reached or lost
    for target in study.search.targets:
        first = of_frame(measurements[searched], target)
        reached = pd.Series(first.high, index=first.trial).reindex(trial).to_numpy(np.float64)
        hopeless = np.zeros(len(step), bool)
        if best := first.answer():
            hopeless = (next_step > best.steps_high) | ((next_step == best.steps_high) & (trial > best.trial))
        over &= (step >= reached) | hopeless
    decided = trials["status"].isin(["COMPLETE", "INFEASIBLE"]) | (trials["reason"] == "pruned")
    over &= np.isin(trial, trials.loc[decided, "trial"]) & searched
    ends = pd.Series(step[over], index=trial[over]).groupby(level=0).first()
    last = ends.reindex(trials["trial"]).to_numpy(np.float64)
    cut = ~np.isnan(last)
    settled = trials.assign(steps=np.where(cut, last, trials["steps"]).astype(np.int64))
    settled.loc[cut, ["status", "reason"]] = ["INCOMPLETE", "pruned"]
    return settled, ~(step > ends.reindex(trial).to_numpy(np.float64))
