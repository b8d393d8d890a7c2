"""Logs runs with a known answer with MLflow into a folder.

    python mlflow_answers.py OUT

Writes OUT/mlflow/mlruns.
"""

import os
import shutil
import sys
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

import mlflow
from closed_form import SIZES, epochs, loss, steps_per_epoch


def train(size: int) -> None:
    length = steps_per_epoch(size)
    with mlflow.start_run(run_name=f"size-{size}"):
        mlflow.log_params({"batch_size": size, "learning_rate": 0.01, "optimizer": "sgd"})
        for step in range(0, epochs(size) * length + 1, max(2, length // 8)):
            mlflow.log_metric("val_loss", loss(step, size), step=step)


def main(out: Path) -> None:
    mlflow.set_tracking_uri((out / "mlflow" / "mlruns").as_uri())
    mlflow.set_experiment("scaling")
    for size in SIZES:
        train(size)
    for folder in (out / "mlflow").rglob("tags"):  # they name this machine, its user and the checkout
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
