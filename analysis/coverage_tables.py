"""Tables of coverage: how often fits hold in scenarios, each simulated from a separate stream of random numbers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from analysis import text
from analysis.text import VERDICTS
from results import progress
from results.printing import Report

S = TypeVar("S")

HEADINGS = {verdict.replace("_", " "): verdict for verdict in VERDICTS}


def table(
    title: str,
    every: Sequence[S],
    wanted: Sequence[S],
    row: Callable[[S, np.random.Generator], Mapping[str, object]],
    seed: int,
    datasets: int,
    report: Report,
) -> pd.DataFrame:
    """A row for each of the wanted scenarios, in their order.

    Args:
      title: title of the progress line.
      every: all scenarios. The position of a scenario in them and the seed determine its random numbers.
      wanted: the scenarios to run, or empty for all.
      row: simulates and fits a scenario's data sets.
      seed: seed of the simulation.
      datasets: data sets per scenario, for the progress line.
      report: receives lines of progress.
    """
    chosen = list(wanted) or list(every)
    rows = []
    with progress.show_progress(title, datasets * len(chosen), " fits", report) as move:
        for done, scenario in enumerate(chosen, start=1):
            rows.append(row(scenario, np.random.default_rng([seed, every.index(scenario)])))
            move(datasets * done)
    return pd.DataFrame(rows)


def summary(table: pd.DataFrame, by: str, shares: Sequence[str]) -> pd.DataFrame:
    """Rates over all data sets that agree in the column ``by``, a row each.

    Returns:
      Columns ``by``, scenarios (their number), covered, least (the least coverage of a scenario), the verdicts and
      ``shares`` (means over data sets) and octaves (the median of scenarios).
    """
    rows = []
    for name, group in table.groupby(by, sort=False):
        # Each scenario is weighted by its number of statements.
        stated = (group["datasets"] * (1 - group["not_identified"])).to_numpy()
        holding = (group["covered"].fillna(0) * stated).sum()
        row = {by: name, "scenarios": len(group), "covered": holding / stated.sum() if stated.any() else np.nan}
        row |= {"least": group["covered"].min(), "octaves": group["octaves"].median()}
        means = {column: np.average(group[column], weights=group["datasets"]) for column in (*VERDICTS, *shares)}
        rows.append(row | means)
    return pd.DataFrame(rows)


def block(title: str, rates: pd.DataFrame, by: str, shares: Mapping[str, str]) -> str:
    """The rows of a summary for a reader: the column ``by``, scenarios if there, shares by heading, octaves and aim."""
    rows = []
    for rate in rates.to_dict("records"):
        cells = {title: str(rate[by])}
        if "scenarios" in rate:
            cells["scenarios"] = str(rate["scenarios"])
        cells |= {heading: percent(rate[column]) for heading, column in shares.items()}
        rows.append(cells | {"octaves": text.number(rate["octaves"], 2), "aim": rate["aim"]})
    return text.table(rows, [title, "aim"])


def percent(share: float) -> str:
    """A share as a percentage, empty for NaN."""
    return "" if np.isnan(share) else f"{share:.1%}"


def rates(
    verdicts: Sequence[str], low: np.ndarray, high: np.ndarray, truth: np.ndarray | float, slack: float = 0.0
) -> tuple[np.ndarray, dict[str, float]]:
    """Rates of verdicts and of statements that hold.

    Args:
      verdicts: verdicts of d data sets.
      low, high: float64[d], the ends of their intervals, NaN if open.
      truth: true value of each data set, or of all.
      slack: relative tolerance of an end at the truth.

    Returns:
      Whether each statement holds, bool[d], false without a statement, and the columns covered, those of verdicts, and
      octaves of a table of coverage.
    """
    words = np.array(verdicts)
    from_below, from_above = ~(low > truth * (1 + slack)), ~(high < truth * (1 - slack))
    conditions = [words == verdict for verdict in VERDICTS[:3]]
    holds = np.select(conditions, [from_below & from_above, from_below, from_above], False)
    stated, identified = words != "not_identified", words == "identified"
    return holds, {
        "covered": float(holds[stated].mean()) if stated.any() else np.nan,
        **{verdict: float(np.mean(words == verdict)) for verdict in VERDICTS},
        "octaves": float(np.median(np.log2(high / low)[identified])) if identified.any() else np.nan,
    }
