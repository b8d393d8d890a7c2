"""Metrics are sums, and the same whatever parts they are taken in; losses against scikit-learn's."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=20, deadline=None)
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
