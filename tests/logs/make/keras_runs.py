"""Trains tiny models with Keras and its CSVLogger, and converts the logs with the code of docs/own-runs.md.

    python keras_runs.py OUT

Writes OUT/runs.csv, and OUT/printed.json with the numbers that the runs printed, at the steps of their epochs.
"""

import json
import math
import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import recipe

EXAMPLES = 60_000  # as in docs/own-runs.md


def train(batch_size: int, seed: int) -> list[dict[str, float]]:
    keras.utils.set_random_seed(seed)
    x = np.random.default_rng(0).normal(size=(EXAMPLES, 4)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="binary_crossentropy", metrics=["accuracy"])
    log = keras.callbacks.CSVLogger(f"logs/bs{batch_size}-seed{seed}.csv")
    history = model.fit(x, y, batch_size=batch_size, epochs=3, validation_split=0, verbose=0, callbacks=[log]).history
    steps = math.ceil(EXAMPLES / batch_size)
    values = zip(history["loss"], history["accuracy"], strict=True)
    return [
        {"step": steps * (epoch + 1), "loss": loss, "accuracy": accuracy}
        for epoch, (loss, accuracy) in enumerate(values)
    ]


def main(out: Path) -> None:
    (out / "logs").mkdir(parents=True)
    os.chdir(out)
    printed = {f"run-{size}-{seed}": train(size, seed) for size in (1000, 4096) for seed in (0, 1)}
    recipe.run("Keras")
    content = {"versions": {"keras": keras.__version__}, "runs": printed}
    Path("printed.json").write_text(json.dumps(content, indent=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
