"""Coverage: how often the intervals of `analysis fit` contain the truth, and how often its verdicts are correct."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import coverage_tables, text
from analysis.columns import COVERAGE as COLUMNS
from analysis.coverage_tables import HEADINGS, percent
from analysis.fitting import regimes, samples, simulation
from analysis.fitting.simulation import Scenario, Searches
from results.printing import Report

LEAST, MOST = 0.85, 0.99  # range for the fraction of statements that hold if the knee is inside
EACH = 0.80  # lower limit for each scenario
# Beyond the assumptions: maximum fraction identified and wrong, and minimum fraction with the check named.
WRONG, NAMED = 0.10, 0.80
FALSELY = 0.05  # maximum fraction identified among data sets without a knee inside
SHARES = {"hold": "covered", "least": "least"} | HEADINGS | {"failed": "failed"}  # column headings
CHUNK = 100  # data sets per batch of fits, so that arrays fit in the processor's cache


def run(datasets: int, seed: int, report: Report, scenarios: Sequence[Scenario] = ()) -> pd.DataFrame:
    """Simulates and fits ``datasets`` curves per scenario. Returns one row of ``COLUMNS`` per scenario.

    Args:
      datasets: number of data sets per scenario.
      seed: seed of the simulation. The data of a scenario do not depend on which other scenarios are run.
      report: called with progress lines.
      scenarios: scenarios to run, or empty for all.
    """

    def one(scenario: Scenario, rng: np.random.Generator) -> dict[str, object]:
        searches = simulation.draw(scenario, datasets, rng)
        return row(scenario, fit(scenario, searches), searches.critical)

    all_scenarios = simulation.scenarios()
    return coverage_tables.table("coverage", all_scenarios, scenarios, one, seed, datasets, report)[list(COLUMNS)]


def fit(scenario: Scenario, searches: Searches) -> list[regimes.Fit]:
    """Fits a scenario's data sets with the same code that fits the curves of a store."""
    low, high, weights = samples.best(searches.low, searches.high)
    without = samples.left_out(searches.low, searches.high) if scenario.points == "shared" else None
    fits = []
    for start in range(0, len(low), CHUNK):
        part = slice(start, start + CHUNK)
        rest = None if without is None else without[part]
        evidence = samples.evidence(searches.low[part], searches.high[part])
        fits += regimes.fit_each(scenario.batch_size, low[part], high[part], weights[part], rest, evidence)
    return fits


def row(scenario: Scenario, fitted: Sequence[regimes.Fit], critical: np.ndarray) -> dict[str, object]:
    """Returns the results of a scenario with true critical batch sizes ``critical`` [d]: a row of ``COLUMNS``."""
    verdicts = [fit_of_data.verdict for fit_of_data in fitted]
    low, high = (np.array([getattr(fit_of_data, end) for fit_of_data in fitted]) for end in ("low", "high"))
    holds, rates = coverage_tables.rates(verdicts, low, high, critical)
    failed = [{check.assumption for check in fit_of_data.shape.doubts} for fit_of_data in fitted]
    breaks = simulation.BEYOND[scenario.shape].breaks if scenario.shape in simulation.BEYOND else None
    return {
        **dict(zip(COLUMNS, (*scenario, len(fitted)), strict=False)),
        **rates,
        "wrong": float(np.mean((np.array(verdicts) == "identified") & ~holds)),
        "failed": float(np.mean([bool(names) for names in failed])),
        "named": float(np.mean([breaks in names for names in failed])) if breaks else np.nan,
    }


def summary(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Returns the rates over all data sets with the same value in ``column``. See ``coverage_tables.summary``."""
    return coverage_tables.summary(table, column, ("wrong", "failed", "named"))


def as_text(table: pd.DataFrame, seed: int, seconds: float) -> str:
    """Formats the rates as text, grouped by knee position, by shape and so on. Each group is shown with its aim."""
    is_beyond = table["shape"].isin(simulation.BEYOND)
    strained = (table["shape"] == simulation.LOPSIDED) | is_beyond
    has_own_points, inside = table["points"] == "own", table["knee"].isin(simulation.INSIDE)
    # The aims apply to these. Strains and cases beyond the assumptions are separate.
    standard = table[has_own_points & inside & ~strained]
    parts = [
        ("all", standard.assign(all="knee inside, five shapes"), "all"),
        ("knee, five shapes", table[has_own_points & ~strained], "knee"),
        ("shape of curve, knee inside", table[has_own_points & inside & ~is_beyond], "shape"),
        ("batch sizes, knee inside", standard, "batch_sizes"),
        ("noise, knee inside", standard, "noise"),
        ("grid of evaluations, knee inside", standard, "grid"),
        ("points of the search", table[inside & ~strained & table["knee"].isin(simulation.INSIDE[:2])], "points"),
    ]
    datasets = int(table["datasets"].max())
    lines = [
        f"Statements of `analysis fit` on simulated searches of {simulation.TRIALS} trials: {len(table)} scenarios of "
        f"{datasets} data sets, seed {seed}, {seconds:.0f} s.",
        f"Aim: {LEAST:.0%} to {MOST:.0%} of statements hold if the knee is inside, {EACH:.0%} in each scenario. "
        f"At most {FALSELY:.0%} are identified if it is not.",
        "",
    ]
    for title, rows, column in parts:
        if len(rows):
            rates = summary(rows, column)
            aims = [met(rate, column) for rate in rates.to_dict("records")]
            lines += [coverage_tables.block(title, rates.assign(aim=aims), column, SHARES), ""]
    for noise, rows in table[is_beyond].groupby("noise", sort=False):
        lines += [_beyond(f"beyond the assumptions, {noise} noise", rows), ""]
    return "\n".join([*lines, _BEYOND]) if is_beyond.any() else "\n".join(lines[:-1])


_BEYOND = f"""\
The five shapes are all except lopsided. Failed: a check of the shape or the search failed, so no interval is reported.
Beyond the assumptions, the checks were designed for the first five curves. No choice was based on the others.
Aim: at most {WRONG:.0%} of all data sets are identified and wrong, and in {NAMED:.0%} the check that the curve
violates fails ("by name")."""


def _beyond(title: str, rows: pd.DataFrame) -> str:
    shares = {"hold": "covered", "identified": "identified", "and wrong": "wrong"} | HEADINGS
    shares |= {"failed": "failed", "by name": "named"}
    lines = [
        {title: str(scenario["shape"])}
        | {heading: percent(scenario[column]) for heading, column in shares.items()}
        | {"aim": met_beyond(scenario)}
        for scenario in rows.to_dict("records")
    ]
    return text.table(lines, [title, "aim"])


def met_beyond(scenario: Mapping[Any, Any]) -> str:
    """Returns ``met`` or ``MISSED`` for a scenario of ``simulation.BEYOND``, or an empty string if there is no aim."""
    if scenario["shape"] not in simulation.CHOSEN_ON:
        return ""
    return "met" if scenario["wrong"] <= WRONG and scenario["named"] >= NAMED else "MISSED"


def met(rate: Mapping[Any, Any], column: str) -> str:
    """Returns ``met`` or ``MISSED`` for a row of ``summary``, or an empty string if there is no aim."""
    if rate[column] == "shared unawares":
        return ""
    if rate[column] in simulation.KNEES and rate[column] not in simulation.INSIDE:
        return "met" if rate["identified"] <= FALSELY else "MISSED"
    return "met" if LEAST <= rate["covered"] <= MOST and rate["least"] >= EACH else "MISSED"
