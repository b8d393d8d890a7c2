"""Fits of data whose answers are known from elsewhere, and the noisy quadratic, whose answers are worked out."""

import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results.__main__ as results_cli
from analysis import releases
from results import store as stores
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target

from ..conftest import plan
from . import noisy_quadratic

ROOT = Path(__file__).parents[3]
MLPERF = pd.read_csv(Path(__file__).with_name("mlperf_rcp_values.csv"), dtype=str, keep_default_na=False)
TRIALS = 32
GOAL = 0.1
CURVATURE = 1 / np.arange(1, 101)


@pytest.fixture(scope="module")
def mlperf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of MLPerf's reference convergence points, imported from files in their format."""
    folder = tmp_path_factory.mktemp("mlperf")
    for (release, benchmark), rows in MLPERF.groupby(["release", "benchmark"]):
        records = {
            f"{benchmark}_ref_{row['batch_size']}": {
                "Benchmark": benchmark,
                "BS": int(row["batch_size"]),
                "Hyperparams": {"optimizer": row["optimizer"]} if row["optimizer"] else {},
                row["unit"]: [int(value) for value in row["values"].split()],
            }
            for row in rows.to_dict("records")
        }
        (folder / "rcp" / str(release)).mkdir(parents=True, exist_ok=True)
        (folder / "rcp" / str(release) / f"rcps_{benchmark}.json").write_text(json.dumps(records))
    assert results_cli.main(["import", "mlperf-rcp", str(folder / "rcp"), "--store", str(folder / "store")]) == 0
    return folder / "store"


def test_mlperf_reference_points(mlperf: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = cli("fit", "--store", mlperf, "--metric", "validation_shortfall", "--value", 0, "--csv")
    assert code == 0
    fits = pd.read_csv(io.StringIO(out)).set_index("model")
    assert fits["verdict"].to_dict() == {
        "bert_large": "at_least",
        "resnet_50": "at_least",
        "retinanet": "identified",
        "unet3d": "at_least",
    }
    ends = fits[["critical_batch_size_low", "critical_batch_size_high"]]
    for model, (low, high) in {
        "bert_large": (6170, 19_980),  # the largest batch size is 16,384
        "resnet_50": (28_960, np.nan),  # a slope of -0.87: a bound, and no interval
        "retinanet": (842, 1776),
    }.items():
        assert ends.loc[model].tolist() == pytest.approx([low, high], rel=0.02, nan_ok=True)
    assert fits.loc["resnet_50", "optimizer"] == "lars"
    # Its steps still fall as one over the batch size at 84, the largest: nothing is known of an end above.
    assert 75 < fits.loc["unet3d", "critical_batch_size_low"] <= 84
    open_ended = fits.loc["unet3d", ["s_min", "critical_batch_size", "critical_batch_size_high"]]
    assert open_ended.isna().all()
    assert "slope" in fits.loc["resnet_50", "doubts"]  # -0.87 at small batch sizes


def test_evaluations_that_mlperf_does_not_tell_apart_are_named(
    mlperf: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    _, out, _ = cli("fit", "--store", mlperf, "--metric", "validation_shortfall", "--value", 0)
    assert "evaluations at batch sizes 256, 512, 768, 1,024 are assumed to be as far apart as at the others" in out


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "verdict"), [(0.5, "at_least"), (1, "identified"), (2, "identified")])
def test_noisy_quadratic_sweep_finds_the_knee_of_its_recursion(
    tmp_path: Path, noise: float, verdict: str, cli: Callable[..., tuple[int, str, str]]
) -> None:
    store = tmp_path / "store"
    sizes = ",".join(f"{4 * noise**2 * 2**i:g}" for i in range(9))
    line = ["task=noisy_quadratic", "optimizer=sgd", f"task.model.noise={noise}", f"batch_size={sizes}"]
    line += [f"trials={TRIALS}", "pruning=off", "task.budget.steps=1000", f"store={store}", "-m"]
    done = subprocess.run([sys.executable, "-m", "sweeps", *line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code, out, _ = cli("fit", "--store", store, "--csv")
    assert code == 0
    (row,) = pd.read_csv(io.StringIO(out)).to_dict("records")
    critical = noisy_quadratic.critical_batch_size(stores.catalogue(store)[0].study, TRIALS)
    assert critical == pytest.approx(36.4 * noise**2, rel=0.02)
    assert row["verdict"] == verdict, row["doubts"]
    assert row["critical_batch_size_low"] < critical
    assert verdict == "at_least" or critical < row["critical_batch_size_high"]


def quadratic(batch_size: int = 16, noise: float = 1.0, **changes: Any) -> BatchStudy:
    fields: dict[str, Any] = {
        "dataset": "noise",
        "dataset_version": "100",
        "model": "quadratic",
        "model_options": {"noise": noise},
        "space": SearchSpace({"learning_rate": Range("LOG", 0.01, 10.0)}),
        "targets": (Target("validation_loss", GOAL),),
        "budget_steps": 20_000,
    }
    return plan(batch_size=batch_size, **fields | changes)


def first_at_goal(rate: float, batch_size: int, most: int) -> float:
    """Steps until the expected loss is at the goal, one after the other."""
    moments = np.ones(100)
    for step in range(1, most + 1):
        moments = (1 - rate * CURVATURE) ** 2 * moments + rate**2 * CURVATURE / batch_size
        if 0.5 * CURVATURE @ moments <= GOAL:
            return step
    return math.inf


@pytest.mark.parametrize("batch_size", [16, 256])
def test_expected_steps_are_those_of_the_recursion(batch_size: int) -> None:
    found = noisy_quadratic.least_steps(quadratic(batch_size))
    steps = min(first_at_goal(rate, batch_size, 300) for rate in np.geomspace(0.05, 1.9, 120))
    assert steps - 1 < found <= steps


def test_an_expected_loss_that_never_gets_there() -> None:
    assert math.isinf(noisy_quadratic.least_steps(quadratic(1, budget_steps=100)))


@pytest.mark.parametrize("batch_size", [8, 128])
def test_the_best_of_a_search_is_that_of_simulated_ones(batch_size: int) -> None:
    trials, searches = 8, 300
    planned = quadratic(batch_size, budget_steps=2000, space=SearchSpace({"learning_rate": Range("LOG", 0.05, 2.0)}))
    rng = np.random.default_rng(0)
    rates = np.exp(rng.uniform(np.log(0.05), np.log(2.0), (trials * searches, 1)))
    grid, reached = planned.evaluations.tolist(), np.full(trials * searches, np.inf)
    theta, before = np.ones((trials * searches, 100)), 0.0
    for step in range(1, 600):
        noise = np.sqrt(CURVATURE / batch_size) * rng.standard_normal(theta.shape)
        theta -= rates * (CURVATURE * theta + noise)
        if step in grid:
            at_goal = 0.5 * theta**2 @ CURVATURE <= GOAL
            reached[at_goal & np.isinf(reached)] = (before or 0.5) / 2 + step / 2
            before = step
    best = reached.reshape(searches, trials).min(axis=1)
    assert np.isfinite(best).mean() > 0.99
    mean = np.exp(np.log(best[np.isfinite(best)]).mean())
    error = np.log(best[np.isfinite(best)]).std() / math.sqrt(searches)
    assert noisy_quadratic.best_of(planned, trials) == pytest.approx(mean, rel=0.05 + 2 * error)
    assert error < 0.05  # so that the line above can fail


def test_a_search_that_misses_too_often_has_no_best() -> None:
    assert math.isnan(noisy_quadratic.best_of(quadratic(1, budget_steps=100), 32))


def test_the_knee_scales_with_the_noise() -> None:
    critical = noisy_quadratic.critical_batch_size(quadratic(16), 32)
    assert critical == pytest.approx(37.7, rel=0.02)  # of learning rates from 0.01 on
    assert noisy_quadratic.critical_batch_size(quadratic(256, noise=2.0), 32) == pytest.approx(4 * critical, rel=1e-6)
    assert noisy_quadratic.critical_batch_size(quadratic(16), None) == pytest.approx(61.7, rel=0.01)


def test_answers_in_the_notebook_are_those_of_the_closed_form() -> None:
    truths = pd.read_csv(releases.ROOT / "analysis" / "notebooks" / "noisy_quadratic.csv", index_col="answer")
    studies = {
        commit.study.batch_size: commit.study
        for commit in stores.catalogue(releases.release())
        if commit.study.labels[:1] == ("noise",) and commit.study.optimizer == "sgd"
    }
    assert list(truths) == ["critical batch size", *map(str, sorted(studies))]
    for answer, trials in {"by expectation": None, "best of 64": 64}.items():
        row = truths.loc[answer]
        critical = noisy_quadratic.critical_batch_size(studies[1], trials)
        assert row["critical batch size"] == pytest.approx(critical, rel=1e-6)
        for size in (1, 1024):
            study = studies[size]
            steps = noisy_quadratic.best_of(study, trials) if trials else noisy_quadratic.least_steps(study)
            assert row[str(size)] == pytest.approx(steps, rel=1e-6)


def test_nothing_is_claimed_of_other_workloads() -> None:
    with pytest.raises(ValueError, match="digits"):
        noisy_quadratic.least_steps(plan())
