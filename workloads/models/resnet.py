"""Residual networks for images: of bottleneck blocks, and of basic blocks for small images."""

from collections.abc import Sequence
from typing import Any

from workloads.models.options import check_whole, whole_list
from workloads.workload import STACKED, Array, Model, flax_model, flax_model_in_training

NORMS = ("ghost", "group")
BASIC_NORMS = ("none", "group")


def resnet(classes: int, blocks: Sequence[int], width: int, norm: str, group: int) -> Model:
    """A ResNet (He et al. 2016, arXiv 1512.03385); ``blocks=[3, 4, 6, 3]`` of ``width=64`` is ResNet-50.

    A 7×7 convolution and 3×3 max-pooling, each by 2, then stages of bottleneck blocks: convolutions 1×1, 3×3 and 1×1
    of F, F and 4 F filters, each normalized, beside a shortcut. F is ``width`` in the first stage and doubles with
    each; the first block of every stage but the first halves the image, in its 3×3 convolution (He's paper: in the
    first 1×1; this is known as v1.5), and the shortcut of a stage's first block is a 1×1 convolution. Then the mean
    over all places and a linear read-out. The scale of the last norm of each block starts from 0, so that blocks
    start as their shortcuts, and the weights of the read-out from a standard deviation of 0.01 (Goyal et al. 2017,
    arXiv 1706.02677).

    Args:
      classes: size of the output.
      blocks: number of blocks by stage; those after a stage's first are compiled as one.
      width: filters of the first stage.
      norm: ghost, ``layers.GhostNorm``, or group, ``norms.GroupNorm``.
      group: neighbours in a batch that ``ghost`` normalizes together, at least 2; it divides every batch size. 32 is
        what Goyal et al. normalize together at any batch size. With ``group``, which has none, 1.

    Returns:
      A model of inputs float32[B, H, W, C]; logits float32[B, classes]. Convolutions are He-initialized and have no
      biases. The state are running means and variances, float32. Parameters: 25,557,032 of ResNet-50 with three
      channels and 1,000 classes; in general 49 × C × width + 2 × width, and (P + 1) × classes with P = 4 × F of
      the last stage, and of a block with X channels in, X × F + 9 × F² + 4 × F² + 12 × F, and of each stage's first
      another X × 4 × F + 8 × F.

    Raises:
      ValueError: ``blocks`` is not a list of positive whole numbers, ``width`` not such a number, ``norm`` unknown, or
        ``group`` does not suit it.
    """
    is_list = isinstance(blocks, Sequence) and not isinstance(blocks, str) and len(blocks) > 0
    if not is_list or not all(isinstance(n, int) and n > 0 for n in blocks):
        raise ValueError(f"blocks must be a list of whole numbers of at least 1, such as [3, 4, 6, 3], not {blocks!r}")
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"width must be a whole number of at least 1, not {width!r}")
    if norm not in NORMS:
        raise ValueError(f"norm must be {' or '.join(NORMS)}, not {norm!r}")
    if norm == "ghost" and (not isinstance(group, int) or group < 2):
        raise ValueError(f"group must be a whole number of at least 2 with norm=ghost, not {group!r}")
    if norm == "group" and group != 1:
        raise ValueError(f"group must be 1 with norm=group, which normalizes each example alone, not {group!r}")

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.models.convolution import convolution, max_pool_3x3
        from workloads.models.layers import STATISTICS, GhostNorm, GroupNorm

        def convolved(x_BxHxWxC: Array, features: int, size: int, stride: int = 1) -> Array:
            return nn.Conv(
                features,
                (size, size),
                strides=stride,
                padding=size // 2,
                use_bias=False,
                kernel_init=nn.initializers.he_normal(),
                conv_general_dilated=convolution,
            )(x_BxHxWxC)

        def normalized(x_BxHxWxC: Array, train: bool, scale_init: Any = nn.initializers.ones) -> Array:
            if norm == "ghost":
                return GhostNorm(group, scale_init=scale_init)(x_BxHxWxC, train)
            return GroupNorm(scale_init=scale_init)(x_BxHxWxC)

        class Block(nn.Module):
            features: int
            stride: int
            train: bool

            @nn.compact
            def __call__(self, x_BxHxWxC: Array, nothing: None) -> tuple[Array, None]:
                F, train = self.features, self.train
                y_BxHxWxF = nn.relu(normalized(convolved(x_BxHxWxC, F, 1), train))
                y_BxHxWxF = nn.relu(normalized(convolved(y_BxHxWxF, F, 3, self.stride), train))
                y_BxHxWx4F = normalized(convolved(y_BxHxWxF, 4 * F, 1), train, nn.initializers.zeros)
                if x_BxHxWxC.shape != y_BxHxWx4F.shape:
                    x_BxHxWxC = normalized(convolved(x_BxHxWxC, 4 * F, 1, self.stride), train)
                return nn.relu(x_BxHxWxC + y_BxHxWx4F), None

        class ResNet(nn.Module):
            @nn.compact
            def __call__(self, x_BxHxWxC: Array, keys_B: Array | None, train: bool) -> Array:
                x_BxHxWxC = max_pool_3x3(nn.relu(normalized(convolved(x_BxHxWxC, width, 7, 2), train)))
                for stage, count in enumerate(blocks):
                    features = width << stage
                    x_BxHxWxC, _ = Block(features, 1 if stage == 0 else 2, train)(x_BxHxWxC, None)
                    if count > 1:
                        rest = nn.scan(
                            Block,
                            variable_axes={"params": 0, STATISTICS: 0},
                            split_rngs={"params": True},
                            length=count - 1,
                        )
                        x_BxHxWxC, _ = rest(features, 1, train, name=f"{STACKED}_{stage}")(x_BxHxWxC, None)
                x_BxP = x_BxHxWxC.astype(jnp.float32).mean(axis=(1, 2))
                read_out = nn.Dense(classes, dtype=jnp.float32, kernel_init=nn.initializers.normal(0.01))
                return read_out(x_BxP)

        return ResNet()

    return flax_model_in_training(network, group)


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
      norm: none, or group, ``layers.GroupNorm`` before each ReLU. Neither depends on the batch.

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
    if norm not in BASIC_NORMS:
        raise ValueError(f"norm must be {' or '.join(BASIC_NORMS)}, not {norm!r}")

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.models.convolution import convolution
        from workloads.models.layers import GroupNorm

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
