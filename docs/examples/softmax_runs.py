"""Trains 40 small networks with NumPy, and logs them for TensorBoard: an example of runs that another program made.

    python docs/examples/softmax_runs.py logs

It is softmax regression on handwritten digits with momentum 0.9, at eight batch sizes and five learning rates. A run
logs its training loss at every step, and its validation loss at steps that grow by about 10 %. It needs NumPy,
scikit-learn and the package tensorboard, but neither TensorFlow nor PyTorch.
"""

import itertools
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

SIZES, RATES = (4, 8, 16, 32, 64, 128, 256, 512), (0.02, 0.05, 0.1, 0.2, 0.5)
TRAIN = 1400  # of 1,797 images
EXAMPLES, LEAST_STEPS = 40_000, 400


def loss_and_slope(weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns the mean cross-entropy of inputs float64[B, D], and its gradient float64[D, 10]."""
    outputs = inputs @ weights
    outputs -= outputs.max(axis=1, keepdims=True)
    chances = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    own = np.arange(len(labels)), labels
    loss = -np.log(chances[own]).mean()
    chances[own] -= 1
    return float(loss), inputs.T @ chances / len(labels)


def log(writer: EventFileWriter, step: int, tag: str, value: float) -> None:
    """Logs a number, as a SummaryWriter does."""
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
    writer.add_event(event_pb2.Event(step=step, wall_time=time.time(), summary=summary))


def train(folder: Path, inputs: np.ndarray, labels: np.ndarray, batch_size: int, rate: float) -> None:
    """Trains one network, and logs it into a folder."""
    rng = np.random.default_rng(0)
    weights, velocity = rng.normal(0, 0.3, (inputs.shape[1], 10)), 0.0
    writer = EventFileWriter(str(folder))
    evaluated = 0
    for step in range(1, max(EXAMPLES // batch_size, LEAST_STEPS) + 1):
        rows = rng.integers(0, TRAIN, batch_size)
        loss, slope = loss_and_slope(weights, inputs[rows], labels[rows])
        velocity = 0.9 * velocity + slope
        weights = weights - rate * velocity
        log(writer, step, "train/loss", loss)
        if step >= 1.1 * evaluated:
            log(writer, step, "eval/loss", loss_and_slope(weights, inputs[TRAIN:], labels[TRAIN:])[0])
            evaluated = step
    writer.close()


def main(out: Path) -> None:
    """Trains all networks, each into its own folder."""
    pixels, labels = load_digits(return_X_y=True)
    inputs = np.concatenate([pixels / 16, np.ones((len(pixels), 1))], axis=1)
    for size, rate in itertools.product(SIZES, RATES):
        train(out / f"bs{size}-lr{rate:g}", inputs, labels, size, rate)
    print(f"{len(SIZES) * len(RATES)} runs in {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
