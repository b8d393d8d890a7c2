"""Answers: when trials reached a target, which metrics can select trials, and where exact pruning cuts curves."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from results.bad_input import BadInput
from results.plans.plan import Plan
from results.plans.study import Target

if TYPE_CHECKING:
    import pandas as pd  # imported lazily elsewhere in this module: answers from envelopes must start fast

COLUMNS = ("study", "trial", "steps_low", "steps_high")
RULES = ("minimum", "released")


class Rule(NamedTuple):
    """A rule for answers: which trials count, and when they reach a target.

    Attributes:
      name: minimum (at or below the target) or released (strictly below, as in the published analysis).
      first: number of COMPLETE trials that count, by smallest id. None counts all trials with any ending.
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

    Both are 0 if the trial started at the target, which only published studies record. ``trial`` reached the target
    first, with ties broken by the smallest id.
    """

    steps_low: int
    steps_high: int
    trial: int


def intervals(measurements: "pd.DataFrame", target: Target) -> "pd.DataFrame":
    """Returns the first evaluation at or below the target for every trial that reached it, with any status.

    It needs the tables in memory and does not start threads; ``results.catalog.scan`` does the same for files. A data
    frame cannot distinguish a missing value from NaN, which is a diverged measurement. Here both count as missing, so
    steps_low may be lower than in a scan, but never higher.

    Args:
      measurements: rows (study, trial, step, metrics), sorted by study, trial and step.
      target: metric and its value.

    Returns:
      Columns study, trial, steps_low (previous evaluation with the metric, or 0) and steps_high. The steps to target
      lie in (steps_low, steps_high], or are 0 if both are 0.
    """
    import pandas as pd

    if target.metric not in measurements:
        return pd.DataFrame(columns=list(COLUMNS))
    measured = measurements[measurements[target.metric].notna()]
    step_before = measured.groupby(["study", "trial"], observed=True)["step"].shift(fill_value=0)
    rows = measured.assign(steps_low=step_before, steps_high=measured["step"])
    rows = rows[target.reached(measured[target.metric].to_numpy())]
    return rows.drop_duplicates(["study", "trial"])[list(COLUMNS)].reset_index(drop=True)


def best(trials: "pd.DataFrame") -> Mapping[str, Answer]:
    """Returns the answer for each study in which a trial reached the target.

    Args:
      trials: rows in the format returned by ``intervals``.
    """
    winners = trials.sort_values(["study", "steps_high", "trial"]).drop_duplicates("study")
    lowest = trials.groupby("study", observed=True)["steps_low"].min()
    rows = zip(winners["study"], winners["steps_high"], winners["trial"], strict=True)
    return {study: Answer(int(lowest[study]), int(high), int(trial)) for study, high, trial in rows}


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
    """Cuts every curve where a scheduler would have cut it if it had known all answers from the start.

    A real scheduler knows less, so it trains at least as far: pruning only removes rows. A trial ends at the first
    evaluation at which it has reached every target or can no longer be the first to reach it.

    Args:
      study: the plan, with ``pruning="exact"``.
      trials: rows (trial, role, status, reason, steps), one per trial. Repeats of the best trials do not change.
      measurements: rows (study, trial, step, metrics), sorted.

    The trials with their new endings, and a mask for the remaining measurements, bool[rows].
      The trials with their new endings, and a mask of the remaining measurements, bool[rows].
    """
    import pandas as pd

    if not len(measurements):  # without evaluations there are no metrics
        return trials, np.ones(0, bool)
    searched = measurements["trial"].isin(trials.loc[trials["role"] == "search", "trial"]).to_numpy()
    trial, step = measurements["trial"].to_numpy(), measurements["step"].to_numpy()
    next_step = np.append(step[1:], 0)
    over = np.append(trial[1:] == trial[:-1], False)  # there is a next evaluation, and every target is reached or lost
    for target in study.targets:
        first = intervals(measurements[searched], target)
        reached = pd.Series(first["steps_high"].to_numpy(), index=first["trial"]).reindex(trial).to_numpy(np.float64)
        hopeless = np.zeros(len(step), bool)
        if len(first):
            fewest, winner = min(zip(first["steps_high"], first["trial"], strict=True))
            hopeless = (next_step > fewest) | ((next_step == fewest) & (trial > winner))
        over &= (step >= reached) | hopeless
    decided = trials["status"].isin(["COMPLETE", "INFEASIBLE"]) | (trials["reason"] == "pruned")
    over &= np.isin(trial, trials.loc[decided, "trial"]) & searched
    ends = pd.Series(step[over], index=trial[over]).groupby(level=0).first()
    last = ends.reindex(trials["trial"]).to_numpy(np.float64)
    cut = ~np.isnan(last)
    settled = trials.assign(steps=np.where(cut, last, trials["steps"]).astype(np.int64))
    settled.loc[cut, ["status", "reason"]] = ["INCOMPLETE", "pruned"]
    return settled, ~(step > ends.reindex(trial).to_numpy(np.float64))
