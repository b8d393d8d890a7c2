"""Tables of coverage: scenarios, each simulated from a stream of random numbers of its own, and how often fits hold."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from analysis.text import VERDICTS
from results import progress

S = TypeVar("S")


def table(
    title: str,
    every: Sequence[S],
    wanted: Sequence[S],
    row: Callable[[S, np.random.Generator], Mapping[str, object]],
    seed: int,
    datasets: int,
    report: Callable[[str], None],
) -> pd.DataFrame:
    """A row for each of the wanted scenarios, in their order.

    Args:
      title: of what is shown while it works.
      every: scenarios there are; where one of them stands among these makes its random numbers, with the seed.
      wanted: some of them; all if none are given.
      row: simulates and fits a scenario's data sets.
      seed: of everything that is drawn.
      datasets: of each scenario, for what is shown.
      report: takes lines that tell how far it is.
    """
    chosen = list(wanted) or list(every)
    rows = []
    with progress.show_progress(title, datasets * len(chosen), " fits", report) as move:
        for done, scenario in enumerate(chosen, start=1):
            rows.append(row(scenario, np.random.default_rng([seed, every.index(scenario)])))
            move(datasets * done)
    return pd.DataFrame(rows)


def rates(
    verdicts: Sequence[str], low: np.ndarray, high: np.ndarray, truth: np.ndarray | float, slack: float = 0.0
) -> tuple[np.ndarray, dict[str, float]]:
    """Rates of verdicts, and of statements that hold.

    Args:
      verdicts: of d data sets.
      low, high: float64[d], the ends of their intervals; NaN where open.
      truth: of each data set, or of all.
      slack: relative; an end that is off the truth by no more than this counts as on it.

    Returns:
      Whether each statement holds, bool[d], false where none is made; and the columns covered, of every verdict, and
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
