"""Confirmations: the steps to target selected by a search, and those of the same trial rerun with new seeds.

The best of many trials usually had a lucky seed. If the best few trials were rerun, half of the repeats are used to
*choose* one of them. The *confirmed* answer is the median of the other half, which are called *reporting* repeats. If
only the best trial was rerun, all its repeats are used. ``results.rules.confirmation`` defines the rule. A repeat that
was stopped by a time limit counts as needing more steps than it ran. Lost or failed repeats are omitted.
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
from results.plans.kinds import along
from results.plans.study import ACCIDENTS, Target
from results.rules import confirmation
from results.rules.confirmation import CONFIRM, SEARCH
from results.store import Commit


class Confirmed(NamedTuple):
    """The selected and confirmed answers of a search. Steps are intervals (low, high], +inf if not reached.

    Attributes:
      study: name of the study.
      batch_size: batch size in examples.
      best: trial with the fewest steps to target in the search.
      selected: steps of this trial in the search.
      chosen: the trial that the reporting repeats rerun: the best one, or one of the best few.
      choosing: median of this trial's repeats that were used for the choice, or None if there was no choice.
      repeats: number of reporting repeats.
      reached: number of reporting repeats that reached the target.
      median: median of the reporting repeats, which is the confirmed answer.
      least, most: smallest and largest steps of the reporting repeats.
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
        """Ratio of confirmed to selected steps, +inf if half of the repeats missed.

        Selection bias makes it larger than 1.
        """
        return middle(self.median) / middle(self.selected)


def of_commits(commits: Sequence[Commit], target: Target) -> list[Confirmed]:
    """Returns the studies that have a confirmed answer for a target, sorted by batch size."""
    studies = trials.of_commits([commit for commit in commits if commit.repeats.confirm], target)
    confirmed = [
        confirmation_of_study for study in studies.values() if (confirmation_of_study := of_study(study)) is not None
    ]
    return sorted(confirmed, key=lambda study: (study.batch_size, study.study))


def of_study(study: StudyTrials) -> Confirmed | None:
    """Returns a study's selected and confirmed steps, or None if all search trials missed or no reporting repeat ran.

    ``results.rules.confirmation.reporting`` selects the repeats.
    """
    searched, repeats = (study.rows[study.rows["role"] == role] for role in (SEARCH, CONFIRM))
    reached = searched[searched["outcome"] == trials.REACHED]
    if not len(reached):
        return None
    best = reached.iloc[int(np.argmin(reached["steps_high"].to_numpy()))]
    by_accident = (repeats["outcome"] == trials.UNDECIDED) & repeats["reason"].isin(ACCIDENTS)
    repeats = repeats[~by_accident]
    reports = confirmation.reporting(study.study, study.target, _steps(reached), _steps(repeats))
    if not reports:
        return None
    reporting, choosing = (repeats[repeats["trial"].isin(ids)] for ids in (reports.ids, reports.chose))
    fewest, median, largest = _order(reporting)
    return Confirmed(
        study=study.study.name,
        batch_size=along(study.study),
        best=int(best["trial"]),
        selected=(float(best["steps_low"]), float(best["steps_high"])),
        chosen=reports.chosen,
        choosing=_order(choosing)[1] if len(choosing) else None,
        repeats=len(reporting),
        reached=int((reporting["outcome"] == trials.REACHED).sum()),
        median=median,
        least=fewest,
        most=largest,
    )


def _steps(rows: pd.DataFrame) -> dict[int, float]:
    """Returns the steps to target of trials, by trial id. They are +inf if the target was not reached."""
    return dict(zip(rows["trial"].tolist(), trials.bounds(rows)[1].tolist(), strict=True))


def _order(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Returns the intervals of the smallest, median and largest steps over n >= 1 trials."""
    low, high = (ends.tolist() for ends in trials.bounds(rows))
    return [(min(low), min(high)), confirmation.median(low, high), (max(low), max(high))]


def middle(ends: tuple[float, float]) -> float:
    """Returns the middle of an interval of steps. A step of 0, before the first evaluation, counts as 0.5."""
    return (max(ends[0], 0.5) + ends[1]) / 2


def add_confirmed(table: pd.DataFrame, overview: Overview | None) -> pd.DataFrame:
    """Adds ``columns.CONFIRMED`` to a table of answers.

    Args:
      table: rows with columns study, target_metric, target_value and others.
      overview: the store. None for answers by rules other than minimum, which are never confirmed.
    """
    commits = [commit for commit in store.catalogue(overview.folder) if commit.repeats.confirm] if overview else []
    confirmed: dict[tuple[str, Target], Confirmed] = {}
    for target in {Target(*pair) for pair in zip(table["target_metric"], table["target_value"], strict=True)}:
        confirmed |= {(study.study, target): study for study in of_commits(commits, target)}
    keys = zip(table["study"], map(Target, table["target_metric"], table["target_value"]), strict=True)
    rows = [confirmed.get(key) for key in keys]
    values = [
        (*answer.median, answer.chosen, answer.repeats, answer.reached) if answer else (np.nan,) * len(CONFIRMED)
        for answer in rows
    ]
    columns = np.array(values, np.float64).reshape(-1, len(CONFIRMED))
    columns[np.isinf(columns)] = np.nan
    return table.join(pd.DataFrame(columns, table.index, list(CONFIRMED)).astype("Int64"))


def heights(confirmed: Sequence[Confirmed]) -> list[float]:
    """Returns the numbers of steps that a picture must include."""
    ends = [end for answer in confirmed for end in (answer.least[0], *answer.median, *answer.most)]
    return [max(end, 0.5) for end in ends if np.isfinite(end)]


def points(confirmed: Sequence[Confirmed]) -> Points:
    """Returns confirmed steps as points of a curve, without selection bias.

    Args:
      confirmed: confirmed studies of a curve, sorted by batch size. A study is dropped, with a note, if half or more of
        its repeats never reached the target.
    """
    reached = [study for study in confirmed if np.isfinite(study.median[1])]
    if not reached:
        return curves.no_points(refusal="no repeats of any trial reached the target")
    dropped = [study.batch_size for study in confirmed if study not in reached]
    sizes, low, high = np.array([(study.batch_size, *study.median) for study in reached], np.float64).T
    counts = sorted({study.repeats for study in reached})
    span = "–".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    notes = [f"medians of {span} new seed{'s' if counts[-1] > 1 else ''}"]
    if dropped:
        where = text.batch_sizes(dropped)
        notes.append(f"left out: {where}, at which at least half of the repeats never reached the target")
    return Points(sizes, low, high, np.ones(len(reached)), None, tuple(notes), "")
