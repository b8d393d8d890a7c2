"""The decoder of Vaswani et al.'s Transformer without an encoder, which predicts the next token."""

import math
from typing import Any

import numpy as np

from workloads.models.options import check_share, check_whole
from workloads.workload import STACKED, Array, Model, Product, flax_model_in_training


def transformer_decoder(classes: int, layers: int, d_model: int, heads: int, d_ff: int, dropout: float) -> Model:
    """The decoder of Vaswani et al. (2017, arXiv 1706.03762) without an encoder; base is (6, 512, 8, 2048, 0.1).

    As there: sinusoidal positions, ReLU between the two layers of a feed-forward, which have biases, an embedding that
    is also the read-out and is multiplied by √D at the input, and dropout of the sum of embedding and position and of
    what each attention and each feed-forward adds. Unlike there, layer normalization comes before each of them, and
    once more before the read-out: such networks train without a warm-up (Xiong et al. 2020, arXiv 2002.04745).

    Args:
      classes: size of the vocabulary V.
      layers: number of layers, which are compiled as one.
      d_model: size D of the residual stream.
      heads: of each attention, over D / heads dimensions each.
      d_ff: units F of each feed-forward.
      dropout: probability of each value to be dropped in training, in [0, 1).

    Returns:
      A model of inputs int32[B, T]; outputs at t depend on inputs up to t. They are a ``Product`` of features
      [B, T, D] and kernel [D, V], as logits [B, T, V] may not fit. Parameters:
      V × D + layers × (4 × D² + 2 × D × F + F + 5 × D) + 2 × D.

    Raises:
      ValueError: an option is not a positive whole number, ``heads`` does not divide ``d_model``, or ``dropout`` is not
        in [0, 1).
    """
    check_whole(layers=layers, d_model=d_model, heads=heads, d_ff=d_ff)
    if d_model % heads:
        raise ValueError(f"heads={heads} does not divide d_model={d_model}")
    check_share(dropout=dropout)

    def network() -> Any:
        from flax import linen as nn
        from jax import numpy as jnp

        from workloads.models.attention import causal_attention
        from workloads.models.dropout import dropout as dropped
        from workloads.models.norms import LayerNorm

        class Layer(nn.Module):
            @nn.compact
            def __call__(self, x_BxTxD: Array, number: Array, keys_B: Array | None) -> tuple[Array, None]:
                B, T, D = x_BxTxD.shape
                qkv_BxTx3D = nn.Dense(3 * D, use_bias=False)(LayerNorm()(x_BxTxD))
                q_BxTxHxK, k_BxTxHxK, v_BxTxHxK = jnp.moveaxis(qkv_BxTx3D.reshape(B, T, 3, heads, D // heads), 2, 0)
                y_BxTxHxK = causal_attention(q_BxTxHxK, k_BxTxHxK, v_BxTxHxK)
                y_BxTxD = nn.Dense(D, use_bias=False)(y_BxTxHxK.reshape(B, T, D))
                x_BxTxD += dropped(y_BxTxD, keys_B, dropout, 2 * number + 1)
                y_BxTxF = nn.relu(nn.Dense(d_ff)(LayerNorm()(x_BxTxD)))
                return x_BxTxD + dropped(nn.Dense(D)(y_BxTxF), keys_B, dropout, 2 * number + 2), None

        class TransformerDecoder(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array, keys_B: Array | None, train: bool) -> Product:
                embed = nn.Embed(classes, d_model, embedding_init=nn.initializers.normal(d_model**-0.5))
                x_BxTxD = embed(tokens_BxT) * math.sqrt(d_model)
                x_BxTxD += positions(tokens_BxT.shape[1], d_model).astype(x_BxTxD.dtype)
                x_BxTxD = dropped(x_BxTxD, keys_B, dropout, 0)
                stack = nn.scan(
                    Layer,
                    variable_axes={"params": 0},
                    split_rngs={"params": True},
                    in_axes=(0, nn.broadcast),
                    length=layers,
                )
                x_BxTxD, _ = stack(name=STACKED)(x_BxTxD, jnp.arange(layers), keys_B)
                return Product(LayerNorm()(x_BxTxD), embed.embedding.T)

        return TransformerDecoder()

    return flax_model_in_training(network)


def positions(length: int, d_model: int) -> np.ndarray:
    """Sinusoids of wavelengths from 2π to 10,000 · 2π, sine and cosine in turn: float32[length, d_model]."""
    pair_D = np.arange(d_model) // 2
    angle_TxD = np.arange(length)[:, None] / 10_000 ** (2 * pair_D / d_model)
    return np.where(np.arange(d_model) % 2 == 0, np.sin(angle_TxD), np.cos(angle_TxD)).astype(np.float32)
