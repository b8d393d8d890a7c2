"""Confirmations: what the best trials took when they were run again on fresh seeds, beside what they were chosen for.

The best of many trials is also the luckiest. Its repeats are not chosen for what they took, so that they show how much
of its lead was luck.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analysis.fitting import curves
from analysis.fitting.curves import Points
from analysis.searches import trials
from analysis.searches.trials import StudyTrials
from results.asked import APART
from results.commits import Commit
from results.study import Target

SEARCH, CONFIRM = trials.ROLES


class Confirmed(NamedTuple):
    """The best trial of a study, and its repeats. Steps are intervals (low, high], +inf where not reached.

    Attributes:
      study: its name.
      batch_size: examples.
      selected: steps to target of the best trial of the search.
      repeats: how many there are.
      reached: how many of them reached the target.
      median: of the repeats.
      least, most: of the repeats.
    """

    study: str
    batch_size: int
    selected: tuple[float, float]
    repeats: int
    reached: int
    median: tuple[float, float]
    least: tuple[float, float]
    most: tuple[float, float]


def of(commits: Sequence[Commit], target: Target) -> list[Confirmed]:
    """The studies whose answer to a target was confirmed, sorted by batch size.

    A study confirms the answer to its first target. That to another target is confirmed if the same trial gave it.
    """
    found = trials.of_commits([commit for commit in commits if commit.repeats.confirm], target)
    told = [one for each in found.values() if (one := of_study(each)) is not None]
    return sorted(told, key=lambda one: (one.batch_size, one.study))


def heights(found: Sequence[Confirmed]) -> list[float]:
    """Steps that a picture of them has to reach."""
    ends = [end for one in found for end in (one.least[0], *one.median, *one.most)]
    return [max(end, 0.5) for end in ends if np.isfinite(end)]


def points(found: Sequence[Confirmed]) -> Points:
    """The medians of repeats as points of a curve: what is left of it once nothing is selected any more.

    Args:
      found: of the studies of a curve, sorted by batch size. Those half of whose repeats, or more, never reached are
        dropped, and a note says so.
    """
    reached = [one for one in found if np.isfinite(one.median[1])]
    if not reached:
        return curves.nothing(refusal="no best trial was run again whose repeats reached the target")
    dropped = [f"{one.batch_size:,}" for one in found if one not in reached]
    missed = f"half of the repeats or more never reached the target at batch size {', '.join(dropped)}, dropped"
    sizes, low, high = np.array([(one.batch_size, *one.median) for one in reached], np.float64).T
    notes = ("medians of best trials run again", *([missed] if dropped else []))
    return Points(sizes, low, high, np.ones(len(reached)), None, notes, "")


def of_study(one: StudyTrials) -> Confirmed | None:
    """Selected and confirmed steps of a study; None if its best trial has no repeat that ran to its end."""
    searched, repeats = (one.rows[one.rows["role"] == role] for role in (SEARCH, CONFIRM))
    reached = searched[searched["outcome"] == trials.REACHED]
    if not len(reached):
        return None
    best = reached.iloc[int(np.argmin(reached["steps_high"].to_numpy()))]
    own = repeats[(repeats["trial"] % APART == best["trial"]) & (repeats["outcome"] != trials.UNDECIDED)]
    if not len(own):
        return None
    low, high = (np.sort(ends) for ends in trials.bounds(own))
    first, last = (len(own) - 1) // 2, len(own) // 2  # of an even number, the two in the middle
    return Confirmed(
        study=one.study.name,
        batch_size=one.study.batch_size or 0,
        selected=(float(best["steps_low"]), float(best["steps_high"])),
        repeats=len(own),
        reached=int(np.isfinite(high).sum()),
        median=(float(low[first]), float(high[last])),
        least=(float(low[0]), float(high[0])),
        most=(float(low[-1]), float(high[-1])),
    )
