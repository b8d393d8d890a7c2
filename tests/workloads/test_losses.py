"""Metrics are sums, and the same whatever parts they are taken in; losses against scikit-learn's."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.workloads import reference
from workloads import losses
from workloads.workload import Metric

CLASSES = 5
METRICS = losses.CLASSIFICATION | {f"regression_{name}": m for name, m in losses.regression(3.0).items()}


def examples(kind: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and labels."""
    rng = np.random.default_rng(seed)
    if kind.startswith("regression"):
        return rng.normal(size=(count, 1)).astype(np.float32), rng.normal(size=count).astype(np.float32)
    return rng.normal(size=(count, CLASSES)).astype(np.float32), rng.integers(0, CLASSES, count).astype(np.int32)


def whole(metric: Metric, outputs: np.ndarray, labels: np.ndarray) -> float:
    return float(metric.finish(metric.sums(outputs, labels, None)))


@settings(max_examples=8, deadline=None)
@given(kind=st.sampled_from(sorted(METRICS)), count=st.integers(3, 30), part=st.integers(1, 9), seed=st.integers(0, 99))
def test_parts_and_examples_without_weight_change_no_metric(kind: str, count: int, part: int, seed: int) -> None:
    metric, (outputs, labels) = METRICS[kind], examples(kind, count, seed)
    totals: Any = None
    for start in range(0, count, part):
        rows = np.arange(start, start + part)  # the last part is filled up with examples that do not count
        weights = (rows < count).astype(np.float32)
        rows = np.minimum(rows, count - 1)
        sums = metric.sums(outputs[rows], labels[rows], weights)
        totals = sums if totals is None else jax.tree.map(np.add, totals, sums)
    assert float(metric.finish(totals)) == pytest.approx(whole(metric, outputs, labels), rel=1e-5, abs=1e-7)


def test_metrics_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import log_loss, mean_squared_error, r2_score, zero_one_loss

    logits, labels = examples("loss", 40, 1)
    share = np.exp(logits.astype(np.float64))
    share /= share.sum(axis=1, keepdims=True)
    assert whole(METRICS["loss"], logits, labels) == pytest.approx(log_loss(labels, share, labels=range(CLASSES)), 1e-5)
    assert whole(METRICS["error"], logits, labels) == pytest.approx(zero_one_loss(labels, share.argmax(axis=1)), 1e-6)
    outputs, numbers = examples("regression_loss", 40, 2)
    squared = mean_squared_error(numbers, outputs[:, 0])
    assert whole(METRICS["regression_squared_error"], outputs, numbers) == pytest.approx(9 * squared, 1e-5)
    r2 = r2_score(numbers.astype(np.float64), outputs[:, 0].astype(np.float64))
    assert whole(METRICS["regression_r2_error"], outputs, numbers) == pytest.approx(1 - r2, 1e-5)


@pytest.mark.parametrize("chunk", [1 << 20, 4 * CLASSES * 7, 4 * CLASSES])
def test_product_loss_is_that_of_its_outputs_in_any_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients, against float64 by hand: the softmax less the smoothed label, times features or kernel."""
    monkeypatch.setattr(losses, "CHUNK_BYTES", chunk)
    rng = np.random.default_rng(3)
    features, kernel = rng.normal(size=(4, 7, 6)), rng.normal(size=(6, CLASSES))
    labels, weights = rng.integers(0, CLASSES, (4, 7)), rng.integers(0, 2, (4, 7)).astype(float)
    smoothing = 0.1
    logits = features @ kernel
    share = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    wanted = (1 - smoothing) * np.eye(CLASSES)[labels] + smoothing / CLASSES
    value = float(np.sum(-np.log(share) * wanted * weights[..., None]))
    error = (share - wanted) * weights[..., None]

    def loss(features: Any, kernel: Any) -> Any:
        product = losses.Product(features, kernel)
        w, s = weights.astype(np.float32), np.float32(smoothing)
        return 3 * losses.total_loss(losses.softmax_cross_entropy, product, labels.astype(np.int32), w, s)

    given_ = (features.astype(np.float32), kernel.astype(np.float32))
    found, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(*given_)
    assert float(found) == pytest.approx(3 * value, rel=1e-5)
    assert float(jax.jit(loss)(*given_)) == pytest.approx(3 * value, rel=1e-5)
    np.testing.assert_allclose(gradients[0], 3 * error @ kernel.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[1], 3 * np.einsum("btd,btv->dv", features, error), rtol=1e-4, atol=1e-5)


def test_a_product_computes_its_matrix_products_once() -> None:
    """Outputs, and both their gradients: three products, and none to compute outputs again."""
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((64, 16), (16, CLASSES))]
    labels = np.zeros(64, np.int32)

    def loss(features: Any, kernel: Any) -> Any:
        product = losses.Product(features, kernel)
        return losses.total_loss(losses.softmax_cross_entropy, product, labels, None, np.float32(0))

    text = jax.jit(jax.grad(loss, (0, 1))).lower(*shapes).as_text()
    assert text.count("dot_general") == 3


def test_average_precision_is_that_of_scikit_learn_in_parts() -> None:
    from sklearn.metrics import average_precision_score

    random = np.random.default_rng(4)
    labels = (random.random((60, 7)) < 0.2).astype(np.uint8)
    logits = (random.normal(size=(60, 7)) + 1.5 * labels).astype(np.float32)
    metric = losses.AVERAGE_PRECISION_ERROR
    expected = 1 - average_precision_score(labels.ravel(), logits.ravel())
    whole = metric.finish(metric.sums(logits, labels, None))
    assert float(whole) == pytest.approx(expected, abs=2e-3)  # scores of one bin count as equal
    weights = np.arange(60) < 50
    parts = [
        metric.sums(logits[i : i + 20], labels[i : i + 20], weights[i : i + 20].astype(np.float32)) for i in (0, 20, 40)
    ]
    kept = 1 - average_precision_score(labels[:50].ravel(), logits[:50].ravel())
    assert float(metric.finish(sum(parts))) == pytest.approx(kept, abs=2e-3)


@pytest.mark.parametrize(
    ("scale", "shift"),
    [(5.0, 400.0), (1e6, 0.0), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((30.0, 0.0), (1.0, -60.0)))],
)
def test_average_precision_tells_large_logits_apart(scale: float, shift: float) -> None:
    """Of a network that is sure, and of labels that are rare, whose logits all lie far below zero."""
    from sklearn.metrics import average_precision_score

    random = np.random.default_rng(4)
    labels = (random.random((60, 7)) < 0.2).astype(np.uint8)
    logits = (scale * (random.normal(size=(60, 7)) + 1.5 * labels) + shift).astype(np.float32)
    metric = losses.AVERAGE_PRECISION_ERROR
    expected = 1 - average_precision_score(labels.ravel(), logits.ravel())
    assert float(metric.finish(metric.sums(logits, labels, None))) == pytest.approx(expected, abs=2e-2)


def test_spread_smoothing_leaves_the_label_all_but_its_share() -> None:
    random = np.random.default_rng(6)
    logits = random.normal(size=(9, CLASSES)) * 3
    labels = random.integers(0, CLASSES, 9)
    for smoothing in (0.0, 0.01, 0.1, 0.5):
        given_ = (np.float32(logits), labels.astype(np.int32), np.float32(smoothing))
        expected = reference.cross_entropy(logits, labels, smoothing)
        assert float(np.mean(losses.spread_cross_entropy(*given_))) == pytest.approx(expected, rel=1e-6)

        def loss(logits: Any, given_: Any = given_) -> Any:
            return losses.spread_cross_entropy(logits, *given_[1:]).mean()

        share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        wanted = np.where(np.eye(CLASSES)[labels] == 1, 1 - smoothing, smoothing / (CLASSES - 1))
        np.testing.assert_allclose(jax.grad(loss)(given_[0]), (share - wanted) / 9, rtol=0, atol=1e-6)


def test_sigmoid_cross_entropy_is_that_of_plain_numpy() -> None:
    random = np.random.default_rng(5)
    labels = (random.random((9, 4)) < 0.5).astype(np.uint8)
    logits = random.normal(size=(9, 4)) * 5
    for smoothing in (0.0, 0.1):
        q = (1 - smoothing) * labels + smoothing / 2
        p = 1 / (1 + np.exp(-logits))
        expected = -(q * np.log(p) + (1 - q) * np.log(1 - p)).sum(axis=1)
        ours = losses.sigmoid_cross_entropy(np.float32(logits), labels, np.float32(smoothing))
        np.testing.assert_allclose(np.mean(ours, axis=1), expected, rtol=1e-5)
