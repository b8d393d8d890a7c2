"""Logs runs with a known answer with wandb, offline, as Lightning's WandbLogger does: `_step` counts the calls.

    python wandb_answers.py OUT

Writes OUT/wandb_history/<run>/history.jsonl and config.json.
"""

import sys
import tempfile
from pathlib import Path

import wandb
import wandb_runs
from closed_form import SIZES, epochs, loss, steps_per_epoch


def train(folder: Path, size: int) -> None:
    run = wandb.init(project="scaling", config={"batch_size": size, "optimizer": "adamw", "lr": 0.01}, dir=folder)
    length = steps_per_epoch(size)
    for step in range(1, epochs(size) * length + 1):
        if step % 10 == 0:
            run.log({"train/loss": loss(step, size), "trainer/global_step": step - 1, "epoch": (step - 1) // length})
        if step % length == 0:
            run.log({"val/loss": loss(step, size), "trainer/global_step": step - 1, "epoch": (step - 1) // length})
    run.finish()


def main(out: Path) -> None:
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            train(Path(folder), size)
            wandb.teardown()  # its service writes the end of the file
            (file,) = Path(folder).glob("wandb/offline-run-*/*.wandb")
            wandb_runs.export(file, out / "wandb_history" / f"run-{size}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
