"""Losses and errors of predictions against labels."""

from workloads.workload import Array


def softmax_cross_entropy(logits: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Mean of −Σ q ln p, q = (1 − label_smoothing) · one-hot + label_smoothing / classes (Szegedy et al. 2016).

    Args:
      logits: float32[..., classes].
      labels: int32[...].
      label_smoothing: float32[].

    Returns:
      float32[], in nats.
    """
    import jax
    import jax.numpy as jnp

    classes = logits.shape[-1]
    # A product with a one-hot fuses with its neighbours; a gather, and its scatter backwards, would not.
    one_hot = jax.nn.one_hot(labels, classes, dtype=logits.dtype)
    smooth = (1.0 - label_smoothing) * one_hot + label_smoothing / classes
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * smooth, axis=-1))


def classification_error(logits: Array, labels: Array) -> Array:
    """Share of labels that are not the largest logit; shapes as in ``softmax_cross_entropy``."""
    import jax.numpy as jnp

    return jnp.mean((jnp.argmax(logits, axis=-1) != labels).astype(jnp.float32))


CLASSIFICATION = {"loss": softmax_cross_entropy, "error": classification_error}
