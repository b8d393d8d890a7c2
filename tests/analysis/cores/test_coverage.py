"""Fits of simulated seconds per epoch: a small version of `python -m analysis coverage --of cores`."""

import io

import numpy as np
import pandas as pd
import pytest

from analysis.cores import coverage, scaling, simulation
from analysis.cores.simulation import LAWS, CoreScenario, Law


def silent(line):
    del line


def rates(law, counts, spread=0.04, datasets=60):
    (row,) = coverage.run(datasets, 1, silent, [CoreScenario(law, counts, spread)]).to_dict("records")
    return row


@pytest.mark.parametrize(
    ("law", "counts"), [("parallel alone", "1 … 64"), ("serial alone", "1, 2, 4"), ("all three", "1 … 8")]
)
def test_statements_on_a_law_that_is_fitted_hold(law, counts):
    row = rates(law, counts)
    # 60 data sets: intervals of 70 % would all be above 0.78 in one of 10 rounds.
    assert min(row[column] for column in coverage.HOLDING) >= 0.78
    assert row["misfit"] <= 0.1


def test_what_is_known_is_identified():
    assert rates("all three", "1 … 64")["identified"] >= 0.95
    assert rates("4 % serial", "1 … 8")["at_least"] >= 0.95
    assert rates("parallel alone", "1 … 64")["identified"] == 0


@pytest.mark.parametrize("law", ["log2 c, 6 %, 10 % serial", "two nodes, 20 % slower", "two nodes, twice as slow"])
def test_statements_on_other_laws_hold_or_a_misfit_is_named(law):
    for counts in ("1 … 8", "1 … 64"):
        assert coverage.met(rates(law, counts, 0.01) | {"law": law})


def test_a_misfit_that_shows_is_named():
    assert rates("two nodes, twice as slow", "1 … 64", 0.01)["misfit"] >= 0.9
    assert rates("log2 c, 6 %, 10 % serial", "1 … 64", 0.01)["misfit"] >= 0.4


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("most", [4.0, 64.0])
def test_half_of_the_time_is_lost_at_the_critical_number_of_cores(name, most):
    law = LAWS[name]
    critical = law.critical(most)
    if not np.isfinite(critical):
        assert name == "parallel alone"
        return
    around = critical * np.array([1 - 1e-6, 1 + 1e-6])
    below, above = around * law.seconds(around, most) - 2 * law.seconds(np.ones(1), most)
    assert below < 0 < above


def test_an_exchange_is_counted_in_serial():
    law, cores = LAWS["(c − 1) / c, 30 %"], np.array([1.0, 2.0, 16.0])
    counted = Law(*law.times)
    assert counted.is_inside and not law.is_inside
    np.testing.assert_allclose(law.seconds(cores, 16), counted.seconds(cores, 16))


def test_a_second_memory_is_beyond_half_of_the_cores():
    law, cores = Law(0.1, 0.9, slower=0.5, step=0.1), np.array([1.0, 8.0, 8.1, 16.0])
    first = Law(0.1, 0.9).seconds(cores, 16)
    np.testing.assert_allclose(law.seconds(cores, 16), np.where(cores > 8, first * 1.5 + 0.1, first))


def test_simulated_noise_is_what_the_fit_assumes():
    scenario = CoreScenario("serial alone", "1 … 8", 0.10)
    times = simulation.draw(scenario, 400, np.random.default_rng(0))
    assert np.log(times.seconds).std() == pytest.approx(np.hypot(0.10, scaling.BETWEEN_RUNS), rel=0.05)
    assert times.spread.mean() == pytest.approx(0.10, rel=0.05)


def test_statements_are_counted_by_what_they_claim():
    scenario = CoreScenario("serial alone", "1 … 8", 0.04)  # half of the time is lost at 2 cores
    fitted = scaling.fit(scenario.cores, LAWS["serial alone"].seconds(scenario.cores, 8), 0.04)
    claims = [
        fitted._replace(verdict=verdict, critical_cores=scaling.Interval(2.5, low, high), misfit=misfit)
        for verdict, low, high, misfit in [
            ("identified", 1.5, 3.0, "none"),
            ("identified", 2.1, 3.0, "step"),
            ("at_least", 1.9, np.inf, "none"),
            ("at_most", 1.0, 1.9, "none"),
            ("not_identified", 1.0, 9.0, "rounds"),
        ]
    ]
    row = coverage.row(scenario, claims)
    assert list(row) == list(coverage.COLUMNS)
    assert (row["covered"], row["misfit"], row["identified"], row["not_identified"]) == (0.5, 0.4, 0.4, 0.2)
    assert row["octaves"] == pytest.approx(np.median(np.log2([2.0, 3.0 / 2.1])))
    assert np.isnan(coverage.row(scenario, claims[-1:])["covered"])


def test_an_aim_is_met_by_holding_or_by_saying_so():
    held = dict.fromkeys(coverage.HOLDING, 0.9)
    for law, row, met in [
        ("all three", held | {"misfit": 0.02}, True),
        ("all three", held | {"misfit": 0.2}, False),
        ("all three", held | {"serial_covered": 0.8, "misfit": 0.02}, False),
        ("log2 c, 2 %", held | {"covered": np.nan, "misfit": 0.0}, True),
        ("log2 c, 2 %", held | {"covered": 0.5, "misfit": 0.7}, False),
        ("log2 c, 2 %", held | {"covered": 0.5, "misfit": 0.9}, True),
    ]:
        assert coverage.met(row | {"law": law}) == met


def test_a_scenario_does_not_depend_on_the_others():
    one, two = CoreScenario("all three", "1 … 8", 0.04), CoreScenario("serial alone", "1, 2, 4", 0.1)
    alone = coverage.run(3, 5, silent, [two])
    pd.testing.assert_frame_equal(coverage.run(3, 5, silent, [one, two]).iloc[1:].reset_index(drop=True), alone)
    assert not coverage.run(3, 6, silent, [two]).equals(alone)


def test_the_command_prints_rates_and_writes_csv(cli, monkeypatch):
    names = ("parallel alone", "log2 c, 2 %")
    monkeypatch.setattr(simulation, "LAWS", {name: LAWS[name] for name in names})
    code, out, _ = cli("coverage", "--of", "cores", "--datasets", 2, "--seed", 3)
    first, *_ = out.splitlines()
    assert code == 0
    assert "`analysis epochs --fit`" in first and "18 scenarios of 2 data sets, seed 3" in first
    assert "misfit named" in out and "log2 c, 2 %" in out
    code, out, _ = cli("coverage", "--of", "cores", "--datasets", 1, "--csv")
    table = pd.read_csv(io.StringIO(out))
    assert list(table.columns) == list(coverage.COLUMNS)
    assert set(table["law"]) == set(names)
    assert cli("coverage", "--of", "steps")[0] == 2
