"""Confirmation: reruns the best trials of a search with new seeds, to measure how much of their lead was due to luck.

The answer of a study is a minimum over noisy trials. It is biased for two reasons: the best of many trials had a lucky
seed, and its configuration, which is the only one rerun, may not be the best one. Therefore, the ``confirm_top`` best
trials of a search are candidates. Each is repeated ``confirm`` / 2 times. The candidate with the smallest median is
*chosen* and repeated the same number of times again. The answer is the median of these last repeats. They were not
used for selection, so they are unbiased. If there is a single candidate, no choice is needed, and the answer is the
median of all its repeats. With exact pruning, only the winner is known.

In the same study, the k-th repeat of trial i is trial k · APART + i. It has the metaparameters of trial i, a new seed,
and the role ``confirm``. Answers, envelopes, pruning and selected fits use only trials with role ``search``.

Confirmation uses only the study's first target. If a larger search finds better trials, or the request changes, repeats
that are no longer requested stay in the store, and a commit gives them the role ``extra``. They are ignored until they
are requested again. Confirmed results therefore depend on the request, but not on earlier requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from results.plans.plan import Plan
from results.plans.study import REASONS_TO_RERUN, Target
from results.plans.trial_request import MOST_TRIALS, Repeats, TrialRequest
from results.rules import answers

if TYPE_CHECKING:
    import pandas as pd

SEARCH, CONFIRM, EXTRA = ROLES = ("search", "confirm", "extra")
APART = MOST_TRIALS  # distance between the ids of a trial's repeats


def ids(trial: int, first: int, last: int) -> list[int]:
    """Returns the ids of a trial's repeats from number ``first`` to ``last``, counting from 1."""
    return [k * APART + trial for k in range(first, last + 1)]


def is_repeat(trial: Any) -> Any:
    """Returns whether an id, or each id in an array, is a repeat. Only for studies measured by this software."""
    return trial >= APART


def original(trial: Any) -> Any:
    """Returns the trial that an id, or each id in an array, repeats. For a search trial, returns the trial itself."""
    return trial % APART


def repeat(trial: Any) -> Any:
    """Returns the repeat number of an id, or of each id in an array, counting from 1, or 0 for a search trial."""
    return trial // APART


def role(trial: int) -> str:
    """Returns the role for storing a new trial, given its id."""
    return CONFIRM if is_repeat(trial) else SEARCH


def settled_ids(trials: Iterable[int], reasons: Iterable[str | None]) -> frozenset[int]:
    """Returns the ids of trials that do not need to run again, given why each is INCOMPLETE (None if it is not)."""
    return frozenset(int(i) for i, reason in zip(trials, reasons, strict=True) if reason not in REASONS_TO_RERUN)


def reporting_ids(request: TrialRequest, repeats: Iterable[int]) -> list[int]:
    """Returns the repeats that report, in order.

    Args:
      request: the study's request.
      repeats: ids of the repeats that ran.
    """
    chooses = request.repeats.candidates(request.trials) > 1
    return sorted(trial_id for trial_id in repeats if not chooses or repeat(trial_id) > request.repeats.choosing)


def candidates(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> list[int]:
    """Returns the requested number of best trials in a search, best first. Pruning does not change them.

    Trials that reached the study's first target come first, by steps to target. The others follow, by lowest error.
    Ties go to the smaller id.

    Args:
      study: the plan, with a target.
      trials: rows (trial, role), one per trial.
      measurements: rows (study, trial, step, metrics), sorted.
    """
    import pandas as pd

    ids_of_search = sorted(trials.loc[trials["role"] == SEARCH, "trial"])
    target = study.search.targets[0]
    measurements = measurements[measurements["trial"].isin(ids_of_search)]
    steps = _steps(measurements, target)
    lowest = measurements.groupby("trial")[target.metric].min() if target.metric in measurements else pd.Series()
    error = lowest.reindex(ids_of_search).fillna(np.inf).to_dict()
    ranked = sorted(ids_of_search, key=lambda i: (steps.get(i, np.inf), 0.0 if i in steps else error[i], i))
    return [int(i) for i in ranked[: study.request.repeats.top]]


def requested_ids(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> list[int]:
    """Returns the ids of the requested repeats: the choosing repeats and, once these have ended, the reporting ones.

    Args:
      study: the plan, with a target.
      trials: rows (trial, role, reason) for the search and its repeats, one per trial.
      measurements: rows (study, trial, step, metrics), sorted.
    """
    repeats = study.request.repeats
    best = candidates(study, trials, measurements)
    if len(best) < 2:
        return [trial_id for i in best for trial_id in ids(i, 1, repeats.confirm)]
    choose = [trial_id for i in best for trial_id in ids(i, 1, repeats.choosing)]
    if not settled_ids(trials["trial"], trials["reason"]).issuperset(choose):
        return choose
    steps = _steps(measurements[measurements["trial"].isin(choose)], study.search.targets[0])
    return choose + ids(choice(best, repeats, steps), repeats.choosing + 1, repeats.confirm)


def _steps(measurements: "pd.DataFrame", target: Target) -> dict[int, int]:
    """Returns the steps to target of every trial that reached it."""
    first = answers.of_frame(measurements, target)
    return dict(zip(first.trial.tolist(), first.high.tolist(), strict=True))


def choice(best: Sequence[int], repeats: Repeats, steps: Mapping[int, float]) -> int:
    """Returns the candidate with the smallest median steps. Ties go to the candidate with the better search result.

    Args:
      best: candidates, best in the search first.
      repeats: the requested repeats.
      steps: steps to target of the choosing repeats, by id. Repeats that never reached the target are missing.
    """
    medians = [
        float(np.median([steps.get(trial_id, np.inf) for trial_id in ids(i, 1, repeats.choosing)])) for i in best
    ]
    return best[int(np.argmin(medians))]


class Reporting(NamedTuple):
    """The repeats that report a confirmed answer.

    Attributes:
      chosen: the trial that was chosen and repeated.
      chose: repeats of this trial that were used for the choice.
      ids: the repeats that report, in order.
    """

    chosen: int
    chose: list[int]
    ids: list[int]


def reporting(
    study: Plan, target: Target, searched: Mapping[int, float], repeats: Mapping[int, float]
) -> Reporting | None:
    """Returns the repeats that confirm the answer to a target, if there are any.

    The candidate is chosen for the study's first target. Its reporting repeats are unbiased for any other target too,
    but may belong to the wrong trial. They therefore confirm another target only if the choice would have been the
    same: the best trial for that target was rerun, and the choosing repeats favour the chosen trial for that target.

    Args:
      study: the plan.
      target: metric and its value.
      searched: steps to target of the search trials that reached it, by id. There must be at least one.
      repeats: steps to target of the repeats that did not end by accident, by id. +inf if the target was not reached.
    """
    reports = reporting_ids(study.request, repeats)
    if not reports:
        return None
    chosen = int(original(reports[0]))
    choosing = sorted(repeats.keys() - set(reports))
    if target != study.search.targets[0]:
        rank = {trial: (searched.get(trial, np.inf), trial) for trial in {*searched, *map(original, choosing)}}
        best = min(searched, key=rank.__getitem__)
        rerun = sorted(set(map(original, choosing)) or {best}, key=rank.__getitem__)
        if best not in rerun or chosen != (choice(rerun, study.request.repeats, repeats) if choosing else best):
            return None
    return Reporting(chosen, [trial_id for trial_id in choosing if original(trial_id) == chosen], reports)


def median(low: Sequence[float], high: Sequence[float]) -> tuple[float, float]:
    """Returns the interval of the median of n >= 1 intervals. If n is even, it contains both middle values."""
    n = len(low)
    return float(np.sort(low)[(n - 1) // 2]), float(np.sort(high)[n // 2])


def missing_ids(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> list[int]:
    """Returns the ids of the repeats to run now, in order. Empty until all search trials have ended.

    Args:
      study: the requested plan.
      trials: rows (trial, role, reason), one per trial.
      measurements: rows (study, trial, step, metrics), sorted.
    """
    if not study.request.repeats.confirm or not len(trials):
        return []
    done = settled_ids(trials["trial"], trials["reason"])
    if not done.issuperset(range(study.trials)):
        return []
    return [trial for trial in requested_ids(study, trials, measurements) if trial not in done]


def count_to_run(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> int:
    """Returns the number of repeats still to run after the search, including those that depend on the choice."""
    done = settled_ids(trials["trial"], trials["reason"])
    return study.request.planned - study.trials - len(done.intersection(requested_ids(study, trials, measurements)))
