"""Confirmation: the best trials of a search, run again on fresh seeds, which says how much of their lead was luck.

The answer of a study is a minimum, and a minimum over noisy trials flatters twice: the best of many is lucky in its
seed, and running it again judges that one configuration, which may be worse than the best there is. So the
``confirm_top`` best trials of a search are candidates. Each is repeated ``confirm`` / 2 times; the one with the least
median of these is *chosen*, and repeated as often again. Those last repeats *report*: nothing was chosen by them, and
so they are unbiased. With one candidate nothing is chosen, and all of its repeats report. Exact pruning knows the
winner alone.

The k-th repeat of trial i is the trial k · APART + i of the same study: it has the metaparameters of trial i and a seed
of its own. Its role is ``confirm``; answers, envelopes, pruning and selected fits are about trials whose role is
``search``.

All of it is about the study's first target. If a larger search finds better trials, or another request counts, the
repeats that are not asked for any more stay where they are, and a commit gives them the role ``extra``. Nothing reads
those until they are asked for again. So what is confirmed depends on the request, and not on its history.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from results.plans.plan import Plan
from results.plans.study import REASONS_TO_RERUN
from results.plans.trial_request import MOST_TRIALS, Repeats, TrialRequest
from results.rules import answers

if TYPE_CHECKING:
    import pandas as pd

SEARCH, CONFIRM, EXTRA = ROLES = ("search", "confirm", "extra")
APART = MOST_TRIALS  # ids of the repeats of a trial


def ids(trial: int, first: int, last: int) -> list[int]:
    """The trials that repeat a trial, from its ``first`` repeat to its ``last``; they count from 1."""
    return [k * APART + trial for k in range(first, last + 1)]


def is_repeat(trial: Any) -> Any:
    """Whether trials of a study of our own repeat others; of one id, or of a column of them."""
    return trial >= APART


def original(trial: Any) -> Any:
    """The trial that is repeated, likewise; of one of the search itself."""
    return trial % APART


def repeat(trial: Any) -> Any:
    """The number of the repeat, from 1, likewise; 0 for a trial of the search."""
    return trial // APART


def role(trial: int) -> str:
    """The role of a trial of a study of our own as it is first stored, by its id."""
    return CONFIRM if is_repeat(trial) else SEARCH


def settled_ids(trials: Iterable[int], reasons: Iterable[str | None]) -> frozenset[int]:
    """Ids of the trials that need no other run, of trials and the reasons why each is INCOMPLETE."""
    return frozenset(int(i) for i, reason in zip(trials, reasons, strict=True) if reason not in REASONS_TO_RERUN)


def reporting_ids(request: TrialRequest, repeats: Iterable[int]) -> list[int]:
    """The repeats that report, of those of a study that ran, in order.

    Args:
      request: of the study.
      repeats: ids of those that ran.
    """
    chooses = request.repeats.candidates(request.trials) > 1
    return sorted(at for at in repeats if not chooses or repeat(at) > request.repeats.choosing)


def candidates(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> list[int]:
    """The best trials of a search, best first, whether trials were pruned or not; as many as it is asked to have.

    Those that reached the study's first target come in the order in which they did, then the others by how low their
    error came; of equals the one with the smaller id is the better.

    Args:
      study: the plan, with a target.
      trials: rows (trial, role), every trial once.
      measurements: rows (study, trial, step, metrics), sorted.
    """
    import pandas as pd

    ids_of_search = sorted(trials.loc[trials["role"] == SEARCH, "trial"])
    target = study.targets[0]
    measurements = measurements[measurements["trial"].isin(ids_of_search)]
    first = answers.intervals(measurements, target)
    at = dict(zip(first["trial"].tolist(), first["steps_high"].tolist(), strict=True))
    lowest = measurements.groupby("trial")[target.metric].min() if target.metric in measurements else pd.Series()
    error = lowest.reindex(ids_of_search).fillna(np.inf).to_dict()
    ranked = sorted(ids_of_search, key=lambda i: (at.get(i, np.inf), 0.0 if i in at else error[i], i))
    return [int(i) for i in ranked[: study.request.repeats.top]]


def requested_ids(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> list[int]:
    """Ids of the repeats that are asked for: those that choose, and once all of these have ended, those that report.

    Args:
      study, trials, measurements: as ``candidates`` takes them, of the search and of its repeats; trials also have a
        reason.
    """
    repeats = study.request.repeats
    best = candidates(study, trials, measurements)
    if len(best) < 2:
        return [at for i in best for at in ids(i, 1, repeats.confirm)]
    choose = [at for i in best for at in ids(i, 1, repeats.choosing)]
    if not settled_ids(trials["trial"], trials["reason"]).issuperset(choose):
        return choose
    first = answers.intervals(measurements[measurements["trial"].isin(choose)], study.targets[0])
    steps = dict(zip(first["trial"].tolist(), first["steps_high"].tolist(), strict=True))
    return choose + ids(choice(best, repeats, steps), repeats.choosing + 1, repeats.confirm)


def choice(best: Sequence[int], repeats: Repeats, steps: Mapping[int, float]) -> int:
    """The chosen candidate: the one with the least median steps, of equals the better of the search.

    Args:
      best: candidates, the best of the search first.
      repeats: as asked for.
      steps: to target of the repeats that choose, by id; one that is not there never reached.
    """
    medians = [float(np.median([steps.get(at, np.inf) for at in ids(i, 1, repeats.choosing)])) for i in best]
    return best[int(np.argmin(medians))]


def missing_ids(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> list[int]:
    """Ids of the repeats that can be run now, in order; none before all trials of the search have ended.

    Args:
      study: as asked for.
      trials: rows (trial, role, reason), every trial once.
      measurements: rows (study, trial, step, metrics), sorted.
    """
    if not study.request.repeats.confirm or not len(trials):
        return []
    done = settled_ids(trials["trial"], trials["reason"])
    if not done.issuperset(range(study.trials)):
        return []
    return [trial for trial in requested_ids(study, trials, measurements) if trial not in done]


def count_to_run(study: Plan, trials: "pd.DataFrame", measurements: "pd.DataFrame") -> int:
    """The number of repeats still to be run after an ended search, including those that wait for the choice."""
    done = settled_ids(trials["trial"], trials["reason"])
    return (
        study.request.planned
        - study.trials
        - sum(trial in done for trial in requested_ids(study, trials, measurements))
    )
