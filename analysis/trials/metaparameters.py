"""Metaparameters of trials as pictures show them: the learning rate, 1 - momentum, and what is made of both."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from results.plans.search_space import SearchSpace

LEARNING_RATE, MOMENTUM = "learning_rate", "momentum"


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
    """What there is to show of trials: the learning rate, the others, and the effective learning rate if it differs.

    Args:
      names: of metaparameters.
      space: ranges they were drawn from.
    """
    tuned = sorted(names, key=lambda name: (name != LEARNING_RATE, name))
    found = [on_its_scale(name, space) for name in tuned]
    return [*found, effective_learning_rate()] if {LEARNING_RATE, MOMENTUM} <= set(tuned) else found


def _column(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].to_numpy(np.float64) if name in rows else np.full(len(rows), np.nan)
