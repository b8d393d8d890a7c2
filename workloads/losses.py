"""Losses of predictions, classes or numbers, against labels, and metrics, which are sums of such."""

from collections.abc import Callable, Mapping
from typing import Any

from workloads.workload import Array, Metric


def softmax_cross_entropy(logits: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """−Σ q ln p, q = (1 − label_smoothing) · one-hot + label_smoothing / classes (Szegedy et al. 2016).

    Args:
      logits: float32[..., classes].
      labels: int32[...].
      label_smoothing: float32[].

    Returns:
      float32[...], of each label, in nats.
    """
    import jax
    import jax.numpy as jnp

    classes = logits.shape[-1]
    # A product with a one-hot fuses with its neighbours; a gather, and its scatter backwards, would not.
    one_hot = jax.nn.one_hot(labels, classes, dtype=logits.dtype)
    smooth = (1.0 - label_smoothing) * one_hot + label_smoothing / classes
    return -jnp.sum(jax.nn.log_softmax(logits) * smooth, axis=-1)


def misclassified(logits: Array, labels: Array) -> Array:
    """1 for labels that are not the largest logit, else 0: float32[...]; shapes as in ``softmax_cross_entropy``."""
    import jax.numpy as jnp

    return (jnp.argmax(logits, axis=-1) != labels).astype(jnp.float32)


def squared_error(outputs: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Squared error of predicted numbers, in the square of the labels' unit.

    Args:
      outputs: float32[..., 1].
      labels: float32[...].
      label_smoothing: not used; numbers have no classes to smooth over.

    Returns:
      float32[...], of each label.
    """
    import jax.numpy as jnp

    del label_smoothing
    return jnp.square(outputs[..., 0] - labels)


def total(values: Array, weights: Array | None) -> Array:
    """The sum of values float32[B, ...] times the weights float32[B] of their examples; None: all are 1."""
    import jax.numpy as jnp

    if weights is None:
        return jnp.sum(values)
    return jnp.sum(values * weights.reshape(-1, *[1] * (values.ndim - 1)))


def mean(values: Callable[[Array, Array], Array], factor: float = 1.0) -> Metric:
    """The mean over all labels of ``values`` (outputs, labels) -> float32[B, ...], times a factor."""
    import numpy as np

    def sums(outputs: Array, labels: Array, weights: Array | None) -> tuple[Array, Array]:
        import jax.numpy as jnp

        each = values(outputs, labels)
        count = np.float32(each.size) if weights is None else total(jnp.ones_like(each), weights)
        return total(each, weights), count

    def finish(sums: Any) -> Array:
        summed, count = sums
        return summed / count if factor == 1 else np.float32(factor) * (summed / count)

    return Metric(sums, finish)


def _r2_sums(outputs: Array, labels: Array, weights: Array | None) -> tuple[Array, ...]:
    import jax.numpy as jnp

    values = (squared_error(outputs, labels), labels, jnp.square(labels), jnp.ones_like(labels))
    return tuple(total(each, weights) for each in values)


def _r2_error(sums: Any) -> Array:
    errors, labels, squares, count = sums
    return errors / (squares - labels * labels / count)


# 1 − R²: the squared error over that of the mean of the same labels, which are standardized, so that no digits cancel.
R2_ERROR = Metric(_r2_sums, _r2_error)
CLASSIFICATION = {"loss": mean(softmax_cross_entropy), "error": mean(misclassified)}


def regression(deviation: float) -> Mapping[str, Metric]:
    """Metrics of numbers whose labels were divided by ``deviation``; their squared error is in the label's own unit."""
    return {
        "loss": mean(squared_error),
        "squared_error": mean(squared_error, deviation**2),
        "r2_error": R2_ERROR,
    }
