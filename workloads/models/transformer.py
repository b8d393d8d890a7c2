"""A small decoder-only Transformer that predicts the next token."""

from typing import Any

import numpy as np

from workloads.workload import Array, Model, flax_model


def transformer(classes: int, layers: int, d_model: int, heads: int) -> Model:
    """Pre-norm blocks of causal attention and a GELU layer of 4 × ``d_model`` units; learned positions; no biases.

    Args:
      classes: size of the vocabulary V; the embedding matrix is also the read-out.
      layers: number of blocks.
      d_model: size D of the residual stream.
      heads: of each attention, over D / heads dimensions each.

    Returns:
      A model of inputs int32[B, T]; logits float32[B, T, V] at t depend on inputs up to t. T must be that of the inputs
      ``init`` sees. Parameters: (V + T) × D + layers × (12 × D² + 2 × D) + D.

    Raises:
      ValueError: an option is not a positive whole number, or ``heads`` does not divide ``d_model``.
    """
    for name, value in {"layers": layers, "d_model": d_model, "heads": heads}.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    if d_model % heads:
        raise ValueError(f"heads={heads} does not divide d_model={d_model}")

    def network() -> Any:
        import jax
        from flax import linen as nn
        from jax import numpy as jnp

        def normalized(x_BTxD: Array) -> Array:
            norm = nn.LayerNorm(use_bias=False, dtype=jnp.float32)
            with jax.numpy_dtype_promotion("standard"):  # Flax brings bfloat16 to float32 by promotion
                return norm(x_BTxD).astype(x_BTxD.dtype)

        class Transformer(nn.Module):
            @nn.compact
            def __call__(self, tokens_BxT: Array) -> Array:
                B, T = tokens_BxT.shape
                tokens = nn.Embed(classes, d_model)
                positions_TxD = self.param("positions", nn.initializers.normal(d_model**-0.5), (T, d_model))
                # Matrices, not [B, T, D]: a CPU is quicker at products, above all in gradients, that contract one axis.
                x_BTxD = (tokens(tokens_BxT) + positions_TxD).reshape(B * T, d_model)
                for _ in range(layers):
                    y_BTx3D = nn.Dense(3 * d_model, use_bias=False)(normalized(x_BTxD))
                    y_BTxD = _causal_attention(y_BTx3D.reshape(B, T, 3, heads, d_model // heads)).reshape(
                        B * T, d_model
                    )
                    x_BTxD += nn.Dense(d_model, use_bias=False)(y_BTxD)
                    y_BTx4D = nn.Dense(4 * d_model, use_bias=False)(normalized(x_BTxD))
                    x_BTxD += nn.Dense(d_model, use_bias=False)(nn.gelu(y_BTx4D))
                wide_BTxD, wide_VxD = (a.astype(jnp.float32) for a in (normalized(x_BTxD), tokens.embedding))
                logits_BTxV = jnp.dot(wide_BTxD, wide_VxD.T)
                return logits_BTxV.reshape(B, T, classes)

        return Transformer()

    return flax_model(network)


def _causal_attention(qkv_BxTx3xHxK: Array) -> Array:
    """[B, T, H, K] of queries, keys and values; each position attends to itself and those before it."""
    import jax
    import jax.numpy as jnp

    q_BxHxTxK, k_BxHxTxK, v_BxHxTxK = qkv_BxTx3xHxK.transpose(2, 0, 3, 1, 4)
    T, K = q_BxHxTxK.shape[-2:]
    products_BxHxTxT = jnp.einsum("bhtk,bhsk->bhts", q_BxHxTxK, k_BxHxTxK, preferred_element_type=jnp.float32)
    scores_BxHxTxT = jnp.where(np.tri(T, dtype=bool), products_BxHxTxT / np.float32(np.sqrt(K)), -jnp.inf)
    weights_BxHxTxT = jax.nn.softmax(scores_BxHxTxT).astype(v_BxHxTxK.dtype)
    return jnp.einsum("bhts,bhsk->bthk", weights_BxHxTxT, v_BxHxTxK)
