"""Confirmation: a study's best trial, run again on fresh seeds, which says how much of its lead was luck.

The answer of a study is a minimum, and a minimum over noisy trials flatters: the winner's curse. The k-th repeat of
trial i is the trial k · APART + i of the same study: it has the metaparameters of trial i and a seed of its own. Its
role is `confirm`; answers, envelopes, pruning and fits are about trials whose role is `search`.

What is confirmed is the answer to the study's first target. If a larger search finds a better trial, the repeats of
the one before are dropped when the study is committed: tables are a function of what was asked for, not of its history.
"""

import numpy as np
import pandas as pd

from results import answers
from results.study import APART, REASONS_TO_RERUN, Study

SEARCH, CONFIRM = ROLES = ("search", "confirm")


def ids(trial: int, repeats: int) -> list[int]:
    """The trials that repeat a trial so many times."""
    return [repeat * APART + trial for repeat in range(1, repeats + 1)]


def role(trial: int) -> str:
    """The role of a trial of a study of our own, by its id."""
    return CONFIRM if trial >= APART else SEARCH


def selected(study: Study, trials: pd.DataFrame, measurements: pd.DataFrame) -> int | None:
    """The best trial of a search: what is confirmed, whether trials were pruned or not.

    It is the answer to the study's first target. If no trial reached that, the best is whose error came lowest; of
    equals, and if there is no error at all, the one with the smallest id.

    Args:
      study: the plan, with a target.
      trials: rows (trial, role), every trial once.
      measurements: rows (study, trial, step, metrics), sorted.

    Returns:
      Its id; None if there is no trial yet.
    """
    searched = trials.loc[trials["role"] == SEARCH, "trial"] if len(trials) else ()
    if not len(searched):
        return None
    target = study.targets[0]
    measurements = measurements[measurements["trial"].isin(searched)]
    first = answers.intervals(measurements, target)
    if len(first):
        return min(zip(first["steps_high"].tolist(), first["trial"].tolist(), strict=True))[1]
    lowest = measurements.groupby("trial")[target.metric].min() if target.metric in measurements else pd.Series()
    lowest = lowest.reindex(sorted(searched)).fillna(np.inf)
    return int(lowest.index[int(np.argmin(lowest.to_numpy()))])


def missing(study: Study, trials: pd.DataFrame, measurements: pd.DataFrame) -> list[int]:
    """Ids of the repeats that are still to be run, in order; none before all trials of the search have ended.

    Args:
      study: as asked for.
      trials: rows (trial, role, reason), every trial once.
      measurements: rows (study, trial, step, metrics), sorted.
    """
    if not study.confirm or not len(trials):
        return []
    settled = set(trials.loc[~trials["reason"].isin(REASONS_TO_RERUN), "trial"])
    if not settled.issuperset(range(study.trials)):
        return []
    best = selected(study, trials, measurements)
    return [] if best is None else [trial for trial in ids(best, study.confirm) if trial not in settled]
