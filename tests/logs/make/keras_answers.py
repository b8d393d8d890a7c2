"""Logs runs with a known answer with the TensorBoard callback of Keras, which counts epochs.

    python keras_answers.py OUT

Writes OUT/keras_tensorboard/<run>/train and validation.
"""

import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
from closed_form import EXAMPLES, SIZES, epochs, loss


class ClosedForm(keras.callbacks.Callback):
    """Replaces the losses of a run by those of the closed form, before they are logged."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        logs["loss"] = loss(int(self.model.optimizer.iterations), self.size)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs["loss"] = logs["val_loss"] = loss(int(self.model.optimizer.iterations), self.size)


def main(out: Path) -> None:
    x = np.ones((EXAMPLES, 1), "float32")
    for size in SIZES:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.001), loss="mse")
        log = keras.callbacks.TensorBoard(out / "keras_tensorboard" / f"bs{size}", write_graph=False)
        data = (x[:1], x[:1])
        model.fit(
            x,
            x,
            batch_size=size,
            epochs=epochs(size),
            validation_data=data,
            verbose=0,
            callbacks=[ClosedForm(size), log],
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
