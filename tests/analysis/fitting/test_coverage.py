"""Intervals and verdicts on simulated searches: a small version of `python -m analysis coverage`."""

import io

import numpy as np
import pandas as pd
import pytest

from analysis.fitting import fit_coverage, simulation
from analysis.fitting.simulation import Scenario, Searches

SYMMETRIC = ("hyperbola", "soft", "sharp", "two steps")


def silent(line):
    del line


def some(knees, shapes=("hyperbola",), sizes=(9,), points=("own",)):
    """The scenarios of these kinds with both noises, on one grid of evaluations."""
    return [
        one
        for one in simulation.scenarios()
        if one.knee in knees
        and one.shape in shapes
        and one.sizes in sizes
        and one.points in points
        and one.grid == simulation.GRIDS[0]
    ]


def pooled(scenarios, datasets, seed=0):
    table = fit_coverage.run(datasets, seed, silent, scenarios)
    (rates,) = fit_coverage.summary(table.assign(all="all"), "all").to_dict("records")
    return rates


def test_intervals_hold_the_truth_as_often_as_they_say():
    reached, stated, identified = [], [], []
    for i, scenario in enumerate(some(simulation.INSIDE, SYMMETRIC, (6, 13))):
        searches = simulation.draw(scenario, 12, np.random.default_rng([0, i]))
        for fit, critical in zip(fit_coverage.fit(scenario, searches), searches.critical, strict=True):
            identified.append(fit.verdict == "identified")
            stated.append(not (fit.low > critical or fit.high < critical))
            reached.append(not (fit.data_ends[0] > critical or fit.data_ends[1] < critical))
    assert len(stated) == 768  # data sets: a standard error is 1 %
    # What the data alone leave holds as it says; intervals of 80 % would be at 0.82, of 97 % at 0.98.
    assert 0.88 <= np.mean(reached) <= 0.96
    # The model error is for other shapes than these four, on which the interval holds more often than it says.
    assert np.mean(reached) <= np.mean(stated) <= 0.99
    assert np.mean(identified) > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("knee", ["2 octaves inside", "1 octave inside"])
def test_a_knee_of_another_shape_is_held_in_most_data_sets(knee):
    for scenario in some([knee], ("noisy quadratic", "lopsided"), (13,)):
        (row,) = fit_coverage.run(60, 0, silent, [scenario]).to_dict("records")
        assert row["covered"] >= 0.75  # 80 %, give or take a standard error; without a model error 51 to 68 %


def test_a_knee_that_is_not_there_is_not_identified():
    assert pooled(some(simulation.ABSENT, sizes=(6, 9, 13)), datasets=30)["identified"] == 0
    beyond = pooled(some(["2 octaves beyond"], SYMMETRIC), datasets=20)
    assert beyond["identified"] <= fit_coverage.FALSELY
    assert beyond["covered"] > 0.9
    assert beyond["at_least"] > 0.9


def test_a_knee_in_the_middle_is_identified():
    assert pooled(some(["middle"], SYMMETRIC), datasets=10)["identified"] == 1


@pytest.mark.slow
def test_shared_points_spoil_intervals_unless_known():
    kinds = {"knees": ["middle"], "shapes": SYMMETRIC, "sizes": (13,)}
    known, unknown = (pooled(some(points=[points], **kinds), datasets=40) for points in ("shared", "shared unawares"))
    assert known["covered"] > 0.86
    assert unknown["covered"] < known["covered"] - 0.03


@pytest.mark.parametrize("shape", simulation.ALL_SHAPES)
def test_perfect_scaling_meets_the_plateau_at_the_critical_size(shape):
    scenario = Scenario("middle", shape, 13, "low", simulation.GRIDS[0])
    past = np.array([-30.0, 0, 30])
    above = simulation._curve(scenario, past, np.log(scenario.batch_size))
    np.testing.assert_allclose(above[[0, 2]], [0, 30], atol=1e-4)
    assert 0 < above[1] < 1.2


def test_simulated_steps_are_bracketed_by_evaluations():
    for grid in simulation.GRIDS:
        scenario = Scenario("middle", "sharp", 9, "high", grid)
        found = simulation.draw(scenario, 5, np.random.default_rng(0))
        reached = ~np.isnan(found.high)
        assert 0.7 < reached.mean() < 0.95
        assert (found.low < found.high)[reached].all()
        assert np.array_equal(np.isnan(found.low), ~reached)


def test_statements_are_counted_by_what_they_claim():
    scenario = Scenario("middle", "sharp", 13, "low", simulation.GRIDS[0])
    searches = simulation.draw(scenario, 4, np.random.default_rng(0))
    fitted = fit_coverage.fit(scenario, searches)
    low, high = fitted[0].low, fitted[0].high
    critical = np.array([low * 0.9, (low * high) ** 0.5, high * 1.1, low * 0.9])
    claims = ["at_most", "identified", "at_least", "at_least"]
    one = [fitted[0]._replace(verdict=claim) for claim in claims]
    row = fit_coverage.row(scenario, one, critical)
    assert (row["covered"], row["at_least"], row["identified"]) == (0.75, 0.5, 0.25)
    none = fit_coverage.row(scenario, [fitted[0]._replace(verdict="not_identified")], critical[:1])
    assert np.isnan(none["covered"])
    assert none["not_identified"] == 1


def test_a_search_so_hard_that_all_miss_still_has_a_best_trial():
    scenario = Scenario("middle", "harder search", 11, "high", simulation.GRIDS[0])
    found = simulation.draw(scenario, 100, np.random.default_rng(0))
    reached = np.isfinite(found.high).sum(axis=2)
    assert reached.min() == 1
    assert reached[:, -1].mean() < 4 < 20 < reached[:, 0].mean()


def test_beyond_what_is_assumed_the_table_says_who_named_it():
    scenarios = [one for one in simulation.scenarios() if one.shape in simulation.CHOSEN_ON and one.noise == "low"]
    table = fit_coverage.run(4, 0, silent, scenarios)
    assert table["named"].between(0, 1).all()
    assert (table["wrong"] <= table["identified"]).all()
    assert (table["named"] <= table["failed"]).all()
    text = fit_coverage.as_text(table, 0, 1.0)
    for shape in simulation.CHOSEN_ON:
        (line,) = [line for line in text.splitlines() if line.startswith(shape)]
        assert line.endswith(("met", "MISSED"))


@pytest.mark.parametrize("shape", simulation.BEYOND)
def test_lines_outside_assumptions_meet_at_the_critical_size(shape):
    above = simulation.BEYOND[shape].curve(np.array([-1.4, 60.0]))
    assert 0 < above[0] < 0.6
    slope = simulation.BEYOND[shape].curve(np.array([59.0, 60.0]))
    line = above[1] - 60 * (slope[1] - slope[0])  # perfect scaling, drawn on to the critical batch size
    assert line == pytest.approx(0, abs=1e-3)


def test_a_scenario_does_not_depend_on_the_others():
    one, two = some(["middle"])[:2]
    alone = fit_coverage.run(3, 5, silent, [two])
    pd.testing.assert_frame_equal(fit_coverage.run(3, 5, silent, [one, two]).iloc[1:].reset_index(drop=True), alone)
    assert not fit_coverage.run(3, 6, silent, [two]).equals(alone)


def test_the_command_prints_rates_against_targets(cli, monkeypatch):
    monkeypatch.setattr(simulation, "SHAPES", {"hyperbola": simulation.SHAPES["hyperbola"]})
    monkeypatch.setattr(simulation, "ALL_SHAPES", simulation.SHAPES)
    code, out, _ = cli("coverage", "--of", "fits", "--datasets", 2, "--seed", 3)
    assert code == 0
    assert "2 data sets, seed 3" in out.splitlines()[0] + out.splitlines()[1]
    assert "absent: plateau" in out
    assert "met" in out
    code, out, _ = cli("coverage", "--of", "fits", "--datasets", 1, "--csv")
    table = pd.read_csv(io.StringIO(out))
    assert list(table.columns) == list(fit_coverage.COLUMNS)
    assert len(table) == len(simulation.scenarios())


@pytest.mark.parametrize("arguments", [["--datasets", 0], ["--seed", -1], ["--datasets", "many"]])
def test_numbers_that_make_no_sense_are_told_in_one_line(cli, arguments):
    code, out, err = cli("coverage", *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("error: ")


def test_searches_of_one_data_set_are_its_own():
    scenario = Scenario("absent: plateau", "hyperbola", 6, "low", simulation.GRIDS[1])
    found = simulation.draw(scenario, 2, np.random.default_rng(0))
    assert isinstance(found, Searches)
    assert found.critical.tolist() == [0, 0]
