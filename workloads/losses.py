"""Losses and errors of predictions, classes or numbers, against labels."""

from collections.abc import Callable, Mapping

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


def squared_error(outputs: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Mean squared error of predicted numbers, in the square of the labels' unit.

    Args:
      outputs: float32[..., 1].
      labels: float32[...].
      label_smoothing: not used; numbers have no classes to smooth over.

    Returns:
      float32[].
    """
    import jax.numpy as jnp

    return jnp.mean(jnp.square(outputs[..., 0] - labels))


def r2_error(outputs: Array, labels: Array) -> Array:
    """1 − R²: the squared error over that of the mean of the same labels; shapes as in ``squared_error``."""
    import jax.numpy as jnp

    return squared_error(outputs, labels) / jnp.mean(jnp.square(labels - jnp.mean(labels)))


def regression(deviation: float) -> Mapping[str, Callable[[Array, Array], Array]]:
    """Metrics of numbers whose labels were divided by ``deviation``; their squared error is in the label's own unit."""
    return {
        "loss": squared_error,
        "squared_error": lambda outputs, labels: deviation**2 * squared_error(outputs, labels),
        "r2_error": r2_error,
    }
