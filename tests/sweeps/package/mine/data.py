"""A data set of this package: points of two rings."""

import numpy as np

from workloads import losses
from workloads.workload import Dataset, Examples, Splits, content


def load() -> Splits:
    """Returns 400 points to train on and 100 for validation."""
    rng = np.random.default_rng(0)
    labels = np.arange(500, dtype=np.int32) % 2
    angle = rng.uniform(0, 2 * np.pi, 500)
    radius = 1 + labels + rng.normal(0, 0.2, 500)
    inputs = (radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)).astype(np.float32)
    return Splits(Examples(inputs[:400], labels[:400]), Examples(inputs[400:], labels[400:]), None)


def rings() -> Dataset:
    """Returns the row of the data set."""
    return Dataset(
        load,
        lambda: content(load()),
        train_examples=400,
        evaluation_examples=100,
        classes=2,
        splits=("train", "validation"),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
    )
