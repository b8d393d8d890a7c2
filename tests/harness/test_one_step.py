"""A layout study lowers the step that a batch study trains: the same matmuls, dtypes, precisions and chunks."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import sweeps
from harness.runners import layouts
from harness.step import mesh, programs
from harness.step.batch_partition import Division
from harness.step.programs_key import programs_key
from workloads import axes, losses
from workloads.workload import Product

MULTIPLIES = ("dot_general", "conv_general_dilated")


def multiplications(jaxpr: Any) -> Counter[str]:
    """Counts matmuls and convolutions by dtypes and precision."""
    total: Counter[str] = Counter()
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in MULTIPLIES:
            dtypes = " × ".join(str(variable.aval.dtype) for variable in equation.invars)
            precision = equation.params["precision"]
            total[f"{name} {dtypes} -> {equation.outvars[0].aval.dtype} at {precision}"] += 1
        for inner in jaxprs_in_params(equation.params):
            total += multiplications(getattr(inner, "jaxpr", inner))
    return total


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize("task", ["transformer_decoder", "resnet", "lstm_projected"])
def test_a_layout_costs_the_step_that_trains(task: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs are compared before they are lowered, with all the matmuls of the loss and of the optimizer."""

    def traced(program: Any, on: Any, *arguments: Any) -> Any:
        with programs.traced(on):
            return program.trace(*arguments).jaxpr.jaxpr

    monkeypatch.setattr(programs, "lower", traced)
    study = sweeps.study(task=f"tiny/{task}", optimizer="muon", batch_size=8, precision=precision).study
    workload, on = programs.workload_of(programs_key(study)), mesh.mesh(Division())
    shapes = programs.shapes(workload, on, 1)
    trained = multiplications(programs.lower_train(workload, on, "map", shapes, 8, Division()))
    values = {"step.task": f"tiny/{task}", "step.optimizer": "muon", "step.batch_size": 8, "step.precision": precision}
    planned = sweeps.study(task="layouts", mesh="data:1", layout="batch:data", **values)
    costed = multiplications(layouts.laid(planned.study, planned.source).on(jax.devices()).lowered(8))
    assert costed == trained
    assert any(name.startswith(f"{MULTIPLIES[0]} {precision} × {precision}") for name in trained)
    assert all(name.count("HIGHEST") == 2 for name in trained)


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_of_a_batch_have_its_loss_and_gradients(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitioner gives each device a part of the batch, which it processes in several chunks."""
    random = np.random.default_rng(0)
    features, kernel = (jnp.asarray(random.normal(size=size), jnp.float32) for size in ((8, 6, 5), (5, 7)))
    labels = random.integers(0, 7, (8, 6)).astype(np.int32)
    weights = random.random((8, 6)).astype(np.float32)

    def total(features: Any, kernel: Any) -> Any:
        outputs = Product(features, kernel)
        return losses.total_loss(losses.softmax_cross_entropy, outputs, labels, weights, jnp.float32(0.1))

    results = []
    for count in (1, parts):
        monkeypatch.setattr(axes, "batch_parts", lambda count=count: count)
        monkeypatch.setattr(losses, "CHUNK_BYTES", 4 * 7 * 4)  # four labels
        results.append(jax.value_and_grad(total, (0, 1))(features, kernel))
    for expected, value in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
