"""An infinite stream of noise for training a noisy quadratic."""

import numpy as np

from workloads import workload
from workloads.workload import Array, ArrayShape, Examples, Splits

DIMENSIONS = 100


def load() -> Splits:
    """Returns a single noiseless validation example, on which the loss is the expected loss, and no training split.

    Returns:
      Splits with inputs float32[1, DIMENSIONS] and labels int32[1], all zero.
    """
    nothing = Examples(np.zeros((1, DIMENSIONS), np.float32), np.zeros(1, np.int32))
    return Splits(train=None, validation=nothing, test=None)


def shapes() -> Splits:
    """Returns the shapes of the splits of ``load``."""
    vector = ArrayShape((DIMENSIONS,), np.dtype(np.float32))
    label = ArrayShape((), np.dtype(np.int32))
    return workload.shapes((None, 1, None), vector, label)


def draw(key: Array, batch_size: int) -> Examples:
    """Draws the mean of ``batch_size`` standard normal vectors. Since the mean is also normal, one draw is enough.

    Returns:
      Examples with inputs float32[1, DIMENSIONS] of variance 1 / batch_size, and labels int32[1], zero.
    """
    import jax
    import jax.numpy as jnp

    noise = jax.random.normal(key, (1, DIMENSIONS), jnp.float32) / jnp.sqrt(jnp.float32(batch_size))
    return Examples(noise, jnp.zeros(1, jnp.int32))


def loss(outputs: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Returns the outputs of the model, float32[B], unchanged, because they are already losses."""
    del labels, label_smoothing
    return outputs
