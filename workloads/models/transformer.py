"""Causal Transformers for next-token prediction, which share the code of their layers."""

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from flax import linen as nn
from jax import numpy as jnp

from workloads.axes import activation, kept, named
from workloads.models import layers
from workloads.models.attention import causal_attention
from workloads.models.layers import (
    LayerNorm,
    RMSNorm,
    dense,
    dropout,
    embedding,
    heads_apart,
    into_heads,
    out_of_heads,
    rotated,
    stack,
)
from workloads.models.text_options import Transformer, TransformerDecoder, TransformerRotary
from workloads.workload import STACKED, Array, Product


class TransformerNetwork(nn.Module):
    """See ``text_options.Transformer``."""

    options: Transformer

    @nn.compact
    def __call__(self, tokens_BxT: Array) -> Array:
        options, d_model = self.options, self.options.d_model

        def attention(qkv_BxTx3xHxK: Array) -> Array:
            if not options.attention_block:
                return _attention(qkv_BxTx3xHxK)
            return causal_attention(*jnp.moveaxis(qkv_BxTx3xHxK, 2, 0), block=options.attention_block)

        def normalized(x_NxD: Array) -> Array:
            norm = nn.LayerNorm(use_bias=False, dtype=jnp.float32, scale_init=named(nn.initializers.ones, "embed"))
            with jax.numpy_dtype_promotion("standard"):  # Flax converts bfloat16 to float32 by promotion
                return _named(norm(x_NxD).astype(x_NxD.dtype), "act_embed")

        B, T = tokens_BxT.shape
        tokens = embedding(options.classes, d_model)
        learned = named(nn.initializers.normal(d_model**-0.5), "", "embed")
        positions_TxD = self.param("positions", learned, (T, d_model))
        # Matrices instead of [B, T, D]: matmuls that contract one axis are faster on CPUs, especially in gradients.
        x_NxD = (tokens(tokens_BxT) + positions_TxD).reshape(B * T, d_model)
        for _ in range(options.layers):
            x_NxD = _named(x_NxD + _attended(normalized(x_NxD), (B, T), options.heads, attention), "act_embed")
            x_NxD = _named(x_NxD + _fed(normalized(x_NxD), 4 * d_model, nn.gelu, use_bias=False), "act_embed")
        wide_NxD, wide_VxD = (a.astype(jnp.float32) for a in (normalized(x_NxD), tokens.embedding))
        return _named(jnp.dot(wide_NxD, wide_VxD.T), "vocab").reshape(B, T, options.classes)


class DecoderLayer(nn.Module):
    """A layer of ``TransformerDecoderNetwork``."""

    options: TransformerDecoder

    @nn.compact
    def __call__(self, x_BxTxD: Array, number: Array, keys_B: Array | None) -> tuple[Array, None]:
        options = self.options

        def attention(qkv_BxTx3xHxK: Array) -> Array:
            return causal_attention(*jnp.moveaxis(qkv_BxTx3xHxK, 2, 0), block=options.attention_block)

        y_BxTxD = _named(LayerNorm()(x_BxTxD), "act_embed")
        y_BxTxD = _attended(y_BxTxD, x_BxTxD.shape[:2], options.heads, attention)
        x_BxTxD += dropout(_residual(y_BxTxD), keys_B, options.dropout, 2 * number + 1)
        y_BxTxD = _fed(_named(LayerNorm()(x_BxTxD), "act_embed"), options.d_ff, nn.relu, use_bias=True)
        return x_BxTxD + dropout(_residual(y_BxTxD), keys_B, options.dropout, 2 * number + 2), None


class TransformerDecoderNetwork(nn.Module):
    """See ``text_options.TransformerDecoder``."""

    options: TransformerDecoder

    @nn.compact
    def __call__(self, tokens_BxT: Array, keys_B: Array | None, train: bool) -> Product:
        options, d_model = self.options, self.options.d_model
        embed = embedding(options.classes, d_model, nn.initializers.normal(d_model**-0.5))
        x_BxTxD = _residual(embed(tokens_BxT)) * math.sqrt(d_model)
        x_BxTxD += positions(tokens_BxT.shape[1], d_model).astype(x_BxTxD.dtype)
        x_BxTxD = dropout(x_BxTxD, keys_B, options.dropout, 0)
        of_layers = stack(DecoderLayer, options.layers, STACKED, in_axes=(0, nn.broadcast))
        x_BxTxD, _ = of_layers(options, name=STACKED)(x_BxTxD, jnp.arange(options.layers), keys_B)
        return layers.read_out(self, embed, _named(LayerNorm()(x_BxTxD), "act_embed"), options.read_out)


class RotaryLayer(nn.Module):
    """A layer of ``TransformerRotaryNetwork``."""

    options: TransformerRotary

    @nn.compact
    def __call__(self, x_BxTxD: Array, nothing: None) -> tuple[Array, None]:
        options = self.options
        heads, axis = options.heads, "heads"
        if 0 < options.key_heads < heads:
            heads, axis = options.key_heads, "key_heads"
        y_BxTxD = _named(RMSNorm()(x_BxTxD), "act_embed")
        q_BxTxHxK = kept(into_heads(options.heads, options.kv)(y_BxTxD), "query")
        q_BxTxHxK = _named(rotated(q_BxTxHxK), "heads", "kv")
        k_BxTxGxK = kept(into_heads(heads, options.kv, axis)(y_BxTxD), "key")
        k_BxTxGxK = _named(rotated(k_BxTxGxK), axis, "kv", positions="memory_length")
        v_BxTxGxK = kept(into_heads(heads, options.kv, axis)(y_BxTxD), "value")
        v_BxTxGxK = _named(v_BxTxGxK, axis, "kv", positions="memory_length")
        y_BxTxHxK = causal_attention(
            q_BxTxHxK,
            k_BxTxGxK,
            v_BxTxGxK,
            wide_products=False,
            window=options.window,
            block=options.attention_block,
        )
        y_BxTxHxK = _named(y_BxTxHxK, "heads", "kv")
        x_BxTxD = _residual(x_BxTxD + kept(out_of_heads(x_BxTxD.shape[-1])(y_BxTxHxK), "out"))
        return _residual(x_BxTxD + _fed_or_gated(_named(RMSNorm()(x_BxTxD), "act_embed"), options)), None


class TransformerRotaryNetwork(nn.Module):
    """See ``text_options.TransformerRotary``."""

    options: TransformerRotary

    @nn.compact
    def __call__(self, tokens_BxT: Array) -> Array:
        options, d_model = self.options, self.options.d_model
        embed = embedding(options.classes, d_model, nn.initializers.normal(d_model**-0.5))
        scale = math.sqrt(d_model) if options.tied else 1
        x_BxTxD = _residual(_named(embed(_named(tokens_BxT)), "act_embed") * scale)
        x_BxTxD, _ = stack(RotaryLayer, options.layers, STACKED)(options, name=STACKED)(x_BxTxD, None)
        x_BxTxD = _named(RMSNorm()(x_BxTxD), "act_embed")
        if options.tied:
            logits_BxTxV = jnp.dot(x_BxTxD, embed.embedding.T)
        else:
            logits_BxTxV = dense(options.classes, "embed", "vocab", use_bias=False)(x_BxTxD)
        return _named(logits_BxTxV, "vocab").astype(jnp.float32)


def _fed_or_gated(x_BxTxD: Array, options: TransformerRotary) -> Array:
    """Returns the output of a feed-forward layer of ``RotaryLayer``."""
    if not options.gated:
        return _fed(x_BxTxD, options.d_ff, nn.gelu, use_bias=False)
    gate_BxTxF = kept(_named(dense(options.d_ff, "embed", "mlp", use_bias=False)(x_BxTxD), "mlp"), "gate")
    return _fed(x_BxTxD, options.d_ff, lambda y_BxTxF: nn.silu(gate_BxTxF) * y_BxTxF, use_bias=False)


def _attended(x: Array, positions: Sequence[int], heads: int, attention: Callable[[Array], Array]) -> Array:
    """Returns attention within each of the B sequences of T positions, projected to the shape of ``x``.

    Args:
      x: [B, T, D] or [B · T, D].
      positions: B and T.
      heads: number of heads.
      attention: function that maps queries, keys and values [B, T, 3, H, K] to [B, T, H, K].
    """
    D = x.shape[-1]
    qkv = dense(3 * D, "embed", "qkv", use_bias=False, dot_general=heads_apart(3, heads))
    y = attention(_named(qkv(x), "", "heads", "kv").reshape(*positions, 3, heads, D // heads))
    return kept(dense(D, "heads", "embed", use_bias=False)(_named(y.reshape(x.shape), "heads")), "out")


def _attention(qkv_BxTx3xHxK: Array) -> Array:
    """Returns causal attention. Published results of ``transformer`` depend on its order of operations."""
    q_BxHxTxK, k_BxHxTxK, v_BxHxTxK = qkv_BxTx3xHxK.transpose(2, 0, 3, 1, 4)
    T, K = q_BxHxTxK.shape[-2:]
    products_BxHxTxT = jnp.einsum("bhtk,bhsk->bhts", q_BxHxTxK, k_BxHxTxK, preferred_element_type=jnp.float32)
    scores_BxHxTxT = jnp.where(np.tri(T, dtype=bool), products_BxHxTxT / np.float32(np.sqrt(K)), -jnp.inf)
    weights_BxHxTxT = jax.nn.softmax(scores_BxHxTxT).astype(v_BxHxTxK.dtype)
    return jnp.einsum("bhts,bhsk->bthk", weights_BxHxTxT, v_BxHxTxK)


def _fed(x: Array, d_ff: int, activated: Callable[[Array], Array], *, use_bias: bool) -> Array:
    """Returns the output of a feed-forward layer of hidden size F, in the shape of ``x``."""
    y = activated(kept(_named(dense(d_ff, "embed", "mlp", use_bias=use_bias)(x), "mlp"), "up"))
    return kept(dense(x.shape[-1], "mlp", "embed", use_bias=use_bias)(_named(y, "mlp")), "down")


def _residual(x_BxTxD: Array) -> Array:
    return _named(x_BxTxD, "act_embed", positions="act_length")


def _named(x: Array, *names: str, positions: str = "length") -> Array:
    """Names the last axes of an activation. They follow the batch and position axes, which may be merged into one."""
    leading = ("batch", positions) if x.ndim > len(names) + 1 else ("batch",)
    return activation(x, *leading, *names)


def positions(length: int, d_model: int) -> np.ndarray:
    """Returns alternating sines and cosines, float32[length, d_model], with wavelengths from 2π to 10,000 · 2π."""
    angle_TxD = np.arange(length)[:, None] / 10_000 ** (2 * (np.arange(d_model) // 2) / d_model)
    return np.where(np.arange(d_model) % 2 == 0, np.sin(angle_TxD), np.cos(angle_TxD)).astype(np.float32)
