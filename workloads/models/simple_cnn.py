"""A small convolutional network: convolutions with max-pooling and ReLU, then one fully connected layer."""

from collections.abc import Sequence
from typing import Any

from workloads.models.options import check_list, check_whole
from workloads.workload import Array, Model, flax_model

KERNEL = 3


def simple_cnn(classes: int, channels: Sequence[int], width: int) -> Model:
    """Convolutions with ``channels`` filters, a layer of ``width`` units and a linear read-out.

    Generalizes the "Simple CNN" of Shallue et al. (2018), which has two convolutions and one hidden layer.

    Args:
      classes: size of the output.
      channels: number of filters in each convolution, which is 3×3 with padding SAME, followed by 2×2 max-pooling.
      width: number of units in the fully connected layer.

    Returns:
      A model of inputs float32[B, H, W, C] with logits float32[B, classes]. Weights are He-initialized, except for the
      LeCun-initialized read-out, and biases are zero. Convolutions have (9 × channels in + 1) × channels out
      parameters each. The dense layers have (P + 1) × width + (width + 1) × classes, with P the size of the last
      pooled image, (H >> n) × (W >> n) × channels for n convolutions.

    Raises:
      ValueError: ``channels`` is not a list of positive integers, or ``width`` is not one. ``init`` raises it if
        the images are too small for that many poolings.
    """
    check_list("channels", channels, "[8, 16]")
    check_whole(width=width)

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.axes import activation
        from workloads.models.convolution import max_pool
        from workloads.models.layers import conv, dense

        class SimpleCNN(nn.Module):
            @nn.compact
            def __call__(self, x_BxHxWxC: Array) -> Array:
                for number, features in enumerate(channels):
                    layer = conv(features, KERNEL, "embed" if number else "inputs")
                    # ReLU and max-pooling commute. Pooling first reduces the work to a quarter.
                    x_BxHxWxC = nn.relu(max_pool(activation(layer(x_BxHxWxC), "batch", "", "", "mlp")))
                    x_BxHxWxC = activation(x_BxHxWxC, "batch", "", "", "act_embed")
                x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
                x_BxD = nn.relu(dense(width, "embed", "mlp", nn.initializers.he_normal())(x_BxD))
                return dense(classes, "mlp", "vocab", dtype=jnp.float32)(activation(x_BxD, "batch", "mlp"))

        return SimpleCNN()

    return flax_model(network)
