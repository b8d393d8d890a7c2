"""Searches with Optuna over runs with a known answer, and converts them with the code of docs/own-runs.md.

    python optuna_answers.py OUT

Writes OUT/optuna/runs.csv.
"""

import os
import sys
from pathlib import Path

import optuna
import recipe
from closed_form import SIZES, epochs, loss, steps_per_epoch


def train(trial: optuna.Trial) -> float:
    size = trial.suggest_categorical("batch_size", SIZES)
    trial.suggest_float("lr", 1e-3, 1e-1, log=True)
    length = steps_per_epoch(size)
    for step in range(0, epochs(size) * length + 1, max(2, length // 8)):
        trial.report(loss(step, size), step)
    return loss(step, size)


def main(out: Path) -> None:
    (out / "optuna").mkdir(parents=True)
    os.chdir(out / "optuna")
    study = optuna.create_study(study_name="scaling", storage="sqlite:///scaling.db")
    for size in SIZES:
        study.enqueue_trial({"batch_size": size, "lr": 0.01})
    study.optimize(train, n_trials=len(SIZES))
    recipe.run("Optuna")
    Path("scaling.db").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
