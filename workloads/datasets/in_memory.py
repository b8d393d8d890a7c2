"""Data sets that come inside Python packages: scikit-learn's handwritten digits."""

import numpy as np

from workloads.workload import Examples, Splits


def digits() -> Splits:
    """1,797 handwritten digits of 8×8 pixels, scaled to [0, 1] (Alpaydin & Kaynak 1998; ``sklearn.datasets``).

    Every fifth image, from the first, is validation: 360 of them, and 1,437 train.

    Returns:
      Splits with inputs float32[N, 8, 8, 1] and labels int32[N].
    """
    from sklearn.datasets import load_digits  # slow to import

    bunch = load_digits()
    inputs = (bunch.images / 16).astype(np.float32)[..., None]
    labels = bunch.target.astype(np.int32)
    held_out = np.arange(len(labels)) % 5 == 0
    return Splits(
        train=Examples(inputs[~held_out], labels[~held_out]),
        validation=Examples(inputs[held_out], labels[held_out]),
        test=None,
    )
