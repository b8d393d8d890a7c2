"""Coverage: how often the intervals of `analysis fit` hold the truth, and its verdicts are right, on simulated data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import coverage_tables, text
from analysis.columns import COVERAGE as COLUMNS
from analysis.fitting import regimes, samples, simulation
from analysis.fitting.simulation import Scenario, Searches
from analysis.text import VERDICTS
from results import cli

LEAST, MOST = 0.85, 0.99  # of statements that have to hold where the knee is inside
EACH = 0.80  # of those of a scenario
WRONG, NAMED = 0.10, 0.80  # of data sets beyond what is assumed: identified and wrong, and the failed check named
FALSELY = 0.05  # of data sets without a knee inside, the most that may be called identified
CHUNK = 100  # data sets that are fitted together, so that what is computed stays in a processor's cache


def run(datasets: int, seed: int, report: Callable[[str], None], scenarios: Sequence[Scenario] = ()) -> pd.DataFrame:
    """Simulates and fits ``datasets`` curves of every scenario; a row of ``COLUMNS`` for each scenario.

    Args:
      datasets: of each scenario.
      seed: of everything that is drawn; a scenario's data do not depend on which others there are.
      report: takes lines that tell how far it is.
      scenarios: which; all if none are given.
    """

    def one(scenario: Scenario, rng: np.random.Generator) -> dict[str, object]:
        searches = simulation.draw(scenario, datasets, rng)
        return row(scenario, fit(scenario, searches), searches.critical)

    return coverage_tables.table("coverage", simulation.scenarios(), scenarios, one, seed, datasets, report)[
        list(COLUMNS)
    ]


def fit(scenario: Scenario, searches: Searches) -> list[regimes.Fit]:
    """The fits of a scenario's data sets, by the code that fits the curves of a store."""
    low, high, weights = samples.best(searches.low, searches.high)
    without = samples.left_out(searches.low, searches.high) if scenario.points == "shared" else None
    fits: list[regimes.Fit] = []
    for start in range(0, len(low), CHUNK):
        part = slice(start, start + CHUNK)
        rest = None if without is None else without[part]
        evidence = samples.evidence(searches.low[part], searches.high[part])
        fits += regimes.fit_each(scenario.batch_size, low[part], high[part], weights[part], rest, evidence)
    return fits


def row(scenario: Scenario, fitted: Sequence[regimes.Fit], critical: np.ndarray) -> dict[str, object]:
    """Results of a scenario whose true critical batch sizes are ``critical`` [d]: a row of ``COLUMNS``."""
    verdicts = [one.verdict for one in fitted]
    low, high = (np.array([getattr(one, end) for one in fitted]) for end in ("low", "high"))
    holds, rates = coverage_tables.rates(verdicts, low, high, critical)
    failed = [{check.assumption for check in one.shape.doubts} for one in fitted]
    breaks = simulation.BEYOND[scenario.shape].breaks if scenario.shape in simulation.BEYOND else None
    return {
        **dict(zip(COLUMNS, (*scenario, len(fitted)), strict=False)),
        **rates,
        "wrong": float(np.mean((np.array(verdicts) == "identified") & ~holds)),
        "failed": float(np.mean([bool(names) for names in failed])),
        "named": float(np.mean([breaks in names for names in failed])) if breaks else np.nan,
    }


def summary(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Rates over all data sets that agree in the column ``by``, a row each.

    Returns:
      Columns ``by``, scenarios (how many), covered, least (the least coverage of a scenario), then as in ``COLUMNS``.
    """
    rows = []
    for name, group in table.groupby(by, sort=False):
        # Each scenario counts by the statements it made.
        stated = (group["datasets"] * (1 - group["not_identified"])).to_numpy()
        holding = (group["covered"].fillna(0) * stated).sum()
        rows.append(
            {
                by: name,
                "scenarios": len(group),
                "covered": holding / stated.sum() if stated.any() else np.nan,
                "least": group["covered"].min(),
                **{verdict: np.average(group[verdict], weights=group["datasets"]) for verdict in VERDICTS},
                "octaves": group["octaves"].median(),
                **{
                    share: np.average(group[share], weights=group["datasets"]) for share in ("wrong", "failed", "named")
                },
            }
        )
    return pd.DataFrame(rows)


def as_text(table: pd.DataFrame, seed: int, seconds: float) -> str:
    """The rates for a reader, by where the knee is, by shape and so on, each against its aim."""
    beyond = table["shape"].isin(simulation.BEYOND)
    strained = (table["shape"] == simulation.LOPSIDED) | beyond
    own, inside = table["points"] == "own", table["knee"].isin(simulation.INSIDE)
    # What the aims are set for; strains and cases beyond the assumptions are told apart.
    standard = table[own & inside & ~strained]
    parts = [
        ("all", standard.assign(all="knee inside, five shapes"), "all"),
        ("knee, five shapes", table[own & ~strained], "knee"),
        ("shape of curve, knee inside", table[own & inside & ~beyond], "shape"),
        ("batch sizes, knee inside", standard, "batch_sizes"),
        ("noise, knee inside", standard, "noise"),
        ("grid of evaluations, knee inside", standard, "grid"),
        ("points of the search", table[inside & ~strained & table["knee"].isin(simulation.INSIDE[:2])], "points"),
    ]
    datasets = int(table["datasets"].max())
    lines = [
        f"Statements of `analysis fit` on simulated searches of {simulation.TRIALS} trials: {len(table)} scenarios of "
        f"{datasets} data sets, seed {seed}, {seconds:.0f} s.",
        f"Aim: {LEAST:.0%} to {MOST:.0%} of statements hold where the knee is inside, {EACH:.0%} in each scenario; "
        f"at most {FALSELY:.0%} are identified where it is not.",
        "",
    ]
    for title, rows, by in parts:
        if len(rows):
            lines += [_block(title, summary(rows, by), by), ""]
    for noise, rows in table[beyond].groupby("noise", sort=False):
        lines += [_beyond(f"beyond what is assumed, {noise} noise", rows), ""]
    return "\n".join([*lines, _BEYOND]) if beyond.any() else "\n".join(lines[:-1])


_BEYOND = f"""\
The five shapes are all but lopsided. Failed: a check of the shape or of the search did, and no interval is stated.
Beyond what is assumed, the first five curves are those that the checks were made for; nothing was chosen on the others.
Aim: at most {WRONG:.0%} of all data sets are identified and wrong, and in {NAMED:.0%} the check that the curve
breaks fails ("by name")."""


def _beyond(title: str, rows: pd.DataFrame) -> str:
    header = [
        title,
        "hold",
        "identified",
        "and wrong",
        "at least",
        "at most",
        "not identified",
        "failed",
        "by name",
        "aim",
    ]
    shares = ("covered", "identified", "wrong", "at_least", "at_most", "not_identified", "failed", "named")
    lines = [
        [str(one["shape"]), *(_percent(one[share]) for share in shares), met_beyond(one)]
        for one in rows.to_dict("records")
    ]
    return cli.table(header, lines, left=[title, "aim"])


def met_beyond(one: Mapping[Any, Any]) -> str:
    """The words met or MISSED of a scenario of ``simulation.BEYOND`` and its aims; empty where none are set."""
    if one["shape"] not in simulation.CHOSEN_ON:
        return ""
    return "met" if one["wrong"] <= WRONG and one["named"] >= NAMED else "MISSED"


def _block(title: str, rates: pd.DataFrame, by: str) -> str:
    verdicts = [verdict.replace("_", " ") for verdict in VERDICTS]
    header = [title, "scenarios", "hold", "least", *verdicts, "failed", "octaves", "aim"]
    rows = [
        [
            str(rate[by]),
            str(rate["scenarios"]),
            *(_percent(rate[column]) for column in ("covered", "least", *VERDICTS, "failed")),
            text.number(rate["octaves"], 2),
            met(rate, by),
        ]
        for rate in rates.to_dict("records")
    ]
    return cli.table(header, rows, left=[title, "aim"])


def met(rate: Mapping[Any, Any], by: str) -> str:
    """The words met or MISSED of a row of ``summary`` and its aim; empty where none is set."""
    if rate[by] == "shared unawares":
        return ""
    if rate[by] in simulation.KNEES and rate[by] not in simulation.INSIDE:
        return "met" if rate["identified"] <= FALSELY else "MISSED"
    return "met" if LEAST <= rate["covered"] <= MOST and rate["least"] >= EACH else "MISSED"


def _percent(share: float) -> str:
    return "" if np.isnan(share) else f"{share:.1%}"
