"""Edges: whether the best trials of a study crowd at an end of the range that a metaparameter was drawn from."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from results.plans.search_space import Range, SearchSpace

BEST = 0.1  # share of the trials that are called best,
FEWEST_BEST = 3  # but no fewer
FEWEST_TRIALS = math.ceil(FEWEST_BEST / BEST)  # with fewer, an optimum at an end is often missed
OUTER = 0.1  # share of a range, in its own scale, that counts as an end of it
RISK_SHOWN, RISK_PERHAPS = 0.05, 0.1  # of naming any end of a study whose metaparameters do not matter
RISK_DETACHED = 0.05  # of judging that best trials stop short of an end when they extend up to it
FRACTIONS = ("decay_fraction", "end_learning_rate_factor")  # at most 1: of a budget, and of a rate


class Edge(NamedTuple):
    """An end of a range that the best trials crowd at.

    Attributes:
      metaparameter: its name.
      side: low or high.
      value: where the range ends.
      shown: whether half of the best trials are right at the end; else the optimum may be some way off it, or beyond.
    """

    metaparameter: str
    side: str
    value: float
    shown: bool

    def __str__(self) -> str:
        return f"{self.metaparameter} {self.side}{'' if self.shown else '?'}"


def find_edges(values: Mapping[str, np.ndarray], high: np.ndarray, space: SearchSpace) -> list[Edge] | None:
    """The ends at which the best trials crowd.

    Best are the tenth of the trials that needed the fewest steps, three at least; of equals those that come first.
    An end is *shown* if at least half of them lie in the tenth of the range next to it, more than chance would put
    into any such tenth of the study in 5 % of studies. It is *perhaps* one if they lie nearer to it than chance would
    have them in 10 % of studies, and do not keep off it: the gap between the end and the nearest of them is no larger
    than their spread explains. All of it is in the scale of the range. An end that no wider range could go beyond, such
    as no momentum at all, is none: metaparameters are not negative, and ``FRACTIONS`` are at most 1.

    Args:
      values: float64[n] by metaparameter; one that is not there, or has but one or two values to be at, has no ends.
      high: float64[n], steps at which each trial was seen at the target; +inf where it was not.
      space: the ranges.

    Returns:
      None if nothing can be told: no range is known, or too few trials ran, or reached.
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
            if shown or (near and _goes_on(distance, ranged)):
                edges.append(Edge(name, side, _end(ranged, side), shown))
    return edges if edges or len(high) >= FEWEST_TRIALS else None


def positions(ranged: Range, values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Positions of values in a range, from 0 to 1 on its own scale: float64[n].

    Of whole and discrete values each has an equal share of it, and lies in the middle of that. Values beyond the range
    lie at its ends.
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
    """Probability of so many in the outer part if all places were alike; 1 if they are less than half."""
    count = _count(ranged)
    outer = max(1, math.floor(OUTER * count)) / count if count < math.inf else OUTER
    outside, n = int((distance < outer + 1e-9).sum()), len(distance)
    return float(special.betainc(outside, n - outside + 1, outer)) if 2 * outside >= n else 1.0


def _chance_of_nearness(distance: np.ndarray) -> float:
    """Probability of so small a mean distance if all places were alike; the normal law overstates it."""
    return float(special.ndtr((distance.mean() - 0.5) * math.sqrt(12 * len(distance))))


def _goes_on(distance: np.ndarray, ranged: Range) -> bool:
    """True if values spread evenly up to the end might leave such a gap to it."""
    nearest = distance.min() - 0.5 / _count(ranged)
    spread = np.ptp(distance)
    return bool(nearest <= spread * (RISK_DETACHED ** (1 / (1 - len(distance))) - 1) + 1e-9)


def _scaled(ranged: Range, value: float | np.ndarray) -> np.ndarray:
    if ranged.scale == "LOG":
        return np.log(value)
    return -np.log1p(np.negative(value)) if ranged.scale == "REVERSE_LOG" else np.asarray(value)


def _count(ranged: Range) -> float:
    """Number of values of a range."""
    if ranged.scale == "DISCRETE":
        return len(set(ranged.values))
    assert ranged.low is not None and ranged.high is not None
    return ranged.high - ranged.low + 1 if ranged.scale == "INTEGER" else math.inf


def _has_ends(ranged: Range) -> bool:
    """True if a range has values between its ends."""
    return _count(ranged) > 2 and (ranged.scale == "DISCRETE" or ranged.low != ranged.high)


def _is_natural(name: str, side: str, end: float) -> bool:
    return end == 0.0 if side == "low" else end == 1.0 and name in FRACTIONS


def _end(ranged: Range, side: str) -> float:
    ends = ranged.values if ranged.scale == "DISCRETE" else (ranged.low or 0.0, ranged.high or 0.0)
    return min(ends) if side == "low" else max(ends)
