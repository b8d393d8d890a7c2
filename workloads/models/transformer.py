"""Transformers for next-token prediction: a small one, and the decoder of Vaswani et al. without an encoder."""

import math
from typing import Any

import numpy as np

from workloads.models.options import check_heads, check_share, check_whole
from workloads.workload import STACKED, Array, Model, Product, flax_model, flax_model_in_training


def transformer(classes: int, layers: int, d_model: int, heads: int) -> Model:
    """Pre-norm blocks of causal attention and a GELU layer of 4 × ``d_model`` units, with learned positions, no biases.

    Args:
      classes: size of the vocabulary V. The embedding matrix is also the read-out.
      layers: number of blocks.
      d_model: size D of the residual stream.
      heads: number of attention heads, with D / heads dimensions each.

    Returns:
      A model of inputs int32[B, T] with logits float32[B, T, V]. Logits at t depend on inputs up to t. T must be the
      length of the inputs given to ``init``. The number of parameters is
      (V + T) × D + layers × (12 × D² + 2 × D) + D.

    Raises:
      ValueError: an option is not a positive integer, or ``heads`` does not divide ``d_model``.
    """
    check_whole(layers=layers, d_model=d_model, heads=heads)
    check_heads(d_model, heads)

    def network() -> Any:
        import jax
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.axes import activation, named
        from workloads.models.layers import dense, embedding, heads_apart

        def normalized(x_BTxD: Array) -> Array:
            norm = nn.LayerNorm(use_bias=False, dtype=jnp.float32, scale_init=named(nn.initializers.ones, "embed"))
            with jax.numpy_dtype_promotion("standard"):  # Flax converts bfloat16 to float32 by promotion
                return activation(norm(x_BTxD).astype(x_BTxD.dtype), "", "act_embed")

        class Transformer(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array) -> Array:
                B, T = tokens_BxT.shape
                tokens = embedding(classes, d_model)
                learned = named(nn.initializers.normal(d_model**-0.5), "", "embed")
                positions_TxD = self.param("positions", learned, (T, d_model))
                # Matrices instead of [B, T, D]: matmuls that contract one axis are faster on CPUs, especially in
                # gradients.
                x_BTxD = (tokens(tokens_BxT) + positions_TxD).reshape(B * T, d_model)
                for _ in range(layers):
                    qkv = dense(3 * d_model, "embed", "qkv", use_bias=False, dot_general=heads_apart(3, heads))
                    qkv_BTx3xHxK = activation(qkv(normalized(x_BTxD)), "", "", "heads", "kv")
                    y_BxTxHxK = _causal_attention(qkv_BTx3xHxK.reshape(B, T, 3, heads, d_model // heads))
                    y_BTxD = activation(y_BxTxHxK.reshape(B * T, d_model), "", "heads")
                    x_BTxD += dense(d_model, "heads", "embed", use_bias=False)(y_BTxD)
                    x_BTxD = activation(x_BTxD, "", "act_embed")
                    y_BTx4D = activation(
                        dense(4 * d_model, "embed", "mlp", use_bias=False)(normalized(x_BTxD)), "", "mlp"
                    )
                    x_BTxD += dense(d_model, "mlp", "embed", use_bias=False)(nn.gelu(activation(y_BTx4D, "", "mlp")))
                    x_BTxD = activation(x_BTxD, "", "act_embed")
                wide_BTxD, wide_VxD = (a.astype(jnp.float32) for a in (normalized(x_BTxD), tokens.embedding))
                return activation(jnp.dot(wide_BTxD, wide_VxD.T), "", "vocab").reshape(B, T, classes)

        return Transformer()

    return flax_model(network)


def _causal_attention(qkv_BxTx3xHxK: Array) -> Array:
    """Attends from each position to itself and earlier ones: [B, T, H, K] from queries, keys and values."""
    import jax
    import jax.numpy as jnp

    q_BxHxTxK, k_BxHxTxK, v_BxHxTxK = qkv_BxTx3xHxK.transpose(2, 0, 3, 1, 4)
    T, K = q_BxHxTxK.shape[-2:]
    products_BxHxTxT = jnp.einsum("bhtk,bhsk->bhts", q_BxHxTxK, k_BxHxTxK, preferred_element_type=jnp.float32)
    scores_BxHxTxT = jnp.where(np.tri(T, dtype=bool), products_BxHxTxT / np.float32(np.sqrt(K)), -jnp.inf)
    weights_BxHxTxT = jax.nn.softmax(scores_BxHxTxT).astype(v_BxHxTxK.dtype)
    return jnp.einsum("bhts,bhsk->bthk", weights_BxHxTxT, v_BxHxTxK)


def transformer_decoder(classes: int, layers: int, d_model: int, heads: int, d_ff: int, dropout: float) -> Model:
    """The decoder of Vaswani et al. (2017, arXiv 1706.03762) without an encoder. Base is (6, 512, 8, 2048, 0.1).

    Positions are sinusoidal. Feed-forward layers use ReLU and biases. The embedding is also the read-out and is
    multiplied by √D at the input. Dropout is applied to the sum of embedding and position, and to the output of each
    attention and feed-forward layer. Unlike in the paper, layer normalization precedes each of these layers and the
    read-out, since such networks train without warm-up (Xiong et al. 2020, arXiv 2002.04745).

    Args:
      classes: size of the vocabulary V.
      layers: number of layers. They are compiled as one.
      d_model: size D of the residual stream.
      heads: number of attention heads, with D / heads dimensions each.
      d_ff: units F of each feed-forward.
      dropout: probability of dropping a value in training, in [0, 1).

    Returns:
      A model of inputs int32[B, T]. Outputs at t depend on inputs up to t. They are a ``Product`` of features
      [B, T, D] and kernel [D, V], because logits [B, T, V] may not fit in memory. The number of parameters is
      V × D + layers × (4 × D² + 2 × D × F + F + 5 × D) + 2 × D.

    Raises:
      ValueError: an option is not a positive integer, ``heads`` does not divide ``d_model``, or ``dropout`` is not
        in [0, 1).
    """
    check_whole(layers=layers, d_model=d_model, heads=heads, d_ff=d_ff)
    check_heads(d_model, heads)
    check_share(dropout=dropout)

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.axes import activation
        from workloads.models.layers import (
            LayerNorm,
            causal_attention,
            dense,
            dropout as dropped,
            embedding,
            heads_apart,
            stack,
        )

        def residual(x_BxTxD: Array) -> Array:
            return activation(x_BxTxD, "batch", "length", "act_embed")

        class Layer(nn.Module):
            @nn.compact
            def __call__(self, x_BxTxD: Array, number: Array, keys_B: Array | None) -> tuple[Array, None]:
                B, T, D = x_BxTxD.shape
                qkv = dense(3 * D, "embed", "qkv", use_bias=False, dot_general=heads_apart(3, heads))
                qkv_BxTx3xHxK = activation(qkv(residual(LayerNorm()(x_BxTxD))), "batch", "length", "", "heads", "kv")
                q_BxTxHxK, k_BxTxHxK, v_BxTxHxK = jnp.moveaxis(qkv_BxTx3xHxK, 2, 0)
                y_BxTxHxK = causal_attention(q_BxTxHxK, k_BxTxHxK, v_BxTxHxK)
                y_BxTxD = activation(y_BxTxHxK.reshape(B, T, D), "batch", "length", "heads")
                y_BxTxD = residual(dense(D, "heads", "embed", use_bias=False)(y_BxTxD))
                x_BxTxD += dropped(y_BxTxD, keys_B, dropout, 2 * number + 1)
                y_BxTxF = nn.relu(dense(d_ff, "embed", "mlp")(residual(LayerNorm()(x_BxTxD))))
                y_BxTxF = activation(y_BxTxF, "batch", "length", "mlp")
                y_BxTxD = residual(dense(D, "mlp", "embed")(y_BxTxF))
                return x_BxTxD + dropped(y_BxTxD, keys_B, dropout, 2 * number + 2), None

        class TransformerDecoder(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array, keys_B: Array | None, train: bool) -> Product:
                embed = embedding(classes, d_model, nn.initializers.normal(d_model**-0.5))
                x_BxTxD = residual(embed(tokens_BxT)) * math.sqrt(d_model)
                x_BxTxD += positions(tokens_BxT.shape[1], d_model).astype(x_BxTxD.dtype)
                x_BxTxD = dropped(x_BxTxD, keys_B, dropout, 0)
                of_layers = stack(Layer, layers, STACKED, in_axes=(0, nn.broadcast))
                x_BxTxD, _ = of_layers(name=STACKED)(x_BxTxD, jnp.arange(layers), keys_B)
                return Product(residual(LayerNorm()(x_BxTxD)), embed.embedding.T)

        return TransformerDecoder()

    return flax_model_in_training(network)


def positions(length: int, d_model: int) -> np.ndarray:
    """Returns alternating sines and cosines, float32[length, d_model], with wavelengths from 2π to 10,000 · 2π."""
    angle_TxD = np.arange(length)[:, None] / 10_000 ** (2 * (np.arange(d_model) // 2) / d_model)
    return np.where(np.arange(d_model) % 2 == 0, np.sin(angle_TxD), np.cos(angle_TxD)).astype(np.float32)
