"""Targets that reruns reach: the release in plain pandas, and the command."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.trials import rerun_targets, steps_to_target
from results.plans.study import RERUNS

from ..conftest import Ran, plan, publish

RELEASE = Path(__file__).parents[3] / "results" / "published"
WORKLOAD = ["dataset", "model", "optimizer", "schedule", "stop"]


@pytest.fixture(scope="module")
def reachable():
    """The value that reruns of each workload of the release reach, from its Parquet files alone."""
    trials = pd.read_parquet(RELEASE / "trials.parquet", columns=["study", "trial", "role", "batch_size"])
    repeats = trials[trials["role"] == "confirm"]
    repeats = repeats.assign(number=repeats["trial"] // 1_000_000)
    most = repeats.groupby("study")["number"].transform("max")
    repeats = repeats[repeats["number"] > np.where(most > 3, 3, 0)]  # the first three repeats choose, if there are six
    measured = pd.read_parquet(RELEASE / "measurements.parquet", columns=["study", "trial", "validation_loss"])
    lowest = measured.merge(repeats, on=["study", "trial"]).groupby(["study", "trial"])["validation_loss"].min()
    points = pd.read_parquet(RELEASE / "points.parquet", columns=["study", "stop", "schedule", "target_value"])
    own = lowest.reset_index().merge(points.drop_duplicates("study"), on="study")
    studies = pd.read_parquet(RELEASE / "studies.parquet", columns=["study", *WORKLOAD[:3]]).drop_duplicates("study")
    own = own.merge(studies, on="study")
    found = {}
    for workload, rows in own.groupby(WORKLOAD, dropna=False):
        values = [np.sort(each["validation_loss"].to_numpy(np.float64)) for _, each in rows.groupby("study")]
        third = sorted((each[-1] for each in values), reverse=True)[2]
        found[workload] = (max(third, *(each[-2] for each in values)), float(rows["target_value"].iloc[0]))
    return found


def test_the_targets_of_the_release_are_those_of_the_rule(reachable):
    expected: dict[tuple[str, str], float] = {}
    for (dataset, model, *_), (value, own) in reachable.items():
        value = max(value, own)
        if value <= 1.5 * own:
            expected[dataset, model] = max(value, expected.get((dataset, model), 0.0))
    found = {
        (one.dataset, one.model): target.value
        for target, studies in steps_to_target.targets(*steps_to_target.load(RELEASE, RERUNS)).items()
        for one in studies
    }
    assert found.keys() == expected.keys()
    for key, value in found.items():
        assert expected[key] * (1 - 1e-6) <= value < expected[key] + 10.0 ** (math.floor(math.log10(value)) - 1)
        assert value == float(f"{value:.2g}")
    assert sorted(found.values()) == [0.1, 0.21, 0.33, 2.6]  # docs/statistics/method.md quotes them
    studies = [one for own in steps_to_target.targets(*steps_to_target.load(RELEASE, RERUNS)).values() for one in own]
    assert {one.optimizer for one in studies} >= {"adam", "sgd"} and "lars" not in {one.optimizer for one in studies}


def test_at_two_batch_sizes_one_repeat_may_miss(reachable):
    """The target of momentum, 0.16, is reached by all its reruns. Adam misses it more often."""
    momentum, adam = (
        next(value for workload, (value, _) in reachable.items() if workload[1:4] == (network, optimizer, "constant"))
        for network, optimizer in (("fully_connected_64", "momentum"), ("fully_connected_64", "adam"))
    )
    assert momentum <= 0.16 < adam


@pytest.mark.parametrize(
    ("value", "expected"), [(0.1606, 0.17), (0.16, 0.16), (2.591, 2.6), (123.0, 130.0), (0.0, 0.0)]
)
def test_values_are_rounded_up_to_two_digits(value, expected):
    assert rerun_targets._rounded_up(value) == expected


def test_the_command_names_its_target_and_its_mistakes(folder, cli):
    publish(folder, plan(), {0: Ran([(1, 0.5), (2, 0.05)])})
    code, _, err = cli("steps", "--store", folder, "--target", "reruns")
    assert (code, err.count("\n")) == (2, 1)
    assert "needs a sweep with confirm=3" in err
    code, _, err = cli("fit", "--store", folder, "--target", "reruns", "--metric", "test_error", "--value", "0.1")
    assert (code, err.count("\n")) == (2, 1)
    assert "--target reruns excludes --metric and --value" in err
    code, out, _ = cli("steps", "--store", RELEASE, "--target", "reruns")
    assert code == 0
    assert "validation_loss ≤ 0.21" in out and "validation_loss ≤ 0.16" not in out
    assert out.splitlines()[-1].endswith("--target reruns")
