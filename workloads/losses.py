"""Losses for predicted classes or numbers, and metrics computed from sums.

Functions import JAX when they are called, so the registry can be read without JAX.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from workloads.workload import Array, ArrayPair, Loss, Metric, Product

CHUNK_BYTES = 256 << 20  # size of a chunk of the outputs of a lazy product


def softmax_cross_entropy(logits: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Returns −Σ q ln p with q = (1 − label_smoothing) · one-hot + label_smoothing / classes (Szegedy et al. 2016).

    Args:
      logits: float32[..., classes].
      labels: int32[...].
      label_smoothing: float32[].

    Returns:
      float32[...], in nats, one per label.
    """
    import jax
    import jax.numpy as jnp

    classes = logits.shape[-1]
    # A product with a one-hot vector is fused with its neighbours. A gather, and the scatter in its gradient, would not
    # be.
    one_hot = jax.nn.one_hot(labels, classes, dtype=logits.dtype)
    smooth = (1.0 - label_smoothing) * one_hot + label_smoothing / classes
    return -jnp.sum(jax.nn.log_softmax(logits) * smooth, axis=-1)


def spread_cross_entropy(logits: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Returns −Σ q ln p, where q is 1 − label_smoothing for the label, and all other classes share the rest equally.

    This is the label smoothing of Shallue et al. (2018). The arguments are those of ``softmax_cross_entropy``, in which
    the label also gets a share of the rest.
    """
    classes = logits.shape[-1]
    return softmax_cross_entropy(logits, labels, label_smoothing * (classes / (classes - 1)))


def misclassified(logits: Array, labels: Array) -> Array:
    """Returns 1 if the label does not have the largest logit, else 0. Shapes are as in ``softmax_cross_entropy``."""
    import jax.numpy as jnp

    return (jnp.argmax(logits, axis=-1) != labels).astype(jnp.float32)


def squared_error(outputs: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Returns the squared error of predicted numbers, in squared units of the labels.

    Args:
      outputs: float32[..., 1].
      labels: float32[...].
      label_smoothing: not used, because there are no classes to smooth over.

    Returns:
      float32[...], one per label.
    """
    import jax.numpy as jnp

    del label_smoothing
    return jnp.square(outputs[..., 0] - labels)


def total(values: Array, weights: Array | None) -> Array:
    """Returns the weighted sum of values float32[B, ...]. Weights are float32[B] or [B, ...], or None if all are 1."""
    import jax.numpy as jnp

    if weights is None:
        return jnp.sum(values)
    return jnp.sum(values * _with_axes(weights, values.ndim))


def _with_axes(weights: Array, ndim: int) -> Array:
    """Returns weights [B, ...] with trailing axes of size 1."""
    return weights.reshape(*weights.shape, *[1] * (ndim - weights.ndim))


def label_weights(labels: Array, weights: Array | None, padding: int | None) -> Any:
    """Returns the weights of labels [B, ...], which are 0 for padding.

    Args:
      labels: int32[B, ...].
      weights: float32[B], weights of the examples, or None if all are 1.
      padding: label that marks padding. With None, ``weights`` is returned.
    """
    import jax.numpy as jnp

    if padding is None:
        return weights
    real = (labels != padding).astype(jnp.float32)
    return real if weights is None else real * _with_axes(weights, labels.ndim)


def total_loss(
    loss: Loss,
    outputs: Array | Product,
    labels: Array,
    weights: Array | None,
    label_smoothing: Array,
) -> Array:
    """Returns the weighted sum of the losses of all labels, float32[].

    Args:
      loss: loss function, as in Dataset.
      outputs: array [B, ..., classes].
      labels: array [B, ...].
      weights: as in ``total``.
      label_smoothing: float32[].
    """
    import jax
    import jax.numpy as jnp

    from workloads import axes

    if not isinstance(outputs, Product):
        return total(loss(product(outputs), labels, label_smoothing), weights)
    weights = jnp.ones(labels.shape, jnp.float32) if weights is None else weights
    weights = jnp.broadcast_to(_with_axes(weights, labels.ndim), labels.shape)
    total_in_chunks = functools.partial(_total_in_chunks, loss)
    parts = axes.batch_parts()
    if parts == 1:
        return total_in_chunks(*outputs, labels, weights, label_smoothing)

    def by_part(array: Array) -> Array:
        divided = array.reshape(parts, -1, *array.shape[1:])
        return axes.activation(divided, "batch", *("" for _ in array.shape))

    # Each device computes chunks of its own examples. Gradients are summed over devices once, after all chunks.
    totals = jax.vmap(total_in_chunks, (0, None, 0, 0, None))
    features, kernel = outputs
    return jnp.sum(totals(by_part(features), kernel, by_part(labels), by_part(weights), label_smoothing))


def _total_in_chunks(
    loss: Loss, features: Array, kernel: Array, labels: Array, weights: Array, label_smoothing: Array
) -> Array:
    """Returns the total loss of a lazy product. At most ``CHUNK_BYTES`` of the product are in memory at any time.

    Gradients are computed together with the outputs, so the backward pass does not recompute the outputs.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    count = labels.size
    size = chunk_size(count, kernel.shape[-1])

    def of_chunk(logits_NxV: Array, labels_N: Array, weights_N: Array, smoothing: Array) -> Array:
        return total(loss(logits_NxV, labels_N, smoothing), weights_N)

    def chunked(array: Array) -> Array:
        return array.reshape(count // size, size, *array.shape[labels.ndim :])

    @jax.custom_vjp  # of all arguments, because it must not refer to arrays of the program around it
    def summed(features: Array, kernel: Array, labels: Array, weights: Array, smoothing: Array) -> Array:
        def one(chunk: Any) -> Array:
            return of_chunk(product(Product(chunk[0], kernel)), chunk[1], chunk[2], smoothing)

        return jnp.sum(jax.lax.map(one, tuple(map(chunked, (features, labels, weights)))))

    def forward(
        features: Array, kernel: Array, labels: Array, weights: Array, smoothing: Array
    ) -> tuple[Array, ArrayPair]:
        def one(carry: ArrayPair, chunk: Any) -> tuple[ArrayPair, Array]:
            features_NxD, labels_N, weights_N = chunk
            logits_NxV = product(Product(features_NxD, kernel))
            value, of_logits_NxV = jax.value_and_grad(of_chunk)(logits_NxV, labels_N, weights_N, smoothing)
            # Both factors have the dtype of the features, as in the forward pass. JAX would multiply bfloat16 in
            # float32, which is many times slower.
            of_logits_NxV = of_logits_NxV.astype(features.dtype)
            of_features_NxD = jnp.einsum("nv,dv->nd", of_logits_NxV, kernel)
            of_kernel_VxD = jnp.einsum("nv,nd->vd", of_logits_NxV, features_NxD, preferred_element_type=jnp.float32)
            return (carry[0] + value, carry[1] + of_kernel_VxD.T), of_features_NxD

        zeros = (np.float32(0), jnp.zeros(kernel.shape, jnp.float32))
        (value, of_kernel), of_features = jax.lax.scan(one, zeros, tuple(map(chunked, (features, labels, weights))))
        return value, (of_features.reshape(features.shape), of_kernel)

    def backward(gradients: ArrayPair, factor: Array) -> tuple[Array | None, ...]:
        of_features, of_kernel = gradients
        by_kernel = (of_kernel * factor).astype(kernel.dtype)
        return of_features * factor.astype(features.dtype), by_kernel, None, None, None

    summed.defvjp(forward, backward)
    return summed(features, kernel, labels, weights, label_smoothing)


def product(outputs: Array | Product) -> Array:
    """Returns outputs float32[B, ..., classes], after evaluating a lazy product."""
    import jax.numpy as jnp

    if not isinstance(outputs, Product):
        return outputs.astype(jnp.float32)
    return jnp.matmul(*outputs, preferred_element_type=jnp.float32)


def chunk_size(count: int, classes: int) -> int:
    """Returns the number of labels in each chunk of a lazy product that has outputs for ``count`` labels."""
    return largest_divisor(count, max(1, CHUNK_BYTES // (4 * classes)))


def largest_divisor(number: int, limit: int) -> int:
    """Returns the largest divisor of a number that is at most ``limit``, which must be at least 1."""
    return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)


def mean(values: Callable[[Array, Array], Array], factor: float = 1.0) -> Metric:
    """Returns a metric: the mean of ``values`` over all labels, times a factor.

    Args:
      values: ``(outputs, labels) -> float32[B, ...]``.
      factor: factor that the mean is multiplied by.
    """
    import numpy as np

    def sums(outputs: Array, labels: Array, weights: Array | None) -> ArrayPair:
        import jax.numpy as jnp

        label_values = values(outputs, labels)
        count = np.float32(label_values.size) if weights is None else total(jnp.ones_like(label_values), weights)
        return total(label_values, weights), count

    def finish(sums: Any) -> Array:
        summed, count = sums
        return summed / count if factor == 1 else np.float32(factor) * (summed / count)

    return Metric(sums, finish)


def _r2_sums(outputs: Array, labels: Array, weights: Array | None) -> tuple[Array, ...]:
    import jax.numpy as jnp

    values = (squared_error(outputs, labels), labels, jnp.square(labels), jnp.ones_like(labels))
    return tuple(total(terms, weights) for terms in values)


def _r2_error(sums: Any) -> Array:
    errors, labels, squares, count = sums
    return errors / (squares - labels * labels / count)


# 1 − R²: the squared error relative to that of the mean label. Standardized labels avoid cancellation.
R2_ERROR = Metric(_r2_sums, _r2_error)


def sigmoid_cross_entropy(logits: Array, labels: Array, label_smoothing: Array | float = 0.0) -> Array:
    """Returns −(q ln p + (1 − q) ln (1 − p)) of each class, times the number of classes.

    The mean over classes is therefore the usual sum over classes.

    Args:
      logits: float32[..., classes].
      labels: uint8[..., classes], 1 for each class that is present.
      label_smoothing: float32[]. q = (1 − label_smoothing) · label + label_smoothing / 2.

    Returns:
      float32[..., classes], in nats.
    """
    import jax
    import jax.numpy as jnp

    smooth = (1.0 - label_smoothing) * labels.astype(jnp.float32) + label_smoothing / 2
    return logits.shape[-1] * (jax.nn.softplus(logits) - smooth * logits)


# Logits from −LINEAR to LINEAR have bins of equal width. Larger ones, on either side, have bins of equal ratio, up to
# 2.6e8.
LINEAR = 20.0
SCORE_BINS = 4096
RATIO = 1e-3
FURTHER_BINS = 1 << 14


def _precision_sums(logits: Array, labels: Array, weights: Array | None) -> Array:
    """Returns the number of labels and of positive labels in each bin of scores, over all images and classes."""
    import jax.numpy as jnp

    linear_bins = (jnp.clip(logits, -LINEAR, LINEAR) + LINEAR) * (SCORE_BINS / (2 * LINEAR))
    linear_bins = jnp.minimum(linear_bins.astype(jnp.int32), SCORE_BINS - 1)
    ratio_bins = jnp.ceil(jnp.log(jnp.maximum(jnp.abs(logits) / LINEAR, 1.0)) / RATIO)
    ratio_bins = jnp.minimum(ratio_bins, float(FURTHER_BINS)).astype(jnp.int32)
    bins = (FURTHER_BINS + linear_bins + jnp.where(logits < 0, -ratio_bins, ratio_bins)).ravel()
    label_weights = jnp.ones(labels.shape, jnp.float32)
    if weights is not None:
        label_weights = label_weights * _with_axes(weights, labels.ndim)
    both = jnp.stack([label_weights.ravel(), (label_weights * labels.astype(jnp.float32)).ravel()], axis=-1)
    return jnp.zeros((SCORE_BINS + 2 * FURTHER_BINS, 2), jnp.float32).at[bins].add(both)


def _average_precision_error(sums: Array) -> Array:
    import jax.numpy as jnp

    counts = jnp.cumsum(sums[::-1], axis=0)  # labels with a score in this or a higher bin
    precision = counts[:, 1] / jnp.maximum(counts[:, 0], 1.0)
    return 1.0 - jnp.sum(precision * (sums[::-1, 1] / jnp.maximum(counts[-1, 1], 1.0)))


# 1 minus the area under the precision-recall curve over all images and classes. Scores in the same bin are ties.
AVERAGE_PRECISION_ERROR = Metric(_precision_sums, _average_precision_error)
MULTI_LABEL = {"loss": mean(sigmoid_cross_entropy), "average_precision_error": AVERAGE_PRECISION_ERROR}
CLASSIFICATION = {"loss": mean(softmax_cross_entropy), "error": mean(misclassified)}


def regression(deviation: float) -> Mapping[str, Metric]:
    """Returns metrics for labels that were divided by ``deviation``. Squared errors are in original units, squared."""
    return {
        "loss": mean(squared_error),
        "squared_error": mean(squared_error, deviation**2),
        "r2_error": R2_ERROR,
    }
