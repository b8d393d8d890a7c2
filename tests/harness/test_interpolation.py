"""Interpolated costs are those of programs that are counted one by one."""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from harness.compiled import interpolation
from harness.costs import network_costs
from harness.run import Settings
from sweeps import overrides, planning
from workloads import losses


def study_of(task: str) -> Any:
    words = [f"task={task}", "batch_size=32", "pruning=off", "stop=budget"]
    (study,) = planning.request(overrides.command_line(words), written=False).studies
    return study


def is_traced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that grows with the number of examples of each traced step."""
    traced: list[int] = []
    step_jaxpr = network_costs.step_jaxpr

    def noted(workload: Any, examples: int, *rest: Any) -> Any:
        traced.append(examples)
        return step_jaxpr(workload, examples, *rest)

    monkeypatch.setattr(network_costs, "step_jaxpr", noted)
    return traced


@pytest.mark.parametrize(
    ("task", "group"),
    [
        ("digits_fc", 1),
        ("tiny/resnet", 8),  # ghost normalization
        ("pydoc_transformer", 1),
        ("tiny/lstm_projected", 1),  # dropout
        ("noisy_quadratic", 1),
    ],
)
def test_random_sizes_cost_what_they_cost_alone(task: str, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(task)
    drawn = random.Random(task).sample(range(2, 170), 8)
    sizes = [group * size for size in sorted(drawn)]
    network_costs.forget()
    traced = is_traced(monkeypatch)
    found = network_costs.counts_of_sizes(study, None, Settings(), sizes)
    assert len(traced) == 2
    # Other sizes within the same range, perhaps of another data set, are not traced.
    network_costs.counts_of_sizes(study, None, Settings(), sizes[2:6])
    assert len(traced) == 2
    network_costs.forget()
    size = sizes[random.Random(task).randrange(1, 7)]
    assert found[size] == network_costs.counts(dataclasses.replace(study, batch_size=size), None, Settings())


def test_each_division_is_a_piece_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a loss, microbatches, and the smallest parts of large batches."""
    study = study_of("tiny/lstm_projected")
    monkeypatch.setattr(losses, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(network_costs, "LARGE", 1 << 16)
    sizes = [1, 2, 3, 4, 5, 16, 32, 48, 64, 96, 128]
    for settings in (Settings(), Settings(microbatches=2)):
        network_costs.forget()
        found = network_costs.counts_of_sizes(study, None, settings, sizes)
        network_costs.forget()
        for size in (1, 48, 64):
            assert found[size] == network_costs.counts(dataclasses.replace(study, batch_size=size), None, settings)


def program(operations: Callable[[int], Callable[[Any], Any]]) -> Callable[[int], Any]:
    def of(size: int) -> Any:
        return jax.make_jaxpr(operations(size))(jax.ShapeDtypeStruct((size, 4), np.float32))

    return of


def test_peaks_with_a_kink_are_those_of_each_size() -> None:
    """Most memory is held by the weights, or by the batch if it is large."""

    def operations(size: int) -> Callable[[Any], Any]:
        def step(batch: Any) -> Any:
            weights = jnp.ones((64, 64)) @ jnp.ones((64, 64))
            return jnp.sum(batch @ jnp.ones((4, 4))) + jnp.sum(weights)

        return step

    of = program(operations)
    sizes = list(range(10, 3000, 130))
    found = interpolation.costs(sizes, of)
    assert found == {size: interpolation.counted(of(size)) for size in sizes}


def test_other_operations_or_no_line_are_counted_one_by_one() -> None:
    def other(size: int) -> Callable[[Any], Any]:
        return lambda batch: jnp.sin(batch) if size > 100 else jnp.sum(batch @ batch.T)

    def squared(size: int) -> Callable[[Any], Any]:
        return lambda batch: jnp.tile(batch, (size, 1))

    for operations in (other, squared):
        of = program(operations)
        sizes = [3, 30, 60, 90, 120, 150, 180, 210, 400]
        found = interpolation.costs(sizes, of, of)
        assert found == {size: interpolation.counted(of(size)) for size in sizes}
