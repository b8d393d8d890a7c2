"""Best of k: the median, over random searches of k trials, of what their best trial needs, from the n trials there are.

Everything is in ranks among the n trials, so that nothing is assumed of how steps to target are distributed, and a
trial that never reached is one of infinitely many steps. Rank 1 is the best trial.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import special

TAIL = 0.05  # of either end of a band, which is a 90 % band with both
FLAT = 0.1  # what falls by no more than this share counts as not falling
MOST_MISSES = 0.1  # if more of the searches with half of the trials miss the target, ``fall`` is infinite


class Ranks(NamedTuple):
    """Ranks of the trials that bound the median best of k; None where no trial does, as n are too few.

    Attributes:
      median: its estimate.
      low, high: the ends of a 90 % band; each alone is a 95 % bound.
    """

    median: int
    low: int | None
    high: int | None


class Median(NamedTuple):
    """The median best of k, steps, +inf if not reached.

    Attributes:
      low, high: the estimate lies in (low, high].
      band_low, band_high: so does the true median in (band_low, band_high], 90 %; NaN where that end is open.
    """

    low: float
    high: float
    band_low: float
    band_high: float


def largest_with_band(n: int) -> int:
    """The largest k whose band of n trials has a lower end: .5^(n/k) ≤ .05, k ≤ .23 n; at least 1."""
    return max(1, int(n / math.log2(1 / TAIL)))


def ranks(n: int, k: int) -> Ranks:
    """Ranks of the median best of k among n trials, 1 ≤ k ≤ n.

    The best of k random trials is at most x with probability 1 − (1 − F(x))^k, so that its median is the quantile
    q = 1 − .5^(1/k) of single trials. The band is that quantile's by order statistics: of n trials, Binomial(n, q)
    are below it. The estimate is the median of the best over all subsets of k of the n trials.
    """
    median = int(np.argmax(_missed(n, k) <= 0.5 + 1e-12)) + 1
    below = special.bdtr(np.arange(n), n, -np.expm1(-math.log(2) / k))  # P(so many trials or fewer, up to n - 1)
    low = int((below <= TAIL).sum())
    high = 1 + int((below < 1 - TAIL).sum())
    return Ranks(median, low or None, high if high <= n else None)


def median(low: np.ndarray, high: np.ndarray, k: int) -> Median:
    """The median best of k with its band, whatever the trials needed within their intervals.

    Args:
      low, high: float64[n], trial i needed more than low[i] and at most high[i] steps; both +inf if it never reached.
      k: 1 ≤ k ≤ n.
    """
    rank = ranks(len(low), k)
    low, high = np.sort(low), np.sort(high)  # the r-th smallest of the truth is between the r-th smallest of the ends
    return Median(
        low[rank.median - 1],
        high[rank.median - 1],
        low[rank.low - 1] if rank.low else math.nan,
        high[rank.high - 1] if rank.high else math.nan,
    )


def share(reached: int, undecided: int, n: int) -> tuple[float, float]:
    """A 90 % interval (Clopper and Pearson 1934) of the probability that a trial reaches; each end is a 95 % bound.

    Args:
      reached: how many did.
      undecided: of how many nobody knows: the low end holds if none of them did, the high end if all did.
      n: of how many trials.
    """
    most = reached + undecided
    low = special.betaincinv(reached, n - reached + 1, TAIL) if reached else 0.0
    high = special.betaincinv(most + 1, n - most, 1 - TAIL) if most < n else 1.0
    return float(low), float(high)


def expected_steps(low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """E[steps | reached] / P(reached): expected steps until a trial reaches, if one in vain costs as much as others.

    Auger and Hansen (2005) call it success performance. Its sampling error is not in the ends.

    Args:
      low, high: as for ``median``; high alone is +inf for a trial whose outcome is unknown.

    Returns:
      It lies in (first, second]: the ends are due to the intervals, and to the trials whose outcome is unknown. Both
      are +inf if no trial reached.
    """
    reached = np.isfinite(high)
    undecided = np.sort(low[np.isfinite(low) & ~reached])
    counts = reached.sum() + np.arange(len(undecided) + 1)  # if the 0, 1, ... quickest of them reached at once
    sums = low[reached].sum() + np.append(0, np.cumsum(undecided))
    some = counts > 0
    least = (sums[some] * len(low) / np.square(counts[some], dtype=float)).min(initial=math.inf)
    most = high[reached].sum() * len(low) / reached.sum() ** 2 if reached.any() and not len(undecided) else math.inf
    return float(least), float(most)


def fall(high: np.ndarray) -> float:
    """Relative difference of the best of half of the trials from the best of all: .1 is 10 % more steps.

    It is the geometric mean over all halves that reach, in closed form, and an unbiased estimate of how much the log of
    the minimum still falls from k/2 to k trials. (The median over halves is of the best two trials alone.)

    Args:
      high: float64[k], steps at which each trial was seen at the target; +inf where it was not.

    Returns:
      +inf if more than one half in ten misses the target; NaN of fewer than two trials.
    """
    k, reached = len(high), int(np.isfinite(high).sum())
    if k < 2:
        return math.nan
    missed = _missed(k, k // 2)[:reached]
    if not reached or missed[-1] > MOST_MISSES:
        return math.inf
    ln_steps = np.log(np.sort(high)[:reached].clip(0.5))  # at the target at the start: as before a first evaluation
    chance = -np.diff(missed, prepend=1)  # of each rank to be the best of a half
    return float(np.expm1(np.average(ln_steps, weights=chance) - ln_steps[0]))


def sampled_enough(low: np.ndarray, high: np.ndarray) -> str:
    """Tells if the minimum over the trials no longer falls as they double, from k/2 to all k of them.

    Steps are counted at the evaluation that saw a trial at the target: finer than that nothing is known.

    Args:
      low, high: float64[k], as for ``expected_steps``.

    Returns:
      no: it falls by more than 10 %, by ``fall``.
      yes: it does not, and did not before: by their bands, the medians best of k/8.6 and of k/4.3 are within 10 %.
      unclear: it does not, or perhaps not, but that may be luck.
    """
    latest, k = np.sort(high), largest_with_band(len(high))
    soonest = np.sort(np.where(np.isfinite(high), high, np.maximum(low, 1)))  # differs where unknown
    falls = [fall(steps) > FLAT for steps in (soonest, latest)]
    if all(falls):
        return "no"
    low_end, high_end = ranks(len(high), k).low, ranks(len(high), max(1, k // 2)).high
    if any(falls) or k < 2 or low_end is None or high_end is None:
        return "unclear"
    # The next evaluation may be a little more than 10 % later, as steps are whole.
    return "yes" if latest[high_end - 1] <= math.ceil(soonest[low_end - 1] * (1 + FLAT)) else "unclear"


def _missed(n: int, k: int) -> np.ndarray:
    """Probability that a subset of k of n trials has none of the best 1, 2, ... n: float64[n]."""
    return np.cumprod((n - k - np.arange(n)) / (n - np.arange(n)))
