"""Each assumption against data that keep it, data that break it, and data that cannot tell."""

import numpy as np
import pytest

from analysis.fitting import assumptions, curves, regimes
from analysis.fitting.curves import Points
from analysis.fitting.samples import Sample
from analysis.trials.edges import Edge

SIZES = 2.0 ** np.arange(13)
NOISE = np.random.default_rng(3).normal(0, 0.02, len(SIZES))
SHARP = np.log(50 * (1 + (64 / SIZES) ** 2) ** 0.5)


def outcomes(ln_steps, sizes=SIZES, rounding=1.05, **about):
    """Outcome of every check of a fit of ``ln_steps``."""
    low = np.exp(ln_steps) * 2 / (1 + rounding)
    points = Points(sizes, low, rounding * low, np.ones(len(sizes)), None, (), "")._replace(**about)
    fit = regimes.fit(points.batch_size, points.low, points.high)
    return {check.assumption: check.outcome for check in assumptions.check(fit, points)}


def test_a_curve_as_assumed_passes():
    found = outcomes(SHARP + NOISE / 2)
    assert [found[name] for name in ("slope", "plateau", "knee", "residuals", "batch sizes")] == ["pass"] * 5
    assert [found[name] for name in ("perfect scaling", "evaluations")] == ["pass"] * 2
    assert [found[name] for name in ("trials", "points", "search", "space")] == ["cannot tell"] * 4
    assert list(found) == list(assumptions.ASSUMPTIONS)


@pytest.mark.parametrize("slope", [0.85, 1.15])
def test_another_slope_at_small_batch_sizes_is_doubted(slope):
    found = outcomes(slope * SHARP + NOISE)
    assert found["slope"] == "doubt"
    assert found["plateau"] != "doubt"


@pytest.mark.parametrize("slope", [0.15, -0.15])
def test_a_plateau_that_is_none_is_doubted(slope):
    past = np.maximum(np.log(SIZES / 64), 0)
    assert outcomes(SHARP - slope * past + NOISE)["plateau"] == "doubt"


def test_few_batch_sizes_or_much_noise_cannot_tell():
    few = outcomes((SHARP + NOISE)[4:9], SIZES[4:9])
    assert [few[name] for name in ("slope", "plateau", "residuals", "batch sizes")] == ["cannot tell"] * 3 + ["doubt"]
    loud = outcomes(SHARP + 10 * NOISE)
    assert (loud["slope"], loud["plateau"], loud["residuals"]) == ("cannot tell", "cannot tell", "pass")


def test_waves_in_the_residuals_are_doubted_and_luck_is_not():
    wave = 0.1 * np.sin(np.arange(13) * 2 * np.pi / 6)
    assert outcomes(SHARP + wave)["residuals"] == "doubt"
    rng = np.random.default_rng(0)
    seen = [outcomes(SHARP + rng.normal(0, 0.1, 13)) for _ in range(60)]
    for name in ("slope", "plateau", "residuals"):
        assert np.mean([found[name] == "doubt" for found in seen]) <= 0.15  # 5 %, give or take three standard errors


def test_a_knee_near_the_end_is_doubted():
    assert outcomes((SHARP + NOISE)[:8], SIZES[:8])["batch sizes"] == "doubt"


def test_a_line_of_perfect_scaling_that_no_batch_size_is_on_is_doubted():
    above = slice(4, None)
    assert outcomes((SHARP + NOISE)[above], SIZES[above])["perfect scaling"] == "pass"  # 16 is a quarter of the knee
    round_knee = np.log(50 * (1 + (64 / SIZES) ** 0.5) ** 2)
    assert outcomes(round_knee + NOISE)["perfect scaling"] == "doubt"  # returns diminish throughout
    assert outcomes(np.log(1e5 / SIZES) + NOISE)["perfect scaling"] == "pass"
    points = Points(SIZES, np.exp(round_knee), np.exp(round_knee), np.ones(13), None, (), "")
    fit = regimes.fit(SIZES, points.low, points.high)
    assert "perfect scaling" not in regimes.names(fit, SIZES)
    (check,) = (each for each in assumptions.check(fit, points) if each.assumption == "perfect scaling")
    assert check.seen.startswith("at none of 13 batch sizes; ") and check.seen.endswith(" likely at batch size 1")


def test_evaluations_far_apart_are_doubted():
    assert outcomes(SHARP, rounding=1.5)["evaluations"] == "doubt"
    assert outcomes(SHARP, rounding=1.0)["evaluations"] == "cannot tell"


def test_what_is_known_of_the_trials():
    numbers = np.ones((13, 4))
    sample = Sample(numbers, numbers, common=0.0, repeated=0.0)
    inside = (*[[]] * 12, None)
    found = outcomes(SHARP + NOISE, trial_counts=np.full(13, 4), sample=sample, at_edge=inside)
    assert [found[name] for name in ("trials", "points", "space")] == ["pass"] * 3
    crowded = (*[[]] * 12, [Edge("learning_rate", "high", 10.0, True)])
    sample = sample._replace(repeated=0.1)
    found = outcomes(SHARP + NOISE, trial_counts=np.array([9, *[4] * 12]), sample=sample, at_edge=crowded)
    assert [found[name] for name in ("trials", "points", "space")] == ["doubt"] * 3


def test_nothing_is_checked_without_points():
    assert curves.no_points(refusal="so").at_edge == ()
