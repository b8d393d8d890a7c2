"""Writes an archive in the format of Shallue et al. 2018, from its published description and the standard library only.

    python archive_program.py STUDIES.csv FOLDER [PREFIX]

FOLDER/batch_science becomes an archive with the studies of the table, or those whose folder starts with PREFIX. The
study of the README (ResNet-50 on ImageNet, Nesterov momentum, batch size 256) has the search space and the budget that
the README lists. All others have invented ones, on every scale.
"""

import csv
import json
import sys
from pathlib import Path

README = "imagenet/resnet_50/nesterov_momentum/256"
DECAYING = ("cifar_10", "imagenet", "open_images_v4")  # starts of data sets with a decay
DECAY_SCALES = ("LINEAR_SCALE", "LOG_SCALE", "")


def number(kind, low, high, scale):
    return {"type": kind, "min_value": low, "max_value": high, "feasible_points": [], "scale": scale}


def points(*values):
    return {"type": "DISCRETE", "min_value": 0, "max_value": 0, "feasible_points": list(values), "scale": ""}


def search_space(folder, index, budget):
    rate = (number("DOUBLE", 1e-4, 10, "LOG_SCALE"), number("DOUBLE", 0.1, 0.7, ""), points(0.03, 0.1, 0.3, 1.0))
    momentum = (
        number("DOUBLE", 0.9, 0.9999, "REVERSE_LOG_SCALE"),
        number("DOUBLE", 0.5, 0.95, "LINEAR_SCALE"),
        number("DOUBLE", 0, 0.99, "REVERSE_LOG_SCALE"),
    )
    space = {"learning_rate": rate[index % 3]}
    if "/sgd/" not in folder:
        space["momentum"] = momentum[index // 3 % 3]
    if folder.startswith(DECAYING):
        space["end_learning_rate_factor"] = number("DOUBLE", 1e-4, 1e-1, "LOG_SCALE")
        scale = DECAY_SCALES[index % 3]
        space["learning_rate_decay_steps"] = number("INTEGER", budget // 3, budget - 7, scale)
    if folder.startswith("imagenet/"):
        space["label_smoothing"] = points(0, 0.01, 0.1)
    return space


def study(folder, index):
    *dataset, model, optimizer, size = folder.split("/")
    fields = {
        "batch_size": int(size),
        "dataset": dataset[-1],
        "model": model,
        "optimizer": optimizer,
        "early_stopping": False,
        "train_steps": 0 if folder.startswith("lm1b/lstm") else 1000 + 37 * index,
    }
    if folder == README:
        fields["train_steps"] = 600000
        fields["parameter_configs"] = {
            "learning_rate": number("DOUBLE", 1e-4, 10, "LOG_SCALE"),
            "momentum": number("DOUBLE", 0.9, 0.9999, "REVERSE_LOG_SCALE"),
            "end_learning_rate_factor": number("DOUBLE", 1e-4, 1e-1, "LOG_SCALE"),
            "learning_rate_decay_steps": number("INTEGER", 300000, 600000, ""),
            "label_smoothing": points(0, 0.01, 0.1),
        }
    else:
        fields["parameter_configs"] = search_space(folder, index, fields["train_steps"] or 1000)
    return fields


def evaluation_steps(index, last):
    """Steps whose spacing grows: every 1, then every 2, then every 5 and so on, up to the last."""
    steps, spacing = [0], max(1, last // 400)
    while steps[-1] < last:
        steps.append(min(last, steps[-1] + spacing))
        if len(steps) % (10 + index % 7) == 0:
            spacing += 1 + spacing // 2
    return steps


def write_trial(folder, trial, status, steps):
    folder = folder / str(trial)
    folder.mkdir(parents=True)
    metadata = {"trial_id": trial, "status": status, "steps": steps[-1], "parameters": {"learning_rate": 0.1}}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    rows = [f"{step},{1 / (1 + step)},{2 / (2 + step)}" for step in steps]
    header = "step,val/classification_error,val/cross_entropy_error"
    (folder / "measurements.csv").write_text("\n".join([header, *rows, ""]))


def main(table, target, prefix=""):
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    for index, row in enumerate(rows):
        name = "/".join(row[key] for key in ("base_directory", "model", "optimizer", "batch_size"))
        if not name.startswith(prefix):
            continue
        fields = study(name, index)
        folder = Path(target) / "batch_science" / name
        folder.mkdir(parents=True)
        (folder / "study.json").write_text(json.dumps(fields))
        steps = evaluation_steps(index, fields["train_steps"] or 1000)
        write_trial(folder, 1, "INFEASIBLE", steps[:2])
        write_trial(folder, 2, "COMPLETE", [0, *steps[1::2]] if index % 2 else steps)  # a trial with fewer rows
        write_trial(folder, 3, "COMPLETE", steps)
        write_trial(folder, 4, "COMPLETE", [*steps, steps[-1] + 5])  # one that trained longer


if __name__ == "__main__":
    main(*sys.argv[1:])
