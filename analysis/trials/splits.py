"""Splits: the trials of a workload in groups by one metaparameter, its values or the thirds of its range."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.trials import metaparameters
from analysis.trials.trials import StudyTrials
from results.bad_input import BadInput, nearest

PREFERRED = ("label_smoothing", metaparameters.MOMENTUM)
MOST_VALUES = 5  # more are split into thirds


class TrialGroup(NamedTuple):
    """Some trials of a workload: what they are called, and which rows they are, bool[n] of rows of trials."""

    label: str
    kept: Callable[[pd.DataFrame], np.ndarray]


def default(found: Sequence[StudyTrials]) -> str:
    """The metaparameter that trials are split by unless another is asked for.

    Raises:
      BadInput: no metaparameter differs between trials.
    """
    differing = _differing(found)
    if not differing:
        raise BadInput("no metaparameter differs between the trials")
    return next((name for name in PREFERRED if name in differing), differing[-1])


def groups(found: Sequence[StudyTrials], name: str) -> list[TrialGroup]:
    """Trials by the values of a metaparameter, where there are few, or else by thirds of what was tried.

    Args:
      found: the trials of all batch sizes.
      name: of the metaparameter; a trial that lacks it has 0.

    Raises:
      BadInput: no trial has it.
    """
    if not any(name in one.metaparameters for one in found):
        known = sorted({own for one in found for own in one.metaparameters})
        raise BadInput(f"no trial has a metaparameter {name!r}; {nearest(name, known)}")
    values = np.concatenate([_values(one.rows, name) for one in found])
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


def _differing(found: Sequence[StudyTrials]) -> list[str]:
    names = sorted({name for one in found for name in one.metaparameters})
    return [name for name in names if len({v for one in found for v in _values(one.rows, name)[:50]}) > 1]
