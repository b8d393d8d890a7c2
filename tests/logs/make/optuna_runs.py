"""Searches with Optuna, with intermediate values, and converts them with the code of docs/own-runs.md.

    python optuna_runs.py OUT

Writes OUT/runs.csv, and OUT/printed.json with the numbers that the runs printed.
"""

import json
import math
import os
import random
import sys
from pathlib import Path

import optuna
import recipe


def train(trial: optuna.Trial, printed: dict[str, list[dict[str, float]]]) -> float:
    size = trial.suggest_categorical("batch_size", [16, 64])
    seed = trial.suggest_int("seed", 0, 1)
    trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    draw = random.Random(seed)
    rows = printed[f"run-{size}-{seed}"] = []
    for step in range(1, 31):
        loss = 2 / math.sqrt(step) + draw.gauss(0, 0.01)
        trial.report(loss, step)
        rows.append({"step": step, "loss": loss})
    return loss


def main(out: Path) -> None:
    out.mkdir(parents=True)
    os.chdir(out)
    printed: dict[str, list[dict[str, float]]] = {}
    study = optuna.create_study(study_name="scaling", storage="sqlite:///scaling.db")
    for size in (16, 64):
        for seed in (0, 1):
            study.enqueue_trial({"batch_size": size, "seed": seed, "lr": 0.01})
    study.optimize(lambda trial: train(trial, printed), n_trials=4)
    recipe.run("Optuna")
    content = {"versions": {"optuna": optuna.__version__}, "runs": printed}
    Path("printed.json").write_text(json.dumps(content, indent=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
