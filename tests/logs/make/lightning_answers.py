"""Logs runs with a known answer with Lightning's CSVLogger and TensorBoardLogger.

    python lightning_answers.py OUT

Writes OUT/lightning_csv/lightning_logs/version_<n> and OUT/lightning_tensorboard/lightning_logs/version_<n>.
"""

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from closed_form import EXAMPLES, SIZES, epochs, loss
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Net(lightning.LightningModule):
    """A model that logs the closed form. The gradient of its loss is 0."""

    def __init__(self, batch_size: int, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch: Any, index: int) -> Any:
        value = loss(self.global_step + 1, self.hparams["batch_size"])
        self.log("train_loss", value)
        return value + 0 * self.weight.sum()

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", loss(self.global_step, self.hparams["batch_size"]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])


def main(out: Path) -> None:
    data = torch.utils.data.TensorDataset(torch.zeros(EXAMPLES, 1))
    for kind, folder in ((CSVLogger, "lightning_csv"), (TensorBoardLogger, "lightning_tensorboard")):
        for size in SIZES:
            trainer = lightning.Trainer(
                max_epochs=epochs(size),
                logger=kind(out / folder),
                log_every_n_steps=10,
                num_sanity_val_steps=0,
                enable_progress_bar=False,
                enable_model_summary=False,
                enable_checkpointing=False,
                accelerator="cpu",
            )
            loader = torch.utils.data.DataLoader(data, size)
            trainer.fit(Net(size, 0.05), loader, torch.utils.data.DataLoader(data, EXAMPLES))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
