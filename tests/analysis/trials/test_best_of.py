"""Medians of the best of k against counting all subsets, exact tails, and searches whose distribution is known."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from analysis.trials import best_of

INF = math.inf


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 300))
    return n, draw(st.integers(1, n))


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(1, 9) for k in range(1, n + 1)])
def test_the_estimate_is_the_median_over_all_subsets(n, k):
    bests = sorted(min(subset) for subset in itertools.combinations(range(1, n + 1), k))
    assert best_of.ranks(n, k).median == bests[(len(bests) - 1) // 2]


def test_a_band_worked_out_by_hand():
    # 2^-8 of (1, 9, 37, ..., 219, 247): so many of 8 trials or fewer are below the median of single trials.
    assert best_of.ranks(8, 1) == (4, 2, 7)
    assert best_of.ranks(5, 1) == (3, 1, 5)  # 1/32 is below .05,
    assert best_of.ranks(4, 1) == (2, None, None)  # and 1/16 is not
    assert best_of.ranks(100, 100).low is None


@given(sizes())
def test_each_end_of_a_band_misses_in_at_most_one_of_twenty_and_no_nearer_rank_would_do(size):
    n, k = size
    rank, quantile = best_of.ranks(n, k), 1 - 0.5 ** (1 / k)
    low, high = rank.low or 0, rank.high or n + 1

    def above(rank: int) -> float:  # how often the trial of a rank is above the quantile
        return float(stats.binom.cdf(rank - 1, n, quantile))

    assert above(low) <= 0.05 + 1e-9 and above(low + 1) >= 0.05 - 1e-9
    assert high > n or 1 - above(high) <= 0.05 + 1e-9
    assert high - 1 > n or 1 - above(high - 1) >= 0.05 - 1e-9
    assert low <= rank.median <= high


@given(st.integers(5, 2000))
def test_the_largest_k_with_a_band_is_the_largest(n):
    k = best_of.largest_with_band(n)
    assert best_of.ranks(n, k).low
    assert best_of.ranks(n, k + 1).low is None
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
        median = best_of.median(*evaluated(steps, 1.1), k)
        held.append((median.band_low < truth, truth <= median.band_high))
        assert median.band_low <= median.low < median.high <= median.band_high
    below, above = np.mean(held, axis=0)
    assert min(below, above) >= 0.94  # .95, and three standard errors are .015
    assert np.mean(np.all(held, axis=1)) >= 0.89


def test_whatever_undecided_trials_had_come_to_the_median_is_in_its_interval():
    rng = np.random.default_rng(0)
    for steps in searches(rng, 300, 30):
        truth = best_of.median(steps, steps, 4)
        stopped = rng.random(30) < 0.3
        at = np.where(np.isfinite(steps), steps, 900) * rng.random(30)
        low, high = np.where(stopped, at, steps), np.where(stopped, INF, steps)
        told = best_of.median(low, high, 4)
        assert told.low <= truth.low <= told.high
        assert told.band_low <= truth.band_low and truth.band_high <= told.band_high


def test_an_interval_of_a_share_by_its_definition():
    assert best_of.share(0, 0, 10) == (0.0, pytest.approx(1 - 0.05**0.1))
    assert best_of.share(10, 0, 10) == (pytest.approx(0.05**0.1), 1.0)
    low, high = best_of.share(3, 0, 10)
    assert stats.binom.sf(2, 10, low) == pytest.approx(0.05)
    assert stats.binom.cdf(3, 10, high) == pytest.approx(0.05)
    assert best_of.share(3, 2, 10) == (low, best_of.share(5, 0, 10)[1])


def test_expected_steps_by_hand():
    low, high = np.array([10, INF, 20, INF]), np.array([12, INF, 24, INF])
    assert best_of.expected_steps(low, high) == (30, 36)  # half of the trials need 15 to 18 steps
    # Of five trials one was stopped after 5 steps: if that had been all it needed, (35 / 3) / (3 / 5).
    low, high = np.append(low, 5), np.append(high, INF)
    assert best_of.expected_steps(low, high) == (pytest.approx(35 / 3 / (3 / 5)), INF)
    assert best_of.expected_steps(np.full(3, INF), np.full(3, INF)) == (INF, INF)
    assert best_of.expected_steps(np.array([7, INF]), np.full(2, INF)) == (14, INF)  # 7 steps, half of the trials


@pytest.mark.parametrize(("k", "reached"), [(2, 2), (3, 3), (8, 8), (8, 5), (9, 6)])
def test_a_fall_is_the_mean_over_all_halves_that_reach(k, reached):
    steps = np.append(np.random.default_rng(k).lognormal(5, 1, reached), np.full(k - reached, INF))
    bests = np.array([min(half) for half in itertools.combinations(steps, k // 2)])
    mean = np.log(bests[np.isfinite(bests)]).mean()
    assert best_of.fall(np.random.default_rng(0).permutation(steps)) == pytest.approx(math.exp(mean) / steps.min() - 1)


def test_of_which_trials_a_fall_means_nothing():
    assert math.isnan(best_of.fall(np.array([10.0])))
    # 15 of 70 halves of 8 trials have none of the best two, 5 of the best three.
    assert best_of.fall(np.append([10.0, 10.0], np.full(6, INF))) == INF
    assert best_of.fall(np.append([10.0, 10.0, 10.0], np.full(5, INF))) == 0
    assert best_of.fall(np.full(4, INF)) == INF


def test_a_search_is_sampled_enough_if_its_best_are_alike():
    alike = np.repeat([100.0, INF], [40, 60])
    assert best_of.sampled_enough(alike - 10, alike) == "yes"
    doubled = 100 * 2.0 ** np.arange(100)
    assert best_of.sampled_enough(doubled / 2, doubled) == "no"
    never = np.full(100, INF)
    assert best_of.sampled_enough(never, never) == "no"


def test_a_search_whose_best_few_are_alike_by_luck_perhaps_is_unclear():
    assert (best_of.ranks(100, 23), best_of.ranks(100, 11)) == ((3, 1, 7), (6, 2, 11))
    for alike, said in ((10, "unclear"), (11, "yes")):
        steps = np.repeat([100.0, 150.0, INF], [alike, 20, 80 - alike])
        assert best_of.sampled_enough(steps - 10, steps) == said
    assert best_of.sampled_enough(np.array([9.0]), np.array([10.0])) == "unclear"
    assert best_of.sampled_enough(np.full(8, 9.0), np.full(8, 10.0)) == "unclear"


def test_the_next_evaluation_is_no_fall():
    steps = np.repeat([101.0, 112.0, INF], [1, 39, 60])  # evaluations grow by 10 %, to whole steps
    assert best_of.sampled_enough(steps - 10, steps) == "yes"
    steps = np.repeat([101.0, 124.0, INF], [1, 39, 60])
    assert best_of.sampled_enough(steps - 10, steps) == "no"


def test_undecided_trials_make_a_verdict_unclear_that_they_might_change():
    steps = np.repeat([100.0, INF], [40, 60])
    stopped = np.append(steps, np.full(8, INF))
    assert best_of.sampled_enough(np.append(steps - 10, np.full(8, 5.0)), stopped) == "unclear"
    assert best_of.sampled_enough(np.append(steps - 10, np.full(8, 100.0)), stopped) == "yes"
    doubled = np.append(100 * 2.0 ** np.arange(100), np.full(9, INF))
    assert best_of.sampled_enough(np.where(np.isinf(doubled), 10, doubled / 2), doubled) == "unclear"


@pytest.mark.parametrize("n", [32, 100])
@pytest.mark.parametrize(("slope", "enough"), [(0.5, False), (0.05, True)])
def test_a_search_that_falls_is_seldom_called_sampled_enough_and_one_that_does_not_seldom_not(n, slope, enough):
    # Steps grow as a power of the rank: every halving of the trials costs 2^slope, 41 % or 3.5 %.
    rng = np.random.default_rng(0)
    steps = 1000 * rng.random((1000, n)) ** slope
    steps[:, : n // 4] = INF
    said = [best_of.sampled_enough(*evaluated(each, 1.02)) for each in steps]
    assert said.count("no" if enough else "yes") <= 60
    assert said.count("yes" if enough else "no") >= (0 if enough else 850)


@settings(max_examples=50)
@given(st.lists(st.sampled_from([1.0, 2.0, 4.0, 8.0, INF]), min_size=1, max_size=40), st.integers(1, 40))
def test_more_trials_in_a_search_never_need_more_steps(steps, k):
    high = np.array(steps)
    low = np.where(np.isinf(high), INF, high / 2)
    k = min(k, len(high))
    medians = [best_of.median(low, high, size).high for size in range(1, k + 1)]
    assert all(a >= b for a, b in itertools.pairwise(medians))
    assert medians[-1] >= high.min()


def test_a_trial_that_was_there_at_the_start_is_a_number_like_any_other() -> None:
    high = np.array([0.0, 10, 20, 40, 80, INF, INF, INF])
    low = np.array([0.0, 5, 10, 20, 40, INF, INF, INF])
    assert 0 < best_of.fall(high) < INF
    assert best_of.sampled_enough(low, high) == "no"
    assert best_of.fall(np.zeros(8)) == pytest.approx(0)
    assert best_of.expected_steps(np.zeros(8), np.zeros(8)) == (0, 0)
