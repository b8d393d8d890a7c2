"""Medians: the number of steps within which half of all searches of k trials succeed, with a band and two checks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import text, workload_studies
from analysis.columns import MEDIAN_COLUMNS, MEDIANS, NAMING
from analysis.trials import best_of, edges, steps, trials
from analysis.trials.trials import StudyTrials
from results import store
from results.aliases import Fields, Json
from results.catalog.overview import Overview
from results.rules.confirmation import SEARCH
from results.rules.descriptions import StudyDescription

COUNTS = ("batch_size", "trials_per_point", "trials", "reached", "undecided")
WHOLE = (*COUNTS, "steps_low", "steps_high", "band_low", "band_high")
VERDICTS = ("sampled enough?", "optimum at an edge?")  # columns for a reader
LEGEND = """\
best of: trials per search. Half of all such searches need at most the median steps. trials: the trials used, the same
number for every study of a curve. sampled enough: no, if the best of half of the trials takes over 10 % more steps than
the best of all. An optimum at an edge of its search space may lie beyond it, so widen the range. With ? it may also lie
some way off the edge."""


class TrialCounts(NamedTuple):
    """Requested numbers of trials.

    Attributes:
      trials: number of trials to use from each study. None uses the smallest number in any study of the curve.
      best_of: number of trials per search. None uses the largest number for which the band has a lower end.
    """

    trials: int | None = None
    best_of: int | None = None


ALL = TrialCounts()


class Summary(NamedTuple):
    """Results for one study under the median rule. Unknown numbers are NaN.

    The fields are those of ``columns.MEDIANS``, with the edges from ``edges.find_edges``.
    """

    median: best_of.Median
    best_of: int
    trials: int
    reached: int
    undecided: int
    success: tuple[float, float]
    expected_steps: tuple[float, float]
    fall: float
    sampled_enough: str
    edges: list[edges.Edge] | None


def equal_counts(studies: Sequence[StudyTrials]) -> int:
    """Returns the smallest nonzero number of trials that count in any study of a curve, or 0 if all are 0."""
    return min((each.k for each in studies if each.k), default=0)


def summarize(of: StudyTrials, count: int, best: int) -> Summary:
    """Summarizes the median best of ``best``, using a study's first ``count`` trials (1 ≤ best ≤ count ≤ k)."""
    rows = of.rows_in_k.iloc[:count]
    low, high = trials.bounds(rows)
    reached, undecided = int(np.isfinite(high).sum()), int((np.isfinite(low) & ~np.isfinite(high)).sum())
    values = {name: rows[name].to_numpy() for name in of.metaparameters}
    return Summary(
        median=best_of.median(low, high, best),
        best_of=best,
        trials=count,
        reached=reached,
        undecided=undecided,
        success=best_of.share(reached, undecided, count),
        expected_steps=best_of.expected_steps(low, high),
        fall=best_of.fall(high),
        sampled_enough=best_of.sampled_enough(low, high),
        edges=edges.find_edges(values, high, of.study.search.space),
    )


def answer(
    overview: Overview, request: steps.Wanted = None, requested: TrialCounts = ALL
) -> tuple[pd.DataFrame, list[str]]:
    """Returns the medians of a store, and notes of one sentence each.

    Returns:
      A table with ``MEDIAN_COLUMNS`` and ``study`` (the study's name), for unpruned studies. Integer columns are Int64.
      A study with fewer trials than requested has empty cells.

    Raises:
      BadInput: all studies were pruned, or there is no target.
    """
    overview, notes = steps.without_pruned(overview, request, "--rule median")
    commits = {
        commit.name: commit for commit in store.catalogue(overview.folder) if commit.name in overview.descriptions
    }
    rows = []
    few, short, left_out = dict[str, int](), dict[str, int](), dict[str, int]()
    for target, descriptions in steps.targets(overview, request).items():
        trials_of_study = trials.of_commits([commits[one.study] for one in descriptions], target)
        description_of = {one.study: one for one in descriptions}
        for workload in workload_studies.group([commits[name] for name in description_of]):
            members = [description_of[commit.name] for commit in workload.commits]
            k_of_study = {one.study: trials_of_study[one.study].k for one in members}
            count = requested.trials or equal_counts([trials_of_study[name] for name in k_of_study])
            best = requested.best_of or best_of.largest_with_band(count)
            few |= {name: number for name, number in k_of_study.items() if number < max(count, best, 1)}
            if not requested.trials and 2 * count < max(k_of_study.values()):
                short |= {name: number for name, number in k_of_study.items() if number == count}
            left_out |= {name: number for name in k_of_study if (number := _left_out(trials_of_study[name]))}
            rows += [_row(one, trials_of_study[one.study], count, best) for one in members]
    counts_of = {
        "without an answer, because too few of their trials count": few,
        "only few trials of these count, which limits the other studies of their curves (--k N uses more)": short,
        "trials that were lost, failed or never got to an evaluation are left out": left_out,
    }
    notes += text.notes({what: [f"{name} ({n})" for name, n in each.items()] for what, each in counts_of.items()})
    shown = _table(rows)
    return shown, notes + steps.notes_by_any_rule(overview, shown, request)


def as_text(table: pd.DataFrame) -> str:
    """Formats the table as text, with each interval in a single column, verdicts as text, and a legend."""
    rows = []
    for row in table.to_dict("records"):
        expected = text.number(row["expected_steps_low"]), text.number(row["expected_steps_high"])
        cells = steps.names(row) | {
            "batch size": steps.whole(row["batch_size"]),
            "best of": steps.whole(row["trials_per_point"]),
            "median steps": _interval(steps.whole(row["steps_low"]), steps.whole(row["steps_high"])),
            "90 % band": _interval(steps.whole(row["band_low"]), steps.whole(row["band_high"])),
            "trials": steps.whole(row["trials"]),
            "reached": "",
            "90 %": "",
            "expected steps": _interval(*expected),
            VERDICTS[0]: row["sampled_enough"],
            VERDICTS[1]: row["at_edge"],
        }
        if not pd.isna(row["reached"]):
            cells["reached"] = f"{row['success']:.0%}"
            cells["90 %"] = f"{row['success_low']:.0%} .. {row['success_high']:.0%}"
            cells["median steps"] = cells["median steps"] or "not reached"
        rows.append(cells)
    left = [*steps.NAMES, *VERDICTS]
    shown = text.table(rows, left, ["differs"], prose=VERDICTS[1:], kept=["median steps"])
    return f"{shown}\n\n{LEGEND}"


def _row(one: StudyDescription, of: StudyTrials, count: int, best: int) -> Json:
    naming = (one.dataset, one.model, one.optimizer, one.batch_size, of.target.metric, of.target.value)
    row = dict(zip(NAMING, naming, strict=True)) | {"study": one.study, "trials_per_point": best, "trials": of.k}
    if not 1 <= best <= count <= of.k:
        return row | {"sampled_enough": "unclear", "at_edge": "unclear"}
    summary = summarize(of, count, best)
    return row | {
        "steps_low": summary.median.low,
        "steps_high": summary.median.high,
        "band_low": summary.median.band_low,
        "band_high": summary.median.band_high,
        "trials": count,
        "reached": summary.reached,
        "undecided": summary.undecided,
        "success": round(summary.reached / count, 4),
        "success_low": round(summary.success[0], 4),
        "success_high": round(summary.success[1], 4),
        "expected_steps_low": round(summary.expected_steps[0], 1),
        "expected_steps_high": round(summary.expected_steps[1], 1),
        "relative_improvement": round(summary.fall, 4),
        "sampled_enough": summary.sampled_enough,
        "at_edge": "unclear" if summary.edges is None else "; ".join(map(str, summary.edges)) or "no",
    }


def _left_out(of: StudyTrials) -> int:
    """Returns the number of search trials that do not count."""
    return int((~of.rows["in_k"] & (of.rows["role"] == SEARCH)).sum())


def _table(rows: Sequence[Fields]) -> pd.DataFrame:
    order = ["dataset", "model", "optimizer", "target_metric", "target_value", "batch_size", "study"]
    numbers = [name for name in MEDIANS if name not in ("sampled_enough", "at_edge")]
    frame = pd.DataFrame(rows, columns=[*MEDIAN_COLUMNS, "study"]).sort_values(order, ignore_index=True)
    frame[numbers] = frame[numbers].astype(np.float64).replace([np.inf, -np.inf], np.nan)
    return frame.astype(dict.fromkeys(WHOLE, "Int64"))


def _interval(low: str, high: str) -> str:
    """Formats an interval that is open below. Unknown ends become two dots. Empty if both ends are unknown."""
    if not low and not high:
        return ""
    at_start = high != "" and not high.strip("0.")
    return ("[" if at_start else "(") + f"{low or '..'}, " + (f"{high}]" if high else "..)")
