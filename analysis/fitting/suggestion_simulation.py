"""Simulates the cost of an interval of one octave, by following `suggest` or by adding trials on the full grid."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from analysis import coverage_tables, text
from analysis.columns import SUGGESTED as COLUMNS
from analysis.coverage_tables import percent
from analysis.fitting import extent_coverage, extents, narrowing, samples, simulation, suggestions, weights
from analysis.fitting.extents import Data
from analysis.fitting.profiles import OCTAVE
from analysis.fitting.regimes import from_zero
from analysis.fitting.simulation import DENSE, Scenario
from results.printing import Report

LUCKS = ("luck 0.08", "luck 0.14", "luck 0.22")
TRIALS = 64  # of a search, and of which every point is the expected best
WANTED = 1.0  # octaves
MULTIPLES = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # of the trials of a full grid
MOST = max(MULTIPLES)  # times the cost of a full grid of one search at each batch size
GRID = range(0, DENSE, 2)  # 11 batch sizes an octave apart
START = range(0, 17, 4)  # 5 batch sizes two octaves apart, from 1 to 256
# The aims, for the cost as a share of that of the full grid.
MEDIAN, NINTH_DECILE = 0.60, 1.10


def scenarios() -> list[Scenario]:
    """Returns all scenarios: the standard and the alternative shapes of ``extent_coverage``."""
    middle, grid = simulation.INSIDE[0], simulation.GRIDS[0]
    return [Scenario(middle, shape, DENSE, luck, grid) for shape in extent_coverage.SHAPES for luck in LUCKS]


def run(datasets: int, seed: int, report: Report, wanted: Sequence[Scenario] = ()) -> pd.DataFrame:
    """Simulates ``datasets`` curves per scenario. Returns one row of ``COLUMNS`` for each curve.

    Args:
      datasets: number of data sets per scenario.
      seed: seed of the simulation. The data of a scenario do not depend on which other scenarios are run.
      report: called with progress lines.
      wanted: scenarios to run, or empty for all.
    """

    def one(scenario: Scenario, rng: np.random.Generator) -> list[dict[str, object]]:
        first = {"shape": scenario.shape, "luck": float(scenario.noise.split()[1])}
        drawn = [simulation.draw(scenario, 1, rng, int(MOST)) for _ in range(datasets)]
        return [first | row(Search(scenario.batch_size, search)) for search in drawn]

    table = coverage_tables.table("suggestions", scenarios(), wanted, one, seed, datasets, report)
    return table[list(COLUMNS)]


class Search:
    """The trials of one data set at n batch sizes, which are revealed part by part."""

    def __init__(self, batch_size: np.ndarray, drawn: simulation.Searches):
        self.batch_size = batch_size
        self._low, self._high = from_zero(drawn.low[0]), drawn.high[0]  # [n, k]
        self._steps = samples.trial_steps(drawn.low[0], drawn.high[0])
        ln_least = drawn.ln_least[0]
        self.examples = batch_size * np.exp(ln_least)  # of a trial, up to a factor that all batch sizes share
        self.ln_truth = float(extents.pays_up_to(np.log(batch_size[GRID]), ln_least[None, GRID])[0])

    def cost(self, counts: Mapping[int, float]) -> float:
        """Returns the examples used by trials, as a multiple of those used by ``TRIALS`` at each size of the grid."""
        spent = sum(count * self.examples[i] for i, count in counts.items())
        return float(spent / (TRIALS * self.examples[GRID].sum()))

    def data(self, counts: Mapping[int, int]) -> Data:
        """Returns the points computed from the first trials at the given batch sizes (by index)."""
        rows = sorted(counts)
        low, high = (np.fmin.reduce(ends[rows, :TRIALS], axis=1) for ends in (self._low, self._high))
        middle = samples.geometric_steps(self._low, self._high)
        all_steps = [middle[i, : counts[i]] for i in rows]
        low, high, share = narrowing.expected_best(low, high, all_steps, TRIALS)
        variance = weights.minimum_variance(self._steps[rows, :TRIALS])
        return Data(self.batch_size[rows], low, high, variance, share)


def row(search: Search) -> dict[str, object]:
    """Returns the cost of an interval of ``WANTED`` octaves in both ways, infinite beyond ``MOST`` grids."""
    grid = _full_grid(search)
    cost, followed, data = _followed(search)
    pays = suggestions.pays_up_to(data)
    truth = np.exp(min(search.ln_truth, np.log(data.batch_size[-1])))
    return {
        "grid_cost": grid,
        "cost": cost,
        "ratio": cost / min(grid, MOST) if np.isfinite([cost, grid]).any() else np.nan,
        "followed": followed,
        "holds": bool(not pays.low > truth * (1 + 1e-9) and not pays.high < truth * (1 - 1e-9)),
    }


def _full_grid(search: Search) -> float:
    for multiple in MULTIPLES:
        counts = {i: int(TRIALS * multiple) for i in GRID}
        if suggestions.octaves(suggestions.pays_up_to(search.data(counts))) <= WANTED:
            return search.cost(counts)
    return float("inf")


def _followed(search: Search) -> tuple[float, int, Data]:
    """Follows suggestions until the interval is narrow. Returns the cost, the number of suggestions and the data."""
    counts = dict.fromkeys(START, TRIALS)
    followed = 0
    while True:
        data = search.data(counts)
        if suggestions.octaves(suggestions.pays_up_to(data)) <= WANTED and not suggestions.gaps(data):
            return search.cost(counts), followed, data
        sizes = [size for size in suggestions.new_sizes(data) if _index(size, search.batch_size) is not None]
        trials = [counts[i] for i in sorted(counts)]
        possible = [
            suggestion
            for suggestion in suggestions.suggest(data, trials, TRIALS, lambda size, steps: size * steps, sizes)
            if suggestion.kind == suggestions.NEW or 2 * suggestion.trials <= MOST * TRIALS
        ]
        if not possible or search.cost(counts) > MOST:
            return float("inf"), followed, data
        index = _index(possible[0].batch_size, search.batch_size)
        assert index is not None
        counts[index] = counts.get(index, 0) + possible[0].trials
        followed += 1


def _index(size: float, batch_size: np.ndarray) -> int | None:
    nearest = int(np.argmin(np.abs(np.log(batch_size / size))))
    return nearest if abs(np.log(batch_size[nearest] / size)) < OCTAVE / 100 else None


def as_text(table: pd.DataFrame, seed: int, seconds: float) -> str:
    """Formats the costs as text, by noise level, by shape, and for all data sets, with the aims."""
    per_scenario = int(table.groupby(["shape", "luck"]).size().max())
    ratios = _ratios(table)
    middle, upper = np.quantile(ratios, [0.5, 0.9], method="higher")
    met = middle <= MEDIAN and upper <= NINTH_DECILE
    lines = [
        f"Cost until the interval of pays up to has {WANTED:g} octave: following `suggest` from {len(START)} batch "
        f"sizes, as a share of the cost of {len(GRID)} batch sizes an octave apart with enough trials. {per_scenario} "
        f"data sets for each shape and luck, seed {seed}, {seconds:.0f} s.",
        f"If the full grid needs more than {MOST} times its trials, its cost counts as that.",
        f"Aim: at most {MEDIAN:.0%} in the median, and {NINTH_DECILE:.0%} in nine of ten. "
        f"{'aims met' if met else 'MISSED'}: {percent(middle)} and {percent(upper)}",
    ]
    for column in ("luck", "shape"):
        lines += ["", text.table([_line(column, *group) for group in table.groupby(column, sort=False)], [column])]
    lines += ["", text.table([_line("all", "all shapes and lucks", table)], ["all"])]
    return "\n".join(lines)


def _ratios(rows: pd.DataFrame) -> np.ndarray:
    """Returns the cost ratios of data sets that either way narrowed enough, infinite if only the full grid did."""
    return rows["ratio"].dropna().to_numpy()


def _line(column: str, value: Hashable, rows: pd.DataFrame) -> dict[str, str]:
    ratios = _ratios(rows)
    line = {column: f"{value:.2f}" if column == "luck" else str(value)}
    for heading, quantile in (("median", 0.5), ("nine of ten", 0.9), ("most", 1.0)):
        share = float(np.quantile(ratios, quantile, method="higher")) if len(ratios) else np.nan
        line[heading] = "never" if np.isinf(share) else percent(share)
    line |= {
        "followed": f"{rows['followed'].median():.0f}",
        "reached": percent(float(np.isfinite(rows["cost"]).mean())),
        "grid reached": percent(float(np.isfinite(rows["grid_cost"]).mean())),
        "hold": percent(float(rows["holds"].mean())),
    }
    return line
