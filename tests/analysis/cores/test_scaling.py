"""The law of seconds per epoch over cores against known truths and its own symmetries."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.cores import scaling

CORES = 2.0 ** np.arange(5)
# serial, parallel, communication, and where half of the cores' time is lost.
LAWS = [(0.05, 1.0, 0.002, 14.344), (0.1, 1.0, 0.0, 12.0), (0.0, 1.0, 0.01, 10.512), (1.0, 0.5, 0.0, 2.5)]
times = st.floats(1e-3, 1e3)


def seconds(law, cores=CORES):
    return law[0] + law[1] / cores + law[2] * (cores - 1)


@pytest.mark.parametrize("law", LAWS)
def test_an_exact_law_is_found_and_lies_in_its_intervals(law):
    fit = scaling.fit(CORES, seconds(law), 0.02)
    for found, true in zip((fit.serial, fit.parallel, fit.communication, fit.critical_cores), law, strict=True):
        assert found.best == pytest.approx(true, rel=1e-4, abs=1e-9)
        assert found.low <= true * 1.0001 and found.high >= true * 0.9999
        assert found.low <= found.best <= found.high
    assert fit.verdict == "identified"
    fastest = math.sqrt(law[1] / law[2]) if law[2] else math.inf
    assert fit.fastest_cores == pytest.approx(fastest, rel=1e-6)


def test_critical_cores_lose_half_of_their_time():
    for law in LAWS:
        critical = scaling.fit(CORES, seconds(law), 0.0).critical_cores.best
        assert critical * seconds(law, np.array(critical)) == pytest.approx(2 * (law[0] + law[1]), rel=1e-6)


def test_perfect_scaling_is_at_least_what_was_measured_and_no_more():
    fit = scaling.fit(CORES, 1 / CORES, 0.01)
    assert fit.verdict == "at_least"
    assert fit.critical_cores == scaling.Interval(math.inf, 16.0, math.inf)
    assert fit.serial.best == fit.communication.best == fit.serial.low == 0


def test_a_knee_before_the_fewest_cores_is_at_most():
    fit = scaling.fit(CORES * 8, seconds((1.0, 2.0, 0.0), CORES * 8), 0.0)
    assert fit.verdict == "at_most"
    assert fit.critical_cores.high < 8


def test_faster_than_perfect_is_no_error():
    fit = scaling.fit(np.array([1.0, 2.0, 4.0]), np.array([1.0, 0.4, 0.15]), 0.02)
    assert fit.verdict == "at_least"


def test_two_numbers_of_cores_are_refused():
    with pytest.raises(ValueError, match="a fit needs 3 numbers of cores, not 2"):
        scaling.fit(CORES[:2], CORES[:2], 0.0)


def test_an_interval_that_ended_below_its_best_value():
    measured = np.array([102.882, 48.955, 24.069, 12.268, 6.258, 2.914, 1.552])
    parallel = scaling.fit(2.0 ** np.arange(7), measured, 0.01).parallel
    assert parallel.best == pytest.approx(98, rel=0.02)
    # Seven times with noise of 3 %: the mean of seconds · cores, give or take a few percent.
    assert 0.9 * parallel.best < parallel.low < 0.99 * parallel.best
    assert 1.01 * parallel.best < parallel.high < 1.1 * parallel.best


def intervals(fit):
    return (fit.serial, fit.parallel, fit.communication, fit.critical_cores)


@st.composite
def curves(draw):
    """Cores and seconds: nearly perfect, superlinear, exact, of one term or of nothing in particular, in any unit."""
    cores = np.array(sorted(draw(st.sets(st.integers(1, 256), min_size=3, max_size=9))), np.float64)
    parts = draw(st.sampled_from([(0, 1, 0), (1, 0, 0), (0, 0, 1), (1e-6, 1, 1e-9), (0.1, 1, 0.01), (1, 1, 1)]))
    power = draw(st.sampled_from([0.0, 0.0, -0.3, 0.5]))  # of cores, beside the law: faster than perfect, or slower
    law = (seconds(parts, cores) + 1e-9) * cores**power
    noise = draw(st.sampled_from([0.0, 0.0, 1e-9, 0.03, 0.5, 2.0]))
    drawn = np.random.default_rng(draw(st.integers(0, 10**6))).standard_normal(len(cores))
    return cores, law * np.exp(noise * drawn) * draw(st.sampled_from([1e-150, 1e-12, 1.0, 1e9, 1e150]))


@given(curves(), st.sampled_from([0.0, 0.04, 0.3]))
@settings(max_examples=150, deadline=None)
def test_an_interval_holds_its_best_value(curve, spread):
    fit = scaling.fit(*curve, spread)
    for found in intervals(fit):
        assert 0 <= found.low <= found.best <= found.high
    assert all(np.isfinite(found).all() for found in intervals(fit)[:3])
    assert fit.critical_cores.low >= 1 or fit.verdict in ("at_most", "not_identified")


@pytest.mark.parametrize(
    ("added", "misfit"),
    [
        (lambda cores: 0.0 * cores, "none"),
        (lambda cores: 0.3 * np.log2(cores), "rounds"),
        (lambda cores: 0.3 * (cores > 32), "step"),
        (lambda cores: 0.3 * (cores == 8), "scatter"),
    ],
)
def test_what_the_law_misses_is_named(added, misfit):
    cores = 2.0 ** np.arange(7)
    fit = scaling.fit(cores, seconds((0.05, 1.0, 0.0), cores) + added(cores), 0.01)
    assert fit.misfit == misfit
    assert bool(fit.doubt) == (misfit != "none")


def test_a_step_beyond_half_of_the_cores_is_inside_the_interval():
    """Nothing was measured between 4 and 8 cores, and at 8 an epoch takes half as long again as by the law."""
    cores = 2.0 ** np.arange(4)
    law = (0.2, 0.8, 0.0)
    assert 4 * seconds(law, 4.0) < 2 < 4 * 1.5 * seconds(law, 4.0)
    fit = scaling.fit(cores, seconds(law, cores) * np.where(cores > 4, 1.5, 1.0), 0.0)
    assert fit.critical_cores.low <= 4.001
    assert fit.critical_cores.high >= 4


@given(times, times, st.floats(0, 1), st.floats(1e-3, 1e3), st.permutations(range(5)), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_units_and_order_do_not_matter(serial, parallel, communication, unit, order, seed):
    measured = seconds((serial, parallel, communication)) * np.exp(np.random.default_rng(seed).normal(0, 0.02, 5))
    one = scaling.fit(CORES, measured, 0.02)
    other = scaling.fit(CORES[list(order)], measured[list(order)] * unit, 0.02)
    assert one.verdict == other.verdict
    np.testing.assert_allclose(one.critical_cores, other.critical_cores, rtol=1e-5)
    for name in ("serial", "parallel", "communication"):
        ours, theirs = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(np.multiply(ours, unit), theirs, rtol=1e-5, atol=1e-6 * unit * measured.max())


@given(st.integers(2, 40), st.floats(0.005, 0.3), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_spread_is_the_relative_deviation_of_epochs(count, deviation, seed):
    rng = np.random.default_rng(seed)
    many = [scale * (1 + deviation * rng.normal(size=count)).clip(0.01) for scale in np.geomspace(0.01, 100, 200)]
    assert scaling.spread(many) == pytest.approx(deviation, rel=0.25)


def test_one_slow_epoch_moves_the_spread_little_and_single_epochs_have_none():
    quiet = [1 + 0.01 * np.random.default_rng(seed).normal(size=16) for seed in range(4)]
    before = scaling.spread(quiet)
    quiet[0][0] = 2.0
    assert before < scaling.spread(quiet) < 4 * before
    assert scaling.spread([np.array([1.0]), np.array([2.0])]) == 0


@pytest.mark.parametrize("between", [0.0, 0.03, 0.06])
def test_intervals_cover_whether_noise_is_of_epochs_or_of_runs(between):
    """Epochs scatter by 4 %, and whole runs by ``between``, up to twice what is assumed."""
    rng, rounds = np.random.default_rng(0), 120
    for law in LAWS[:3]:
        covered = np.zeros(4)
        for _ in range(rounds):
            runs = [t * np.exp(rng.normal(0, between) + rng.normal(0, 0.04, 8)) for t in seconds(law)]
            fit = scaling.fit(CORES, np.array([np.median(run) for run in runs]), scaling.spread(runs))
            found = (fit.serial, fit.parallel, fit.communication, fit.critical_cores)
            covered += [f.low <= true * 1.0001 and f.high >= true * 0.9999 for f, true in zip(found, law, strict=True)]
        assert covered.min() >= 0.85 * rounds
