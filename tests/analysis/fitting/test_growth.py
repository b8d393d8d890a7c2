"""By which power of the batch size good learning rates grow."""

import math
from pathlib import Path

import numpy as np
import pytest

from analysis import workload_studies
from analysis.fitting import curve_fits, growth
from analysis.fitting.curve_fits import CurveFits
from analysis.trials import metaparameters
from results.plans.search_space import Range, SearchSpace

from ..conftest import BATCH_SIZES, ERROR, Ran, plan, publish

RATE = metaparameters.metaparameter("learning_rate", log=True)
SPACE = SearchSpace({"learning_rate": Range("LOG", 1e-6, 1e6), "momentum": Range("REVERSE_LOG", 0.0, 0.99)})


def line(folder: Path, power: float, noise: float = 0.0, reached: int = len(BATCH_SIZES)) -> CurveFits:
    """A workload whose quickest trials have rates around 0.1 times this power of the batch size; momentum is 0.9."""
    rng = np.random.default_rng(0)
    for place, batch_size in enumerate(BATCH_SIZES):
        best, steps = 0.1 * batch_size**power * math.exp(noise * rng.standard_normal()), max(64, 4096 // batch_size)
        crossing = 0.05 if place < reached else 0.5
        ran = {i: Ran([(at - 4, 0.5), (at, crossing)]) for i, at in enumerate((steps, steps + 1, 2 * steps))}
        drawn = {"learning_rate": [best / 2, best * 2, 1e-6], "momentum": [0.9] * 3}
        publish(folder, plan(batch_size=batch_size, trials=3, space=SPACE, optimizer="momentum"), ran, drawn=drawn)
    (workload,) = workload_studies.of_store(folder)
    return curve_fits.of_workload(workload, ERROR)


@pytest.mark.parametrize(("power", "rule"), [(1.0, ["linear rule"]), (0.5, ["square-root rule"]), (0.0, [])])
def test_the_power_that_was_put_in_is_found(folder: Path, power: float, rule: list[str]) -> None:
    found = growth.estimate(line(folder, power, noise=0.1), RATE)
    assert found
    assert found.low <= power <= found.high
    assert 0 < found.high - found.low < 0.2
    assert found.agrees_with == rule
    assert found.batch_size.tolist() == list(BATCH_SIZES)


def test_only_batch_sizes_that_count_and_reached_are_taken(folder: Path) -> None:
    one = line(folder, 1.0, reached=6)
    found, few = growth.estimate(one, RATE), growth.estimate(one, RATE, up_to=4)
    assert found
    assert found.batch_size.tolist() == list(BATCH_SIZES[:6])
    assert few is None, "three batch sizes have no slope to speak of"


def test_the_table_has_both_rates_of_momentum(folder: Path) -> None:
    one = line(folder, 0.5, noise=0.01)
    critical = one.selected.fit and one.selected.fit.critical_batch_size
    assert critical
    assert one.selected.verdict == "identified"
    assert 32 < critical < 128
    table = growth.table([one])
    assert list(table) == list(growth.COLUMNS)
    assert table["rate"].tolist() == ["learning rate"], "momentum was not tuned"
    with_momentum = [(study, rows.assign(momentum=[0.9, 0.8, 0.9])) for study, rows in one.curve.trials_by_rule]
    varied = one._replace(curve=one.curve._replace(trials_by_rule=with_momentum))
    assert growth.table([varied])["rate"].tolist() == ["learning rate", "effective learning rate"]
    assert table["batch_sizes"].tolist() == [11]
    below = growth.table([one], up_to_critical=True)["batch_sizes"].tolist()
    assert below == [sum(size <= critical for size in BATCH_SIZES)]


def test_too_little_to_tell_is_empty(folder: Path) -> None:
    (row,) = growth.table([line(folder, 1.0, reached=2)]).to_dict("records")
    assert row["batch_sizes"] == 0
    assert math.isnan(row["power"])
    assert row["agrees_with"] == ""
