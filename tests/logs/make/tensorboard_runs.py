"""Trains small networks with PyTorch and logs them with its SummaryWriter, once with a restart.

    python tensorboard_runs.py OUT

Writes OUT/bs<n>-seed<n>/ with event files, and OUT/printed.json with the numbers that the runs printed.
"""

import json
import sys
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

STEPS, EVALUATED = 60, 10


def train(folder: Path, batch_size: int, seed: int, restart: int | None) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    truth = torch.randn(8)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    writer = SummaryWriter(folder, flush_secs=1)
    writer.add_hparams({"batch_size": batch_size, "lr": 0.05, "optimizer": "sgd"}, {"started": 1.0}, run_name=".")
    x = torch.randn(256, 8)
    held_out = (x @ truth > 0).float()
    rows, step = [], 0
    while step < STEPS:
        if step == restart:  # from a checkpoint of ten steps before: these steps are logged twice
            writer.close()
            writer = SummaryWriter(folder, flush_secs=1)
            step, restart = step - 10, None
            rows = [row for row in rows if row["step"] <= step]
        step += 1
        batch = torch.randn(batch_size, 8)
        label = (batch @ truth > 0).float()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch)[:, 0], label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("train/loss", loss.item(), step)
        row = {"step": step, "train/loss": loss.item()}
        if step % EVALUATED == 0:
            with torch.no_grad():
                accuracy = ((model(x)[:, 0] > 0).float() == held_out).float().mean().item()
            writer.add_scalar("eval/accuracy", accuracy, step)
            row["eval/accuracy"] = accuracy
        print(row)
        rows.append(row)
    writer.close()
    return rows


def main(out: Path) -> None:
    printed = {}
    for batch_size in (4, 32):
        for seed in (0, 1):
            name = f"bs{batch_size}-seed{seed}"
            printed[name] = train(out / name, batch_size, seed, restart=35 if seed else None)
    (out / "printed.json").write_text(json.dumps({"versions": {"torch": torch.__version__}, "runs": printed}, indent=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
