"""A small convolutional network: convolution, max-pooling, ReLU, over again; one fully connected layer."""

from collections.abc import Sequence
from typing import Any

from workloads.workload import Array, Model, flax_model

KERNEL = (3, 3)


def simple_cnn(classes: int, channels: Sequence[int], width: int) -> Model:
    """Convolutions of ``channels`` filters, a layer of ``width`` units and a linear read-out.

    After the "Simple CNN" of Shallue et al. (2018), which has two convolutions and one hidden layer.

    Args:
      classes: size of the output.
      channels: filters by convolution, 3×3 with padding SAME; each is followed by 2×2 max-pooling.
      width: units of the fully connected layer.

    Returns:
      A model of inputs float32[B, H, W, C]; weights are He-initialized, those of the read-out LeCun-initialized, biases
      zero. Parameters: over convolutions, the sum of (9 × channels in + 1) × channels out; then (P + 1) × width +
      (width + 1) × classes, with P the size of the last pooled image, (H >> n) × (W >> n) × channels for n
      convolutions.

    Raises:
      ValueError: ``channels`` is not a list of positive whole numbers, or ``width`` not such a number; from ``init``,
        if the images are too small to pool so often.
    """
    is_list = isinstance(channels, Sequence) and not isinstance(channels, str) and len(channels) > 0
    if not is_list or not all(isinstance(c, int) and c > 0 for c in channels):
        raise ValueError(f"channels must be a list of whole numbers of at least 1, such as [8, 16], not {channels!r}")
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"width must be a whole number of at least 1, not {width!r}")

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.models.convolution import convolution, max_pool

        class SimpleCNN(nn.Module):
            @nn.compact
            def __call__(self, x_BxHxWxC: Array) -> Array:
                he_normal = nn.initializers.he_normal()
                for features in channels:
                    layer = nn.Conv(features, KERNEL, kernel_init=he_normal, conv_general_dilated=convolution)
                    # ReLU and maximum commute, and after pooling there is a quarter of the work left.
                    x_BxHxWxC = nn.relu(max_pool(layer(x_BxHxWxC)))
                x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
                x_BxD = nn.relu(nn.Dense(width, kernel_init=he_normal)(x_BxD))
                return nn.Dense(classes, dtype=jnp.float32)(x_BxD)

        return SimpleCNN()

    return flax_model(network)
