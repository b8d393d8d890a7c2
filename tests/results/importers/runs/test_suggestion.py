"""Suggested maps: each value is guessed on its own, from names in paths, columns and configs."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

import results.__main__ as results_cli
from results import store
from results.importers.runs import line_patterns, suggestion, text_lines

LOG = "step,val_loss\n10,3.0\n20,2.0\n"


def suggested(root: Path) -> tuple[dict[str, Any], str]:
    """Returns the suggested map for a folder, parsed and as text."""
    path = root.parent / f"{root.name}.yaml"
    text = "\n".join(suggestion.suggest(root, path))
    return yaml.safe_load(text), text


def write(root: Path, files: Mapping[str, Any]) -> Path:
    """Writes files, given by their paths. Anything but text is written as JSON."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return root


def value(words: str | list[str], config: Mapping[str, Any]) -> int:
    """Returns the number that a map takes from a config: a product of entries with dotted names."""
    total = 1
    for word in words if isinstance(words, list) else [words]:
        content: Any = config
        for name in word.removeprefix("config:").split("."):
            content = content[name]
        total *= int(content)
    return total


@pytest.mark.parametrize(
    ("truth", "config"),
    [
        (512, {"micro_batch_size": 2, "world_size": 64, "global_batch_size": 512}),  # Megatron-LM
        (2048, {"batch_size": 32, "devices": 8, "num_nodes": 4, "accumulate_grad_batches": 2}),  # Lightning
        (480, {"batch_size": 12, "gradient_accumulation_steps": 40}),  # nanoGPT
        (64, {"training": {"batch_size": 64}, "eval": {"batch_size": 1000}}),
        (64, {"loader": {"val": {"batch_size": 8}, "train": {"batch_size": 64}}}),
        (
            256,
            {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8},
        ),  # DeepSpeed
        (1024, {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 64, "world_size": 128}),
        (96, {"micro_batch_size": 2, "data_parallel_size": 16, "world_size": 128, "grad_accum_steps": 3}),
        (None, {"micro_batch_size": 2, "world_size": 64, "tensor_model_parallel_size": 8}),
        (None, {"eval_batch_size": 64, "learning_rate": 0.1}),
        (None, {"micro_batch_size": 2, "n_gpus": 64, "tp": 2, "pp": 1}),
        (128, {"train_batch_size": 16, "n_gpu": 4, "gradient_accumulation_steps": 2, "evaluator": {"batch_size": 9}}),
        (32, {"batch_size": 32, "devices": "auto"}),
    ],
)
def test_batch_size_of_a_config_is_the_global_one(truth: int | None, config: Mapping[str, Any], tmp_path: Path) -> None:
    files = {f"{run}/{name}": content for run in "ab" for name, content in (("log.csv", LOG), ("config.json", config))}
    parsed, text = suggested(write(tmp_path / "logs", files))
    if truth is None:
        assert parsed["batch_size"] == "???"
        return
    assert value(parsed["batch_size"], config) == truth
    line = next(line for line in text.splitlines() if line.startswith("batch_size"))
    devices = {"world_size", "devices", "data_parallel_size"} & {
        name for name, size in config.items() if size != "auto"
    }
    stated = any("global" in name or "micro_batch_size_per_gpu" in name for name in config)
    assert stated or devices or "devices" in line or "already the global" in line
    if "world_size" in config:
        assert parsed["device_count"] == "config:world_size"


def test_config_with_the_arguments_of_the_run_is_taken(tmp_path: Path) -> None:
    state = {
        "log_history": [{"step": 10, "loss": 2.0}, {"step": 20, "loss": 1.0}],
        "train_batch_size": 8,
        "max_steps": 20,
    }
    model = {"model_type": "bert", "hidden_size": 64, "architectures": ["X"]}
    arguments = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "learning_rate": 1e-3,
        "max_steps": -1,
    }
    one = {"trainer_state.json": state, "config.json": model, "training_args.json": arguments}
    parsed, _ = suggested(write(tmp_path / "one", one))
    assert parsed["files"] == "trainer_state.json" and parsed["config"] == "training_args.json"
    assert parsed["batch_size"] == ["config:per_device_train_batch_size", "config:gradient_accumulation_steps"]
    assert "budget" not in parsed
    parsed, _ = suggested(write(tmp_path / "other", {"trainer_state.json": state, "config.json": model}))
    assert "config" not in parsed and parsed["batch_size"] == "config:train_batch_size"
    assert parsed["budget"] == "config:max_steps"


def test_checkpoints_of_a_run_give_one_pattern(tmp_path: Path) -> None:
    state = {"log_history": [{"step": 10, "loss": 2.0}], "train_batch_size": 8}
    places = [f"bs8-seed{seed}/checkpoint-{last}/trainer_state.json" for seed in (0, 1) for last in (100, 200)]
    parsed, _ = suggested(write(tmp_path / "checkpoints", dict.fromkeys(places, state)))
    assert parsed["files"] == "bs{batch_size}-seed{seed}/checkpoint-*/trainer_state.json"
    whole = dict.fromkeys([*places, "bs8-seed0/trainer_state.json", "bs8-seed1/trainer_state.json"], state)
    parsed, _ = suggested(write(tmp_path / "whole", whole))
    assert parsed["files"] == "bs{batch_size}-seed{seed}/trainer_state.json"


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (("r_s1_bs8", "r_s2_bs16"), "r_s*"),
        (("bs8-s=1", "bs16-s=2"), "bs{batch_size}-s={seed}"),
        (("adamw-lr1e-3-b32", "sgd-lr0.1-b64"), "{optimizer}-lr{learning_rate}-b{batch_size}"),
        (("version_9", "version_10"), "version_*"),
    ],
)
def test_values_in_paths_need_names_that_say_so(names: tuple[str, str], pattern: str, tmp_path: Path) -> None:
    parsed, _ = suggested(write(tmp_path / "logs", {f"{name}/log.csv": LOG for name in names}))
    if "s1" not in names[0]:
        assert parsed["files"] == f"{pattern}/log.csv"
    assert ("seed" in parsed) == ("seed" in pattern)


def test_each_guess_stands_alone(tmp_path: Path) -> None:
    table = "val_loss,Batch Size,report\n2.0,8,1\n1.0,8,2\n"
    root = write(tmp_path / "logs", {"a/log.csv": table, "a/hparams.json": {"lr": 0.1, "seed": 3}})
    parsed, text = suggested(root)
    assert text.count("???") == 2 and parsed["step"] == "???" and parsed["optimizer"] == "???"
    assert parsed["batch_size"] == "column:Batch Size" and parsed["metrics"] == {"validation_loss": "val_loss"}
    assert parsed["config"] == "hparams.json" and parsed["seed"] == "config:seed"
    assert parsed["metaparameters"] == {"learning_rate": "config:lr"}


def test_rows_of_several_runs_are_told_apart_by_columns(tmp_path: Path) -> None:
    rows = [f"{size},{seed},{step},{100 / step + seed}" for size in (8, 16) for seed in (0, 1) for step in (10, 20, 30)]
    root = write(tmp_path / "logs", {"all.csv": "\n".join(["batch_size,seed,step,val_loss", *rows, ""])})
    parsed, text = suggested(root)
    assert parsed["run"] == ["column:batch_size", "column:seed"]
    (tmp_path / "map.yaml").write_text(text.replace("optimizer: ???", "optimizer: sgd"))
    words = ["import", "runs", str(root), "--map", str(tmp_path / "map.yaml"), "--store", str(tmp_path / "store")]
    assert results_cli.main(words) == 0
    trials = store.read(tmp_path / "store").trials
    assert sorted(trials["seed"]) == [0, 0, 1, 1] and trials["study"].nunique() == 2


def test_epochs_of_keras_leave_their_length_open(tmp_path: Path) -> None:
    for folder in ("train", "validation"):
        writer = EventFileWriter(str(tmp_path / "logs" / "bs8-seed1" / folder))
        for epoch in range(3):
            scalar = summary_pb2.Summary.Value(tag="epoch_loss", simple_value=2.0)
            writer.add_event(event_pb2.Event(step=epoch, summary=summary_pb2.Summary(value=[scalar])))
        writer.close()
    parsed, text = suggested(tmp_path / "logs")
    assert parsed["files"] == "bs{batch_size}-seed{seed}/**/*tfevents*"
    assert parsed["metrics"] == {"validation_loss": "validation/epoch_loss", "train_loss": "train/epoch_loss"}
    assert parsed["step"] == dict.fromkeys(parsed["metrics"], "step + 1")
    assert parsed["steps_per_epoch"] == dict.fromkeys(parsed["metrics"], "???") and "50000 / batch_size" in text


def test_steps_of_training_are_preferred_to_calls_of_the_logger(tmp_path: Path) -> None:
    rows = [{"_step": i, "trainer/global_step": 50 * i, "val/loss": 2.0 / (i + 1)} for i in range(5)]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    parsed, _ = suggested(write(tmp_path / "both", {"history.jsonl": text}))
    assert parsed["format"] == "wandb" and parsed["step"] == "trainer/global_step"
    parsed, text = suggested(write(tmp_path / "calls", {"history.jsonl": text.replace("trainer/global_step", "other")}))
    assert parsed["step"] == "_step" and "counts the calls" in text
    text = "consumed_samples,val_loss\n100,2.0\n200,1.0\n"
    parsed, _ = suggested(write(tmp_path / "examples", {"log.csv": text}))
    assert parsed["examples_seen"] == "consumed_samples" and "step" not in parsed


@pytest.mark.parametrize(
    ("config", "unit", "length"),
    [
        ({"global_batch_size": 8, "seq_length": 1024}, "sequences", "config:seq_length"),
        ({"batch_size_tokens": 8192, "block_size": 1024}, "tokens", "config:block_size"),
        ({"total_batch_size": 524288, "device_batch_size": 32, "max_seq_len": 2048}, "tokens", "config:max_seq_len"),
        ({"batch_size": 8, "image_size": 224}, None, None),
    ],
)
def test_unit_follows_from_the_sequence_length(
    config: Mapping[str, int], unit: str | None, length: str | None, tmp_path: Path
) -> None:
    parsed, _ = suggested(write(tmp_path / "logs", {"log.csv": LOG, "config.json": config}))
    assert (parsed.get("unit"), parsed.get("sequence_length")) == (unit, length)


def test_proposed_target_is_reached_by_every_batch_size(tmp_path: Path) -> None:
    files = {}
    for size, best in ((8, 1.234), (16, 1.5512), (32, 0.9)):
        for seed in (0, 1):
            rows = "".join(f"{10 * i},{best + 2 / i + seed - 0.02}\n" for i in range(1, 101))
            files[f"bs{size}-seed{seed}/log.csv"] = f"step,val_loss\n{rows}"
    parsed, text = suggested(write(tmp_path / "logs", files))
    assert parsed["targets"] == {"validation_loss": 1.6} and "# a proposal" in text
    assert math.isclose(1.6, math.ceil(10 * 1.5512) / 10)


@pytest.mark.parametrize(
    ("line", "pattern", "row"),
    [
        (
            "step 250: train loss 2.1234, val loss 2.3456",
            "step {step}*train loss {train_loss}*val loss {validation_loss}",
            {"step": 250, "train_loss": 2.1234, "validation_loss": 2.3456},
        ),
        (
            "step:125/1395 val_loss:4.5 train_time:9ms",
            "step:{step}*val_loss:{validation_loss}",
            {"step": 125, "validation_loss": 4.5},
        ),
        (
            " validation loss at iteration 100 | lm loss value: 2.9E+00 | lm loss PPL: 1.8E+01 |",
            "validation loss at iteration {step}*lm loss value: {validation_loss}",
            {"step": 100, "validation_loss": 2.9},
        ),
        (
            " [2025-08-01 07:19:37] iteration   10/ 500 | global batch size:  128 | lm loss: 1.0E+01 | grad norm: 2 |",
            "iteration {step}*global batch size: {global_batch_size}*lm loss: {train_loss}",
            {"step": 10, "global_batch_size": 128, "train_loss": 10.0},
        ),
        (
            "{'eval_loss': 1.5, 'epoch': 2.0}",
            "eval_loss': {validation_loss}*epoch': {epoch}",
            {"validation_loss": 1.5, "epoch": 2},
        ),
        (
            "2025-08-01 | valid | epoch 001 | loss 6.5 | num_updates 9",
            "valid*loss {validation_loss}*num_updates {step}",
            {"validation_loss": 6.5, "step": 9},
        ),
        (
            "Test: step 5 Acc@1 55.2 (54.1)",
            "Test*step {step}*Acc@1 {test_accuracy}",
            {"step": 5, "test_accuracy": 55.2},
        ),
    ],
)
def test_line_of_a_text_log_gives_a_pattern(line: str, pattern: str, row: Mapping[str, float]) -> None:
    assert line_patterns.suggest(f"Loading 3 shards\n{line}\n".encode()) == [pattern]
    rows, _ = text_lines.rows(line.encode(), [pattern])
    assert rows == [row]


def test_runs_of_a_chart_that_do_not_match_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = ",".join(f'"{run} - val/loss{end}"' for run in ("bs8", "bs16", "other") for end in ("", "__MIN", "__MAX"))
    rows = "".join(f"{step}{f',{3 / step}' * 9}\n" for step in (1, 2, 3))
    root = write(tmp_path / "logs", {"chart.csv": f"Step,{header}\n{rows}"})
    parsed, text = suggested(root)
    assert parsed["format"] == "wandb_chart" and parsed["run"] == "*"
    text = text.replace("run: '*'", "run: bs{batch_size}").replace("optimizer: ???", "optimizer: sgd")
    (tmp_path / "map.yaml").write_text(text.replace("batch_size: ???", "batch_size: path:batch_size"))
    words = ["import", "runs", str(root), "--map", str(tmp_path / "map.yaml"), "--store", str(tmp_path / "store")]
    assert results_cli.main(words) == 0
    assert "chart.csv:other: its name does not match run: bs{batch_size}" in capsys.readouterr().err
    tables = store.read(tmp_path / "store")
    assert sorted(tables.studies["batch_size"]) == [8, 16] and len(tables.measurements) == 6
