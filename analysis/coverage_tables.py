"""Coverage tables: how often fits are correct in simulated scenarios. Each scenario has a separate seed."""

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
    all_scenarios: Sequence[S],
    wanted: Sequence[S],
    row: Callable[[S, np.random.Generator], Mapping[str, object] | Sequence[Mapping[str, object]]],
    seed: int,
    datasets: int,
    report: Report,
) -> pd.DataFrame:
    """Returns one or more rows for each requested scenario, in order.

    Args:
      title: title of the progress line.
      all_scenarios: all scenarios. The random numbers of a scenario depend on the seed and on its position in this
        list.
      wanted: scenarios to run, or empty for all.
      row: function that simulates and fits a scenario's data sets, and returns its row or rows.
      seed: seed of the simulation.
      datasets: number of data sets per scenario, for the progress line.
      report: called with progress lines.
    """
    chosen = list(wanted) or list(all_scenarios)
    rows: list[Mapping[str, object]] = []
    with progress.show_progress(title, datasets * len(chosen), " fits", report) as move:
        for done, scenario in enumerate(chosen, start=1):
            result = row(scenario, np.random.default_rng([seed, all_scenarios.index(scenario)]))
            rows += [result] if isinstance(result, Mapping) else result
            move(datasets * done)
    return pd.DataFrame(rows)


def summary(table: pd.DataFrame, group_column: str, shares: Sequence[str]) -> pd.DataFrame:
    """Returns the rates over all data sets with the same value in ``group_column``, one row per value.

    Returns:
      Columns ``group_column``, scenarios (their number), covered, least (the lowest coverage in a scenario), the
      verdicts and ``shares`` (means over data sets) and octaves (the median over scenarios).
    """
    rows = []
    for name, group in table.groupby(group_column, sort=False):
        # Each scenario is weighted by its number of statements.
        stated = (group["datasets"] * (1 - group["not_identified"])).to_numpy()
        holding = (group["covered"].fillna(0) * stated).sum()
        row = {
            group_column: name,
            "scenarios": len(group),
            "covered": holding / stated.sum() if stated.any() else np.nan,
        }
        row |= {"least": group["covered"].min(), "octaves": group["octaves"].median()}
        means = {column: np.average(group[column], weights=group["datasets"]) for column in (*VERDICTS, *shares)}
        rows.append(row | means)
    return pd.DataFrame(rows)


def block(title: str, rates: pd.DataFrame, group_column: str, shares: Mapping[str, str]) -> str:
    """Formats a summary as text: ``group_column``, scenarios (if present), shares by heading, octaves and aim."""
    rows = []
    for rate in rates.to_dict("records"):
        cells = {title: str(rate[group_column])}
        if "scenarios" in rate:
            cells["scenarios"] = str(rate["scenarios"])
        cells |= {heading: percent(rate[column]) for heading, column in shares.items()}
        rows.append(cells | {"octaves": text.number(rate["octaves"], 2), "aim": rate["aim"]})
    return text.table(rows, [title, "aim"])


def percent(share: float) -> str:
    """Formats a fraction as a percentage, or as an empty string for NaN."""
    return "" if np.isnan(share) else f"{share:.1%}"


def rates(
    verdicts: Sequence[str], low: np.ndarray, high: np.ndarray, truth: np.ndarray | float, slack: float = 0.0
) -> tuple[np.ndarray, dict[str, float]]:
    """Returns how often each verdict occurs, and how often verdicts are correct.

    Args:
      verdicts: verdicts of d data sets.
      low, high: float64[d], ends of the intervals, NaN if open.
      truth: true value for each data set, or for all of them.
      slack: relative tolerance when an end is compared with the true value.

    Returns:
      Whether each verdict is correct, bool[d] (false if it makes no statement), and columns of a coverage table:
      covered, the verdicts and octaves.
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
