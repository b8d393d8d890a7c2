"""Bands of independent searches, against exact tails and searches whose distribution is known."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from analysis.contradictions import band, largest_with_band

INF = math.inf


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 300))
    return n, draw(st.integers(1, n))


def ranks(n: int, k: int) -> tuple[float, float]:
    """Ranks of the trials that bound the median best of k among n trials: 0 and n + 1 if there are none."""
    first, last = band(np.arange(n) + 1.0, np.arange(n) + 1.0, k)
    return float(np.nan_to_num(first, nan=0)), float(np.nan_to_num(last, nan=n + 1))


def test_a_band_worked_out_by_hand():
    # 2^-8 of (1, 9, 37, ..., 219, 247): so many of 8 trials or fewer are below the median of single trials.
    assert ranks(8, 1) == (2, 7)
    assert ranks(5, 1) == (1, 5)  # 1/32 is below .05,
    assert ranks(4, 1) == (0, 5)  # and 1/16 is not
    assert ranks(100, 100)[0] == 0


@given(sizes())
def test_band_misses_at_most_one_of_twenty_at_each_end(size):
    n, k = size
    (low, high), quantile = ranks(n, k), 1 - 0.5 ** (1 / k)

    def above(rank: float) -> float:  # how often the trial of a rank is above the quantile
        return float(stats.binom.cdf(rank - 1, n, quantile))

    assert above(low) <= 0.05 + 1e-9 and above(low + 1) >= 0.05 - 1e-9
    assert high > n or 1 - above(high) <= 0.05 + 1e-9
    assert high - 1 > n or 1 - above(high - 1) >= 0.05 - 1e-9


@given(st.integers(5, 2000))
def test_the_largest_k_with_a_band_is_the_largest(n):
    k = largest_with_band(n)
    assert ranks(n, k)[0]
    assert not ranks(n, k + 1)[0]
    assert 0.21 * n - 1 < k <= 0.2314 * n + 1


def searches(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    """Steps of ``n`` trials of ``count`` searches: lognormal, three in ten never reach."""
    return np.where(rng.random((count, n)) < 0.3, INF, 100 * np.exp(rng.normal(0, 1, (count, n))))


def true_median(k: int) -> float:
    return float(100 * np.exp(stats.norm.ppf((1 - 0.5 ** (1 / k)) / 0.7)))


def evaluated(steps: np.ndarray, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """The intervals that evaluations ``ratio`` apart leave."""
    place = np.ceil(np.log(steps) / math.log(ratio))
    return ratio ** (place - 1), ratio**place


@pytest.mark.parametrize(("n", "k"), [(24, 5), (100, 23), (100, 4), (60, 1)])
def test_bands_hold_the_true_median_as_often_as_they_say(n, k):
    truth, held = true_median(k), []
    for steps in searches(np.random.default_rng(n + k), 2000, n):
        low, high = band(*evaluated(steps, 1.1), k)
        held.append((low < truth, truth <= high))
    below, above = np.mean(held, axis=0)
    assert min(below, above) >= 0.94  # .95, and three standard errors are .015
    assert np.mean(np.all(held, axis=1)) >= 0.89


def test_whatever_undecided_trials_had_come_to_a_band_holds_it():
    rng = np.random.default_rng(0)
    for steps in searches(rng, 300, 30):
        truth = band(steps, steps, 4)
        stopped = rng.random(30) < 0.3
        at = np.where(np.isfinite(steps), steps, 900) * rng.random(30)
        low, high = np.where(stopped, at, steps), np.where(stopped, INF, steps)
        told = band(low, high, 4)
        assert told[0] <= truth[0] and truth[1] <= told[1]
