"""Writes runs with a known answer as the text logs of public training scripts, a chart of W&B, and plain CSV.

These need no tool. The layouts are those of:

- Megatron-LM: NVIDIA/Megatron-LM, megatron/training/training.py (training_log) and evaluate_and_print_results
- nanoGPT: karpathy/nanoGPT, train.py
- modded-nanogpt: KellerJordan/modded-nanogpt, records/011325_Fp8LmHead/c51969c2-d04c-40a7-bcea-c092c3c2d11a.txt
- W&B's chart export: the columns that wandb.ai writes, such as "brisk-pond-1 - train/loss__MIN"
"""

import csv
import json
from pathlib import Path

from closed_form import SIZES, epochs, loss, steps_per_epoch

SEQUENCE = 1024


def steps(size: int) -> range:
    """Returns the evaluated steps of a run."""
    return range(0, epochs(size) * steps_per_epoch(size) + 1, max(2, steps_per_epoch(size) // 8))


def megatron(out: Path) -> None:
    """Two kinds of lines: training loss every 10 steps, and validation loss. Names of folders have no batch size."""
    for i, size in enumerate(SIZES):
        lines = [
            "using world size: 8, data-parallel size: 8",
            "------------------ arguments ------------------",
        ]
        lines += [f"  {name} {'.' * 20} {value}" for name, value in (("lr", 0.001), ("seq_length", SEQUENCE))]
        lines.append("-------------- end of arguments ---------------")
        total = steps(size)[-1]
        for step in range(1, total + 1):
            if step % 10 == 0:
                lines.append(
                    f" [2025-08-01 07:{step // 60 % 60:02d}:{step % 60:02d}] iteration {step:8d}/{total:8d} | "
                    f"consumed samples: {step * size:12d} | elapsed time per iteration (ms): 1000.0 | "
                    f"learning rate: 1.000000E-03 | global batch size: {size:5d} | lm loss: {loss(step, size):.6E} | "
                    "loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations:   0 | "
                    "number of nan iterations:   0 |"
                )
            if step in steps(size):
                value = loss(step, size)
                lines += [
                    "-" * 80,
                    f" validation loss at iteration {step} | lm loss value: {value:.6E} | lm loss PPL: {1:.6E} | ",
                    "-" * 80,
                ]
        write(out / "megatron" / f"run{i}.log", lines)


def nanogpt(out: Path) -> None:
    """The loss of an evaluation and that of an iteration, in lines of their own. The arguments are in config.json."""
    for i, size in enumerate(SIZES):
        config = {"batch_size": size // 8, "gradient_accumulation_steps": 8, "block_size": SEQUENCE}
        config |= {"learning_rate": 6e-4, "max_iters": steps(size)[-1]}
        lines = [f"tokens per iteration will be: {size * SEQUENCE:,}", "number of parameters: 123.59M"]
        for step in range(steps(size)[-1] + 1):
            value = loss(step, size)
            if step in steps(size):
                lines.append(f"step {step}: train loss {value - 0.01:.4f}, val loss {value:.4f}")
            if step % 10 == 0:
                lines.append(f"iter {step}: loss {value:.4f}, time 1000.00ms, mfu 30.12%")
        folder = out / "nanogpt" / f"run{i}"
        write(folder / "train.log", lines)
        (folder / "config.json").write_text(json.dumps(config))


def modded_nanogpt(out: Path) -> None:
    """A log of a UUID's name: the script itself, the machine, and lines by `step:`. The batch size is in tokens."""
    for i, size in enumerate(SIZES):
        total = steps(size)[-1]
        lines = [
            "import os",
            "class Hyperparameters:",
            "    val_loss_every = 125 # every how many steps to evaluate",
            "=" * 100,
        ]
        lines += ["Running Python 3.12.7", "|   0  NVIDIA H100 80GB HBM3          On  |", "=" * 100]
        for step in range(total + 1):
            times = f"train_time:{step * 100}ms step_avg:100.00ms"
            if step in steps(size):
                lines.append(f"step:{step}/{total} val_loss:{loss(step, size):.4f} {times}")
            lines.append(f"step:{step + 1}/{total} {times}")
        lines.append("peak memory allocated: 31000 MiB reserved: 32000 MiB")
        write(
            out / "modded_nanogpt" / f"batch{size * SEQUENCE}" / f"{i}f1c9a2e-0000-4000-8000-00000000000{i}.txt", lines
        )


def wandb_chart(out: Path) -> None:
    """One file for all runs, with three columns a run. Only the steps of a run have its values."""
    names = {f"bs{size}-lr0.01": size for size in SIZES}
    columns = [f"{name} - val/loss{end}" for name in names for end in ("", "__MIN", "__MAX")]
    rows = []
    for step in sorted({step for size in SIZES for step in steps(size)}):
        cells: list[object] = [step]
        for size in names.values():
            cells += [loss(step, size) if step in steps(size) else ""] * 3
        rows.append(cells)
    write_csv(
        out / "wandb_chart" / "wandb_export_2025-08-01T07_19_37.000+02_00.csv", ["trainer/global_step", *columns], rows
    )


def plain_csv(out: Path) -> None:
    """A file for all runs, with the batch size as a column."""
    rows = [[i, size, step, loss(step, size)] for i, size in enumerate(SIZES) for step in steps(size)]
    write_csv(out / "csv" / "runs.csv", ["run", "Batch Size", "step", "val loss"], rows)


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows([header, *rows])


WRITERS = {
    "csv": plain_csv,
    "megatron": megatron,
    "modded_nanogpt": modded_nanogpt,
    "nanogpt": nanogpt,
    "wandb_chart": wandb_chart,
}
