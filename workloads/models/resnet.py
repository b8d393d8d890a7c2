"""Residual networks for images: bottleneck blocks for photographs, and basic blocks for small images."""

import functools
from collections.abc import Sequence
from typing import Any

from workloads.models.options import check_list, check_whole
from workloads.workload import STACKED, Array, Model, flax_model, flax_model_in_training

NORMS = ("ghost", "group")
BASIC_NORMS = ("none", "group")
FORMS = ("post_activated", "pre_activated")


def resnet(
    classes: int, blocks: Sequence[int], width: int, norm: str, group: int, form: str = "post_activated"
) -> Model:
    """Returns a ResNet (He et al. 2016, arXiv 1512.03385). ``blocks=[3, 4, 6, 3]`` with ``width=64`` is ResNet-50.

    A 7×7 convolution with stride 2 and 3×3 max-pooling with stride 2 are followed by stages of bottleneck blocks,
    global average pooling, and a linear output layer. A block has a shortcut and three convolutions, 1×1, 3×3 and 1×1,
    with F, F and 4 F filters, each followed by normalization. F is ``width`` in the first stage and doubles with each
    stage. The first block of each stage has a 1×1 convolution as its shortcut. In all stages but the first, its 3×3
    convolution also has stride 2. (He et al. use stride 2 in the first 1×1 convolution instead. This variant is called
    v1.5.)

    The scale of the last norm in each block is initialized to 0, so each block initially equals its shortcut. The
    output layer is initialized with standard deviation 0.01 (Goyal et al. 2017, arXiv 1706.02677).

    Args:
      classes: size of the output.
      blocks: number of blocks in each stage. All blocks of a stage except the first are compiled as a single block.
      width: filters of the first stage.
      norm: ``ghost`` for ``layers.GhostNorm``, or ``group`` for ``layers.GroupNorm``.
      group: number of adjacent examples in a batch that ``ghost`` normalizes together, at least 2. It must divide all
        batch sizes. Goyal et al. always use groups of 32. With ``norm=group``, it must be 1.
      form: ``post_activated``, or ``pre_activated`` if a norm and ReLU precede each convolution of a block instead of
        following it (He et al. 2016, arXiv 1603.05027). In that case, the shortcuts and the first convolution have no
        norm, the last block is followed by a norm and ReLU, and all scales start at 1.

    Returns:
      A model that maps inputs float32[B, H, W, C] to logits float32[B, classes]. Convolutions are He-initialized and
      have no biases. The state holds running means and variances, float32. ResNet-50 with three channels and 1,000
      classes has 25,557,032 parameters, or 25,549,352 if it is pre-activated. In general, there are 49 × C × width + 2
      × width parameters before the blocks and (P + 1) × classes in the output layer, with P = 4 × F of the last stage.
      A block with X input channels has X × F + 9 × F² + 4 × F² + 12 × F, and the first block of a stage has an
      additional X × 4 × F + 8 × F. Pre-activated networks have 49 × C × width before the blocks, 2 × P more at the end,
      and X × F + 9 × F² + 4 × F² + 2 × X + 4 × F in a block. The first block of a stage has an additional X × 4 × F.

    Raises:
      ValueError: ``blocks`` is not a list of positive integers, ``width`` is not a positive integer, ``norm`` is
        unknown, ``group`` does not match it, or ``form`` is unknown.
    """
    check_list("blocks", blocks, "[3, 4, 6, 3]")
    check_whole(width=width)
    if norm not in NORMS:
        raise ValueError(f"norm must be {' or '.join(NORMS)}, not {norm!r}")
    if norm == "ghost" and (not isinstance(group, int) or group < 2):
        raise ValueError(f"group must be an integer of at least 2 with norm=ghost, not {group!r}")
    if norm == "group" and group != 1:
        raise ValueError(f"group must be 1 with norm=group, which normalizes examples separately, not {group!r}")
    if form not in FORMS:
        raise ValueError(f"form must be {' or '.join(FORMS)}, not {form!r}")
    pre_activated = form == "pre_activated"
    network = functools.partial(_bottleneck_network, classes, blocks, width, norm, group, pre_activated)
    return flax_model_in_training(network, group)


def _convolved(x_BxHxWxC: Array, features: int, size: int, stride: int = 1, inputs: str = "embed") -> Array:
    """Returns a convolution over all channels, without a bias."""
    from workloads.axes import activation
    from workloads.models.layers import conv

    layer = conv(features, size, inputs, strides=stride, padding=size // 2, use_bias=False)
    return activation(layer(_whole(x_BxHxWxC)), "batch", "", "", "mlp")


def _normalized(x_BxHxWxC: Array, norm: str, group: int, train: bool, scale_init: Any = None) -> Array:
    """Returns the result of normalizing each channel. By default, the scale starts at 1."""
    from flax import linen as nn

    from workloads.models.layers import GhostNorm, GroupNorm

    scale_init = nn.initializers.ones if scale_init is None else scale_init
    if norm == "ghost":
        return GhostNorm(group, scale_init=scale_init)(x_BxHxWxC, train)
    return GroupNorm(scale_init=scale_init)(x_BxHxWxC)


def _bottleneck_block(norm: str, group: int, pre_activated: bool) -> Any:
    """Returns the Flax class of a block that normalizes before or after its convolutions."""
    from flax import linen as nn

    from workloads.axes import activation

    class Block(nn.Module):
        features: int
        stride: int
        train: bool

        @nn.compact
        def __call__(self, x_BxHxWxC: Array, nothing: None) -> tuple[Array, None]:
            def normalized(x_BxHxWxC: Array, scale_init: Any = None) -> Array:
                return _normalized(x_BxHxWxC, norm, group, self.train, scale_init)

            F = self.features
            first_BxHxWxC = nn.relu(normalized(x_BxHxWxC)) if pre_activated else x_BxHxWxC
            y_BxHxWxF = nn.relu(normalized(_convolved(first_BxHxWxC, F, 1)))
            y_BxHxWxF = nn.relu(normalized(_convolved(y_BxHxWxF, F, 3, self.stride)))
            y_BxHxWx4F = _convolved(y_BxHxWxF, 4 * F, 1)
            if not pre_activated:
                y_BxHxWx4F = normalized(y_BxHxWx4F, nn.initializers.zeros)
            if x_BxHxWxC.shape != y_BxHxWx4F.shape:
                x_BxHxWxC = _convolved(first_BxHxWxC, 4 * F, 1, self.stride)
                if not pre_activated:
                    x_BxHxWxC = normalized(x_BxHxWxC)
            sum_BxHxWx4F = x_BxHxWxC + y_BxHxWx4F
            return activation(sum_BxHxWx4F if pre_activated else nn.relu(sum_BxHxWx4F), "batch", "", "", "mlp"), None

    return Block


def _bottleneck_network(
    classes: int, blocks: Sequence[int], width: int, norm: str, group: int, pre_activated: bool
) -> Any:
    """Returns the Flax module of ``resnet``."""
    from flax import linen as nn
    from jax import numpy as jnp

    from workloads.axes import activation
    from workloads.models.convolution import max_pool_3x3
    from workloads.models.layers import STATISTICS, dense, stack

    Block = _bottleneck_block(norm, group, pre_activated)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x_BxHxWxC: Array, keys_B: Array | None, train: bool) -> Array:
            x_BxHxWxC = _convolved(x_BxHxWxC, width, 7, 2, "inputs")
            if not pre_activated:
                x_BxHxWxC = nn.relu(_normalized(x_BxHxWxC, norm, group, train))
            x_BxHxWxC = max_pool_3x3(x_BxHxWxC)
            for stage, count in enumerate(blocks):
                features = width << stage
                x_BxHxWxC, _ = Block(features, 1 if stage == 0 else 2, train)(x_BxHxWxC, None)
                if count > 1:
                    name = f"{STACKED}_{stage}"
                    rest = stack(Block, count - 1, name, STATISTICS)
                    x_BxHxWxC, _ = rest(features, 1, train, name=name)(x_BxHxWxC, None)
            if pre_activated:
                x_BxHxWxC = nn.relu(_normalized(x_BxHxWxC, norm, group, train))
            x_BxP = activation(x_BxHxWxC.astype(jnp.float32).mean(axis=(1, 2)), "batch", "mlp")
            return dense(classes, "mlp", "vocab", nn.initializers.normal(0.01), dtype=jnp.float32)(x_BxP)

    return ResNet()


def resnet_basic(classes: int, blocks: Sequence[int], width: int, norm: str) -> Model:
    """Returns a ResNet with two 3×3 convolutions per block, like those for CIFAR-10 by He et al.

    ``blocks=[1, 1, 1]`` with ``width=16`` is ResNet-8. A 3×3 convolution and stages of blocks are followed by global
    average pooling and a linear output layer (He et al. 2016, arXiv 1512.03385, section 4.2). Blocks are pre-activated
    (arXiv 1603.05027): ReLU comes before each of their convolutions, and once more before the pooling. Filters double
    with each stage. The first block of every stage but the first has stride 2. Its shortcut subsamples every second
    position and pads the new channels with zeros.

    Args:
      classes: size of the output.
      blocks: number of blocks in each stage.
      width: filters of the first stage.
      norm: ``none``, or ``group`` for ``layers.GroupNorm`` before each ReLU. With either, an example's outputs do not
        depend on the other examples.

    Returns:
      A model that maps inputs float32[B, H, W, C] to logits float32[B, classes]. Weights are He-initialized, except for
      the LeCun-initialized output layer, and biases are zero. Without norms, the second convolution of a block is also
      initialized to zero, so a block initially equals its shortcut. Without norms, a convolution has (9 × channels in +
      1) × channels out parameters, and the output layer has (channels + 1) × classes. ResNet-8 with three channels and
      ten classes has 75,050 parameters.

    Raises:
      ValueError: ``blocks`` is not a list of positive integers, ``width`` is not a positive integer, or ``norm`` is
        unknown.
    """
    check_list("blocks", blocks, "[1, 1, 1]")
    check_whole(width=width)
    if norm not in BASIC_NORMS:
        raise ValueError(f"norm must be {' or '.join(BASIC_NORMS)}, not {norm!r}")

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.axes import activation
        from workloads.models.layers import GroupNorm, conv, dense

        bare = norm == "none"

        def convolved(
            x_BxHxWxC: Array, features: int, stride: int, inputs: str = "embed", *, last: bool = False
        ) -> Array:
            init = nn.initializers.zeros if last and bare else nn.initializers.he_normal()
            layer = conv(features, 3, inputs, init, strides=stride, padding=1, use_bias=bare)
            return activation(layer(x_BxHxWxC), "batch", "", "", "mlp")

        def activated(x_BxHxWxC: Array) -> Array:
            return _whole(nn.relu(x_BxHxWxC if bare else GroupNorm()(x_BxHxWxC)))

        class ResNetBasic(nn.Module):
            @nn.compact
            def __call__(self, x_BxHxWxC: Array) -> Array:
                x_BxHxWxC = _whole(convolved(x_BxHxWxC, width, 1, "inputs"))
                for stage, count in enumerate(blocks):
                    features = width << stage
                    for number in range(count):
                        stride = 2 if stage > 0 and number == 0 else 1
                        y_BxHxWxF = convolved(activated(x_BxHxWxC), features, stride)
                        y_BxHxWxF = _whole(convolved(activated(y_BxHxWxF), features, 1, last=True))
                        more = features - x_BxHxWxC.shape[-1]
                        shortcut_BxHxWxC = x_BxHxWxC[:, ::stride, ::stride]
                        x_BxHxWxC = y_BxHxWxF + jnp.pad(shortcut_BxHxWxC, ((0, 0), (0, 0), (0, 0), (0, more)))
                x_BxP = activated(x_BxHxWxC).astype(jnp.float32).mean(axis=(1, 2))
                return dense(classes, "mlp", "vocab", dtype=jnp.float32)(activation(x_BxP, "batch", "mlp"))

        return ResNetBasic()

    return flax_model(network)


def _whole(x_BxHxWxC: Array) -> Array:
    """Gathers all channels, because every filter of a convolution needs all of them."""
    from workloads.axes import activation

    return activation(x_BxHxWxC, "batch", "", "", "act_embed")
