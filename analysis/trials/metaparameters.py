"""Metaparameters of trials as shown in pictures, and grouping of trials by a metaparameter.

Pictures show the learning rate, 1 - momentum, and the effective learning rate, which is derived from both. Trials are
grouped by the values of a metaparameter, or by thirds of its range.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.trials.trials import StudyTrials
from results.bad_input import BadInput, nearest
from results.plans.search_space import SearchSpace

LEARNING_RATE, MOMENTUM = "learning_rate", "momentum"
PREFERRED = ("label_smoothing", MOMENTUM)  # preferred metaparameters for splitting trials
MOST_VALUES = 5  # maximum distinct values; more are split into thirds


class Quantity(NamedTuple):
    """A number that is defined for each trial.

    Attributes:
      label: label for an axis.
      values: function that returns the values for rows of trials, float64[n], with NaN for missing values.
      log: whether to show the quantity on a logarithmic scale.
      is_rate: whether there are rules of thumb for how it grows with the batch size.
    """

    label: str
    values: Callable[[pd.DataFrame], np.ndarray]
    log: bool
    is_rate: bool = False


def effective_learning_rate() -> Quantity:
    """Returns the effective learning rate of Shallue et al. 2018, section 4.6: learning_rate / (1 - momentum)."""
    return Quantity(
        "effective learning rate",
        lambda rows: _column(rows, LEARNING_RATE) / (1 - _column(rows, MOMENTUM)),
        log=True,
        is_rate=True,
    )


def metaparameter(name: str, log: bool) -> Quantity:
    """Returns the quantity for a metaparameter, unchanged."""
    return Quantity(name.replace("_", " "), lambda rows: _column(rows, name), log, is_rate=name == LEARNING_RATE)


def complement(name: str) -> Quantity:
    """Returns the quantity 1 - x of a metaparameter x that was searched logarithmically in 1 - x, such as momentum."""
    return Quantity(f"1 − {name.replace('_', ' ')}", lambda rows: 1 - _column(rows, name), log=True)


def on_its_scale(name: str, space: SearchSpace) -> Quantity:
    """Returns the quantity for a metaparameter, on the scale on which it was searched."""
    scale = space[name].scale if name in space else "LINEAR"
    return complement(name) if scale == "REVERSE_LOG" or name == MOMENTUM else metaparameter(name, log=scale == "LOG")


def quantities(names: Sequence[str], space: SearchSpace) -> list[Quantity]:
    """Returns the quantities to show: the learning rate, all others, and the effective learning rate if it differs.

    Args:
      names: names of metaparameters.
      space: ranges of the metaparameters.
    """
    tuned = sorted(names, key=lambda name: (name != LEARNING_RATE, name))
    shown = [on_its_scale(name, space) for name in tuned]
    return [*shown, effective_learning_rate()] if {LEARNING_RATE, MOMENTUM} <= set(tuned) else shown


def _column(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].to_numpy(np.float64) if name in rows else np.full(len(rows), np.nan)


class TrialGroup(NamedTuple):
    """A subset of a workload's trials: the name, and a function that selects the rows, bool[n]."""

    label: str
    kept: Callable[[pd.DataFrame], np.ndarray]


def default_split(studies: Sequence[StudyTrials]) -> str:
    """Returns the metaparameter by which trials are split by default.

    Raises:
      BadInput: no metaparameter differs between trials.
    """
    differing = _differing(studies)
    if not differing:
        raise BadInput("no metaparameter differs between the trials")
    return next((name for name in PREFERRED if name in differing), differing[-1])


def split(studies: Sequence[StudyTrials], name: str) -> list[TrialGroup]:
    """Groups trials by the values of a metaparameter, or by thirds of these values if there are many.

    Args:
      studies: trials at all batch sizes.
      name: name of the metaparameter, which counts as 0 for trials that lack it.

    Raises:
      BadInput: no trial has the metaparameter.
    """
    names = _names(studies)
    if name not in names:
        raise BadInput(f"no trial has a metaparameter {name!r}; {nearest(name, names)}")
    values = np.concatenate([_values(study.rows, name) for study in studies])
    distinct = np.unique(values)
    words = name.replace("_", " ")
    if len(distinct) <= MOST_VALUES:
        return [_group(f"{words} = {value:g}", name, value, value) for value in distinct]
    edges = np.quantile(values, [0, 1 / 3, 2 / 3, 1], method="inverted_cdf")
    next_values = np.nextafter(edges, np.inf)
    bounds = [(edges[0], edges[1]), (next_values[1], edges[2]), (next_values[2], edges[3])]
    return [_group(f"{words} {low:.3g}–{high:.3g}", name, low, high) for low, high in bounds if low <= high]


def _group(label: str, name: str, low: float, high: float) -> TrialGroup:
    return TrialGroup(label, lambda rows: (_values(rows, name) >= low) & (_values(rows, name) <= high))


def near(name: str, value: float) -> Callable[[pd.DataFrame], np.ndarray]:
    """Returns a function that selects trials by a value of a metaparameter, bool[n]. A missing one counts as 0."""
    return lambda rows: np.isclose(_values(rows, name), value)


def _values(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].fillna(0.0).to_numpy(np.float64) if name in rows else np.zeros(len(rows))


def _names(studies: Sequence[StudyTrials]) -> list[str]:
    return sorted({name for study in studies for name in study.metaparameters})


def _differing(studies: Sequence[StudyTrials]) -> list[str]:
    return [
        name for name in _names(studies) if len({v for study in studies for v in _values(study.rows, name)[:50]}) > 1
    ]
