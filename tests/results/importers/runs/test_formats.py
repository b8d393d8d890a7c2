"""Text logs, folders of Ray and MLflow, and cells that are not numbers: each becomes the written steps and values."""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from results.bad_input import BadInput
from results.importers.runs import importer, plain_yaml, run_map, runs, tables
from results.importers.untrusted import ImportWarnings

COMMON = "dataset: toy\nmodel: net\noptimizer: adamw\n"
MEGATRON = """\
using world size: 8, data-parallel size: 8
 [2024-03-01 10:00:00] iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): \
512.3 | learning rate: 1.500E-04 | global batch size:   256 | lm loss: 7.100000E+00 | loss scale: 1.0 |
 validation loss at iteration 200 | lm loss value: 6.250000E+00 | lm loss PPL: 5.180128E+02 |
 [2024-03-01 10:01:00] iteration      200/  500000 | consumed samples:        51200 | lm loss: 6.300000E+00 |
"""
NANOGPT = """\
number of parameters: 123.59M
step 0: train loss 10.9886, val loss 10.9898
iter 0: loss 10.9870, time 49861.40ms, mfu -100.00%
step 250: train loss 2.1234, val loss 2.3456
saving checkpoint to out
"""
MODDED = """\
step:0/1750 val_loss:10.8258 train_time:0ms step_avg:nanms
step:1/1750 train_time:212ms step_avg:212.11ms
step:125/1750 val_loss:4.5 train_time:12345ms step_avg:98.76ms
"""
# Name and content of the log, the rest of the map, and the rows of each metric.
TEXTS = {
    "nanoGPT": (
        NANOGPT,
        'line: "step {step}: train loss {train}, val loss {val}"\nmetrics: {validation_loss: val, train_loss: train}',
        {"validation_loss": [(0, 10.9898), (250, 2.3456)], "train_loss": [(0, 10.9886), (250, 2.1234)]},
    ),
    "modded-nanogpt": (
        MODDED,
        'line: "step:{step}/{total} val_loss:{val} train_time:{ms}ms"\nseconds: ms / 1000\n'
        "metrics: {validation_loss: val}",
        {"validation_loss": [(0, 10.8258), (125, 4.5)]},
    ),
    "Megatron": (
        MEGATRON,
        'line: ["iteration {step}/", "consumed samples: {samples} ", "| lm loss: {train} |", '
        '"at iteration {step} | lm loss value: {val} |"]\nmetrics: {train_loss: train, validation_loss: val}',
        {"train_loss": [(100, 7.1), (200, 6.3)], "validation_loss": [(200, 6.25)]},
    ),
    "words and NaN": (
        "phase=test step=1 loss=2.5\nphase=test step=2 loss=NaN\n",
        'line: "phase={phase} step={step} loss={loss}"\nmetrics: {test_loss: loss}',
        {"test_loss": [(1, 2.5), (2, np.nan)]},
    ),
    "any text between": (
        "epoch 1 [ 50/100] lr 0.1 loss 2.5\n",
        'line: "epoch {epoch} [ {step}/* loss {loss}"\nmetrics: {train_loss: loss}',
        {"train_loss": [(50, 2.5)]},
    ),
}


def read(folder: Path, files: Mapping[str, str | bytes], text: str, *lines: str) -> list[runs.Run]:
    """Returns the imported runs of some files, which leave warnings that contain ``lines``."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    warnings = ImportWarnings()
    found = importer.read(folder.resolve(), run_map.parse(COMMON + text, "map"), warnings, raw=True)
    assert len(warnings.lines) == len(lines), warnings.lines
    assert all(part in line for part, line in zip(lines, warnings.lines, strict=True)), warnings.lines
    return found


def rows(run: runs.Run, metric: str = "validation_loss") -> list[tuple[int, float]]:
    series = run.metrics[metric]
    return list(zip(series.step.tolist(), series.value.tolist(), strict=True))


@pytest.mark.parametrize("name", TEXTS)
def test_text_logs_are_read_by_a_pattern(name: str, tmp_path: Path) -> None:
    log, text, expected = TEXTS[name]
    (run,) = read(tmp_path, {"log.txt": log}, f"format: text\nfiles: log.txt\nbatch_size: 256\n{text}")
    for metric, values in expected.items():
        np.testing.assert_equal(rows(run, metric), values)
    skipped = len(log.splitlines()) - len({step for values in expected.values() for step, _ in values})
    assert (f"{skipped:,} lines match no pattern" in run.notes) or not skipped or name == "Megatron"


def test_milliseconds_of_a_text_log_are_seconds(tmp_path: Path) -> None:
    log = "".join(f"step:{step} val_loss:{9 / step:.4f} time:{98.5 * step:.0f}ms\n" for step in range(100, 2000, 100))
    text = 'format: text\nfiles: "*.txt"\nbatch_size: 8\nline: "step:{step} val_loss:{val} time:{ms}ms"\n'
    (run,) = read(tmp_path, {"log.txt": log}, text + "seconds: ms / 1000\nmetrics: {validation_loss: val}\n")
    assert run.seconds == pytest.approx(0.0985) and "seconds per step include evaluations" in run.notes


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('line: "step loss"', "must contain names in braces"),
        ('line: "{step} {step}"', "each used once"),
        ('line: "{a b}"', "must contain names in braces"),
        ("", "need each other"),
    ],
)
def test_a_wrong_pattern_of_lines_is_one_line(text: str, part: str) -> None:
    with pytest.raises(BadInput, match=part):
        run_map.parse(f"{COMMON}format: text\nfiles: a\nbatch_size: 8\nmetrics: {{train_loss: loss}}\n{text}", "map")


def test_long_lines_take_no_long_search(tmp_path: Path) -> None:
    text = 'format: text\nfiles: "*.txt"\nbatch_size: 8\nmetrics: {train_loss: b}\nline: "{step}*{a}*{b}*{c}z"\n'
    read(
        tmp_path,
        {"log.txt": "1" * 1_000_000 + "\n" + "1" * 1990 + "\n" + "1 " * 990 + "\n" + "a" * 1990},
        text,
        "has no line like",
    )


RAY = [{"training_iteration": i, "loss": 2 / i, "time_total_s": 7.0 * i, "config": {"lr": 0.1}} for i in (1, 2, 3)]


@pytest.mark.parametrize("name", ["result.json", "progress.csv"])
def test_a_trial_of_ray_is_read_with_its_parameters(name: str, tmp_path: Path) -> None:
    lines = [json.dumps(row) for row in RAY]
    if name == "progress.csv":
        lines = ["training_iteration,loss,time_total_s,config/lr", *(f"{i},{2 / i},{7 * i},0.1" for i in (1, 2, 3))]
    files = {f"train_1/{name}": "\n".join([*lines, ""]), "train_1/params.json": '{\n\t"bs": 32,\n\t"seed": 5\n}'}
    text = f'format: ray\nfiles: "*/{name}"\nbatch_size: config:bs\nseed: config:seed\nmetrics: {{test_loss: loss}}\n'
    text += "metaparameters: {learning_rate: column:config/lr}\n"
    with pytest.raises(BadInput, match=r"counts epochs \(training_iteration\): state steps_per_epoch"):
        read(tmp_path, files, text)
    (run,) = read(tmp_path, files, text + "steps_per_epoch: 50\n")
    assert rows(run, "test_loss") == [(50, 2.0), (100, 1.0), (150, pytest.approx(2 / 3))]
    assert (run.batch_size, run.seed, run.metaparameters) == (32, 5, {"learning_rate": 0.1})


METRICS = {"loss": [(100, 2.0), (200, 1.0)], "val/acc": [(200, 0.75)]}
MLFLOW = "format: mlflow\nbatch_size: config:bs\nmetrics: {train_loss: loss, validation_error: 1 - val/acc}\n"


def test_the_folder_of_mlflow_is_read(tmp_path: Path) -> None:
    files = {
        "mlruns/0/meta.yaml": "experiment_id: '0'\n",
        "mlruns/0/gone/meta.yaml": "run_id: gone\nlifecycle_stage: deleted\n",
    }
    for run, size in (("abc", 32), ("def", 64)):
        files |= {f"mlruns/0/{run}/meta.yaml": f"run_id: {run}\n", f"mlruns/0/{run}/params/bs": str(size)}
        for name, values in METRICS.items():
            lines = [f"{1_700_000_000_000 + 10 * step} {value} {step}\n" for step, value in values]
            files[f"mlruns/0/{run}/metrics/{name}"] = "".join(lines)
    first, second = read(tmp_path, files, MLFLOW + 'files: "**/meta.yaml"\n')
    assert (first.batch_size, second.batch_size) == (32, 64)
    assert rows(first, "train_loss") == METRICS["loss"] and rows(second, "validation_error") == [(200, 0.25)]
    read(
        tmp_path,
        {"mlruns/0/abc/metrics/loss": "1 2 x\n"},
        MLFLOW + 'files: "*/*/abc/meta.yaml"\n',
        "not a readable run or",
    )


def test_the_database_of_mlflow_is_read(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("CREATE TABLE runs (run_uuid TEXT, lifecycle_stage TEXT)")
        database.execute("CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT)")
        database.execute(
            "CREATE TABLE metrics (key TEXT, value REAL, timestamp INTEGER, run_uuid TEXT, step INTEGER, is_nan INT)"
        )
        for run, stage in (("abc", "active"), ("gone", "deleted")):
            database.execute("INSERT INTO runs VALUES (?, ?)", (run, stage))
            database.execute("INSERT INTO params VALUES ('bs', '32', ?)", (run,))
            for name, values in METRICS.items():
                for step, value in values:
                    database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)", (name, value, step, run, step))
        database.execute("INSERT INTO metrics VALUES ('loss', 0, 300, 'abc', 300, 1)")  # NaN
    database.close()
    (logged,) = read(tmp_path, {}, MLFLOW + "files: mlflow.db\n")
    np.testing.assert_equal(rows(logged, "train_loss"), [*METRICS["loss"], (300, np.nan)])
    assert logged.batch_size == 32 and logged.status == "INFEASIBLE"
    data = (tmp_path / "mlflow.db").read_bytes()
    read(
        tmp_path,
        {"mlflow.db": data[:5000] + b"\xff" * 5000},
        MLFLOW + "files: mlflow.db\n",
        "not a readable run or",
    )


QUOTE = '"'
GOOD = [(10, 2.0), (20, 1.0), (30, 0.5)]
CSV = "format: csv\nfiles: log.csv\nbatch_size: 8\nmetrics: {validation_loss: loss}\n"
# Lines of a CSV, whose metric is loss, the rows that count, and the status.
CELLS = {
    "NaN between evaluations": (["10,9,2.0", "15,8,nan", "20,7,1.0", "25,6,NaN", "30,5,0.5"], GOOD, "COMPLETE"),
    "NaN before the next evaluation": (["10,9,2.0", "20,7,1.0", "30,5,0.5", "35,4,nan"], GOOD, "COMPLETE"),
    "NaN in the next evaluation": (["10,9,2.0", "20,7,1.0", "30,5,nan"], [*GOOD[:2], (30, np.nan)], "INFEASIBLE"),
    "NaN in training at the step of an evaluation": (
        ["10,9,2.0", "15,8,nan", "20,7,1.0", "30,7,nan"],
        GOOD[:2],
        "COMPLETE",
    ),
    "NaN everywhere at the end": (["10,9,2.0", "15,8,nan", "20,nan,nan"], [GOOD[0], (20, np.nan)], "INFEASIBLE"),
    "NaN in a row of its own": (["10,9,2.0", "20,7,1.0", "25,,nan"], [*GOOD[:2], (25, np.nan)], "INFEASIBLE"),
    "NaN at first": (["10,9,nan"], [(10, np.nan)], "INFEASIBLE"),
    "infinity at the end": (["10,9,2.0", "20,9,Infinity"], [GOOD[0], (20, np.inf)], "INFEASIBLE"),
    "NaN in another metric": (["10,9,2.0", "20,nan,1.0", "30,nan,0.5"], GOOD, "COMPLETE"),
    "a header again": (
        ["10,9,2.0", "step,train,loss", "step,train,loss", "20,9,1.0", "", "30,9,0.5"],
        GOOD,
        "COMPLETE",
    ),
    "quoted numbers": (['10,9,"2.0"', "20,9,1.0", "30,9,0.5"], GOOD, "COMPLETE"),
    "text in another metric": (["10,-,2.0", "20,x,1.0", "30,n/a,0.5"], GOOD, "COMPLETE"),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_without_a_number_are_gaps_or_ends(name: str, tmp_path: Path) -> None:
    lines, expected, status = CELLS[name]
    (run,) = read(tmp_path, {"log.csv": "\n".join(["step,train,loss", *lines, ""])}, CSV)
    np.testing.assert_equal(rows(run), expected)
    assert run.status == status


@pytest.mark.parametrize("cell", ["-", '"1,000"', "n/a", "1_0"])
def test_a_cell_of_text_is_named_with_its_line(cell: str, tmp_path: Path) -> None:
    table = f"step,loss\n10,2.0\n\n20,{cell}\n30,1.0\n"
    read(tmp_path, {"log.csv": table}, CSV, f"line 4 has loss {cell.strip(QUOTE)!a}, which is not a number")


@pytest.mark.parametrize("word", ["NaN", "nan", "Infinity", "-inf"])
def test_words_for_numbers_in_json_are_numbers(word: str, tmp_path: Path) -> None:
    log = f'{{"_step": 10, "loss": 2.0}}\n{{"_step": 20, "loss": "{word}"}}\n'
    text = "format: wandb\nfiles: log.jsonl\nbatch_size: 8\nmetrics: {validation_loss: loss}\n"
    (run,) = read(tmp_path, {"log.jsonl": log}, text)
    assert run.status == "INFEASIBLE" and not np.isfinite(rows(run)[-1][1])


def test_the_config_of_a_trainer_is_read(tmp_path: Path) -> None:
    state = {"train_batch_size": 2, "log_history": [{"step": 1, "eval_loss": 3.0}]}
    files = {"trainer_state.json": json.dumps(state), "args.json": '{"accumulated": 4}'}
    text = "format: trainer\nfiles: trainer_state.json\nmetrics: {validation_loss: eval_loss}\nconfig: args.json\n"
    (run,) = read(tmp_path, files, text + "batch_size: [config:train_batch_size, config:accumulated]\n")
    assert run.batch_size == 8


def test_tokens_are_whole_sequences(tmp_path: Path) -> None:
    files = {"log.csv": "step,train,loss\n10,9,2.0\n", "config.json": '{"sequences": 16}'}
    text = CSV.replace("batch_size: 8", "config: config.json\nunit: tokens\nsequence_length: 1024\nbatch_size: B")
    with pytest.raises(BadInput, match=r"16 is not a multiple of sequence_length 1,024.*\[config:sequences, 1024\]"):
        read(tmp_path, files, text.replace("B", "config:sequences"))
    (run,) = read(tmp_path, files, text.replace("B", "[config:sequences, 1024]"))
    assert run.batch_size == 16 * 1024


def test_times_of_evaluations_are_used_if_there_are_no_others(tmp_path: Path) -> None:
    """Rows every 100 steps of 0.1 s. With rows of training between the evaluations, their time is left out."""
    text = CSV + "seconds: time\n"
    only = "".join(f"{step},{step / 10},{9 / step}\n" for step in range(100, 3000, 100))
    (run,) = read(tmp_path, {"log.csv": "step,time,loss\n" + only}, text)
    assert run.seconds == pytest.approx(0.1) and "seconds per step include evaluations" in run.notes
    trained = [(step, step / 10 + 60 * ((step - 1) // 100), "") for step in range(20, 3000, 20)]
    mixed = [(step, time, 9 / step if step % 100 == 0 else "") for step, time, _ in trained]
    log = "".join(f"{step},{time},{loss}\n" for step, time, loss in mixed)
    (run,) = read(tmp_path, {"log.csv": "step,time,loss\n" + log}, text)
    assert run.seconds == pytest.approx(0.1) and not run.notes
    indexed = "".join(f"{i},{line}" for i, line in enumerate(log.splitlines(keepends=True)))
    (run,) = read(tmp_path, {"log.csv": ",step,time,loss\n" + indexed}, CSV)
    assert run.seconds is None  # the index that pandas writes has no name, and is no time


def test_costly_numbers_in_yaml_are_text_or_refused() -> None:
    base_60 = "1:" * 20_000 + "1"
    assert plain_yaml.load(f"a: {base_60}".encode()) == {"a": base_60}
    for text, part in (("9" * 100_000, "an integer of more than 18 digits"), (f"!!int {base_60}", "18 digits")):
        with pytest.raises(ValueError, match=part):
            plain_yaml.load(f"a: {text}".encode())


def test_yaml_and_json_become_plain_values() -> None:
    text = "{a: 1:30, b: 50_000, c: 1e-3, d: -.5, e: yes, f: ~, g: 2024-01-01, h: 1.5, i: '5', j: .inf}"
    expected = {"a": "1:30", "b": 50_000, "c": 0.001, "d": -0.5, "e": True, "f": None}
    assert plain_yaml.load(text.encode()) == expected | {"g": "2024-01-01", "h": 1.5, "i": "5", "j": np.inf}
    assert plain_yaml.load(b'{\n\t"a": [1, 2.5]\n}') == {"a": [1, 2.5]}


@pytest.mark.parametrize("size", [200, 800])
def test_parsed_cells_grow_with_the_rows(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row has a tag of its own. Only the columns that the map names are parsed."""
    cells, original = [], tables.number

    def counted(cell: object, is_text: bool) -> float | None:
        cells.append(cell)
        return original(cell, is_text)

    monkeypatch.setattr(tables, "number", counted)
    log = "".join(json.dumps({"step": i, f"m{i}": 1}) + "\n" for i in range(size)) + '{"step": 9999, "loss": 0.5}\n'
    text = "format: jsonl\nfiles: log.jsonl\nbatch_size: 8\nmetrics: {validation_loss: loss}\n"
    (run,) = read(tmp_path, {"log.jsonl": log}, text)
    assert rows(run) == [(9999, 0.5)] and size < len(cells) <= 3 * (size + 1)


def test_runs_of_one_file_are_separated_in_any_order(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    lines = [(f"r{run}", step, round(1 / (1 + run + step), 6)) for run in range(30) for step in range(1, 5)]
    order = sorted(range(len(lines)), key=lambda i: (lines[i][1], generator.random()))
    table = "".join(f"{run},{step},{loss}\n" for run, step, loss in (lines[i] for i in order))
    text = CSV + "run: column:run\n"
    found = read(tmp_path, {"log.csv": "run,step,loss\n" + table + ",5,3.0\n"}, text)
    assert {run.name.split(":")[1]: rows(run) for run in found} == {
        f"r{run}": [(step, loss) for name, step, loss in lines if name == f"r{run}"] for run in range(30)
    }
    assert [run.name.split(":")[1] for run in found] == list(dict.fromkeys(lines[i][0] for i in order))
