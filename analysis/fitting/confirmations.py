"""Confirmations: the steps that a search selected, and those of the same trial run again on fresh seeds.

The best of many trials is also the luckiest. Where its best few were run again, one of them was *chosen* by half of
the repeats, and the other half of the chosen one's *reports*: the median of these is what was *confirmed*. Where the
best trial alone was run again nothing was chosen, and all of its repeats report. The rule stands in
``results.rules.confirmation``. A repeat that a time limit stopped takes more steps than it had taken. One that was lost
or failed is left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import text
from analysis.columns import CONFIRMED
from analysis.fitting import curves
from analysis.fitting.curves import Points
from analysis.trials import trials
from analysis.trials.trials import StudyTrials
from results import store
from results.catalog.overview import Overview
from results.plans.plan import Plan
from results.plans.study import ACCIDENTS, Target
from results.rules import confirmation
from results.rules.confirmation import CONFIRM, SEARCH
from results.storage.commits import Commit


class Confirmed(NamedTuple):
    """The answer of a search, and what was confirmed. Steps are intervals (low, high], +inf where not reached.

    Attributes:
      study: its name.
      batch_size: examples.
      best: the trial with the fewest steps to target in the search.
      selected: its steps there.
      chosen: the trial that was run again to report: the best one, or one of the best few.
      choosing: median of the repeats it was chosen by; None where nothing was chosen.
      repeats: how many report.
      reached: how many of them reached the target.
      median: of those that report; what is confirmed.
      least, most: of those that report.
    """

    study: str
    batch_size: int
    best: int
    selected: tuple[float, float]
    chosen: int
    choosing: tuple[float, float] | None
    repeats: int
    reached: int
    median: tuple[float, float]
    least: tuple[float, float]
    most: tuple[float, float]

    @property
    def ratio(self) -> float:
        """Confirmed over selected steps: above 1 is the winner's curse; +inf if half of the repeats never reached."""
        return middle(self.median) / middle(self.selected)


def of_commits(commits: Sequence[Commit], target: Target) -> list[Confirmed]:
    """The studies whose answer to a target was confirmed, sorted by batch size."""
    studies = trials.of_commits([commit for commit in commits if commit.repeats.confirm], target)
    confirmed = [one for each in studies.values() if (one := of_study(each)) is not None]
    return sorted(confirmed, key=lambda one: (one.batch_size, one.study))


def of_study(one: StudyTrials) -> Confirmed | None:
    """Selected and confirmed steps of a study; None if no trial of its search reached, or none that reports ran.

    A study chooses for its first target. What reports is unbiased for any other target, too, but of a trial that may
    not be the one to take. So it confirms another target only if the choice for that would have been the same: its best
    trial is among those run again, and the chosen one is the best of these by the repeats that chose.
    """
    searched, repeats = (one.rows[one.rows["role"] == role] for role in (SEARCH, CONFIRM))
    reached = searched[searched["outcome"] == trials.REACHED]
    if not len(reached):
        return None
    best = reached.iloc[int(np.argmin(reached["steps_high"].to_numpy()))]
    reports = repeats["trial"].isin(confirmation.reporting_ids(one.study.request, repeats["trial"]))
    by_accident = (repeats["outcome"] == trials.UNDECIDED) & repeats["reason"].isin(ACCIDENTS)
    own, before = repeats[reports & ~by_accident], repeats[~reports & ~by_accident]
    if not len(own):
        return None
    chosen = int(confirmation.original(own["trial"].iloc[0]))
    if one.target != one.study.targets[0] and chosen != _choice(one.study, int(best["trial"]), before, searched):
        return None
    least, median, most = _order(own)
    choosing = before[confirmation.original(before["trial"]) == chosen]
    return Confirmed(
        study=one.study.name,
        batch_size=one.study.batch_size or 0,
        best=int(best["trial"]),
        selected=(float(best["steps_low"]), float(best["steps_high"])),
        chosen=chosen,
        choosing=_order(choosing)[1] if len(choosing) else None,
        repeats=len(own),
        reached=int((own["outcome"] == trials.REACHED).sum()),
        median=median,
        least=least,
        most=most,
    )


def _choice(study: Plan, best: int, repeats: pd.DataFrame, searched: pd.DataFrame) -> int | None:
    """The trial that repeats would choose.

    Args:
      study: the plan.
      best: of the search; the choice where nothing was repeated to choose by.
      repeats: rows of those that choose.
      searched: rows of the search.

    Returns:
      None if the best of the search is not among the trials that were repeated.
    """
    if not len(repeats):
        return best
    before, after = (
        dict(zip(rows["trial"].tolist(), trials.bounds(rows)[1].tolist(), strict=True)) for rows in (searched, repeats)
    )
    candidates = sorted(set(map(confirmation.original, after)), key=lambda trial: (before[trial], trial))
    return confirmation.choice(candidates, study.request.repeats, after) if best in candidates else None


def _order(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Intervals of the least, the median and the most steps of n >= 1 trials."""
    low, high = (np.sort(ends) for ends in trials.bounds(rows))
    n = len(rows)  # of an even number the median is between the two in the middle
    return [(float(low[first]), float(high[last])) for first, last in ((0, 0), ((n - 1) // 2, n // 2), (-1, -1))]


def middle(ends: tuple[float, float]) -> float:
    """The middle of an interval of steps; 0, before the first evaluation, counts as 0.5."""
    return (max(ends[0], 0.5) + ends[1]) / 2


def add_confirmed(table: pd.DataFrame, overview: Overview | None) -> pd.DataFrame:
    """A table of answers, with ``columns.CONFIRMED`` beside them.

    Args:
      table: rows (study, target_metric, target_value, ...).
      overview: the store; None: nothing is confirmed, as the answers are not by the rule minimum.
    """
    commits = [commit for commit in store.catalogue(overview.folder) if commit.repeats.confirm] if overview else []
    confirmed: dict[tuple[str, Target], Confirmed] = {}
    for target in {Target(*pair) for pair in zip(table["target_metric"], table["target_value"], strict=True)}:
        confirmed |= {(one.study, target): one for one in of_commits(commits, target)}
    keys = zip(table["study"], map(Target, table["target_metric"], table["target_value"]), strict=True)
    rows = [confirmed.get(key) for key in keys]
    values = [
        (*one.median, one.chosen, one.repeats, one.reached) if one else (np.nan,) * len(CONFIRMED) for one in rows
    ]
    columns = np.array(values, np.float64).reshape(-1, len(CONFIRMED))
    columns[np.isinf(columns)] = np.nan
    return table.join(pd.DataFrame(columns, table.index, list(CONFIRMED)).astype("Int64"))


def heights(confirmed: Sequence[Confirmed]) -> list[float]:
    """Steps that a picture of them has to reach."""
    ends = [end for one in confirmed for end in (one.least[0], *one.median, *one.most)]
    return [max(end, 0.5) for end in ends if np.isfinite(end)]


def points(confirmed: Sequence[Confirmed]) -> Points:
    """Confirmed steps as points of a curve, free of selection.

    Args:
      confirmed: of the studies of a curve, sorted by batch size. Those half of whose repeats, or more, never reached
        are dropped, and a note says so.
    """
    reached = [one for one in confirmed if np.isfinite(one.median[1])]
    if not reached:
        return curves.no_points(refusal="no trial was run again whose repeats reached the target")
    dropped = [one.batch_size for one in confirmed if one not in reached]
    missed = f"half of the repeats or more never reached the target at {text.batch_sizes(dropped)}, dropped"
    sizes, low, high = np.array([(one.batch_size, *one.median) for one in reached], np.float64).T
    counts = sorted({one.repeats for one in reached})
    span = "–".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    notes = (f"medians of {span} fresh seed{'s' * (counts[-1] > 1)}", *([missed] if dropped else []))
    return Points(sizes, low, high, np.ones(len(reached)), None, notes, "")
