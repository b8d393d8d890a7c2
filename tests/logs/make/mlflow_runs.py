"""Logs runs with MLflow into a folder.

    python mlflow_runs.py OUT

Writes OUT/mlruns, and OUT/printed.json with the numbers that the runs printed.
"""

import json
import math
import os
import random
import shutil
import sys
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

import mlflow


def train(batch_size: int, seed: int) -> list[dict[str, float]]:
    draw = random.Random(seed)
    rows = []
    with mlflow.start_run(run_name=f"run-{batch_size}-{seed}"):
        mlflow.log_params({"batch_size": batch_size, "seed": seed, "lr": 0.01})
        for step in range(1, 31):
            row = {"loss": 2 / math.sqrt(step) + draw.gauss(0, 0.01)}
            if step % 10 == 0:
                row |= {"accuracy": 1 - row["loss"] / 4}
            for name, value in row.items():
                mlflow.log_metric(name, value, step=step)
            rows.append({"step": step, **row})
    return rows


def main(out: Path) -> None:
    out.mkdir(parents=True)
    os.chdir(out)
    mlflow.set_tracking_uri((out / "mlruns").as_uri())
    mlflow.set_experiment("scaling")
    printed = {f"run-{size}-{seed}": train(size, seed) for size in (16, 64) for seed in (0, 1)}
    for folder in (out / "mlruns").rglob("tags"):  # they name this machine, its user and the checkout
        shutil.rmtree(folder)
    content = {"versions": {"mlflow": mlflow.__version__}, "runs": printed}
    Path("printed.json").write_text(json.dumps(content, indent=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
