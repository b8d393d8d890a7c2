"""Coverage of extents: how often *pays up to* and *efficient up to* are correct for simulated curves of any shape."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis import coverage_tables, text
from analysis.columns import EXTENT_COVERAGE as COLUMNS
from analysis.coverage_tables import percent
from analysis.fitting import convex_profile, extents, fit_coverage, samples, simulation, weights
from analysis.fitting.extents import Extent
from analysis.fitting.profiles import OCTAVE
from analysis.fitting.simulation import Scenario, Searches
from results.printing import Report

SIZES = (9, 11, 13)
FALLS = "plateau falls 12 %"  # its gain of a doubling is exactly 20 % at one batch size
SHAPES = (
    *simulation.SHAPES,
    *("slope -0.85", "plateau rises 12 %", FALLS),
    *("knee 4 x sharper to its plateau", "knee 4 x sharper to perfect scaling"),
)
ANSWERS = ("pays", "efficient", "pays, convex", "efficient, convex", "critical")
OPEN = 10.0  # width of an interval with an open end, in octaves
# The aims apply to pays and efficient for ``SHAPES``.
EACH, MEAN = 0.85, 0.95  # minimum share that holds in every cell, and on average
BOUND_EACH, BOUND_MEAN = 0.90, 0.97  # the same for the 95 % lower bound
WRONG = 0.15  # maximum share that is two-sided and misses the truth
EACH_FALLS, WRONG_FALLS = 0.80, 0.20  # the same for ``FALLS``


def scenarios() -> list[Scenario]:
    """Returns all scenarios, with those in ``simulation.HARD_TO_ANSWER`` last."""
    shapes = (*SHAPES, *simulation.HARD_TO_ANSWER)
    grid = simulation.GRIDS[0]
    return [
        Scenario(simulation.INSIDE[0], shape, sizes, luck, grid)
        for shape in shapes
        for sizes in SIZES
        for luck in simulation.LUCKS
    ]


def run(datasets: int, seed: int, report: Report, scenarios_wanted: Sequence[Scenario] = ()) -> pd.DataFrame:
    """Simulates ``datasets`` curves per scenario. Returns one row of ``COLUMNS`` for each scenario and answer.

    Args:
      datasets: number of data sets per scenario.
      seed: seed of the simulation. The data of a scenario do not depend on which other scenarios are run.
      report: called with progress lines.
      scenarios_wanted: scenarios to run, or empty for all.
    """

    def one(scenario: Scenario, rng: np.random.Generator) -> list[dict[str, object]]:
        return rows(scenario, simulation.draw(scenario, datasets, rng))

    table = coverage_tables.table("coverage", scenarios(), scenarios_wanted, one, seed, datasets, report)
    return table[list(COLUMNS)]


def rows(scenario: Scenario, searches: Searches) -> list[dict[str, object]]:
    """Returns one row for each of ``ANSWERS``, computed with the same code as for the curves of a store."""
    ln_batch = np.log(scenario.batch_size)
    variances = weights.minimum_variance(samples.trial_steps(searches.low, searches.high))
    low, high = (np.fmin.reduce(ends, axis=-1) for ends in (searches.low, searches.high))
    answers: dict[str, list[Extent]] = {name: [] for name in ANSWERS}
    for dataset in zip(low, high, variances, strict=True):
        averaged, convex = (method.estimate(scenario.batch_size, *dataset) for method in (extents, convex_profile))
        for name, answer in zip(ANSWERS[:4], (*averaged, *convex), strict=True):
            answers[name].append(answer)
    answers["critical"] = [
        Extent(fit.critical_batch_size, fit.low, fit.high, fit.verdict) for fit in fit_coverage.fit(scenario, searches)
    ]
    pays = extents.pays_up_to(ln_batch, searches.ln_least)
    efficient = extents.efficient_up_to(ln_batch, searches.ln_least)
    truths = dict(zip(ANSWERS, (pays, efficient, pays, efficient, np.log(searches.critical)), strict=True))
    luck = float(np.sqrt(np.nanmean(variances)))
    first = {"shape": scenario.shape, "batch_sizes": scenario.sizes, "luck": float(scenario.noise.split()[1])}
    return [
        first | {"seen_luck": luck, "datasets": len(low), "answer": name} | rates(answers[name], truths[name], ln_batch)
        for name in ANSWERS
    ]


def rates(answers: Sequence[Extent], ln_truth: np.ndarray, ln_batch: np.ndarray) -> dict[str, float]:
    """Returns the rates of a coverage table, given answers [d], the true ln answers [d] and the ln batch sizes [n]."""
    low, high = (np.array([getattr(answer, end) for answer in answers]) for end in ("low", "high"))
    truth = np.exp(np.minimum(ln_truth, ln_batch[-1]))  # beyond the data is the end of the data
    from_below, from_above = ~(low > truth * (1 + 1e-9)), ~(high < truth * (1 - 1e-9))
    two_sided = np.array([answer.verdict == "identified" for answer in answers])
    holds = from_below & from_above
    width = np.where(two_sided, np.log(high / low) / OCTAVE, OPEN)
    return {
        "holds": float(holds.mean()),
        "bound_holds": float(from_below.mean()),
        "octaves": float(np.median(width)),
        "two_sided": float(two_sided.mean()),
        "wrong": float((two_sided & ~holds).mean()),
    }


def as_text(table: pd.DataFrame, seed: int, seconds: float) -> str:
    """Formats the rates as text: each answer by noise, shape and batch sizes, with its aims, then the hard cases."""
    datasets = int(table["datasets"].max())
    lines = [
        f"Pays up to, efficient up to and the critical batch size on simulated searches of 64 trials: {datasets} data "
        f"sets for each shape, luck and number of batch sizes, seed {seed}, {seconds:.0f} s.",
        f"Aim: intervals hold in {EACH:.0%} of every cell ({EACH_FALLS:.0%} if the plateau falls 12 %) and in "
        f"{MEAN:.0%} on average, 95 % bounds in {BOUND_EACH:.0%} and {BOUND_MEAN:.0%}. At most {WRONG:.0%} of a cell "
        f"({WRONG_FALLS:.0%}) are two-sided and wrong.",
        "",
    ]
    standard = table[table["shape"].isin(SHAPES)]
    for answer, rows in standard.groupby("answer", sort=False):
        for column in ("luck", "shape", "batch_sizes"):
            lines += [_block(f"{answer}, by {column.replace('_', ' ')}", rows, column), ""]
        if answer in extents.NAMES:
            lines.insert(-1, aims(rows))
    hard = table[~table["shape"].isin(SHAPES)]
    for answer, rows in hard.groupby("answer", sort=False):
        lines += [_block(f"{answer}, hard cases", rows, "shape"), ""]
    lines.append(_block("every answer", standard, "answer"))
    return "\n".join(lines)


def _block(title: str, rows: pd.DataFrame, column: str) -> str:
    """Formats the mean and worst rates over all cells with the same value in ``column``."""
    lines = []
    for value, cells in rows.groupby(column, sort=False):
        shares = {
            "holds": cells["holds"].mean(),
            "least": cells["holds"].min(),
            "bound holds": cells["bound_holds"].mean(),
            "bound least": cells["bound_holds"].min(),
            "two-sided": cells["two_sided"].mean(),
            "most wrong": cells["wrong"].max(),
        }
        line = {title: f"{value:.2f}" if column == "luck" else str(value)}
        line |= {name: percent(share) for name, share in shares.items()}
        lines.append(line | {"octaves": width(cells["octaves"].median())})
    return text.table(lines, [title])


def width(octaves: float) -> str:
    """Formats a median width in octaves, or ``open``."""
    return "open" if octaves >= OPEN else text.number(octaves, 2)


def aims(rows: pd.DataFrame) -> str:
    """Returns ``aims met`` if the rows of an answer meet its aims, or else the cells that miss an aim."""
    falls = rows["shape"] == FALLS
    missed = rows[
        (rows["holds"] < np.where(falls, EACH_FALLS, EACH))
        | (rows["bound_holds"] < BOUND_EACH)
        | (rows["wrong"] > np.where(falls, WRONG_FALLS, WRONG))
    ]
    words = [f"{row.shape}, luck {row.luck:.2f}, {row.batch_sizes} batch sizes" for row in missed.itertuples()]
    if rows["holds"].mean() < MEAN:
        words.append(f"intervals hold in {rows['holds'].mean():.1%} on average")
    if rows["bound_holds"].mean() < BOUND_MEAN:
        words.append(f"bounds hold in {rows['bound_holds'].mean():.1%} on average")
    return f"MISSED: {'; '.join(words)}" if words else "aims met"
