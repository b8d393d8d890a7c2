"""Coverage: how often `analysis epochs --fit` is correct on seconds per epoch simulated from known laws."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from analysis import coverage_tables
from analysis.columns import COVERAGE_OF_CORES as COLUMNS, TIMES
from analysis.cores import scaling
from analysis.cores.regions import MOST
from results.printing import Report

LEAST = 0.85  # minimum fraction of statements that must hold
NAMED = 0.80  # minimum fraction of misfits that must be named if statements do not hold
FALSELY = 0.05  # maximum fraction of named misfits for fitted laws

ROOTS = 1e-6  # relative precision of interval ends and the truth, which may lie on the same step
SHARES = {"hold": "covered", "least": "least", "times hold": "times", "least time": "least_times"}
SHARES |= coverage_tables.HEADINGS | {"misfit named": "misfit"}  # column headings
HOLDING = ["covered", *(f"{name}_covered" for name in TIMES)]


class Law(NamedTuple):
    """A law for seconds per epoch: the terms of the fit, and additional terms.

    Attributes:
      serial, parallel, communication: see ``scaling``.
      rounds: seconds for each of log2 c rounds.
      exchange: seconds to move the remote part of a table to each core, before multiplying by (c − 1) / c.
      slower: relative slow-down if more than half of the cores are used, due to a second memory.
      step: seconds added if more than half of the cores are used.
    """

    serial: float
    parallel: float
    communication: float = 0.0
    rounds: float = 0.0
    exchange: float = 0.0
    slower: float = 0.0
    step: float = 0.0

    @property
    def is_inside(self) -> bool:
        """Whether the fitted law can represent this law."""
        return not any(self[3:])

    @property
    def times(self) -> tuple[float, float, float]:
        """Serial, parallel and communication seconds, with the exchange moved from parallel to serial.

        For machines with two memories, these are the times within the first memory. Rounds are not included.
        """
        return self.serial + self.exchange, self.parallel - self.exchange, self.communication

    def seconds(self, cores: np.ndarray, core_count: float) -> np.ndarray:
        """Returns the seconds per epoch on ``cores`` [n] of a machine with ``core_count`` cores, float64[n]."""
        smooth = self.serial + self.parallel / cores + self.communication * (cores - 1)
        smooth = smooth + self.rounds * np.log2(cores) + self.exchange * (cores - 1) / cores
        return np.where(cores > core_count / 2, smooth * (1 + self.slower) + self.step, smooth)

    def critical(self, core_count: float) -> float:
        """Returns the core count at which half of the cores' time is lost, or infinity. The law may jump there."""

        def lost(ln_cores: float) -> float:
            cores = np.array([1.0, math.exp(ln_cores)])
            alone, seconds = self.seconds(cores, core_count).tolist()
            return float(cores[1] * seconds - 2 * alone)

        farthest = math.log(MOST)
        return math.exp(brentq(lost, 0.0, farthest)) if lost(farthest) > 0 else math.inf


LAWS = {
    "parallel alone": Law(0.0, 1.0),
    "serial alone": Law(1.0, 0.0),
    "4 % serial": Law(0.04, 0.96),
    "25 % serial": Law(0.25, 0.75),
    "with communication 0.3 %": Law(0.0, 1.0, 0.003),
    "with communication 3 %": Law(0.0, 1.0, 0.03),
    "all three": Law(0.08, 0.92, 0.004),
    "log2 c, 2 %": Law(0.0, 1.0, rounds=0.02),
    "log2 c, 6 %, 10 % serial": Law(0.1, 0.9, rounds=0.06),
    "two nodes, 20 % slower": Law(0.1, 0.9, slower=0.2),
    "two nodes, 50 % slower": Law(0.04, 0.96, 0.001, slower=0.5),
    "two nodes, twice as slow": Law(0.15, 0.85, slower=1.0),
    "two nodes, 2 % added": Law(0.02, 0.98, step=0.02),
    "(c − 1) / c, 5 %": Law(0.02, 0.98, exchange=0.05),
    "(c − 1) / c, 30 %": Law(0.05, 0.95, exchange=0.3),
}
COUNTS = {
    "1, 2, 4": (1, 2, 4),
    "1 … 8": (1, 2, 4, 8),
    "1 … 64": (1, 2, 4, 8, 16, 32, 64),
}
SPREADS = (0.01, 0.04, 0.10)  # relative spreads of epoch times
EPOCHS = 8  # epochs timed at each core count


class CoreScenario(NamedTuple):
    """A simulated case, given by keys of the tables above and a spread of epoch times."""

    law: str
    core_counts: str
    spread: float

    @property
    def cores(self) -> np.ndarray:
        """Core counts, float64[n], sorted. The largest is the number of cores of the machine."""
        return np.array(COUNTS[self.core_counts], np.float64)

    @property
    def most(self) -> float:
        return float(COUNTS[self.core_counts][-1])


class Times(NamedTuple):
    """Simulated data sets: median seconds per epoch, float64[d, n], and the spread of epoch times, float64[d]."""

    seconds: np.ndarray
    spread: np.ndarray


def all_scenarios() -> list[CoreScenario]:
    """Returns all scenarios."""
    return [CoreScenario(*scenario) for scenario in itertools.product(LAWS, COUNTS, SPREADS)]


def draw(scenario: CoreScenario, datasets: int, rng: np.random.Generator) -> Times:
    """Simulates ``datasets`` curves with the noise assumed by the fit.

    A slowdown affects all epochs at a given core count. Their median therefore has the error of a single epoch plus the
    error ``BETWEEN_RUNS``. As with real data, the fit receives the spread of the epoch times around their median.
    """
    cores = scenario.cores
    noise = math.hypot(scenario.spread, scaling.BETWEEN_RUNS)
    lasting = noise * rng.standard_normal((datasets, len(cores)))
    epoch_noise = np.exp(scenario.spread * rng.standard_normal((datasets, len(cores), EPOCHS)))
    seconds = LAWS[scenario.law].seconds(cores, scenario.most) * np.exp(lasting)
    return Times(seconds, np.array([scaling.spread(list(epochs)) for epochs in epoch_noise]))


def run(datasets: int, seed: int, report: Report, scenarios: Sequence[CoreScenario] = ()) -> pd.DataFrame:
    """Simulates and fits ``datasets`` curves per scenario. Returns one row of ``COLUMNS`` per scenario.

    Args:
      datasets: number of data sets per scenario.
      seed: seed of the simulation. The data of a scenario do not depend on which other scenarios are run.
      report: called with progress lines.
      scenarios: scenarios to run, or empty for all.
    """

    def one(scenario: CoreScenario, rng: np.random.Generator) -> dict[str, object]:
        return row(scenario, fit(scenario, draw(scenario, datasets, rng)))

    scenarios_of_all = all_scenarios()
    return coverage_tables.table("coverage of cores", scenarios_of_all, scenarios, one, seed, datasets, report)[
        list(COLUMNS)
    ]


def fit(scenario: CoreScenario, times: Times) -> list[scaling.LawFit]:
    """Fits a scenario's data sets with the same code that fits the curves of a store."""
    return [scaling.fit(scenario.cores, *dataset) for dataset in zip(times.seconds, times.spread.tolist(), strict=True)]


def row(scenario: CoreScenario, fitted: Sequence[scaling.LawFit]) -> dict[str, object]:
    """Returns the results of a scenario: a row of ``COLUMNS``."""
    law = LAWS[scenario.law]
    critical = law.critical(scenario.most)
    low, high = np.array([law_fit.critical_cores[1:] for law_fit in fitted]).T
    _, rates = coverage_tables.rates([law_fit.verdict for law_fit in fitted], low, high, critical, ROOTS)
    intervals = np.array([[getattr(law_fit, name) for name in TIMES] for law_fit in fitted])  # [d, 3, 3]
    true = np.array(law.times)
    contains_truth = ((intervals[..., 1] <= true) & (true <= intervals[..., 2])).mean(axis=0)
    values = {
        **scenario._asdict(),
        "datasets": len(fitted),
        "critical_cores": critical if np.isfinite(critical) else np.nan,
        **rates,
        **dict(zip(HOLDING[1:], contains_truth.tolist(), strict=True)),
        "misfit": float(np.mean([law_fit.misfit != "none" for law_fit in fitted])),
    }
    return {name: values[name] for name in COLUMNS}


def summary(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Returns the rates over all data sets with the same value in ``column``, one row per value.

    Returns:
      Columns of ``coverage_tables.summary`` with misfit, then times (fraction of time intervals that contain the
      truth), least_times (the smallest such fraction in any scenario) and aim: met or MISSED.
    """
    groups = [group for _, group in table.groupby(column, sort=False)]
    times = [group[HOLDING[1:]].to_numpy() for group in groups]
    return coverage_tables.summary(table, column, ["misfit"]).assign(
        times=[shares.mean() for shares in times],
        least_times=[shares.min() for shares in times],
        aim=["met" if all(map(met, group.to_dict("records"))) else "MISSED" for group in groups],
    )


def met(row: Mapping[Any, Any]) -> bool:
    """Returns whether a scenario meets its aim: the fit is correct often enough, or reports that the law fits poorly.

    If the fitted law can represent the true law, the fit must rarely report a misfit.
    """
    holds = all(np.isnan(row[column]) or row[column] >= LEAST for column in HOLDING)
    if LAWS[row["law"]].is_inside:
        return holds and row["misfit"] <= FALSELY
    return holds or row["misfit"] >= NAMED


def as_text(table: pd.DataFrame, seed: int, seconds: float) -> str:
    """Formats the rates as text, grouped by law (fitted or not), by core counts and by spread."""
    inside = table["law"].map(lambda name: LAWS[name].is_inside)
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
        f"Aim in every scenario: {LEAST:.0%} of statements on critical cores hold, and of the intervals of each time.",
        f"For laws that are not fitted, it is enough that {NAMED:.0%} of fits report a misfit. For fitted laws at most "
        f"{FALSELY:.0%} may.",
        "",
    ]
    for title, rows, column in parts:
        if len(rows):
            rates = summary(rows, column).drop(columns="scenarios")
            lines += [coverage_tables.block(title, rates, column, SHARES), ""]
    return "\n".join(lines[:-1])
