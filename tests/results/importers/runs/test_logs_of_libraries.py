"""Logs that real libraries wrote (`tests/logs`) become exactly the numbers that the runs printed.

`make test-logs` writes the logs again with the newest versions, and runs these tests on them.
"""

import importlib
import json
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import analysis.__main__ as analysis_cli
import results.__main__ as results_cli
from results import store
from results.checks import verify

LOGS = Path(os.environ.get("LOGS", Path(__file__).parents[3] / "logs"))
MAKE = Path(__file__).parents[3] / "logs" / "make"
COMMON = "dataset: toy\nmodel: net\n"
MAPS = {
    "tensorboard": """
format: tensorboard
files: bs{batch_size}-seed{seed}/*tfevents*
optimizer: config:optimizer
batch_size: path:batch_size
seed: path:seed
metaparameters: {learning_rate: config:lr}
metrics: {train_loss: train/loss, validation_error: 1 - eval/accuracy}
""",
    "trainer": """
format: trainer
files: "{optimizer}-seed{seed}/trainer_state.json"
optimizer: path:optimizer
batch_size: [config:train_batch_size, 2]
seed: path:seed
budget: config:max_steps
metrics: {train_loss: loss, validation_loss: eval_loss, validation_error: 1 - eval_accuracy}
""",
    "wandb": """
format: wandb
files: "*/history.jsonl"
config: config.json
optimizer: config:optimizer.name
batch_size: config:batch_size
seed: config:seed
metaparameters: {learning_rate: config:optimizer.lr}
metrics: {train_loss: loss, validation_error: 1 - val/acc / 100}
""",
    "mlflow": """
format: mlflow
files: "**/meta.yaml"
optimizer: sgd
batch_size: config:batch_size
seed: config:seed
metaparameters: {learning_rate: config:lr}
metrics: {train_loss: loss, validation_error: 1 - accuracy}
""",
    "optuna": """
format: csv
files: runs.csv
run: column:run
optimizer: sgd
batch_size: column:batch_size
seed: column:seed
metaparameters: {learning_rate: column:lr}
metrics: {train_loss: loss}
""",
    "keras": """
format: csv
files: runs.csv
run: column:run
optimizer: sgd
batch_size: column:batch_size
seed: column:seed
metrics: {train_loss: loss, train_error: 1 - accuracy}
""",
    "lightning": """
format: csv
files: lightning_logs/*/metrics.csv
config: hparams.yaml
optimizer: sgd
batch_size: config:batch_size
seed: config:seed
metaparameters: {learning_rate: config:lr}
metrics: {train_loss: loss}
""",
}
OF_MAPS = ("tensorboard", "trainer", "wandb")  # whose maps can be suggested from tags and configs
LOGGED = {
    "tensorboard": {"train_loss": "train/loss", "validation_error": "eval/accuracy"},
    "trainer": {"train_loss": "loss", "validation_loss": "eval_loss", "validation_error": "eval_accuracy"},
    "wandb": {"train_loss": "loss", "validation_error": "val/acc"},
    "mlflow": {"train_loss": "loss", "validation_error": "accuracy"},
    "optuna": {"train_loss": "loss"},
    "keras": {"train_loss": "loss", "train_error": "accuracy"},
    "lightning": {"train_loss": "loss"},
}


def imported(format: str, folder: Path, *options: str) -> tuple[store.Tables, dict[str, Any]]:
    """Imports the logs of a library, and returns the tables and the printed numbers."""
    (folder / "map.yaml").write_text(COMMON + MAPS[format])
    words = ["import", "runs", str(LOGS / format), "--map", str(folder / "map.yaml"), "--store", str(folder / "store")]
    assert results_cli.main([*words, *options]) == 0
    assert verify.run(folder / "store", lambda line: None) == 0
    return store.read(folder / "store"), json.loads((LOGS / format / "printed.json").read_text())["runs"]


def trial_of(format: str, tables: store.Tables, name: str) -> pd.Series:
    """Returns the trial of a run by what its name says."""
    trials = tables.trials.merge(tables.studies[["study", "batch_size", "optimizer"]], on="study")
    seed = int(name[-1])
    size = {"tensorboard": name.split("-")[0][2:], "trainer": "16"}.get(format, name.split("-")[1])
    rows = trials[(trials["seed"] == seed) & (trials["batch_size"] == int(size))]
    assert len(rows) == 1
    return rows.iloc[0]


@pytest.mark.parametrize("format", MAPS)
def test_every_printed_number_is_stored(format: str, tmp_path: Path) -> None:
    tables, printed = imported(format, tmp_path, "--raw")
    assert len(tables.trials) == len(printed)
    for name, rows in printed.items():
        trial = trial_of(format, tables, name)
        own = tables.measurements
        own = own[(own["study"] == trial["study"]) & (own["trial"] == trial["trial"])].set_index("step")
        for metric, tag in LOGGED[format].items():
            expected = {row["step"]: as_error(row[tag], tag) for row in rows if tag in row}
            stored = own[metric] if format == "wandb" else own[metric].dropna()
            stored = stored[[step in expected for step in stored.index]]
            assert list(stored.index) == list(expected)
            np.testing.assert_array_equal(stored.to_numpy(), list(expected.values()))
        assert len(own) == len({row["step"] for row in rows if LOGGED[format].values() & row.keys()})


def as_error(value: float, tag: str) -> float:
    """An error by hand: accuracies are fractions, or percentages in the logs of wandb. 1 - 0.79 is 0.21."""
    if tag == "val/acc":
        return 1 - value / 100
    if not tag.endswith("accuracy"):
        return value
    exact = Decimal(repr(value))  # more than twelve decimals are subtracted in binary
    return float(1 - exact) if -int(exact.as_tuple().exponent) <= 12 else 1 - value


def test_values_come_from_paths_configs_and_hyperparameters(tmp_path: Path) -> None:
    learned: Mapping[str, tuple[str, float | None]] = {
        "tensorboard": ("sgd", 0.05),
        "trainer": ("adamw", None),
        "wandb": ("lion", 0.01),
    }
    for format, (optimizer, rate) in learned.items():
        (tmp_path / format).mkdir()
        tables, _ = imported(format, tmp_path / format)
        assert set(tables.studies["optimizer"]) == {optimizer} and set(tables.studies["model"]) == {"net"}
        rates = tables.trials["learning_rate"] if "learning_rate" in tables.trials else pd.Series([None])
        assert set(rates) == {rate}


def test_a_restarted_run_counts_each_step_once(tmp_path: Path) -> None:
    tables, printed = imported("tensorboard", tmp_path, "--raw")
    trial = trial_of("tensorboard", tables, "bs4-seed1")
    own = tables.measurements
    own = own[(own["study"] == trial["study"]) & (own["trial"] == trial["trial"])]
    assert own["step"].tolist() == list(range(1, 61)) == [row["step"] for row in printed["bs4-seed1"]]


def test_a_run_that_ends_with_nan_is_infeasible(tmp_path: Path) -> None:
    tables, _ = imported("wandb", tmp_path)
    status = tables.trials.groupby("seed")["status"].agg(set)
    assert status[0] == {"COMPLETE"} and status[1] == {"INFEASIBLE"}


def test_the_times_of_the_logs_are_seconds_per_step(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(f"{COMMON}{MAPS['wandb']}device_kind: H100\ndevice_count: [2, 4]\n")
    words = ["import", "runs", str(LOGS / "wandb"), "--map", str(tmp_path / "map.yaml"), "--store"]
    assert results_cli.main([*words, str(tmp_path / "store")]) == 0
    studies = store.read(tmp_path / "store").studies
    assert set(studies["device_count"]) == {8} and set(studies["device_kind"]) == {"H100"}
    for size, seconds in zip(studies["batch_size"], studies["seconds_per_step"], strict=True):
        medians = []
        for seed in (0, 1):
            lines = (LOGS / "wandb" / f"run-{size}-{seed}" / "history.jsonl").read_text().splitlines()
            rows = [json.loads(line) for line in lines]
            times = [row["_timestamp"] for row in rows]
            evaluated = [row["_step"] for row in rows if "val/acc" in row]
            # Step i + 1 to i + 2: neither evaluates, and the first five do not count.
            kept = [i for i in range(5, 39) if not {i + 1, i + 2} & set(evaluated)]
            medians.append(np.median([times[i + 1] - times[i] for i in kept]))
        assert seconds == pytest.approx(np.median(medians), rel=1e-9)


@pytest.mark.parametrize("format", OF_MAPS)
def test_a_suggested_map_finds_what_the_logs_have(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "map.yaml"
    assert results_cli.main(["import", "runs", str(LOGS / format), "--suggest-map", "--map", str(path)]) == 0
    suggested = path.read_text()
    assert len(suggested.splitlines()) <= 14
    for line in ("format", "optimizer", "batch_size", "seed", "metaparameters"):
        expected = [each for each in MAPS[format].splitlines() if each.startswith(f"{line}:")]
        if format != "trainer" or line != "batch_size":
            assert all(each.replace('"', "'") in suggested for each in expected), line
    metrics = MAPS[format].split("metrics: {")[1].split("}")[0].split(", ")
    assert all(f"  {metric}" in suggested for metric in metrics)
    capsys.readouterr()
    assert results_cli.main(["import", "runs", str(LOGS / format), "--map", str(path), "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert ("not stored" in printed.err and "bs4-seed0" in printed.out) or format != "tensorboard"


# Layouts that tools wrote, and those that text_layouts.py writes. Some logs do not hold the number of steps per epoch,
# or do not name the step: the values here replace the question marks in the suggested map.
BY_EPOCH = "4096 / batch_size"
WRITTEN: Mapping[str, str] = {
    "add_hparams": "",
    "keras_tensorboard": "",
    "lightning_csv": "",
    "lightning_tensorboard": "",
    "mlflow": "",
    "optuna": "",
    "pytorch": BY_EPOCH,
    "ray": f"training_iteration\nsteps_per_epoch: {BY_EPOCH}",
    "trainer_checkpoints": "",
    "trainer_saved": "",
    "wandb_history": "",
}
HAND_MADE = ("csv", "megatron", "modded_nanogpt", "nanogpt", "wandb_chart")


@pytest.mark.parametrize("layout", [*WRITTEN, *HAND_MADE])
def test_suggested_map_leads_from_a_folder_to_the_answer(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(MAKE)
    closed_form = importlib.import_module("closed_form")
    if layout in HAND_MADE:
        importlib.import_module("text_layouts").WRITERS[layout](tmp_path / "logs")
    folder = (tmp_path / "logs" if layout in HAND_MADE else LOGS / "answers") / layout
    map_path, store_path = tmp_path / "map.yaml", tmp_path / "store"
    assert results_cli.main(["import", "runs", str(folder), "--suggest-map", "--map", str(map_path)]) == 0
    text = map_path.read_text().replace("optimizer: ???", "optimizer: sgd")
    assert text.count("???") == bool(WRITTEN.get(layout))
    map_path.write_text(text.replace("???", WRITTEN.get(layout, "")))
    assert results_cli.main(["import", "runs", str(folder), "--map", str(map_path), "--store", str(store_path)]) == 0
    assert len(store.read(store_path).trials) == len(closed_form.SIZES)
    metric = "train_loss" if layout == "optuna" else "validation_loss"
    target = ["--metric", metric, "--value", str(closed_form.TARGET)]
    capsys.readouterr()
    assert analysis_cli.main(["steps", "--store", str(store_path), *target, "--json"]) == 0
    per_size = json.loads(capsys.readouterr().out)
    in_tokens = 1024 if layout == "modded_nanogpt" else 1
    assert [row["batch_size"] for row in per_size] == [size * in_tokens for size in closed_form.SIZES]
    for row in per_size:
        steps = closed_form.steps_to_target(row["batch_size"] // in_tokens)
        assert row["steps_low"] - 1 <= steps <= row["steps_high"] + 1  # some loggers count from 0
    assert analysis_cli.main(["payoff", "--store", str(store_path), *target, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["batch_size_low"] <= closed_form.ANSWER * in_tokens <= row["batch_size_high"]
