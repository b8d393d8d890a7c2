"""Causal Transformers for next-token prediction, which share the code of their layers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workloads.models.options import check_bool, check_count, check_heads, check_read_out, check_share, check_whole
from workloads.workload import STACKED, Array, Model, Product, flax_model, flax_model_in_training


def transformer(classes: int, layers: int, d_model: int, heads: int, attention_block: int = 0) -> Model:
    """Returns a Transformer with pre-norm blocks of causal attention and a GELU layer of size 4 × ``d_model``.

    Positions are learned. There are no biases.

    Args:
      classes: size of the vocabulary V. The embedding matrix is also the output layer.
      layers: number of blocks.
      d_model: size D of the residual stream.
      heads: number of attention heads, with D / heads dimensions each.
      attention_block: number of tokens of a block of blocked attention, or 0 to store all scores.

    Returns:
      A model that maps inputs int32[B, T] to logits float32[B, T, V]. Logits at t depend on inputs up to t. T must be
      the length of the inputs given to ``init``. The number of parameters is (V + T) × D + layers × (12 × D² + 2 × D) +
      D.

    Raises:
      ValueError: an option is not a positive integer, or ``heads`` does not divide ``d_model``.
    """
    check_whole(layers=layers, d_model=d_model, heads=heads)
    check_count(attention_block=attention_block)
    check_heads(d_model, heads)

    def network() -> Any:
        import jax
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.axes import named
        from workloads.models import layers as parts
        from workloads.models.attention import causal_attention

        def attention(qkv_BxTx3xHxK: Array) -> Array:
            if not attention_block:
                return _attention(qkv_BxTx3xHxK)
            return causal_attention(*jnp.moveaxis(qkv_BxTx3xHxK, 2, 0), block=attention_block)

        def normalized(x_NxD: Array) -> Array:
            norm = nn.LayerNorm(use_bias=False, dtype=jnp.float32, scale_init=named(nn.initializers.ones, "embed"))
            with jax.numpy_dtype_promotion("standard"):  # Flax converts bfloat16 to float32 by promotion
                return _named(norm(x_NxD).astype(x_NxD.dtype), "act_embed")

        class Transformer(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array) -> Array:
                B, T = tokens_BxT.shape
                tokens = parts.embedding(classes, d_model)
                learned = named(nn.initializers.normal(d_model**-0.5), "", "embed")
                positions_TxD = self.param("positions", learned, (T, d_model))
                # Matrices instead of [B, T, D]: matmuls that contract one axis are faster on CPUs, especially in
                # gradients.
                x_NxD = (tokens(tokens_BxT) + positions_TxD).reshape(B * T, d_model)
                for _ in range(layers):
                    x_NxD = _named(x_NxD + _attended(normalized(x_NxD), (B, T), heads, attention), "act_embed")
                    x_NxD = _named(x_NxD + _fed(normalized(x_NxD), 4 * d_model, nn.gelu, use_bias=False), "act_embed")
                wide_NxD, wide_VxD = (a.astype(jnp.float32) for a in (normalized(x_NxD), tokens.embedding))
                return _named(jnp.dot(wide_NxD, wide_VxD.T), "vocab").reshape(B, T, classes)

        return Transformer()

    return flax_model(network)


def transformer_decoder(
    classes: int,
    layers: int,
    d_model: int,
    heads: int,
    d_ff: int,
    dropout: float,
    read_out: str = "tied",
    attention_block: int = 0,
) -> Model:
    """Returns the decoder of Vaswani et al. (2017, arXiv 1706.03762) without an encoder.

    The base model has 6 layers, d_model 512, 8 heads, d_ff 2048 and dropout 0.1. Positions are sinusoidal. Feed-forward
    layers use ReLU and biases. The embedding is multiplied by √D at the input. Dropout is applied to the sum of
    embedding and position, and to the output of each attention and feed-forward layer. Unlike in the paper, layer
    normalization precedes each of these layers and the output layer, because such networks can be trained without
    warm-up (Xiong et al. 2020, arXiv 2002.04745).

    Args:
      classes: size of the vocabulary V.
      layers: number of layers. They are compiled as one.
      d_model: size D of the residual stream.
      heads: number of attention heads, with D / heads dimensions each.
      d_ff: hidden size F of each feed-forward layer.
      dropout: probability of dropping a value during training, in [0, 1).
      read_out: ``tied`` if the embedding is also the output layer, ``untied`` for a separate matrix, or ``untied_bias``
        for a matrix and a bias. A new network with a tied output layer predicts the token that it has just read.
      attention_block: number of tokens of a block of blocked attention, or 0 to store all scores.

    Returns:
      A model that takes inputs int32[B, T]. Outputs at t depend on inputs up to t. The outputs are a ``Product`` of
      features [B, T, D] and kernel [D, V], because logits [B, T, V] may not fit in memory. With a bias, there is one
      additional feature, which is 1. The number of parameters is V × D + layers × (4 × D² + 2 × D × F + F + 5 × D) + 2
      × D. A separate matrix adds V × D, and a bias adds V.

    Raises:
      ValueError: an option is not a positive integer, ``heads`` does not divide ``d_model``, ``dropout`` is not
        in [0, 1), or ``read_out`` is unknown.
    """
    check_whole(layers=layers, d_model=d_model, heads=heads, d_ff=d_ff)
    check_heads(d_model, heads)
    check_share(dropout=dropout)
    check_read_out(read_out)
    check_count(attention_block=attention_block)

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.models import layers as parts
        from workloads.models.attention import causal_attention
        from workloads.models.layers import LayerNorm, dropout as dropped, embedding, stack

        def attention(qkv_BxTx3xHxK: Array) -> Array:
            return causal_attention(*jnp.moveaxis(qkv_BxTx3xHxK, 2, 0), block=attention_block)

        class Layer(nn.Module):
            @nn.compact
            def __call__(self, x_BxTxD: Array, number: Array, keys_B: Array | None) -> tuple[Array, None]:
                y_BxTxD = _named(LayerNorm()(x_BxTxD), "act_embed")
                y_BxTxD = _attended(y_BxTxD, x_BxTxD.shape[:2], heads, attention)
                x_BxTxD += dropped(_residual(y_BxTxD), keys_B, dropout, 2 * number + 1)
                y_BxTxD = _fed(_named(LayerNorm()(x_BxTxD), "act_embed"), d_ff, nn.relu, use_bias=True)
                return x_BxTxD + dropped(_residual(y_BxTxD), keys_B, dropout, 2 * number + 2), None

        class TransformerDecoder(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array, keys_B: Array | None, train: bool) -> Product:
                embed = embedding(classes, d_model, nn.initializers.normal(d_model**-0.5))
                x_BxTxD = _residual(embed(tokens_BxT)) * math.sqrt(d_model)
                x_BxTxD += positions(tokens_BxT.shape[1], d_model).astype(x_BxTxD.dtype)
                x_BxTxD = dropped(x_BxTxD, keys_B, dropout, 0)
                of_layers = stack(Layer, layers, STACKED, in_axes=(0, nn.broadcast))
                x_BxTxD, _ = of_layers(name=STACKED)(x_BxTxD, jnp.arange(layers), keys_B)
                return parts.read_out(self, embed, _named(LayerNorm()(x_BxTxD), "act_embed"), read_out)

        return TransformerDecoder()

    return flax_model_in_training(network)


def transformer_rotary(
    classes: int,
    layers: int,
    d_model: int,
    heads: int,
    kv: int,
    d_ff: int,
    gated: bool,
    tied: bool,
    key_heads: int = 0,
    window: int = 0,
    attention_block: int = 0,
) -> Model:
    """Returns a decoder with RMS pre-norms and rotary positions, like Llama (Touvron et al. 2023, arXiv 2302.13971).

    There are no biases and no dropout.

    Args:
      classes: size of the vocabulary V.
      layers: number of layers. They are compiled as one.
      d_model: size D of the residual stream.
      heads: number H of attention heads.
      kv: dimensions K of a head, an even number.
      d_ff: hidden size F of each feed-forward layer.
      gated: whether the feed-forward layer is gated by SiLU (Shazeer 2020, arXiv 2002.05202). Otherwise, it uses GELU.
      tied: whether the embedding, multiplied by √D at the input, is also the output layer.
      key_heads: number G of key and value heads, each shared by H / G adjacent query heads (grouped-query attention,
        Ainslie et al. 2023, arXiv 2305.13245). With 0, G is H.
      window: number of tokens that a token attends to, including itself. With 0, it attends to all earlier tokens.
      attention_block: number of tokens of a block of blocked attention, or 0 to store all scores.

    Returns:
      A model that maps inputs int32[B, T] to logits float32[B, T, V], rounded to the dtype of the network. Logits at t
      depend on inputs up to t. The number of parameters is V × D × (2 − tied) + layers × (2 × D × (H + G) × K + (2 +
      gated) × D × F + 2 × D) + D.

    Raises:
      ValueError: a size is not a positive integer, ``kv`` is odd, ``key_heads`` does not divide ``heads``, or
        ``gated`` or ``tied`` is not a bool.
    """
    check_whole(layers=layers, d_model=d_model, heads=heads, kv=kv, d_ff=d_ff)
    check_count(key_heads=key_heads, window=window, attention_block=attention_block)
    check_bool(gated=gated, tied=tied)
    if key_heads and heads % key_heads:
        raise ValueError(f"key_heads={key_heads} does not divide heads={heads}")
    if kv % 2:
        raise ValueError(f"kv must be even, because positions rotate pairs of numbers, not {kv}")

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.models.layers import RMSNorm, dense, embedding, stack

        Layer = _rotary_layer(heads, kv, d_ff, gated, key_heads, window, attention_block)

        class TransformerRotary(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array) -> Array:
                embed = embedding(classes, d_model, nn.initializers.normal(d_model**-0.5))
                x_BxTxD = _residual(
                    _named(embed(_named(tokens_BxT)), "act_embed") * (math.sqrt(d_model) if tied else 1)
                )
                x_BxTxD, _ = stack(Layer, layers, STACKED)(name=STACKED)(x_BxTxD, None)
                x_BxTxD = _named(RMSNorm()(x_BxTxD), "act_embed")
                if tied:
                    logits_BxTxV = jnp.dot(x_BxTxD, embed.embedding.T)
                else:
                    logits_BxTxV = dense(classes, "embed", "vocab", use_bias=False)(x_BxTxD)
                return _named(logits_BxTxV, "vocab").astype(jnp.float32)

        return TransformerRotary()

    return flax_model(network)


def _rotary_layer(
    heads: int, kv: int, d_ff: int, gated: bool, key_heads: int, window: int, attention_block: int
) -> Any:
    """Returns the Flax class of a layer of ``transformer_rotary``."""
    from flax import linen as nn

    from workloads.axes import kept
    from workloads.models.attention import causal_attention
    from workloads.models.layers import RMSNorm, dense, into_heads, out_of_heads, rotated

    own_keys = 0 < key_heads < heads

    def projected(name: str, x_BxTxD: Array) -> Array:
        if name == "query" or not own_keys:
            return kept(into_heads(heads, kv)(x_BxTxD), name)
        return kept(into_heads(key_heads, kv, "key_heads")(x_BxTxD), name)

    def fed(x_BxTxD: Array) -> Array:
        if not gated:
            return _fed(x_BxTxD, d_ff, nn.gelu, use_bias=False)
        gate_BxTxF = kept(_named(dense(d_ff, "embed", "mlp", use_bias=False)(x_BxTxD), "mlp"), "gate")
        return _fed(x_BxTxD, d_ff, lambda y_BxTxF: nn.silu(gate_BxTxF) * y_BxTxF, use_bias=False)

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x_BxTxD: Array, nothing: None) -> tuple[Array, None]:
            y_BxTxD = _named(RMSNorm()(x_BxTxD), "act_embed")
            axis = "key_heads" if own_keys else "heads"
            q_BxTxHxK = _named(rotated(projected("query", y_BxTxD)), "heads", "kv")
            k_BxTxGxK = _named(rotated(projected("key", y_BxTxD)), axis, "kv", positions="memory_length")
            v_BxTxGxK = _named(projected("value", y_BxTxD), axis, "kv", positions="memory_length")
            y_BxTxHxK = causal_attention(
                q_BxTxHxK, k_BxTxGxK, v_BxTxGxK, wide_products=False, window=window, block=attention_block
            )
            y_BxTxHxK = _named(y_BxTxHxK, "heads", "kv")
            x_BxTxD = _residual(x_BxTxD + kept(out_of_heads(x_BxTxD.shape[-1])(y_BxTxHxK), "out"))
            return _residual(x_BxTxD + fed(_named(RMSNorm()(x_BxTxD), "act_embed"))), None

    return Layer


def _attended(x: Array, positions: Sequence[int], heads: int, attention: Callable[[Array], Array]) -> Array:
    """Returns attention within each of the B sequences of T positions, projected to the shape of ``x``.

    Args:
      x: [B, T, D] or [B · T, D].
      positions: B and T.
      heads: number of heads.
      attention: function that maps queries, keys and values [B, T, 3, H, K] to [B, T, H, K].
    """
    from workloads.axes import kept
    from workloads.models.layers import dense, heads_apart

    D = x.shape[-1]
    qkv = dense(3 * D, "embed", "qkv", use_bias=False, dot_general=heads_apart(3, heads))
    y = attention(_named(qkv(x), "", "heads", "kv").reshape(*positions, 3, heads, D // heads))
    return kept(dense(D, "heads", "embed", use_bias=False)(_named(y.reshape(x.shape), "heads")), "out")


def _attention(qkv_BxTx3xHxK: Array) -> Array:
    """Returns causal attention. Published results of ``transformer`` depend on its order of operations."""
    import jax
    from jax import numpy as jnp

    q_BxHxTxK, k_BxHxTxK, v_BxHxTxK = qkv_BxTx3xHxK.transpose(2, 0, 3, 1, 4)
    T, K = q_BxHxTxK.shape[-2:]
    products_BxHxTxT = jnp.einsum("bhtk,bhsk->bhts", q_BxHxTxK, k_BxHxTxK, preferred_element_type=jnp.float32)
    scores_BxHxTxT = jnp.where(np.tri(T, dtype=bool), products_BxHxTxT / np.float32(np.sqrt(K)), -jnp.inf)
    weights_BxHxTxT = jax.nn.softmax(scores_BxHxTxT).astype(v_BxHxTxK.dtype)
    return jnp.einsum("bhts,bhsk->bthk", weights_BxHxTxT, v_BxHxTxK)


def _fed(x: Array, d_ff: int, activated: Callable[[Array], Array], *, use_bias: bool) -> Array:
    """Returns the output of a feed-forward layer of hidden size F, in the shape of ``x``."""
    from workloads.axes import kept
    from workloads.models.layers import dense

    y = activated(kept(_named(dense(d_ff, "embed", "mlp", use_bias=use_bias)(x), "mlp"), "up"))
    return kept(dense(x.shape[-1], "mlp", "embed", use_bias=use_bias)(_named(y, "mlp")), "down")


def _residual(x_BxTxD: Array) -> Array:
    return _named(x_BxTxD, "act_embed", positions="act_length")


def _named(x: Array, *names: str, positions: str = "length") -> Array:
    """Names the last axes of an activation. They follow the batch and position axes, which may be merged into one."""
    from workloads.axes import activation

    leading = ("batch", positions) if x.ndim > len(names) + 1 else ("batch",)
    return activation(x, *leading, *names)


def positions(length: int, d_model: int) -> np.ndarray:
    """Returns alternating sines and cosines, float32[length, d_model], with wavelengths from 2π to 10,000 · 2π."""
    angle_TxD = np.arange(length)[:, None] / 10_000 ** (2 * (np.arange(d_model) // 2) / d_model)
    return np.where(np.arange(d_model) % 2 == 0, np.sin(angle_TxD), np.cos(angle_TxD)).astype(np.float32)
