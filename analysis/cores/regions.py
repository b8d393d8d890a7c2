"""Regions: the set of all laws for seconds per epoch over cores that fit the measured times, and its extremes.

A law is a sum of six non-negative terms (``terms``): the three reported terms, and three terms that reported laws omit.
The misfit of a law is the sum of the squares of its relative errors, in units of the noise. The region contains the
laws with a misfit of at most ``bound``. The bound is determined by the three reported terms only. The other terms can
widen an interval, but never move its best value.

An interval ends where the smallest misfit reaches the bound. The misfit never decreases with distance from the best
value. Each end is therefore a root between the best value and a value outside the region.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, nnls

REPORTED = 3  # reported terms: serial, parallel, communication
MOST = 2.0**40  # core count at which the search stops
_PRECISION = 1e-7  # relative precision of an interval end


class Region(NamedTuple):
    """The data that define a region, in float64.

    Attributes:
      fewest, most: smallest and largest measured core count. The law may have a jump beyond half of the largest.
      shares: [n, 6], ``terms`` divided by the seconds of a first fitted law, and by their ``unit``. A time of 1 is as
        long as an epoch.
      unit: [6], factors that convert the terms from seconds to these relative times.
      measured: [n], measured seconds divided by those of the first law, about 1.
      noise: relative standard deviation of the seconds.
      bound: upper bound on the misfit.
    """

    fewest: float
    most: float
    shares: np.ndarray
    unit: np.ndarray
    measured: np.ndarray
    noise: float
    bound: float = 0.0


def region(cores: np.ndarray, seconds: np.ndarray, noise: float) -> Region:
    """Returns the region for seconds [n] at ``cores`` [n], without its bound.

    Errors are relative to a first fitted law. If they were relative to the measured seconds, times that are short by
    chance would get the largest weights. The first law is clipped to within a factor of 2 of the measured seconds.
    """
    first = _scaled(cores, seconds, seconds, noise)
    law = (first.shares[:, :REPORTED] @ best(first, list(range(REPORTED)))[0]) * seconds
    return _scaled(cores, seconds, np.clip(law, seconds / 2, seconds * 2), noise)


def _scaled(cores: np.ndarray, seconds: np.ndarray, scale: np.ndarray, noise: float) -> Region:
    largest = float(cores.max())
    shares = terms(cores, largest) / scale[:, None]
    unit = shares.max(axis=0)
    return Region(float(cores.min()), largest, shares / unit, unit, seconds / scale, noise)


def terms(cores: np.ndarray, core_count: float) -> np.ndarray:
    """Returns the seconds that one second of each term adds to an epoch on ``cores``: ``float64[*cores.shape, 6]``.

    The terms of the law are serial, parallel / c and communication · (c − 1). The law may lack two kinds of terms. One
    is communication in log2 c rounds, used by recursive halving and doubling. The other is a jump beyond half of the
    ``most`` cores, due to a second memory. The jump adds either a constant time or a part of the parallel work.
    """
    in_second_half = (cores > core_count / 2) * 1.0
    return np.array([cores**0, 1 / cores, cores - 1, np.log2(cores), in_second_half, in_second_half / cores]).T


def best(points: Region, chosen: list[int]) -> tuple[np.ndarray, float]:
    """Returns the best-fitting times of the ``chosen`` terms, as shares [len(chosen)], and their misfit."""
    times, root = nnls(points.shares[:, chosen], points.measured)
    return times, (root / points.noise) ** 2


def of_time(points: Region, i: int, best: float) -> tuple[float, float]:
    """Returns the range of the i-th time (a share) within the region, which contains ``best``."""
    other_shares = np.delete(points.shares, i, axis=1)

    def excess(value: float) -> float:
        return _misfit(points, other_shares, value * points.shares[:, i]) - points.bound

    low = 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, best, rtol=_PRECISION))
    # The end is unknown, so double the value until it is passed.
    inside, outside = best, max(2 * best, 1.0)
    while excess(outside) <= 0:
        inside, outside = outside, 2 * outside
    return low, float(brentq(excess, inside, outside, rtol=_PRECISION))


def of_cores(points: Region, best: float) -> tuple[float, float]:
    """Returns the range, over all laws in the region, of the core count at which half of the time is lost.

    No time counts as lost on the fewest cores measured.
    """

    def excess(ln_cores: float, side: int) -> float:
        return _misfit(points, _losing(points, math.exp(ln_cores), side)) - points.bound

    farthest = math.log(MOST)
    middle = min(math.log(best), farthest)
    high = math.inf
    # If the bound is not reached, the end is the fewest cores, or open. At the best value itself, rounding decides.
    first = math.log(points.fewest)
    if excess(first, 1) > 0:
        first = min(middle, brentq(excess, first, middle + _PRECISION, args=(1,), rtol=_PRECISION))
    if excess(farthest, -1) > 0:
        high = math.exp(brentq(excess, middle, farthest, args=(-1,), rtol=_PRECISION))
    return min(math.exp(first), best), high


def _losing(points: Region, cores: float, side: int) -> np.ndarray:
    """Returns columns [n, r] of laws that lose half of the time at or below ``cores`` (side 1), or above it (−1).

    The times of these laws form a cone: lost · times >= 0 for side 1. The edges of the cone are the terms on this side,
    and pairs of terms from both sides that cancel.
    """
    twice = 2 * points.fewest * terms(np.array(points.fewest), points.most)
    lost = side * (cores * terms(np.array(cores), points.most) - twice) / points.unit
    toward, away = lost > 0, lost < 0
    # A term on one side, with the amount of a term on the other side that cancels it.
    these, those = points.shares[:, toward, None] * -lost[away], points.shares[:, away][:, None] * lost[toward, None]
    pairs = (these + those) / np.maximum(lost[toward, None], -lost[away])
    return np.concatenate([points.shares[:, ~away], pairs.reshape(len(pairs), -1)], axis=1)


def _misfit(points: Region, columns: np.ndarray, taken: np.ndarray | float = 0.0) -> float:
    """Returns the smallest misfit of ``taken`` [n] plus any non-negative combination of ``columns`` [n, r]."""
    rest = points.measured - taken
    root = nnls(columns, rest)[1] if columns.shape[1] else np.linalg.norm(rest)
    return float((root / points.noise) ** 2)
