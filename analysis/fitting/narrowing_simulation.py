"""Simulates the widths of *pays up to* and *efficient up to* after adding trials, batch sizes or repeats."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis import coverage_tables, text
from analysis.columns import NARROWING as COLUMNS
from analysis.coverage_tables import percent
from analysis.fitting import extents, narrowing, samples, simulation, weights
from analysis.fitting.extent_coverage import OPEN, rates, width
from analysis.fitting.extents import LUCK_TIMES
from analysis.fitting.narrowing import MULTIPLES, Narrowing, halved_by
from analysis.fitting.simulation import DENSE, Scenario, Searches
from results.printing import Report

SHAPES = ("hyperbola", "soft", "slope -0.85")
LUCKS = ("luck 0.08", "luck 0.14", "luck 0.22")
SIZE = 11
OTHER_SIZES = (9, 13, DENSE)
EXPECTED, BEST, REPEATS, SIZES = WAYS = (
    "more trials, expected best of 64",
    "more trials, best of all",
    "any number of repeats of the best",
    "other batch sizes",
)
AS_FIT = "expected by `fit`"


class Search(NamedTuple):
    """A simulated search with 64 × ``times`` trials."""

    scenario: Scenario
    times: int


def searches() -> list[Search]:
    """Returns all searches."""
    designs = [(SIZE, int(times)) for times in MULTIPLES] + [(sizes, 1) for sizes in OTHER_SIZES]
    return [
        Search(Scenario(simulation.INSIDE[0], shape, sizes, luck, simulation.GRIDS[0]), times)
        for shape in SHAPES
        for luck in LUCKS
        for sizes, times in designs
    ]


def run(datasets: int, seed: int, report: Report, wanted: Sequence[Search] = ()) -> pd.DataFrame:
    """Simulates ``datasets`` curves per search. Returns rows of ``COLUMNS`` for each search and answer.

    Args:
      datasets: number of data sets per search.
      seed: seed of the simulation. The data of a search do not depend on which other searches are run.
      report: called with progress lines.
      wanted: searches to run, or empty for all.
    """

    def one(search: Search, rng: np.random.Generator) -> list[dict[str, object]]:
        return rows(search, simulation.draw(search.scenario, datasets, rng, search.times))

    table = coverage_tables.table("narrowing", searches(), wanted, one, seed, datasets, report)
    return table[list(COLUMNS)]


def rows(search: Search, drawn: Searches) -> list[dict[str, object]]:
    """Returns the rows of a search: one for each way to spend its trials and each answer."""
    scenario, times = search
    steps = samples.trial_steps(drawn.low, drawn.high)
    low, high = (np.fmin.reduce(ends, axis=-1) for ends in (drawn.low, drawn.high))
    variance = weights.minimum_variance(steps)
    points = {BEST if times > 1 else EXPECTED: (low, high, variance)}
    if scenario.sizes != SIZE:
        points = {SIZES: (low, high, variance)}
    elif times > 1:
        k = steps.shape[-1] // times
        middle = np.exp(weights.best_of_some(steps, k))
        # The jackknife sees the noise of these points, evaluations included.
        points[EXPECTED] = (middle, middle, weights.minimum_variance(steps, k) / LUCK_TIMES**2)
    else:
        best = np.argmin(steps, axis=-1)[..., None]
        reruns = np.exp(np.take_along_axis(drawn.ln_rerun, best, axis=-1)[..., 0])
        points[REPEATS] = (reruns, reruns, np.full(reruns.shape, np.nan))
    first = {"shape": scenario.shape, "luck": float(scenario.noise.split()[1]), "batch_sizes": scenario.sizes}
    first |= {"datasets": len(low)}
    ln_batch = np.log(scenario.batch_size)
    truths = [answer_of(ln_batch, drawn.ln_least) for answer_of in (extents.pays_up_to, extents.efficient_up_to)]
    made: list[dict[str, object]] = []
    for way in (choice for choice in WAYS if choice in points):
        answers = [extents.estimate(scenario.batch_size, *dataset) for dataset in zip(*points[way], strict=True)]
        for i, name in enumerate(extents.NAMES):
            shares = rates([pair[i] for pair in answers], truths[i], ln_batch)
            shares = {column: shares[column] for column in ("octaves", "two_sided", "holds")}
            made.append(first | {"way": way, "times": times, "answer": name} | shares)
    if scenario.sizes == SIZE and times == 1:
        widths = [
            narrowing.expected(scenario.batch_size, *dataset) for dataset in zip(low, high, variance, strict=True)
        ]
        made += [first | row for row in _as_fit(widths)]
    return made


def _as_fit(widths: Sequence[Narrowing]) -> list[dict[str, object]]:
    """Returns rows with the widths that `fit` predicts after more trials."""
    widths_filled = np.nan_to_num(np.array(widths), nan=OPEN)  # [d, 2, m]
    return [
        {"way": AS_FIT, "times": int(times), "answer": name, "octaves": octaves, "two_sided": np.nan, "holds": np.nan}
        for name, medians in zip(extents.NAMES, np.median(widths_filled, axis=0), strict=True)
        for times, octaves in zip(MULTIPLES, medians, strict=True)
    ]


def as_text(table: pd.DataFrame, seed: int, seconds: float) -> str:
    """Formats the widths as text: widths for each way to spend trials, then the multiples that halve an interval."""
    order = pd.CategoricalDtype([*WAYS, AS_FIT], ordered=True)
    ordered = table.astype({"way": order}).groupby(["way", "times", "batch_sizes"], observed=True)
    lines = [
        f"Widths of pays up to and efficient up to after more trials, batch sizes or repeats: "
        f"{int(table['datasets'].max())} data sets for each shape "
        f"({', '.join(table['shape'].unique())}), luck and search, seed {seed}, {seconds:.0f} s.",
        "Median width in octaves, for each answer and luck, and the median of that over shapes. The first row is a "
        "search of 64 trials.",
        "",
        text.table([_widths(*group) for group in ordered], ["way"]),
        "",
        "Multiple of the trials that halves the interval, from the median widths of the first rows (simulated) and "
        "from those that `fit` expects:",
        "",
        text.table([_halved(*group) for group in table.groupby(["shape", "luck"], sort=False)], ["shape"]),
    ]
    return "\n".join(lines)


def _widths(key: tuple[Hashable, ...], cells: pd.DataFrame) -> dict[str, str]:
    """Formats the widths of one way to spend trials, at each noise level."""
    line = dict(zip(("way", "times", "batch sizes"), map(str, key), strict=True))
    for name, answer_cells in cells.groupby("answer", sort=False):
        medians = answer_cells.groupby("luck")["octaves"].median()
        line |= {f"{name} {luck:.2f}": width(octaves) for luck, octaves in medians.items()}
    return line | {"hold": percent(cells["holds"].mean()), "least": percent(cells["holds"].min())}


def _halved(key: tuple[Hashable, ...], cells: pd.DataFrame) -> dict[str, str]:
    """Formats the multiples that halve the intervals of one curve at one noise level."""
    line = {"shape": str(key[0]), "luck": f"{cells['luck'].iloc[0]:.2f}"}
    at_first = cells[(cells["batch_sizes"] == SIZE) & ((cells["way"] == EXPECTED) | (cells["way"] == AS_FIT))]
    for name, answer_cells in at_first.groupby("answer", sort=False):
        for way, heading in ((EXPECTED, "simulated"), (AS_FIT, "by fit")):
            widths = answer_cells[answer_cells["way"] == way].sort_values("times")
            closed_widths = widths["octaves"].where(widths["octaves"] < OPEN).to_numpy()
            multiple = halved_by(closed_widths) if len(closed_widths) == len(MULTIPLES) else float("nan")
            line[f"{name}, {heading}"] = "> 32" if np.isinf(multiple) else text.number(multiple, 2) or "open"
    return line
