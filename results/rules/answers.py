"""When trials reached a target, as far as evaluations tell; what may choose them, and where exact pruning cuts them."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from results.bad_input import BadInput
from results.plans.plan import Plan
from results.plans.study import Target

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("study", "trial", "steps_low", "steps_high")
RULES = ("minimum", "released")


class Rule(NamedTuple):
    """Which trials count, and what it takes to reach a target.

    Attributes:
      name: minimum (at or below the target) or released (strictly below, as in the published analysis).
      first: only so many COMPLETE trials count, those with the smallest ids; None: all trials, however they ended.
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
    """The answer for a study and a target: the best trial took more than ``steps_low``, at most ``steps_high`` steps.

    Both are 0 where it was at the target before its first step, which only studies of others can tell. ``trial`` is the
    one that was first; of equals the one with the smallest id.
    """

    steps_low: int
    steps_high: int
    trial: int


def intervals(measurements: "pd.DataFrame", target: Target) -> "pd.DataFrame":
    """First evaluation at or below the target, for every trial that reached it, whatever its status.

    For tables in memory, in the process's own thread; ``results.catalog.scan`` does the same for the files of a store.
    A data frame does not tell a missing value from a NaN, which is a measurement that diverged. Here both count as
    missing, so that steps_low may be lower than a scan says, and is never too high.

    Args:
      measurements: rows (study, trial, step, metrics), sorted by study, trial, step.
      target: metric and value.

    Returns:
      Columns study, trial, steps_low (the last evaluation before that has the metric, 0 if none) and steps_high: steps
      to target lies in (steps_low, steps_high], or is 0 if both are.
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
    """The answer of each study that has one, from the trials that reached its target.

    Args:
      trials: as ``intervals`` returns them.
    """
    winners = trials.sort_values(["study", "steps_high", "trial"]).drop_duplicates("study")
    lowest = trials.groupby("study", observed=True)["steps_low"].min()
    rows = zip(winners["study"], winners["steps_high"], winners["trial"], strict=True)
    return {study: Answer(int(lowest[study]), int(high), int(trial)) for study, high, trial in rows}


def check_chooses(metric: str, measured: Collection[str]) -> None:
    """Raises BadInput for a metric of test, which a target would choose trials by, where validation has the same.

    Args:
      measured: names of the metrics that the same study measures.
    """
    split, _, kind = metric.partition("_")
    if split == "test" and f"validation_{kind}" in measured:
        raise BadInput(f"{metric} is only reported and cannot choose trials; use validation_{kind}")


def prune(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> "tuple[pd.DataFrame, np.ndarray]":
    """Cuts every curve where a scheduler that had known all answers from the start would have cut it.

    A real run knows less and goes further, never less far, so that this takes away rows and invents none. A trial ends
    at its first evaluation after which no target is left that it neither reached nor could still be the first to reach.

    Args:
      study: the plan, with ``pruning="exact"``.
      trials: rows (trial, role, status, reason, steps), every trial once; repeats of the best stay as they are.
      measurements: rows (study, trial, step, metrics), sorted.

    Returns:
      The trials with their status as it is then, and which measurements stay, bool[rows].
    """
    import pandas as pd

    if not len(measurements):  # nothing was ever evaluated, and there are no metrics to look at
        return trials, np.ones(0, bool)
    searched = measurements["trial"].isin(trials.loc[trials["role"] == "search", "trial"]).to_numpy()
    trial, step = measurements["trial"].to_numpy(), measurements["step"].to_numpy()
    goes_on = np.append(trial[1:] == trial[:-1], False)  # there is a next evaluation,
    next_step = np.append(step[1:], 0)  # and this is when
    over = goes_on.copy()  # every target is reached, or lost to another trial by the next evaluation
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
