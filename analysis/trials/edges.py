"""Edges: whether a study's best trials cluster at an end of a metaparameter's range."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from results.plans.search_space import Range, SearchSpace

BEST = 0.1  # fraction of the trials that count as best
FEWEST_BEST = 3  # their minimum number
FEWEST_TRIALS = math.ceil(FEWEST_BEST / BEST)  # fewer trials often miss an optimum at an end
OUTER = 0.1  # fraction of a range, on its own scale, that counts as its end
RISK_SHOWN, RISK_PERHAPS = 0.05, 0.1  # risk of reporting any end if metaparameters do not matter
RISK_DETACHED = 0.05  # risk of judging the best trials detached from an end that they reach
FRACTIONS = ("decay_fraction", "end_learning_rate_factor")  # fractions of a budget and of a rate, at most 1


class Edge(NamedTuple):
    """An end of a range at which the best trials cluster.

    Attributes:
      metaparameter: name of the metaparameter.
      side: low or high.
      value: value at this end of the range.
      shown: whether half of the best trials are right at the end. If not, the optimum may be at some distance inside
        the range, or beyond the end.
    """

    metaparameter: str
    side: str
    value: float
    shown: bool

    def __str__(self) -> str:
        return f"{self.metaparameter} {self.side}" + ("" if self.shown else "?")


def find_edges(values: Mapping[str, np.ndarray], high: np.ndarray, space: SearchSpace) -> list[Edge] | None:
    """Returns the ends at which the best trials cluster.

    The best trials are the 10 % with the fewest steps, but at least three. Ties go to earlier trials. An end is *shown*
    if at least half of the best trials lie in the outer tenth of the range at that end. By chance, this would happen at
    some end in 5 % of studies. An end is *perhaps* an edge under two conditions. First, the best trials are so close to
    it that chance would explain it in only 10 % of studies. Second, they are not detached from it: their spread
    explains the gap between the end and the nearest trial. All distances are measured on the scale of the range.
    Natural limits do not count: metaparameters cannot be negative, and ``FRACTIONS`` cannot exceed 1.

    Args:
      values: float64[n], by metaparameter. Metaparameters that are missing, or have only one or two possible values,
        have no ends.
      high: float64[n], step of the evaluation at which each trial was at the target, or +inf.
      space: ranges of the metaparameters.

    Returns:
      The ends, or None if they cannot be judged: no range is known, or too few trials ran or reached the target.
    """
    ranges = {name: ranged for name, ranged in space.items() if name in values and _has_ends(ranged)}
    best = np.argsort(high, kind="stable")[: max(FEWEST_BEST, math.ceil(BEST * len(high)))]
    best = best[np.isfinite(high[best])]
    if not ranges or len(best) < FEWEST_BEST:
        return None
    edges = []
    for name, ranged in ranges.items():
        position = positions(ranged, values[name][best])
        for side, distance in (("low", position), ("high", 1 - position)):
            if _is_natural(name, side, _end(ranged, side)):
                continue
            shown = _chance_of_crowd(distance, ranged) <= RISK_SHOWN / (2 * len(ranges))
            near = _chance_of_nearness(distance) <= RISK_PERHAPS / (2 * len(ranges))
            if shown or (near and _is_attached(distance, ranged)):
                edges.append(Edge(name, side, _end(ranged, side), shown))
    return edges if edges or len(high) >= FEWEST_TRIALS else None


def positions(ranged: Range, values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Returns the positions of values in a range, from 0 to 1 on the range's scale: float64[n].

    Each integer or discrete value gets an equal share of the range, and is placed in the middle of this share. Values
    outside the range are placed at its ends.
    """
    numbers = np.asarray(values, np.float64)
    if ranged.scale == "DISCRETE":
        choices = np.unique(ranged.values)
        return (np.searchsorted((choices[1:] + choices[:-1]) / 2, numbers) + 0.5) / len(choices)
    assert ranged.low is not None and ranged.high is not None
    numbers = np.clip(numbers, ranged.low, ranged.high)
    if ranged.scale == "INTEGER":
        return (numbers - ranged.low + 0.5) / _count(ranged)
    low, high, position = (_scaled(ranged, value) for value in (ranged.low, ranged.high, numbers))
    return (position - low) / (high - low)


def _chance_of_crowd(distance: np.ndarray, ranged: Range) -> float:
    """Returns the probability, if uniform, of at least this count in the outer part, or 1 if it is less than half."""
    count = _count(ranged)
    outer = max(1, math.floor(OUTER * count)) / count if count < math.inf else OUTER
    outside, n = int((distance < outer + 1e-9).sum()), len(distance)
    return float(special.betainc(outside, n - outside + 1, outer)) if 2 * outside >= n else 1.0


def _chance_of_nearness(distance: np.ndarray) -> float:
    """Returns the probability of such a small mean distance if uniform. The normal approximation overestimates it."""
    return float(special.ndtr((distance.mean() - 0.5) * math.sqrt(12 * len(distance))))


def _is_attached(distance: np.ndarray, ranged: Range) -> bool:
    """Returns whether values that are spread evenly up to the end could leave such a gap."""
    nearest = distance.min() - 0.5 / _count(ranged)
    spread = np.ptp(distance)
    return bool(nearest <= spread * (RISK_DETACHED ** (1 / (1 - len(distance))) - 1) + 1e-9)


def _scaled(ranged: Range, value: float | np.ndarray) -> np.ndarray:
    if ranged.scale == "LOG":
        return np.log(value)
    return -np.log1p(np.negative(value)) if ranged.scale == "REVERSE_LOG" else np.asarray(value)


def _count(ranged: Range) -> float:
    """Returns the number of possible values in a range."""
    if ranged.scale == "DISCRETE":
        return len(set(ranged.values))
    assert ranged.low is not None and ranged.high is not None
    return ranged.high - ranged.low + 1 if ranged.scale == "INTEGER" else math.inf


def _has_ends(ranged: Range) -> bool:
    """Returns whether a range has values between its ends."""
    return _count(ranged) > 2 and (ranged.scale == "DISCRETE" or ranged.low != ranged.high)


def _is_natural(name: str, side: str, end: float) -> bool:
    return end == 0.0 if side == "low" else end == 1.0 and name in FRACTIONS


def _end(ranged: Range, side: str) -> float:
    ends = ranged.values if ranged.scale == "DISCRETE" else (ranged.low or 0.0, ranged.high or 0.0)
    return min(ends) if side == "low" else max(ends)
