"""Which points of a search are the same at several batch sizes, what trials come to, and what each weighs."""

import io
import itertools

import numpy as np
import pandas as pd
import pytest

from analysis.fitting import assumptions, curves, fits, samples
from analysis.fitting.weights import best_of_some, minimum_variance, relative_weights, without_each
from analysis.trials import steps_to_target
from results.plans.search_space import Range, SearchSpace

from ..conftest import BATCH_SIZES, Ran, plan, publish

SPACE = SearchSpace({"learning_rate": Range("LOG", 1e-3, 10.0), "momentum": Range("REVERSE_LOG", 0.0, 0.99)})


def drawn(space, shares):
    """Metaparameters at ``shares`` [trials, ranges] of the ranges."""
    columns = zip(space.items(), np.transpose(shares), strict=True)
    return pd.DataFrame({name: [ranged.at(u) for u in column] for (name, ranged), column in columns})


def publish_search(folder, points, trials=8, space=SPACE):
    """A curve with critical batch size 64 whose trials need e^(u v) times the least steps at points (u, v)."""
    for i, size in enumerate(BATCH_SIZES):
        shares = points(i, trials)
        need = np.round(4000 * (1 + 64 / size) * np.exp(shares.prod(axis=1))).astype(int).tolist()
        rows = {j: Ran([(round(0.9 * n), 0.2), (n, 0.05)]) for j, n in enumerate(need)}
        ranges = space if isinstance(space, SearchSpace) else space(size)
        study = plan(batch_size=size, budget_steps=10**7, trials=trials, space=ranges)
        columns = {name: column.tolist() for name, column in drawn(ranges, shares).items()}
        publish(folder, study, rows, drawn=columns)


def own(i, trials):
    return np.random.default_rng(i).random((trials, 2))


def shared(i, trials):
    """The same points in another order."""
    return np.random.default_rng(7).random((trials, 2))[np.random.default_rng(i).permutation(trials)]


def test_places_are_those_that_metaparameters_were_drawn_from():
    shares = np.random.default_rng(0).random((20, 2))
    found = samples.coordinates(SPACE, drawn(SPACE, shares))
    np.testing.assert_allclose(found, shares, atol=1e-6)
    wider = SearchSpace({**SPACE, "learning_rate": Range("LOG", 1e-4, 1.0)})
    assert samples.coordinates(wider, drawn(wider, shares)) == found


def test_places_without_a_range_are_values_with_unknown_gaps():
    frame = pd.DataFrame({"learning_rate": [0.1, np.nan], "layers": [2.0, 3.0]})
    assert samples.coordinates(SearchSpace({}), frame) == [(0.1, 2.0), None]
    assert samples.coordinates(SPACE, pd.DataFrame(index=range(2))) == [None, None]


def test_points_are_put_in_one_order():
    a, b, c, d = (0.1,), (0.2,), (0.3,), (0.4,)
    order, common, repeated = samples.align([[a, b, c, d], [c, a, b, (0.5,)]])
    assert (common, repeated) == (0.75, 0.75)
    assert order.tolist() == [[0, 1, 2, 3], [1, 2, 0, 3]]


@pytest.mark.parametrize("points", [[[(0.1,), (0.1,)]] * 2, [[(0.1,), None]] * 2, [[(0.1,)]] * 2])
def test_one_point_several_times_is_no_search(points):
    _, common, repeated = samples.align(points)
    assert np.isnan([common, repeated]).all()


def widening(size):
    """A search space that grows with the batch size."""
    return SearchSpace({**SPACE, "learning_rate": Range("LOG", 1e-3, float(size))})


@pytest.mark.parametrize("space", [SPACE, widening])
def test_shared_points_of_a_store_widen_the_interval(folder, space):
    publish_search(folder, shared, space=space)
    (curve,) = curves.of_store(*steps_to_target.load(folder))
    points = curves.points(curve)
    assert points.sample.common == points.sample.repeated == 1
    # Each column is of one point: its luck is the same everywhere.
    luck = np.log(points.sample.high) - np.log(points.high)[:, None]
    np.testing.assert_allclose(luck, np.broadcast_to(luck[0], luck.shape), atol=1e-3)
    points_fit = fits.of_points(points)
    assert "all batch sizes tried the same points: the interval allows for their shared luck" in points_fit.reason
    assert "points" in points_fit.doubts


def test_points_of_its_own_are_not_taken_for_shared_ones(folder):
    publish_search(folder, own)
    (curve,) = curves.of_store(*steps_to_target.load(folder))
    points_fit = fits.of_curve(curve)
    sample = points_fit.points.sample
    assert (sample.common, sample.repeated, sample.is_shared) == (0, 0, False)
    assert "same points" not in points_fit.reason
    assert points_fit.points.trial_counts.tolist() == [8] * len(BATCH_SIZES)


def test_the_best_of_trials_is_bracketed():
    low, high = np.array([[3.0, 1, np.nan], [0, 2, 5]]), np.array([[4.0, 6, np.nan], [9, 3, 6]])
    least, most, weights = samples.best(low, high)
    assert (least.tolist(), most.tolist()) == ([1, 0], [4, 3])
    assert weights.mean() == pytest.approx(1)


def test_checks_are_listed_at_the_command(folder, cli):
    publish_search(folder, own)
    code, out, err = cli("fit", "--store", folder, "--checks")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "1: digits · fully_connected_64 · sgd · test_error · 0.1 · examples · selected · 8: identified"
    assert all(f"{name}: " in line for name, line in zip(assumptions.ASSUMPTIONS, lines[2:13], strict=True))
    assert any(line.startswith("pass") and line.endswith("8 each") for line in lines)
    code, out, _ = cli("fit", "--store", folder, "--checks", "--csv")
    table = pd.read_csv(io.StringIO(out))
    assert list(table.columns[-3:]) == ["assumption", "seen", "outcome"]
    assert len(table) == len(assumptions.ASSUMPTIONS)


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


def test_results_without_each_trial_are_in_trial_order():
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
