"""Exact pruning of stored curves: a function of the answers alone, whatever the order, lanes and restarts."""

from typing import TYPE_CHECKING

import numpy as np

from results.plans.plan import Plan
from results.rules import answers

if TYPE_CHECKING:
    import pandas as pd


def settle(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> "tuple[pd.DataFrame, np.ndarray]":
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
        first = answers.intervals(measurements[searched], target)
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
