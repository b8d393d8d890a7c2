"""Hostile and half-written logs: each is one line, and nothing of it is stored. Good runs beside it are."""

import gzip
import io
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

import results.__main__ as results_cli
from results import store
from results.importers.runs import importer, run_map
from results.importers.untrusted import ImportWarnings

COMMON = "dataset: toy\nmodel: net\noptimizer: sgd\nmetrics: {validation_loss: loss}\n"
MAPS = {
    "csv": "files: bs{batch_size}/*.csv\nbatch_size: path:batch_size\n",
    "jsonl": "files: bs{batch_size}/*.jsonl\nbatch_size: path:batch_size\n",
    "parquet": "files: bs{batch_size}/*.parquet\nbatch_size: path:batch_size\n",
    "tensorboard": "files: bs{batch_size}/*tfevents*\nbatch_size: path:batch_size\n",
    "trainer": "files: bs{batch_size}/trainer_state.json\nbatch_size: path:batch_size\n",
    "wandb": "files: bs{batch_size}/history.jsonl\nbatch_size: config:batch_size\nconfig: config.json\n",
}
NAMES = {
    "csv": "log.csv",
    "jsonl": "log.jsonl",
    "parquet": "log.parquet",
    "tensorboard": "events.out.tfevents.1.host",
    "trainer": "trainer_state.json",
    "wandb": "history.jsonl",
}


def record(content: bytes) -> bytes:
    """A record of an event file, written by the format's definition."""
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc32c(length)) + content + struct.pack("<I", masked_crc32c(content))


def events(*steps: int) -> bytes:
    from tensorboard.compat.proto import event_pb2, summary_pb2

    scalar = summary_pb2.Summary.Value
    return b"".join(
        record(
            event_pb2.Event(
                wall_time=float(i),
                step=step,
                summary=summary_pb2.Summary(value=[scalar(tag="loss", simple_value=3 / (i + 1))]),
            ).SerializeToString()
        )
        for i, step in enumerate(steps)
    )


def csv(*rows: str) -> bytes:
    return "\n".join(("step,loss", *rows, "")).encode()


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(**columns: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def trainer(*rows: object) -> bytes:
    return json.dumps({"global_step": 2, "log_history": rows}).encode()


GOOD = {
    "csv": csv("1,3.0", "2,2.0"),
    "jsonl": lines({"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}),
    "parquet": parquet(step=[1, 2], loss=[3.0, 2.0]),
    "tensorboard": events(1, 2),
    "trainer": trainer({"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}),
    "wandb": lines({"_step": 1, "loss": 3.0}, {"_step": 2, "loss": 2.0}),
}


def deep(levels: int) -> bytes:
    return b'{"step": 1, "loss": ' + b"[" * levels + b"]" * levels + b"}\n"


def link(folder: Path, name: str) -> None:
    (folder / name).symlink_to("/etc/passwd")


def pipe(folder: Path, name: str) -> None:
    os.mkfifo(folder / name)


def huge(folder: Path, name: str) -> None:
    with open(folder / name, "wb") as file:
        file.truncate(65 << 20)


def without_config(folder: Path, name: str) -> None:
    (folder / name).write_bytes(GOOD["wandb"])
    (folder / "config.json").unlink()


def with_config(text: str) -> Callable[[Path, str], None]:
    def write(folder: Path, name: str) -> None:
        (folder / name).write_bytes(GOOD["wandb"])
        (folder / "config.json").write_text(text)

    return write


# format, content of the hostile file or a function that makes it, part of the line.
HOSTILE: dict[str, tuple[str, bytes | Callable[[Path, str], None], str]] = {
    "empty csv": ("csv", b"", "is empty"),
    "csv with a header only": ("csv", csv(), "has no row with a step"),
    "csv in UTF-16": ("csv", csv("1,3.0").decode().encode("utf-16"), "is not text in UTF-8"),
    "csv with binary rows": ("csv", b"step,loss\n1,3.0\n\x00\xff\xfe\x9d,\x80\n2,2.0\n", "line 3 has step"),
    "csv with too many columns": ("csv", b"," * 10_000 + b"\n", "has 10,001 columns"),
    "csv with ragged rows": ("csv", csv("1,3.0,9,9", "2,2.0"), "cannot be parsed"),
    "csv with a column twice": ("csv", b"step,step,loss\n1,1,3\n", "has column 'step' twice"),
    "csv without the step": ("csv", b"epoch,loss\n1,3\n", "has no column step with the step"),
    "csv without the metric": ("csv", b"step,acc\n1,3\n", "has no loss. It has step, acc"),
    "csv with fractional steps": ("csv", csv("0.5,3", "1.5,2"), "not an integer from 0"),
    "csv with negative steps": ("csv", csv("-1,3", "1,2"), "not an integer from 0"),
    "csv with a step above int32": ("csv", csv("1,3", "9999999999,2"), "not an integer from 0"),
    "csv with a negative loss": ("csv", csv("1,3", "2,-2"), "must be 0 or more"),
    "link": ("csv", link, "symbolic link"),
    "named pipe": ("csv", pipe, "is not a regular file"),
    "file that is too large": ("csv", huge, "but the limit is"),
    "jsonl of lists": ("jsonl", b"[1, 2]\n[2, 3]\n", "line 1 holds list, not a JSON object"),
    "jsonl with a broken line": ("jsonl", b'{"step": 1\n{"step": 2, "loss": 2}\n', "line 1 is not JSON"),
    "jsonl nested deeply": ("jsonl", deep(100_000) * 2, "line 1 is not JSON"),
    "jsonl with texts for numbers": ("jsonl", lines({"step": "1", "loss": "3"}), "line 1 has step '1', which"),
    "jsonl with true for steps": ("jsonl", lines({"step": True, "loss": 1}), "has no row with a step"),
    "jsonl compressed": ("jsonl", gzip.compress(GOOD["jsonl"]), "is compressed"),
    "parquet cut": ("parquet", GOOD["parquet"][:-20], "is not a readable Parquet file"),
    "parquet of texts": ("parquet", parquet(step=["1", "2"], loss=["3", "2"]), "line 1 has step '1'"),
    "parquet of lists": ("parquet", parquet(step=[1, 2], loss=[[3.0], [2.0]]), "unsupported type list"),
    "empty events": ("tensorboard", b"", "is empty"),
    "events that are text": ("tensorboard", b"not an event file, but long enough", "is not an event file"),
    "events with a flipped bit": ("tensorboard", None, "is damaged at byte"),  # type: ignore[dict-item]
    "events with a record of 2^63 bytes": ("tensorboard", struct.pack("<QI", 2**63, 0) + b"x" * 20, "not an event"),
    "events with a negative step": ("tensorboard", events(1, -5), "has step -5"),
    "events without scalars": ("tensorboard", record(b""), "has no scalars"),
    "events that are no protocol buffer": ("tensorboard", record(b"\xff" * 9), "is not an event file"),
    "trainer_state without log_history": ("trainer", b'{"global_step": 2}', "has no log_history"),
    "trainer_state cut": ("trainer", GOOD["trainer"][:-9], "is not JSON"),
    "trainer_state with a list of numbers": ("trainer", b'{"log_history": [1, 2]}', "has no log_history"),
    "wandb without config": ("wandb", without_config, "has no config.json"),
    "wandb with a config that is no YAML": ("wandb", with_config("{a: ["), "config.json is not JSON or YAML"),
    "wandb with a config of aliases": ("wandb", with_config("a: &x [1, 2]\nb: [*x, *x]"), "config.json is not JSON"),
    "wandb with a batch size of 0": ("wandb", with_config('{"batch_size": 0}'), "not an integer from 1"),
    "wandb with a batch size of words": ("wandb", with_config('{"batch_size": "many"}'), "which is not a number"),
    "wandb with a batch size of 1e400": ("wandb", with_config('{"batch_size": 1e400}'), "not a number"),
    "wandb without a batch size": ("wandb", with_config('{"lr": 1}'), "has no entry of its config batch_size"),
}
assert len(HOSTILE) >= 30
_flipped = bytearray(GOOD["tensorboard"])
_flipped[len(_flipped) // 2 + 14] ^= 4
HOSTILE["events with a flipped bit"] = ("tensorboard", bytes(_flipped), "is damaged at byte")


def run_folder(root: Path, format: str, size: int) -> Path:
    folder = root / f"bs{size}"
    folder.mkdir(parents=True)
    if format == "wandb":
        (folder / "config.json").write_text(json.dumps({"batch_size": size}))
    return folder


def import_runs(root: Path, folder: Path, format: str) -> int:
    (folder / "map.yaml").write_text(f"format: {format}\n{COMMON}{MAPS[format]}")
    return results_cli.main(
        ["import", "runs", str(root), "--map", str(folder / "map.yaml"), "--store", str(folder / "store")]
    )


@pytest.mark.parametrize("variant", HOSTILE)
@pytest.mark.filterwarnings("error")
def test_a_hostile_log_is_one_line_and_is_not_stored(
    variant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    format, content, part = HOSTILE[variant]
    root = tmp_path / "logs"
    hostile = run_folder(root, format, 8)
    if isinstance(content, bytes):
        (hostile / NAMES[format]).write_bytes(content)
    else:
        content(hostile, NAMES[format])

    assert import_runs(root, tmp_path, format) == 1
    assert not (tmp_path / "store").exists()
    printed = capsys.readouterr().err.splitlines()
    assert [line for line in printed if "bs8" in line and part in line], printed
    assert len(printed) == 2 and all(len(line) < 400 and line.isprintable() for line in printed)

    (run_folder(root, format, 16) / NAMES[format]).write_bytes(GOOD[format])
    assert import_runs(root, tmp_path, format) == 0
    printed = capsys.readouterr().err.splitlines()
    assert len([line for line in printed if "bs8" in line]) == 1
    stored = store.read(tmp_path / "store")
    assert stored.studies["batch_size"].tolist() == [16] and len(stored.trials) == 1
    np.testing.assert_allclose(stored.measurements["validation_loss"], [3.0, 2.0 if format != "tensorboard" else 1.5])


@pytest.mark.parametrize("format", GOOD)
def test_a_log_cut_anywhere_is_one_line_or_its_first_rows(format: str, tmp_path: Path) -> None:
    """A run that was killed while writing: every length of the file."""
    whole = GOOD[format]
    (run_folder(tmp_path / "logs", format, 8) / NAMES[format]).touch()
    whole_step, whole_value = [1, 2], [3.0, 1.5 if format == "tensorboard" else 2.0]
    own = run_map.parse(f"format: {format}\n{COMMON}{MAPS[format]}", "map")
    for length in range(len(whole) + 1):
        (tmp_path / "logs" / "bs8" / NAMES[format]).write_bytes(whole[:length])
        warnings = ImportWarnings()
        found = importer.read((tmp_path / "logs").resolve(), own, warnings, raw=True)
        cut = [line for line in warnings.lines if "no newline and was left out" in line]
        assert len(found) + len(warnings.lines) == 1 + len(cut) and len(cut) <= len(found)
        for run in found:
            rows = run.metrics["validation_loss"]
            assert (rows.step.tolist(), rows.value.tolist()) in [(whole_step[:n], whole_value[:n]) for n in (1, 2)]
    assert len(found) == 1 and len(rows.step) == 2
