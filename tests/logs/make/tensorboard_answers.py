"""Logs runs with a known answer with PyTorch's SummaryWriter.

    python tensorboard_answers.py OUT

Writes OUT/pytorch: the training loss by iteration and the validation loss by epoch, and OUT/add_hparams: a folder of
hyperparameters within each run.
"""

import sys
from pathlib import Path

from closed_form import SIZES, epochs, loss, steps_per_epoch
from torch.utils.tensorboard import SummaryWriter


def by_epoch(folder: Path, size: int) -> None:
    """Logs like many training scripts: `Loss/train` by iteration, and `Loss/val` by epoch, from 0."""
    writer, length = SummaryWriter(folder), steps_per_epoch(size)
    for epoch in range(epochs(size)):
        for i in range(length):
            if (epoch * length + i) % 10 == 0:
                writer.add_scalar("Loss/train", loss(epoch * length + i, size), epoch * length + i)
        writer.add_scalar("Loss/val", loss((epoch + 1) * length, size), epoch)
    writer.close()


def with_hparams(folder: Path, size: int) -> None:
    """Logs by iteration. The default of `add_hparams` is a subfolder that is named by the time."""
    writer, length = SummaryWriter(folder), steps_per_epoch(size)
    for step in range(0, epochs(size) * length + 1, max(2, length // 8)):
        writer.add_scalar("val/loss", loss(step, size), step)
    writer.add_hparams({"batch_size": size, "lr": 0.1, "optimizer": "sgd"}, {"hparam/val_loss": loss(step, size)})
    writer.close()


def main(out: Path) -> None:
    for size in SIZES:
        by_epoch(out / "pytorch" / f"resnet_bs{size}", size)
        with_hparams(out / "add_hparams" / f"version_{SIZES.index(size)}", size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
