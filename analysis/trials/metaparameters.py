"""Metaparameters of trials as pictures show them, and trials in groups by one of them.

A picture shows the learning rate, 1 - momentum, and what is made of both. Groups are by the values of a metaparameter,
or by thirds of its range.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.trials.trials import StudyTrials
from results.bad_input import BadInput, nearest
from results.plans.search_space import SearchSpace

LEARNING_RATE, MOMENTUM = "learning_rate", "momentum"
PREFERRED = ("label_smoothing", MOMENTUM)  # to split trials by
MOST_VALUES = 5  # more are split into thirds


class Quantity(NamedTuple):
    """Something that every trial has.

    Attributes:
      label: of an axis.
      values: its value for rows of trials, float64[n]; NaN where a trial lacks it.
      log: whether it is shown on a logarithmic scale.
      is_rate: whether rules of thumb say how it should grow with the batch size.
    """

    label: str
    values: Callable[[pd.DataFrame], np.ndarray]
    log: bool
    is_rate: bool = False


def effective_learning_rate() -> Quantity:
    """The effective learning rate, learning_rate / (1 - momentum), of Shallue et al. 2018, section 4.6."""
    return Quantity(
        "effective learning rate",
        lambda rows: _column(rows, LEARNING_RATE) / (1 - _column(rows, MOMENTUM)),
        log=True,
        is_rate=True,
    )


def metaparameter(name: str, log: bool) -> Quantity:
    """A metaparameter as it is."""
    return Quantity(name.replace("_", " "), lambda rows: _column(rows, name), log, is_rate=name == LEARNING_RATE)


def complement(name: str) -> Quantity:
    """1 - x of a metaparameter x that was searched in the logarithm of that, such as momentum."""
    return Quantity(f"1 − {name.replace('_', ' ')}", lambda rows: 1 - _column(rows, name), log=True)


def on_its_scale(name: str, space: SearchSpace) -> Quantity:
    """A metaparameter on the scale it was searched on."""
    scale = space[name].scale if name in space else "LINEAR"
    return complement(name) if scale == "REVERSE_LOG" or name == MOMENTUM else metaparameter(name, log=scale == "LOG")


def quantities(names: Sequence[str], space: SearchSpace) -> list[Quantity]:
    """Quantities to show of trials: the learning rate, the others, and the effective learning rate if it differs.

    Args:
      names: of metaparameters.
      space: ranges they were drawn from.
    """
    tuned = sorted(names, key=lambda name: (name != LEARNING_RATE, name))
    shown = [on_its_scale(name, space) for name in tuned]
    return [*shown, effective_learning_rate()] if {LEARNING_RATE, MOMENTUM} <= set(tuned) else shown


def _column(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].to_numpy(np.float64) if name in rows else np.full(len(rows), np.nan)


class TrialGroup(NamedTuple):
    """Some trials of a workload: what they are called, and which rows they are, bool[n] of rows of trials."""

    label: str
    kept: Callable[[pd.DataFrame], np.ndarray]


def default_split(studies: Sequence[StudyTrials]) -> str:
    """The metaparameter that trials are split by unless another is asked for.

    Raises:
      BadInput: no metaparameter differs between trials.
    """
    differing = _differing(studies)
    if not differing:
        raise BadInput("no metaparameter differs between the trials")
    return next((name for name in PREFERRED if name in differing), differing[-1])


def split(studies: Sequence[StudyTrials], name: str) -> list[TrialGroup]:
    """Trials by the values of a metaparameter, where there are few, or else by thirds of what was tried.

    Args:
      studies: the trials of all batch sizes.
      name: of the metaparameter; a trial that lacks it has 0.

    Raises:
      BadInput: no trial has it.
    """
    if not any(name in one.metaparameters for one in studies):
        names = sorted({own for one in studies for own in one.metaparameters})
        raise BadInput(f"no trial has a metaparameter {name!r}; {nearest(name, names)}")
    values = np.concatenate([_values(one.rows, name) for one in studies])
    own = np.unique(values)
    words = name.replace("_", " ")
    if len(own) <= MOST_VALUES:
        return [_group(f"{words} = {value:g}", name, value, value) for value in own]
    edges = np.quantile(values, [0, 1 / 3, 2 / 3, 1], method="inverted_cdf")
    above = np.nextafter(edges, np.inf)
    bounds = [(edges[0], edges[1]), (above[1], edges[2]), (above[2], edges[3])]
    return [_group(f"{words} {low:.3g}–{high:.3g}", name, low, high) for low, high in bounds if low <= high]


def _group(label: str, name: str, low: float, high: float) -> TrialGroup:
    return TrialGroup(label, lambda rows: (_values(rows, name) >= low) & (_values(rows, name) <= high))


def _values(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].fillna(0.0).to_numpy(np.float64) if name in rows else np.zeros(len(rows))


def _differing(studies: Sequence[StudyTrials]) -> list[str]:
    names = sorted({name for one in studies for name in one.metaparameters})
    return [name for name in names if len({v for one in studies for v in _values(one.rows, name)[:50]}) > 1]
