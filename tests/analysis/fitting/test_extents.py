"""Extents: closed forms, a second implementation, and a small version of `analysis coverage --of extents`."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.fitting import (
    convex_profile,
    curve_fits,
    extent_coverage,
    extents,
    fit_tables,
    fits,
    narrowing,
    narrowing_simulation,
    samples,
    simulation,
    weights,
)
from analysis.fitting.simulation import Scenario
from tests.analysis.fitting import plain_extents

ROOT = Path(__file__).parents[3]
POWERS = 2.0 ** np.arange(11)
METHODS = [extents, convex_profile]


def on_curve(batch_size, steps, luck=0.01):
    steps = np.asarray(steps, np.float64)
    return batch_size, steps, steps, np.full(len(batch_size), luck**2)


def exact(batch_size, steps):
    ln_batch, ln_steps = np.log(batch_size), np.log(np.asarray(steps, np.float64))[None]
    pays, efficient = extents.pays_up_to(ln_batch, ln_steps), extents.efficient_up_to(ln_batch, ln_steps)
    return float(np.exp(pays[0])), float(np.exp(efficient[0]))


def test_a_hyperbola_has_its_closed_form():
    # S = 1 + c/B: S(B/2) = 1.2 S(B) at B = 4 c, and B S = 1.2 (1 + c) at B = 0.2 c + 1.2. Both are on the grid.
    assert exact(POWERS, 1 + 34 / POWERS)[1] == pytest.approx(8)
    assert exact(POWERS, 1 + 32 / POWERS)[0] == pytest.approx(128)
    uneven = np.array([3, 5, 8, 30, 64, 90, 128, 200, 512, 1000.0])
    assert exact(uneven, 1 + 32 / uneven)[0] == pytest.approx(128)
    assert exact(uneven, 1 + 22 / uneven)[1] == pytest.approx(8)


def test_a_doubling_inside_a_straight_piece_is_found_by_hand():
    # Slope -1 up to 4, then flat. The doubling that arrives at B in (4, 8) gains 8 / B - 1.
    assert exact(np.array([1, 4, 64.0]), [64, 16, 16]) == pytest.approx((8 / 1.2, 4 * 1.2))
    # Slope -1/4 gains 19 % and is too little from the start. It needs B^(3/4) as many examples.
    assert exact(np.array([1, 16.0]), [2, 1]) == pytest.approx((1, 1.2 ** (4 / 3)))


def test_a_flat_curve_pays_nowhere_and_a_power_law_everywhere():
    assert exact(POWERS, np.full(11, 100)) == pytest.approx((1, 1.2))
    assert exact(POWERS, 1e4 / POWERS) == (np.inf, np.inf)


@pytest.mark.parametrize("method", METHODS)
def test_statements_without_noise(method):
    pays, efficient = method.estimate(*on_curve(POWERS, np.full(11, 100)))
    assert pays.verdict == "at_most"
    assert np.isnan(pays.low)
    assert (pays.best, efficient.best) == pytest.approx((1, 1.2), rel=0.01)
    for one in method.estimate(*on_curve(POWERS, 1e4 / POWERS)):
        assert one.verdict == "at_least"
        assert one.low == pytest.approx(1024)
        assert np.isnan([one.best, one.high]).all()
    steps = 1e3 * (1 + 34 / POWERS)
    for one, truth in zip(method.estimate(*on_curve(POWERS, steps)), exact(POWERS, steps), strict=True):
        assert one.verdict == "identified"
        assert one.low < truth < one.high
        assert one.best == pytest.approx(truth, rel=0.06)


def test_least_squares_give_the_closed_form_without_noise():
    for batch_size in (POWERS, np.array([3, 5, 8, 30, 64, 90, 128, 200, 512, 1000.0])):
        steps = 1e3 * (1 + 32 / batch_size)
        found = [one.best for one in convex_profile.estimate(*on_curve(batch_size, steps))]
        assert found == pytest.approx(exact(batch_size, steps), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_unknown_luck_is_seen_in_the_scatter(method):
    steps = 1e3 * (1 + 32 / POWERS)
    scattered = steps * np.exp(0.2 * np.resize([1, -1, -1, 1, 1], 11))
    quiet, noisy = (method.estimate(POWERS, each, each)[1] for each in (steps, scattered))
    assert quiet.low < exact(POWERS, steps)[1] < quiet.high
    assert noisy.high / noisy.low > 1.5 * quiet.high / quiet.low


@pytest.fixture(scope="module")
def data_sets():
    """200 searches of five shapes and five lucks at 11 sizes: true curve, (low, high] of the best, and variances."""
    every = []
    for i, shape in enumerate(("hyperbola", "soft", "sharp", "slope -0.85", extent_coverage.FALLS)):
        for j, luck in enumerate(simulation.LUCKS):
            scenario = Scenario("middle", shape, 11, luck, simulation.GRIDS[0])
            drawn = simulation.draw(scenario, 8, np.random.default_rng([4, i, j]))
            variance = weights.minimum_variance(samples.trial_steps(drawn.low, drawn.high))
            ends = (np.fmin.reduce(each, axis=-1) for each in (drawn.low, drawn.high))
            every += list(zip(*ends, variance, strict=True))
    assert len(every) == 200
    return every


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.slow, id="all")])
def test_the_average_is_that_of_a_second_implementation(data_sets, every):
    ln_batch = np.log(POWERS)
    curves = plain_extents.curves(ln_batch)
    answers = plain_extents.answers(ln_batch, curves)
    for low, high, variance in data_sets[::every]:
        plain = plain_extents.averaged(ln_batch, low, high, variance, curves, answers)
        for (first, middle, last), found in zip(plain, extents.estimate(POWERS, low, high, variance), strict=True):
            assert_same(found.low, first, is_open=first <= ln_batch[0])
            assert_same(found.high, last, is_open=last >= ln_batch[-1])
            assert_same(found.best, middle, is_open=np.isinf(middle))


def assert_same(found, ln_plain, is_open):
    if is_open:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(np.exp(ln_plain), rel=0.01)


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.slow, id="all")])
def test_least_squares_ends_agree_with_a_second_implementation(data_sets, every):
    ln_batch = np.log(POWERS)
    checked = 0
    for low, high, variance in data_sets[::every]:
        ln_steps, spread = np.log((low + high) / 2), plain_extents.noise(ln_batch, low, high, variance)
        bound = plain_extents.convex_misfit(ln_batch, ln_steps, spread) + 2.706
        for row_of, found in zip(
            (pays_row, efficient_row), convex_profile.estimate(POWERS, low, high, variance), strict=True
        ):
            for end, sign in ((found.low, -1), (found.high, 1)):
                if np.isnan(end):
                    continue
                checked += 1
                misfits = []
                for ln_size in (np.log(end) - sign * 0.01, np.log(end) + sign * 0.01):
                    row, limit = row_of(ln_batch, ln_size)
                    misfits.append(plain_extents.convex_misfit(ln_batch, ln_steps, spread, sign * row, sign * limit))
                assert misfits[0] <= bound + 1e-3
                assert misfits[1] >= bound - 1e-3
    assert checked > 500 / every


def pays_row(ln_batch, ln_size):
    units = np.eye(len(ln_batch))
    row = [np.interp(ln_size - np.log(2), ln_batch, one) - np.interp(ln_size, ln_batch, one) for one in units]
    return np.array(row), np.log(1.2)


def efficient_row(ln_batch, ln_size):
    row = np.eye(len(ln_batch))[0] - [np.interp(ln_size, ln_batch, one) for one in np.eye(len(ln_batch))]
    return row, ln_size - ln_batch[0] - np.log(1.2)


@pytest.mark.slow
def test_the_table_has_the_luck_of_real_searches():
    points = [one.selected.points for one in curve_fits.of_store(ROOT / "results" / "published")]
    variances = [each for each in map(fits.minimum_variance, points) if each is not None]
    lucks = np.sort([np.sqrt(np.nanmean(each)) for each in variances])
    simulated = [float(name.split()[1]) for name in simulation.LUCKS]
    inside = np.sum((lucks >= simulated[0]) & (lucks <= simulated[-1]))
    told = f"The {len(lucks)} curves of the release with at least 8 trials per point have a luck of {lucks[0]:.2f} to "
    told += f"{lucks[-1]:.2f}, with a median of {np.median(lucks):.2f}. {inside} of them are within this range."
    assert told in " ".join((ROOT / "docs" / "statistics" / "coverage.md").read_text().split())
    assert inside > 0.7 * len(lucks)


def test_the_command_prints_rates_and_aims(cli, monkeypatch):
    monkeypatch.setattr(extent_coverage, "SHAPES", ("hyperbola",))
    monkeypatch.setattr(extent_coverage, "SIZES", (9,))
    monkeypatch.setattr(simulation, "HARD_TO_ANSWER", {})
    code, out, _ = cli("coverage", "--of", "extents", "--datasets", 4, "--seed", 3)
    assert code == 0
    assert "4 data sets for each shape, luck and number of batch sizes, seed 3" in out
    assert out.count("\naims met\n") + out.count("\nMISSED: ") == 2
    code, out, _ = cli("coverage", "--of", "extents", "--datasets", 4, "--seed", 3, "--csv")
    table = pd.read_csv(io.StringIO(out))
    assert list(table.columns) == list(extent_coverage.COLUMNS)
    assert len(table) == 5 * len(simulation.LUCKS)


@pytest.mark.slow
def test_statements_hold_as_often_as_they_must():
    """Seed 3, 60 data sets a cell, half of the aims' margins."""
    scenarios = [
        Scenario("middle", shape, 11, luck, simulation.GRIDS[0])
        for shape in ("hyperbola", "slope -0.85", "plateau rises 12 %", extent_coverage.FALLS)
        for luck in ("luck 0.08", "luck 0.22")
    ]
    table = extent_coverage.run(60, 3, lambda line: None, scenarios)
    own = table[table["answer"].isin(extents.NAMES)]
    assert len(own) == 16
    assert own["holds"].min() >= 0.8
    assert own["holds"].mean() >= 0.95
    assert own["bound_holds"].min() >= 0.9
    of_hyperbola = own[(own["shape"] == "hyperbola") & (own["luck"] == 0.22)].set_index("answer")
    assert of_hyperbola["two_sided"].min() >= 0.7
    assert (of_hyperbola["octaves"] <= [3.3, 3.5]).all()


def test_more_trials_narrow_an_interval_and_halve_it(data_sets):
    halved = []
    for low, high, variance in data_sets[::20]:
        found = narrowing.expected(POWERS, low, high, variance)
        assert (np.diff(found.efficient) < 0.05).all()
        multiple = found.halved_by[1]
        if np.isfinite(multiple):
            assert 2 < multiple <= 32
            halved.append(multiple)
    assert halved


def test_the_variance_of_more_trials_is_that_of_exponential_gaps():
    # Steps above the best are exponential in ln, as if two metaparameters had a quadratic optimum.
    rng = np.random.default_rng(2)
    for multiple in (1, 2, 4):
        steps = np.exp(rng.exponential(1, (2000, 1, 32 * multiple)))
        seen = weights.best_of_some(steps, 32).var()
        assert seen == pytest.approx(narrowing.shares(np.array(multiple)) / 32**2, rel=0.15)
        if multiple > 1:  # the jackknife errs upwards
            assert 0.95 * seen < weights.minimum_variance(steps, 32).mean() < 1.5 * seen


def test_the_command_prints_widths_after_more_trials(cli, monkeypatch):
    monkeypatch.setattr(narrowing_simulation, "SHAPES", ("slope -0.85",))
    monkeypatch.setattr(narrowing_simulation, "LUCKS", ("luck 0.14",))
    monkeypatch.setattr(narrowing_simulation, "OTHER_SIZES", (9,))
    code, out, _ = cli("coverage", "--of", "narrowing", "--datasets", 5, "--seed", 3, "--csv")
    assert code == 0
    table = pd.read_csv(io.StringIO(out))
    assert list(table.columns) == list(narrowing_simulation.COLUMNS)
    widths = table.set_index(["way", "times", "batch_sizes", "answer"])["octaves"]
    for answer in extents.NAMES:
        simulated, best, by_fit = (
            widths[way, 32, 11, answer]
            for way in (narrowing_simulation.EXPECTED, narrowing_simulation.BEST, narrowing_simulation.AS_FIT)
        )
        first = widths[narrowing_simulation.EXPECTED, 1, 11, answer]
        assert simulated < first / 2
        assert simulated < best < first
        assert simulated == pytest.approx(by_fit, rel=0.35)
        assert widths[narrowing_simulation.REPEATS, 1, 11, answer] > first / 2
    printed = narrowing_simulation.as_text(table, 3, 1.0)
    assert "5 data sets for each shape (slope -0.85), luck and search, seed 3" in printed
    assert printed.count("expected best of 64") == 6 and printed.count("best of all") == 5


def test_fit_prints_the_trials_that_halve_an_interval():
    table = pd.DataFrame({"pays_halved_by": [np.nan, 4, 5, np.nan], "efficient_halved_by": [9, 10, np.inf, np.nan]})
    (note,) = fit_tables.what_to_pay_for(table)
    assert note.startswith(
        "halving the interval takes about 4.5 × the trials for pays up to and about 10 × the trials for efficient up "
        "to (median of 2 and 3 curves)"
    )
    assert "more than 32 × the trials for efficient" in fit_tables.what_to_pay_for(table[2:])[0]
    assert fit_tables.what_to_pay_for(table[3:]) == []
