"""The jackknife against counting all subsets."""

import itertools

import numpy as np
import pytest

from analysis.fitting.weights import best_of_some, minimum_variance, relative_weights, without_each


def counted(steps):
    """The jackknife variance by enumeration: mean ln best of the halves that reached, each trial left out."""
    k = len(steps)

    def mean(rest):
        bests = [min(subset) for subset in itertools.combinations(rest, k // 2)]
        return np.mean([np.log(best) for best in bests if np.isfinite(best)])

    left_out = [mean(np.delete(steps, i)) for i in range(k)]
    return (k - 1) / k * np.sum((left_out - np.mean(left_out)) ** 2)


@pytest.mark.parametrize(("k", "failed"), [(2, 0), (3, 0), (3, 1), (8, 0), (8, 5), (9, 1), (9, 7)])
def test_closed_form_agrees_with_counting(k, failed):
    steps = np.random.default_rng(k).lognormal(5, 1, k)
    steps[:failed] = np.inf
    assert minimum_variance(steps[None])[0] == pytest.approx(counted(steps))


def test_nothing_to_estimate_from_weighs_alike():
    low, high = np.array([1.0, 10.0]), np.array([2.0, 11.0])
    assert relative_weights(low, high, np.array([[1.5], [10.5]])).tolist() == [1, 1]
    once = np.array([[1.5, np.inf, np.inf], [np.inf, np.inf, 10.5]])
    assert relative_weights(low, high, once).tolist() == [1, 1]


def test_many_trials_do_not_overflow():
    steps = np.random.default_rng(0).lognormal(5, 1, (3, 5000))
    assert np.isfinite(minimum_variance(steps)).all()


def test_wide_evaluations_weigh_less_and_the_mean_is_one():
    trials = np.random.default_rng(0).lognormal(5, 0.1, (3, 16))
    weights = relative_weights(np.array([50.0, 90, 99]), np.full(3, 100.0), trials)
    assert (np.diff(weights) > 0).all()
    assert weights.mean() == pytest.approx(1)


def test_what_is_left_without_each_trial_is_told_in_the_order_of_trials():
    steps = np.random.default_rng(1).lognormal(5, 1, 7)
    steps[2] = np.inf
    expected = [
        np.mean([np.log(min(subset)) for subset in itertools.combinations(np.delete(steps, i), 3)]) for i in range(7)
    ]
    np.testing.assert_allclose(without_each(steps[None])[0], expected)


@pytest.mark.parametrize(("k", "failed"), [(2, 0), (2, 1), (7, 0), (8, 3)])
def test_the_best_of_half_agrees_with_counting(k, failed):
    steps = np.random.default_rng(k).lognormal(5, 1, k)
    steps[:failed] = np.inf
    bests = [min(subset) for subset in itertools.combinations(steps, k // 2)]
    expected = np.mean([np.log(best) for best in bests if np.isfinite(best)])
    assert best_of_some(steps[None], k // 2)[0] == pytest.approx(expected)


def test_stacks_of_data_weigh_as_each_alone():
    rng = np.random.default_rng(0)
    trials = rng.lognormal(5, 0.5, (4, 3, 16))
    low, high = rng.uniform(50, 60, (4, 3)), rng.uniform(60, 80, (4, 3))
    alone = [relative_weights(*one) for one in zip(low, high, trials, strict=True)]
    np.testing.assert_allclose(relative_weights(low, high, trials), alone)
