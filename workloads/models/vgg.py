"""VGG: stages of 3×3 convolutions with max-pooling, and fully connected layers with dropout."""

from collections.abc import Sequence
from typing import Any

from workloads.models.options import check_list, check_share, is_whole_list
from workloads.workload import Array, Model, flax_model_in_training


def vgg(classes: int, stages: Sequence[Sequence[int]], widths: Sequence[int], dropout: float) -> Model:
    """Returns a VGG network without normalization (Simonyan & Zisserman 2015, arXiv 1409.1556).

    Stages [[64], [128], [256, 256], [512, 512], [512, 512]] and widths [4096, 4096] give configuration A, VGG-11.

    Args:
      classes: size of the output.
      stages: number of filters of each 3×3 convolution with SAME padding, by stage. Each stage ends with 2×2
        max-pooling.
      widths: size of each hidden fully connected layer.
      dropout: probability of dropping an output of a fully connected layer during training, in [0, 1).

    Returns:
      A model that maps inputs float32[B, H, W, C] to logits float32[B, classes]. Weights are He-initialized, except for
      the LeCun-initialized output layer, and biases are zero. Convolutions have (9 × channels in + 1) × channels out
      parameters each, and fully connected layers have (inputs + 1) × outputs. VGG-11 on 224×224 pixels with three
      channels and 1,000 classes has 132,863,336 parameters.

    Raises:
      ValueError: ``stages`` or ``widths`` are not lists of positive integers, or ``dropout`` is not in [0, 1). ``init``
        raises it if the images are too small for this number of pooling layers.
    """
    is_list = isinstance(stages, Sequence) and not isinstance(stages, str) and len(stages) > 0
    if not is_list or not all(map(is_whole_list, stages)):
        raise ValueError(f"stages must be lists of integers of at least 1, such as [[8], [16, 16]], not {stages!r}")
    check_list("widths", widths, "[64]", may_be_empty=True)
    check_share(dropout=dropout)

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.axes import activation
        from workloads.models.convolution import max_pool
        from workloads.models.layers import conv, dense, dropout as dropped

        class VGG(nn.Module):
            @nn.compact
            def __call__(self, x_BxHxWxC: Array, keys_B: Array | None, train: bool) -> Array:
                inputs = "inputs"
                for stage in stages:
                    for features in stage:
                        x_BxHxWxC = nn.relu(activation(conv(features, 3, inputs)(x_BxHxWxC), "batch", "", "", "mlp"))
                        x_BxHxWxC = activation(x_BxHxWxC, "batch", "", "", "act_embed")
                        inputs = "embed"
                    x_BxHxWxC = max_pool(x_BxHxWxC)
                x_BxD = x_BxHxWxC.reshape(len(x_BxHxWxC), -1)
                for number, width in enumerate(widths):
                    layer = dense(width, "embed", "mlp", nn.initializers.he_normal())
                    x_BxD = nn.relu(layer(activation(x_BxD, "batch", "act_embed")))
                    x_BxD = activation(dropped(x_BxD, keys_B, dropout, number), "batch", "mlp")
                return dense(classes, "mlp" if widths else "embed", "vocab", dtype=jnp.float32)(x_BxD)

        return VGG()

    return flax_model_in_training(network)
