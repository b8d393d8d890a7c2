"""Coverage: how often what `analysis epochs --fit` says of simulated times holds, and a misfit is named."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis import coverage_tables, text
from analysis.columns import COVERAGE_OF_CORES as COLUMNS
from analysis.columns import TIMES
from analysis.cores import scaling, simulation
from analysis.cores.simulation import CoreScenario, Times
from analysis.text import VERDICTS
from results import command_line

LEAST = 0.85  # of statements that have to hold
NAMED = 0.80  # of misfits that have to be named where statements do not hold
FALSELY = 0.05  # of data sets whose law is fitted, the most of which a misfit may be named

ROOTS = 1e-6  # relative; ends and truth may lie on the same step, and are found to about as much
HOLDING = ["covered", *(f"{name}_covered" for name in TIMES)]


def run(
    datasets: int, seed: int, report: Callable[[str], None], scenarios: Sequence[CoreScenario] = ()
) -> pd.DataFrame:
    """Simulates and fits ``datasets`` curves of every scenario; a row of ``COLUMNS`` for each scenario.

    Args:
      datasets: of each scenario.
      seed: of everything that is drawn; a scenario's data do not depend on which others there are.
      report: takes lines that tell how far it is.
      scenarios: which; all if none are given.
    """

    def one(scenario: CoreScenario, rng: np.random.Generator) -> dict[str, object]:
        return row(scenario, fit(scenario, simulation.draw(scenario, datasets, rng)))

    every = simulation.scenarios()
    return coverage_tables.table("coverage of cores", every, scenarios, one, seed, datasets, report)[list(COLUMNS)]


def fit(scenario: CoreScenario, times: Times) -> list[scaling.LawFit]:
    """The fits of a scenario's data sets, by the code that fits the curves of a store."""
    return [scaling.fit(scenario.cores, *one) for one in zip(times.seconds, times.spread.tolist(), strict=True)]


def row(scenario: CoreScenario, fitted: Sequence[scaling.LawFit]) -> dict[str, object]:
    """Results of a scenario: a row of ``COLUMNS``."""
    law = simulation.LAWS[scenario.law]
    critical = law.critical(scenario.most)
    low, high = np.array([one.critical_cores[1:] for one in fitted]).T
    _, rates = coverage_tables.rates([one.verdict for one in fitted], low, high, critical, ROOTS)
    intervals = np.array([[getattr(one, name) for name in TIMES] for one in fitted])  # [d, 3, 3]
    true = np.array(law.times)
    within = ((intervals[..., 1] <= true) & (true <= intervals[..., 2])).mean(axis=0)
    values = {
        **scenario._asdict(),
        "datasets": len(fitted),
        "critical_cores": critical if np.isfinite(critical) else np.nan,
        **rates,
        **dict(zip(HOLDING[1:], within.tolist(), strict=True)),
        "misfit": float(np.mean([one.misfit != "none" for one in fitted])),
    }
    return {name: values[name] for name in COLUMNS}


def summary(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Rates over all data sets that agree in the column ``by``, a row each.

    Returns:
      Columns ``by``, covered and times (shares that hold), their least_covered and least_times (of a scenario and a
      time), the verdicts, misfit, octaves, and aim: met or MISSED.
    """
    rows = []
    for name, group in table.groupby(by, sort=False):
        # Each scenario counts by the statements it made.
        stated = (group["datasets"] * (1 - group["not_identified"])).to_numpy()
        rows.append(
            {
                by: name,
                "covered": (group["covered"].fillna(0) * stated).sum() / stated.sum() if stated.any() else np.nan,
                "least_covered": group["covered"].min(),
                "times": group[HOLDING[1:]].to_numpy().mean(),
                "least_times": group[HOLDING[1:]].to_numpy().min(),
                **{column: np.average(group[column], weights=group["datasets"]) for column in (*VERDICTS, "misfit")},
                "octaves": group["octaves"].median(),
                "aim": "met" if all(map(met, group.to_dict("records"))) else "MISSED",
            }
        )
    return pd.DataFrame(rows)


def met(row: Mapping[Any, Any]) -> bool:
    """True if a scenario does what it should: its statements hold, or the fit says that the law misfits.

    A law that is fitted has no misfit to name.
    """
    holds = all(np.isnan(row[column]) or row[column] >= LEAST for column in HOLDING)
    if simulation.LAWS[row["law"]].is_inside:
        return holds and row["misfit"] <= FALSELY
    return holds or row["misfit"] >= NAMED


def as_text(table: pd.DataFrame, seed: int, seconds: float) -> str:
    """The rates for a reader: by law, inside the fitted one and outside, by numbers of cores and by spread."""
    inside = table["law"].map(lambda name: simulation.LAWS[name].is_inside)
    spread = table["spread"].map("{:.0%}".format)
    parts = [
        ("all laws", table.assign(all=np.where(inside, "that are fitted", "that are not")), "all"),
        ("laws that are fitted", table[inside], "law"),
        ("laws that are not", table[~inside], "law"),
        ("cores, laws that are fitted", table[inside], "core_counts"),
        ("cores, laws that are not", table[~inside], "core_counts"),
        ("spread of epochs, laws that are fitted", table.assign(spread=spread)[inside], "spread"),
        ("spread of epochs, laws that are not", table.assign(spread=spread)[~inside], "spread"),
    ]
    lines = [
        f"Statements of `analysis epochs --fit` on simulated seconds per epoch: {len(table)} scenarios of "
        f"{table['datasets'].iloc[0]} data sets, seed {seed}, {seconds:.0f} s.",
        f"Aim in every scenario: {LEAST:.0%} of statements on critical cores hold, and of the intervals of each time;",
        f"or, where the law is not the one that is fitted, {NAMED:.0%} of fits say so. Of laws that are fitted at most "
        f"{FALSELY:.0%} may.",
        "",
    ]
    for title, rows, by in parts:
        if len(rows):
            lines += [_block(title, summary(rows, by), by), ""]
    return "\n".join(lines[:-1])


def _block(title: str, rates: pd.DataFrame, by: str) -> str:
    verdicts = [verdict.replace("_", " ") for verdict in VERDICTS]
    header = [title, "hold", "least", "times hold", "least time", *verdicts, "misfit named", "octaves", "aim"]
    shares = ["covered", "least_covered", "times", "least_times", *VERDICTS, "misfit"]
    rows = [
        [
            str(rate[by]),
            *("" if np.isnan(rate[column]) else f"{rate[column]:.1%}" for column in shares),
            text.number(rate["octaves"], 2),
            rate["aim"],
        ]
        for rate in rates.to_dict("records")
    ]
    return command_line.table(header, rows, left=[title, "aim"])
