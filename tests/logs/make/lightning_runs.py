"""Trains tiny models with Lightning and its CSVLogger.

    python lightning_runs.py OUT

Writes metrics.csv and hparams.yaml in OUT/lightning_logs/<run>, and OUT/printed.json with the numbers of the runs.
"""

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Net(lightning.LightningModule):
    """A linear model that keeps the numbers that it logs."""

    def __init__(self, batch_size: int, lr: float, seed: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = torch.nn.Linear(4, 1)
        self.printed: list[dict[str, float]] = []

    def training_step(self, batch: Any, index: int) -> Any:
        (x,) = batch
        loss = ((self.model(x)[:, 0] - x.sum(dim=1)) ** 2).mean()
        self.log("loss", loss)
        self.printed.append({"step": self.global_step, "loss": float(loss)})
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])


def train(out: Path, batch_size: int, seed: int) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    data = torch.utils.data.TensorDataset(torch.randn(batch_size * 30, 4))
    net = Net(batch_size, 0.05, seed)
    logger = CSVLogger(out, version=f"run-{batch_size}-{seed}")
    trainer = lightning.Trainer(
        max_epochs=1,
        logger=logger,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accelerator="cpu",
    )
    trainer.fit(net, torch.utils.data.DataLoader(data, batch_size))
    return net.printed


def main(out: Path) -> None:
    printed = {f"run-{size}-{seed}": train(out, size, seed) for size in (16, 64) for seed in (0, 1)}
    content = {"versions": {"lightning": lightning.__version__, "torch": torch.__version__}, "runs": printed}
    (out / "printed.json").write_text(json.dumps(content, indent=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
