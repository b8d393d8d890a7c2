"""Best of k: the median number of steps of the best trial in random searches of k trials, estimated from n trials.

All estimates use ranks among the n trials, without assuming a distribution for steps to target. A trial that never
reached the target counts as infinitely many steps. Rank 1 is the best trial.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import special

TAIL = 0.05  # error probability of each end of a 90 % band
FLAT = 0.1  # a smaller relative decrease counts as flat
MOST_MISSES = 0.1  # if more than this fraction of searches with half of the trials miss, ``fall`` is infinite


class Ranks(NamedTuple):
    """Ranks of the trials that bound the median best of k. A rank is None if there are too few trials for the bound.

    Attributes:
      median: rank of the estimate.
      low, high: ranks of the ends of a 90 % band. Each end is a 95 % bound.
    """

    median: int
    low: int | None
    high: int | None


class Median(NamedTuple):
    """The median best of k in steps, +inf if the target was not reached.

    Attributes:
      low, high: bounds on the estimate, which lies in (low, high].
      band_low, band_high: bounds on the true median, which lies in (band_low, band_high] with 90 % confidence. An open
        end is NaN.
    """

    low: float
    high: float
    band_low: float
    band_high: float


def largest_with_band(n: int) -> int:
    """Returns the largest k >= 1 for which the band from n trials has a lower end: .5^(n/k) ≤ .05, so k ≤ .23 n."""
    return max(1, int(n / math.log2(1 / TAIL)))


def ranks(n: int, k: int) -> Ranks:
    """Returns the ranks of the median best of k among n trials, 1 ≤ k ≤ n.

    The best of k random trials is at most x with probability 1 − (1 − F(x))^k, so its median is the quantile q = 1 −
    .5^(1/k) of single trials. The band for this quantile uses order statistics: the number of trials below it has the
    distribution Binomial(n, q). The estimate is the median, over all subsets of k of the n trials, of the best trial.
    """
    median = int(np.argmax(_missed(n, k) <= 0.5 + 1e-12)) + 1
    below = special.bdtr(np.arange(n), n, -np.expm1(-math.log(2) / k))  # P(at most 0, 1, ... n - 1 trials)
    low = int((below <= TAIL).sum())
    high = 1 + int((below < 1 - TAIL).sum())
    return Ranks(median, low or None, high if high <= n else None)


def median(low: np.ndarray, high: np.ndarray, k: int) -> Median:
    """Returns the median best of k with its band. The result is valid for any steps within the trials' intervals.

    Args:
      low, high: float64[n]. Trial i needed more than low[i] and at most high[i] steps. Both are +inf if the trial never
        reached the target.
      k: 1 ≤ k ≤ n.
    """
    rank = ranks(len(low), k)
    low, high = np.sort(low), np.sort(high)  # the r-th smallest true value lies between the r-th smallest ends
    return Median(
        low[rank.median - 1],
        high[rank.median - 1],
        low[rank.low - 1] if rank.low else math.nan,
        high[rank.high - 1] if rank.high else math.nan,
    )


def share(reached: int, undecided: int, n: int) -> tuple[float, float]:
    """Returns a 90 % interval (Clopper and Pearson 1934) for the success probability. Each end is a 95 % bound.

    Args:
      reached: number of trials that reached the target.
      undecided: number of trials with unknown outcome. They count as failures for the lower end, and as successes for
        the upper end.
      n: total number of trials.
    """
    most = reached + undecided
    low = special.betaincinv(reached, n - reached + 1, TAIL) if reached else 0.0
    high = special.betaincinv(most + 1, n - most, 1 - TAIL) if most < n else 1.0
    return float(low), float(high)


def expected_steps(low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Returns E[steps | reached] / P(reached): the expected steps until success, if failed trials cost the same.

    Auger and Hansen (2005) call this success performance. The ends do not include sampling error.

    Args:
      low, high: see ``median``. For a trial with an unknown outcome, only high is +inf.

    Returns:
      The ends of (first, second], which reflect the trials' intervals and trials with unknown outcome. Both are +inf if
      no trial reached the target.
    """
    reached = np.isfinite(high)
    undecided = np.sort(low[np.isfinite(low) & ~reached])
    counts = reached.sum() + np.arange(len(undecided) + 1)  # if the 0, 1, ... fastest of them reached immediately
    sums = low[reached].sum() + np.append(0, np.cumsum(undecided))
    some = counts > 0
    least = (sums[some] * len(low) / np.square(counts[some], dtype=float)).min(initial=math.inf)
    most = high[reached].sum() * len(low) / reached.sum() ** 2 if reached.any() and not len(undecided) else math.inf
    return float(least), float(most)


def fall(high: np.ndarray) -> float:
    """Returns how much worse the best of half of the trials is than the best of all: .1 means 10 % more steps.

    The result is a geometric mean, in closed form, over all halves that reach the target. Its logarithm is an unbiased
    estimate of the decrease of the log minimum from k/2 to k trials. (A median over halves would depend only on the
    best two trials.)

    Args:
      high: float64[k], step of the evaluation at which each trial was at the target, or +inf.

    Returns:
      The relative difference. It is +inf if more than 10 % of the halves miss the target, and NaN for fewer than two
      trials.
    """
    k, reached = len(high), int(np.isfinite(high).sum())
    if k < 2:
        return math.nan
    missed = _missed(k, k // 2)[:reached]
    if not reached or missed[-1] > MOST_MISSES:
        return math.inf
    ln_steps = np.log(np.sort(high)[:reached].clip(0.5))  # met at the start: as before a first evaluation
    chance = -np.diff(missed, prepend=1)  # probability that each rank is the best of a half
    return float(np.expm1(np.average(ln_steps, weights=chance) - ln_steps[0]))


def sampled_enough(low: np.ndarray, high: np.ndarray) -> str:
    """Judges whether the minimum still decreases when the number of trials doubles from k/2 to k.

    The steps of a trial are those of the evaluation at which it was at the target, so the evaluations limit the
    resolution.

    Args:
      low, high: float64[k], see ``expected_steps``.

    Returns:
      no: the minimum decreases by more than 10 %, according to ``fall``.
      yes: it does not, and the bands of the median best of k/8.6 and of k/4.3 are within 10 % of each other.
      unclear: the data show neither.
    """
    latest, k = np.sort(high), largest_with_band(len(high))
    soonest = np.sort(np.where(np.isfinite(high), high, np.maximum(low, 1)))  # differs for unknown outcomes
    falls = [fall(steps) > FLAT for steps in (soonest, latest)]
    if all(falls):
        return "no"
    low_end, high_end = ranks(len(high), k).low, ranks(len(high), max(1, k // 2)).high
    if any(falls) or k < 2 or low_end is None or high_end is None:
        return "unclear"
    # Steps are integers, so the next evaluation may be slightly more than 10 % later.
    return "yes" if latest[high_end - 1] <= math.ceil(soonest[low_end - 1] * (1 + FLAT)) else "unclear"


def _missed(n: int, k: int) -> np.ndarray:
    """Returns the probability that a subset of k of the n trials misses all of the best 1, 2, ... n: float64[n]."""
    return np.cumprod((n - k - np.arange(n)) / (n - np.arange(n)))
