"""Layers shared by models: normalization, matmuls with named axes, and dropout."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

from workloads import axes, devices
from workloads.models.convolution import convolution
from workloads.workload import DATA, Array, ArrayPair, Product

STATISTICS = "statistics"  # Flax collection of the running statistics
_LECUN = nn.initializers.lecun_normal()
_HE = nn.initializers.he_normal()
CHANNEL_GROUPS = 32  # groups of group normalization, as in Wu & He


class GhostNorm(nn.Module):
    """Batch normalization over groups of adjacent examples in a batch (Hoffer et al. 2017, arXiv 1705.08741).

    The groups depend neither on the batch size nor on the batch partition. Either each part of a batch contains whole
    groups, or several adjacent shards share a group and exchange its statistics. Evaluation uses running statistics: an
    exponential moving average, with factor ``decay``, of the mean over all groups. The initial mean is 0, and the
    initial variance is 1. Variances are biased.

    Attributes:
      group: number of examples that are normalized together.
      decay: decay factor of the running statistics, 0.9 as in Goyal et al. (2017, arXiv 1706.02677).
      epsilon: added to variances.
      scale_init: initializer of the scale. The bias starts at 0.
    """

    group: int
    decay: float = 0.9
    epsilon: float = 1e-5
    scale_init: Callable[..., Any] = nn.initializers.ones

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Normalizes the examples of a part of a batch.

        Args:
          x: [B, ..., C], in any floating dtype. Statistics are float32.
          train: whether to use and record the statistics of the groups. If a group is larger than B, call this inside
            ``shard_map`` over the axis DATA.

        Returns:
          [B, ..., C] in the dtype of ``x``.

        Raises:
          ValueError: a group is incomplete, or needs more shards than exist.
        """
        C = x.shape[-1]
        mean_C = self.variable(STATISTICS, "mean", jnp.zeros, C, jnp.float32)
        variance_C = self.variable(STATISTICS, "variance", jnp.ones, C, jnp.float32)
        scale_C, bias_C = _scale_and_bias(self, C, self.scale_init, "mlp")
        if not train:
            return _normalized(x, mean_C.value, variance_C.value, scale_C, bias_C, self.epsilon)
        x_NxMxC = x.reshape(max(1, len(x) // self.group), -1, C)
        mean_NxC, variance_NxC = _moments(x_NxMxC, _sharers(len(x), self.group))
        for running, new_NxC in ((mean_C, mean_NxC), (variance_C, variance_NxC)):
            running.value = self.decay * running.value + (1.0 - self.decay) * new_NxC.mean(axis=0)
        moments = mean_NxC[:, None], variance_NxC[:, None]
        return _normalized(x_NxMxC, *moments, scale_C, bias_C, self.epsilon).reshape(x.shape)


def _sharers(examples: int, group: int) -> int:
    """Returns the number of shards that share a group, given the examples per shard."""
    if examples % group == 0:
        return 1
    if group % examples:
        raise ValueError(f"{examples} examples are neither whole groups of {group} nor an even part of one")
    sharers = group // examples
    try:
        shards = lax.axis_size(DATA)
    except NameError:
        shards = 1
    if shards % sharers:
        raise ValueError(f"a group of {group} takes {sharers} shards of {examples} examples, but there are {shards}")
    return sharers


def _moments(x_NxMxC: Array, sharers: int) -> ArrayPair:
    """Returns the mean and variance of each group and channel, float32[N, C], over ``sharers`` adjacent shards.

    The mean is computed first, because subtracting large squares from each other would lose precision.
    """

    def whole(sums_NxC: Array) -> Array:
        if sharers == 1:
            return sums_NxC
        shards = range(lax.axis_size(DATA))
        return lax.psum(sums_NxC, DATA, axis_index_groups=[[*shards[i : i + sharers]] for i in shards[::sharers]])

    x_NxMxC = x_NxMxC.astype(jnp.float32)
    count = float(sharers * x_NxMxC.shape[1])
    mean_NxC = whole(x_NxMxC.sum(axis=1)) / count
    return mean_NxC, whole(jnp.square(x_NxMxC - mean_NxC[:, None]).sum(axis=1)) / count


class GroupNorm(nn.Module):
    """Normalizes each example over positions and groups of channels (Wu & He 2018, arXiv 1803.08494).

    See ``channel_groups`` for the number of groups.

    Attributes:
      epsilon: added to variances.
      scale_init: initializer of the scale. The bias starts at 0.
    """

    epsilon: float = 1e-5
    scale_init: Callable[..., Any] = nn.initializers.ones

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalizes [B, ..., C] in any floating dtype and keeps the dtype. Statistics are float32."""
        C = x.shape[-1]
        scale_C, bias_C = _scale_and_bias(self, C, self.scale_init, "mlp")
        groups = channel_groups(C)
        x_BxPxGxK = x.reshape(len(x), -1, groups, C // groups).astype(jnp.float32)
        mean_Bx1xGx1 = x_BxPxGxK.mean(axis=(1, 3), keepdims=True)
        variance_Bx1xGx1 = jnp.square(x_BxPxGxK - mean_Bx1xGx1).mean(axis=(1, 3), keepdims=True)
        scale_GxK = scale_C.reshape(groups, -1)
        bias_GxK = bias_C.reshape(groups, -1)
        y = _normalized(x_BxPxGxK, mean_Bx1xGx1, variance_Bx1xGx1, scale_GxK, bias_GxK, self.epsilon)
        return y.reshape(x.shape).astype(x.dtype)


def channel_groups(channels: int) -> int:
    """Returns the number of groups of group normalization.

    The default is 32 groups. If 32 does not divide the number of channels, the largest power of two that does is used.
    If each group would have only one channel, the number of groups is halved.
    """
    groups = next(n for n in (CHANNEL_GROUPS >> i for i in range(CHANNEL_GROUPS)) if channels % n == 0)
    return max(1, groups // 2) if groups == channels else groups


class LayerNorm(nn.Module):
    """Normalizes each position over its channels (Ba et al. 2016, arXiv 1607.06450).

    Attributes:
      epsilon: added to variances.
    """

    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalizes [..., C] in any floating dtype and keeps the dtype. Statistics are float32."""
        scale_C, bias_C = _scale_and_bias(self, x.shape[-1], nn.initializers.ones, "embed")
        wide = x.astype(jnp.float32)
        mean = wide.mean(axis=-1, keepdims=True)
        variance = jnp.square(wide - mean).mean(axis=-1, keepdims=True)
        return _normalized(x, mean, variance, scale_C, bias_C, self.epsilon)


class RMSNorm(nn.Module):
    """Divides each position by the root mean square of its channels (Zhang & Sennrich 2019, arXiv 1910.07467).

    Attributes:
      epsilon: added to mean squares.
    """

    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalizes [..., C] in any floating dtype and keeps the dtype. Mean squares are float32."""
        scale_C = self.param("scale", axes.named(nn.initializers.ones, "embed"), (x.shape[-1],), jnp.float32)
        wide = x.astype(jnp.float32)
        normalized = wide * lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + self.epsilon)
        return normalized.astype(x.dtype) * scale_C.astype(x.dtype)


def _scale_and_bias(module: nn.Module, channels: int, scale_init: Callable[..., Any], axis: str) -> ArrayPair:
    """Returns the scale and the bias of a norm, [C] each."""
    return (
        module.param("scale", axes.named(scale_init, axis), (channels,), jnp.float32),
        module.param("bias", axes.named(nn.initializers.zeros, axis), (channels,), jnp.float32),
    )


def dense(
    features: int,
    inputs: str,
    outputs: str,
    kernel_init: Callable[..., Any] = _LECUN,
    **options: Any,
) -> nn.Dense:
    """Returns a dense Flax layer whose kernel axes are ``inputs`` and ``outputs``."""
    bias_init = axes.named(nn.initializers.zeros, outputs)
    return nn.Dense(features, kernel_init=axes.named(kernel_init, inputs, outputs), bias_init=bias_init, **options)


def into_heads(heads: int, kv: int, axis: str = "heads") -> nn.DenseGeneral:
    """Returns a Flax layer that maps [..., D] to [..., H, K]. Its kernel axes are ``embed``, ``axis`` and ``kv``."""
    return nn.DenseGeneral((heads, kv), use_bias=False, kernel_init=axes.named(_LECUN, "embed", axis, "kv"))


def out_of_heads(features: int) -> nn.DenseGeneral:
    """Returns a Flax layer that maps [..., H, K] to [..., D]. Its kernel axes are ``heads``, ``kv`` and ``embed``."""
    kernel_init = axes.named(_LECUN, "heads", "kv", "embed")
    return nn.DenseGeneral(features, axis=(-2, -1), use_bias=False, kernel_init=kernel_init)


def rotated(x_BxTxHxK: Array) -> Array:
    """Rotates pairs of numbers of each head by angles proportional to the position (Su et al. 2021, arXiv 2104.09864).

    The first half of the K numbers is paired with the second half.
    """
    _, T, _, K = x_BxTxHxK.shape
    angles_TxK = np.arange(T)[:, None] * 1e4 ** (-np.arange(K // 2) / (K // 2))
    sin, cos = (f(angles_TxK)[:, None].astype(x_BxTxHxK.dtype) for f in (np.sin, np.cos))
    first = x_BxTxHxK[..., : K // 2]
    second = x_BxTxHxK[..., K // 2 :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def heads_apart(count: int, heads: int) -> Callable[..., Array]:
    """Returns a product for ``dense`` whose outputs are [..., count, heads, K] instead of flat.

    If heads are sharded across devices, the kernel is split first, so each device computes only its own heads.
    """

    def product(x: Array, kernel_DxF: Array, dimensions: Any, precision: Any = None) -> Array:
        if not axes.are_divided():
            return lax.dot_general(x, kernel_DxF, dimensions, precision).reshape(*x.shape[:-1], count, heads, -1)
        kernel_DxNxHxK = kernel_DxF.reshape(len(kernel_DxF), count, heads, -1)
        kernel_DxNxHxK = axes.activation(kernel_DxNxHxK, "act_embed", "", "heads", "kv")
        return lax.dot_general(x, kernel_DxNxHxK, dimensions, precision)

    return product


def conv(
    features: int,
    size: int,
    inputs: str = "embed",
    kernel_init: Callable[..., Any] = _HE,
    **options: Any,
) -> nn.Conv:
    """Returns a Flax layer of square convolutions. The axis of output channels is named ``mlp``."""
    return nn.Conv(
        features,
        (size, size),
        kernel_init=axes.named(kernel_init, "", "", inputs, "mlp"),
        bias_init=axes.named(nn.initializers.zeros, "mlp"),
        conv_general_dilated=convolution,
        **options,
    )


def embedding(vocabulary: int, features: int, init: Callable[..., Any] = nn.linear.default_embed_init) -> nn.Embed:
    """Returns a Flax layer of embeddings with the axes ``vocab`` and ``embed``."""
    return nn.Embed(vocabulary, features, embedding_init=axes.named(init, "vocab", "embed"))


def read_out(module: nn.Module, embed: nn.Embed, features_BxTxD: Array, form: str) -> Product:
    """Returns the logits of a language model as a ``Product``.

    A separate output matrix is initialized with standard deviation 0.01, so a new network assigns all tokens about the
    same probability.

    Args:
      module: network that has the parameters ``read_out`` [D, V] and ``read_out_bias`` [V], if the form uses them.
      embed: embedding of V tokens.
      features_BxTxD: features of each position.
      form: one of ``options.READ_OUTS``. A bias is the last row of the kernel, and its feature is 1.
    """
    if form == "tied":
        return Product(features_BxTxD, embed.embedding.T)
    V, D = embed.num_embeddings, embed.features
    kernel_DxV = module.param("read_out", axes.named(nn.initializers.normal(0.01), "embed", "vocab"), (D, V))
    if form == "untied":
        return Product(features_BxTxD, kernel_DxV)
    bias_V = module.param("read_out_bias", axes.named(nn.initializers.zeros, "vocab"), (V,))
    ones_BxTx1 = jnp.ones((*features_BxTxD.shape[:-1], 1), features_BxTxD.dtype)
    features_BxTxE = jnp.concatenate([features_BxTxD, ones_BxTx1], axis=-1)
    return Product(features_BxTxE, jnp.concatenate([kernel_DxV, bias_V[None]]))


def stack(layer: type[nn.Module], length: int, name: str, *collections: str, **options: Any) -> type[nn.Module]:
    """Returns several stacked layers, which are compiled as a single layer, except on a GPU.

    Args:
      layer: class of a layer. Call the result with ``name``.
      length: number of layers.
      name: name of the layers. It must start with STACKED.
      collections: additional collections of variables besides ``params``.
      options: additional arguments of ``nn.scan``.
    """
    return nn.scan(
        axes.rematerialized(layer),
        variable_axes=dict.fromkeys(("params", *collections), 0),
        split_rngs={"params": True},
        length=length,
        metadata_params={nn.PARTITION_NAME: axes.LAYERS},
        data_transform=functools.partial(axes.stacked, name=name),
        unroll=length if devices.unrolls_layers() else 1,
        **options,
    )


def _normalized(x: Array, mean: Array, variance: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    """Returns (x − mean) / √(variance + ε) · scale + bias, computed in float32 and rounded to the dtype of ``x``."""
    scale, bias = (parameter.astype(jnp.float32) for parameter in (scale, bias))
    factor = lax.rsqrt(variance + epsilon) * scale
    return ((x.astype(jnp.float32) - mean) * factor + bias).astype(x.dtype)


def dropout(x: Array, keys_B: Array | None, rate: float, layer: Array | int) -> Array:
    """Sets values to 0 with probability ``rate`` and divides the others by 1 − rate (Srivastava et al. 2014).

    The mask of an example depends only on its key and the layer, not on its shard or microbatch.

    Args:
      x: [B, ...], in any floating dtype.
      keys_B: one key per example, or None during evaluation, when no values are dropped.
      rate: probability with which a value is dropped, in [0, 1).
      layer: int32[], index of the dropout layer. Layers with the same index have the same masks.

    Returns:
      [B, ...] in the dtype of ``x``.
    """
    if keys_B is None or rate == 0:
        return x

    def kept(key: Array) -> Array:
        return jax.random.bernoulli(jax.random.fold_in(key, layer), 1.0 - rate, x.shape[1:])

    # In bfloat16 the divisor would be rounded, which biases all values.
    scaled = (x.astype(jnp.float32) / (1.0 - rate)).astype(x.dtype)
    return jnp.where(jax.vmap(kept)(keys_B), scaled, jnp.zeros_like(x))
