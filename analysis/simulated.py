"""What every table of coverage is made by: scenarios, each simulated from a stream of random numbers of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

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
