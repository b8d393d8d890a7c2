"""A small convolutional network: convolutions with max-pooling and ReLU, then one fully connected layer."""

from collections.abc import Sequence
from typing import Any

from workloads.models.options import check_list, check_share, check_whole
from workloads.workload import Array, Model, flax_model, flax_model_in_training


def simple_cnn(classes: int, channels: Sequence[int], width: int, kernel: int = 3, dropout: float = 0.0) -> Model:
    """Returns a network with convolutions, a fully connected layer of size ``width`` and a linear output layer.

    Generalizes the "Simple CNN" of Shallue et al. (2018), which has two convolutions and one hidden layer.

    Args:
      classes: size of the output.
      channels: number of filters in each convolution. Convolutions use SAME padding and are followed by 2×2
        max-pooling.
      width: size of the fully connected layer.
      kernel: size K of each filter, which has K rows and K columns.
      dropout: probability of dropping an output of the fully connected layer during training, in [0, 1).

    Returns:
      A model that maps inputs float32[B, H, W, C] to logits float32[B, classes]. Weights are He-initialized, except for
      the LeCun-initialized output layer, and biases are zero. Convolutions have (K² × channels in + 1) × channels out
      parameters each. The dense layers have (P + 1) × width + (width + 1) × classes, where P is the size of the last
      pooled image, (H >> n) × (W >> n) × channels for n convolutions.

    Raises:
      ValueError: ``channels`` is not a list of positive integers, ``width`` or ``kernel`` is not a positive integer, or
        ``dropout`` is not in [0, 1). ``init`` raises it if the images are too small for this number of pooling layers.
    """
    check_list("channels", channels, "[8, 16]")
    check_whole(width=width, kernel=kernel)
    check_share(dropout=dropout)

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.axes import activation
        from workloads.models.convolution import max_pool
        from workloads.models.layers import conv, dense, dropout as dropped

        class SimpleCNN(nn.Module):
            @nn.compact
            def __call__(self, x_BxHxWxC: Array, keys_B: Array | None = None, train: bool = False) -> Array:
                for number, features in enumerate(channels):
                    layer = conv(features, kernel, "embed" if number else "inputs")
                    # ReLU and max-pooling commute. Pooling first reduces the work to a quarter.
                    x_BxHxWxC = nn.relu(max_pool(activation(layer(x_BxHxWxC), "batch", "", "", "mlp")))
                    x_BxHxWxC = activation(x_BxHxWxC, "batch", "", "", "act_embed")
                x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
                x_BxD = nn.relu(dense(width, "embed", "mlp", nn.initializers.he_normal())(x_BxD))
                x_BxD = dropped(x_BxD, keys_B, dropout, 0)
                return dense(classes, "mlp", "vocab", dtype=jnp.float32)(activation(x_BxD, "batch", "mlp"))

        return SimpleCNN()

    return flax_model_in_training(network) if dropout else flax_model(network)
