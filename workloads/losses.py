"""Losses and errors of predictions against labels."""

import jax
import jax.numpy as jnp

from workloads.workload import Array


def softmax_cross_entropy(logits: Array, labels: Array) -> Array:
    """Mean of −ln p(label).

    Args:
      logits: float32[..., classes].
      labels: int32[...].

    Returns:
      float32[], in nats.
    """
    # A product with a one-hot fuses with its neighbours; a gather, and its scatter backwards, would not.
    one_hot = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * one_hot, axis=-1))


def classification_error(logits: Array, labels: Array) -> Array:
    """Share of labels that are not the largest logit; shapes as in ``softmax_cross_entropy``."""
    return jnp.mean((jnp.argmax(logits, axis=-1) != labels).astype(jnp.float32))
