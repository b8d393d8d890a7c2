"""A residual network of basic blocks for small images."""

from collections.abc import Sequence
from typing import Any

from workloads.models.options import check_whole, whole_list
from workloads.workload import Array, Model, flax_model

NORMS = ("none", "group")


def resnet_basic(classes: int, blocks: Sequence[int], width: int, norm: str) -> Model:
    """A ResNet of two 3×3 convolutions a block, as He et al. train on CIFAR; ``[1, 1, 1]`` of ``width=16`` is ResNet-8.

    A 3×3 convolution, stages of blocks and, after the last, the mean over all places and a linear read-out (He et al.
    2016, arXiv 1512.03385, section 4.2). Blocks are pre-activated (arXiv 1603.05027): ReLU comes before each of their
    convolutions, and once more before the mean. Filters double with each stage, whose first block but that of the
    first stage takes every second place; its shortcut takes these too and has zeros in the new channels.

    Args:
      classes: size of the output.
      blocks: number of blocks by stage.
      width: filters of the first stage.
      norm: none, or group, ``norms.GroupNorm`` before each ReLU. Neither depends on the batch.

    Returns:
      A model of inputs float32[B, H, W, C]; logits float32[B, classes]. Weights are He-initialized, those of the
      read-out LeCun-initialized, biases zero; without norms a block's second convolution is zero, too, so that blocks
      start as their shortcuts. Without norms parameters are, over convolutions, the sum of
      (9 × channels in + 1) × channels out, and (channels + 1) × classes: 75,050 of ResNet-8 with three channels and ten
      classes.

    Raises:
      ValueError: ``blocks`` is not a list of positive whole numbers, ``width`` not such a number, or ``norm`` unknown.
    """
    if not whole_list(blocks):
        raise ValueError(f"blocks must be a list of whole numbers of at least 1, such as [1, 1, 1], not {blocks!r}")
    check_whole(width=width)
    if norm not in NORMS:
        raise ValueError(f"norm must be {' or '.join(NORMS)}, not {norm!r}")

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.models.convolution import convolution
        from workloads.models.norms import GroupNorm

        def convolved(x_BxHxWxC: Array, features: int, stride: int = 1, init: Any = None) -> Array:
            return nn.Conv(
                features,
                (3, 3),
                strides=stride,
                padding=1,
                use_bias=norm == "none",
                kernel_init=init or nn.initializers.he_normal(),
                conv_general_dilated=convolution,
            )(x_BxHxWxC)

        def activated(x_BxHxWxC: Array) -> Array:
            return nn.relu(GroupNorm()(x_BxHxWxC) if norm == "group" else x_BxHxWxC)

        last = nn.initializers.zeros if norm == "none" else None

        class ResNetBasic(nn.Module):
            @nn.compact
            def __call__(self, x_BxHxWxC: Array) -> Array:
                x_BxHxWxC = convolved(x_BxHxWxC, width)
                for stage, count in enumerate(blocks):
                    features = width << stage
                    for number in range(count):
                        stride = 2 if stage > 0 and number == 0 else 1
                        y_BxHxWxF = convolved(activated(x_BxHxWxC), features, stride)
                        y_BxHxWxF = convolved(activated(y_BxHxWxF), features, init=last)
                        more = features - x_BxHxWxC.shape[-1]
                        shortcut_BxHxWxC = x_BxHxWxC[:, ::stride, ::stride]
                        x_BxHxWxC = y_BxHxWxF + jnp.pad(shortcut_BxHxWxC, ((0, 0), (0, 0), (0, 0), (0, more)))
                x_BxP = activated(x_BxHxWxC).astype(jnp.float32).mean(axis=(1, 2))
                return nn.Dense(classes, dtype=jnp.float32)(x_BxP)

        return ResNetBasic()

    return flax_model(network)
