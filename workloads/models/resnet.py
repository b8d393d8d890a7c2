"""Residual networks for images: bottleneck blocks for photographs, and basic blocks for small images."""

from typing import Any

from flax import linen as nn
from jax import numpy as jnp

from workloads.axes import activation
from workloads.models.convolution import max_pool_3x3
from workloads.models.image_options import ResNet, ResNetBasic
from workloads.models.layers import STATISTICS, GhostNorm, GroupNorm, conv, dense, stack
from workloads.workload import STACKED, Array


def _convolved(x_BxHxWxC: Array, features: int, size: int, stride: int = 1, inputs: str = "embed") -> Array:
    """Returns a convolution over all channels, without a bias."""
    layer = conv(features, size, inputs, strides=stride, padding=size // 2, use_bias=False)
    return activation(layer(_whole(x_BxHxWxC)), "batch", "", "", "mlp")


def _normalized(x_BxHxWxC: Array, options: ResNet, train: bool, scale_init: Any = nn.initializers.ones) -> Array:
    """Returns the result of normalizing each channel. By default, the scale starts at 1."""
    if options.norm == "ghost":
        return GhostNorm(options.group, scale_init=scale_init)(x_BxHxWxC, train)
    return GroupNorm(scale_init=scale_init)(x_BxHxWxC)


class Block(nn.Module):
    """A bottleneck block, which normalizes before or after its convolutions. Its name is part of parameters' names."""

    options: ResNet
    features: int
    stride: int
    train: bool

    @nn.compact
    def __call__(self, x_BxHxWxC: Array, nothing: None) -> tuple[Array, None]:
        pre_activated = self.options.pre_activated

        def normalized(x_BxHxWxC: Array, scale_init: Any = nn.initializers.ones) -> Array:
            return _normalized(x_BxHxWxC, self.options, self.train, scale_init)

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


class ResNetNetwork(nn.Module):
    """See ``image_options.ResNet``."""

    options: ResNet

    @nn.compact
    def __call__(self, x_BxHxWxC: Array, keys_B: Array | None, train: bool) -> Array:
        options = self.options
        x_BxHxWxC = _convolved(x_BxHxWxC, options.width, 7, 2, "inputs")
        if not options.pre_activated:
            x_BxHxWxC = nn.relu(_normalized(x_BxHxWxC, options, train))
        x_BxHxWxC = max_pool_3x3(x_BxHxWxC)
        for stage, count in enumerate(options.blocks):
            features = options.width << stage
            x_BxHxWxC, _ = Block(options, features, 1 if stage == 0 else 2, train)(x_BxHxWxC, None)
            if count > 1:
                name = f"{STACKED}_{stage}"
                blocks = stack(Block, count - 1, name, STATISTICS)
                x_BxHxWxC, _ = blocks(options, features, 1, train, name=name)(x_BxHxWxC, None)
        if options.pre_activated:
            x_BxHxWxC = nn.relu(_normalized(x_BxHxWxC, options, train))
        x_BxP = activation(x_BxHxWxC.astype(jnp.float32).mean(axis=(1, 2)), "batch", "mlp")
        return dense(options.classes, "mlp", "vocab", nn.initializers.normal(0.01), dtype=jnp.float32)(x_BxP)


class ResNetBasicNetwork(nn.Module):
    """See ``image_options.ResNetBasic``."""

    options: ResNetBasic

    @nn.compact
    def __call__(self, x_BxHxWxC: Array) -> Array:
        options = self.options
        bare = options.norm == "none"

        def convolved(
            x_BxHxWxC: Array, features: int, stride: int, inputs: str = "embed", *, last: bool = False
        ) -> Array:
            init = nn.initializers.zeros if last and bare else nn.initializers.he_normal()
            layer = conv(features, 3, inputs, init, strides=stride, padding=1, use_bias=bare)
            return activation(layer(x_BxHxWxC), "batch", "", "", "mlp")

        def activated(x_BxHxWxC: Array) -> Array:
            return _whole(nn.relu(x_BxHxWxC if bare else GroupNorm()(x_BxHxWxC)))

        x_BxHxWxC = _whole(convolved(x_BxHxWxC, options.width, 1, "inputs"))
        for stage, count in enumerate(options.blocks):
            features = options.width << stage
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                y_BxHxWxF = convolved(activated(x_BxHxWxC), features, stride)
                y_BxHxWxF = _whole(convolved(activated(y_BxHxWxF), features, 1, last=True))
                added = features - x_BxHxWxC.shape[-1]
                shortcut_BxHxWxC = x_BxHxWxC[:, ::stride, ::stride]
                x_BxHxWxC = y_BxHxWxF + jnp.pad(shortcut_BxHxWxC, ((0, 0), (0, 0), (0, 0), (0, added)))
        x_BxP = activated(x_BxHxWxC).astype(jnp.float32).mean(axis=(1, 2))
        return dense(options.classes, "mlp", "vocab", dtype=jnp.float32)(activation(x_BxP, "batch", "mlp"))


def _whole(x_BxHxWxC: Array) -> Array:
    """Gathers all channels, because every filter of a convolution needs all of them."""
    return activation(x_BxHxWxC, "batch", "", "", "act_embed")
