"""Causal attention whose softmax is taken in float32, whatever the inputs' dtype."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from workloads.workload import Array


def causal_attention(q_BxTxHxK: Array, k_BxTxHxK: Array, v_BxTxHxK: Array) -> Array:
    """The mean of values at and before each place, weighted by softmax(q · k / √K) (Vaswani et al. 2017).

    Written out, as the gradient of ``jax.nn.dot_product_attention`` in bfloat16 cannot be lowered under strict dtype
    promotion (JAX 0.10).

    Args:
      q_BxTxHxK, k_BxTxHxK, v_BxTxHxK: queries, keys and values of H heads, all in the same dtype of floats.

    Returns:
      [B, T, H, K], of the dtype of the inputs.
    """
    T, K = q_BxTxHxK.shape[1], q_BxTxHxK.shape[3]
    scores_BxHxTxS = _products(q_BxTxHxK, k_BxTxHxK) / math.sqrt(K)
    scores_BxHxTxS = jnp.where(np.tri(T, dtype=bool), scores_BxHxTxS, -jnp.inf)
    weights_BxHxTxS = jax.nn.softmax(scores_BxHxTxS).astype(v_BxTxHxK.dtype)
    return jnp.einsum("bhts,bshk->bthk", weights_BxHxTxS, v_BxTxHxK)


@jax.custom_vjp
def _products(q_BxTxHxK: Array, k_BxSxHxK: Array) -> Array:
    """q · k, float32[B, H, T, S]."""
    return jnp.einsum("bthk,bshk->bhts", q_BxTxHxK, k_BxSxHxK, preferred_element_type=jnp.float32)


def _forward(q_BxTxHxK: Array, k_BxSxHxK: Array) -> tuple[Array, tuple[Array, Array]]:
    return _products(q_BxTxHxK, k_BxSxHxK), (q_BxTxHxK, k_BxSxHxK)


def _backward(inputs: tuple[Array, Array], gradient_BxHxTxS: Array) -> tuple[Array, Array]:
    # Of two bfloat16, as forward: JAX would multiply float32 by bfloat16, which is done at the speed of float32.
    q_BxTxHxK, k_BxSxHxK = inputs
    gradient_BxHxTxS = gradient_BxHxTxS.astype(q_BxTxHxK.dtype)
    return (
        jnp.einsum("bhts,bshk->bthk", gradient_BxHxTxS, k_BxSxHxK),
        jnp.einsum("bhts,bthk->bshk", gradient_BxHxTxS, q_BxTxHxK),
    )


_products.defvjp(_forward, _backward)
