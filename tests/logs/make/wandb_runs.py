"""Logs runs with wandb, offline, and exports their history and config.

    python wandb_runs.py OUT

Writes OUT/<run>/history.jsonl and config.json, and OUT/printed.json with the numbers that the runs printed.
"""

import json
import math
import os
import random
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}

import wandb
from wandb.proto import wandb_internal_pb2


def train(folder: Path, batch_size: int, seed: int) -> list[dict[str, float]]:
    config = {"batch_size": batch_size, "optimizer": {"name": "lion", "lr": 0.01}, "seed": seed}
    run = wandb.init(project="scaling", config=config, dir=folder)
    draw = random.Random(seed)
    rows = []
    for step in range(1, 41):
        row = {"loss": 2 / math.sqrt(step) + draw.gauss(0, 0.01)}
        if step % 10 == 0:
            row |= {"val/acc": 100 * (1 - row["loss"] / 4)}
        if seed and step == 40:
            row["loss"] = math.nan
        run.log(row, step=step)
        print(step, row)
        rows.append({"step": step, **row})
    run.finish()
    return rows


def records(data: bytes) -> Iterator[bytes]:
    """Yields the records of a .wandb file: LevelDB's log format, in blocks of 32 KiB, after a header of 7 bytes."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def export(file: Path, out: Path) -> None:
    """Writes the history and the config of an offline run."""
    config, rows = {}, []
    for each in map(wandb_internal_pb2.Record.FromString, records(file.read_bytes())):
        config |= {item.key: json.loads(item.value_json) for item in each.run.config.update}
        if each.WhichOneof("record_type") == "history":
            items = each.history.item
            rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(config))
    (out / "history.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def main(out: Path) -> None:
    printed = {}
    for batch_size in (16, 64):
        for seed in (0, 1):
            with tempfile.TemporaryDirectory() as folder:
                name = f"run-{batch_size}-{seed}"
                printed[name] = train(Path(folder), batch_size, seed)
                wandb.teardown()  # its service writes the end of the file
                (file,) = Path(folder).glob("wandb/offline-run-*/*.wandb")
                export(file, out / name)
    (out / "printed.json").write_text(json.dumps({"versions": {"wandb": wandb.__version__}, "runs": printed}, indent=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
