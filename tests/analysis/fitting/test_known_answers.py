"""Fits of data whose answers are known from elsewhere, through the commands."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import results.__main__ as results_cli
from analysis.fitting import noisy_quadratic
from results import store as stores

ROOT = Path(__file__).parents[3]
MLPERF = pd.read_csv(Path(__file__).with_name("mlperf_rcp_values.csv"), dtype=str, keep_default_na=False)
TRIALS = 32


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
    assert "evaluations at batch sizes 256, 512, 768, 1,024 are taken to be as far apart as at the others" in out


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "verdict"), [(0.5, "at_least"), (1, "identified"), (2, "identified")])
def test_a_sweep_of_the_noisy_quadratic_finds_the_knee_of_its_recursion(
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
