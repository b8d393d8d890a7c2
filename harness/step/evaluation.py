"""Evaluates one lane: computes the metrics of each split, summed over chunks of examples and over shards."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params
from jax.sharding import PartitionSpec as P

from harness.compiled import jaxpr_cost
from harness.step import mesh, shardings
from harness.step.batch_partition import Division
from harness.step.training import TrainState, with_rows
from workloads import losses
from workloads.workload import DATA, Array, ArrayPair, Dataset, Examples, Params, State, Workload

Sums = dict[str, Any]  # by kind of metric
CHUNK_BYTES = 256 << 20  # limit on the largest array that a chunk creates anywhere in the network


def chunk_size(workload: Workload, split: str) -> int:
    """Returns the number of examples of a split that are evaluated in one chunk."""
    variables = workload.variable_shapes

    def sizes(examples: int) -> list[int]:
        inputs = with_rows(getattr(workload.shapes, split), examples).inputs
        return _sizes(jax.make_jaxpr(workload.predict)(*variables, inputs).jaxpr)

    # Bytes per additional example. Parameters are excluded, since their size does not depend on the number of examples.
    largest = max(larger - few for few, larger in zip(sizes(2), sizes(3), strict=True))
    return max(1, CHUNK_BYTES // max(1, largest))


def _sizes(jaxpr: Any) -> list[int]:
    """Returns the bytes of each array that a program computes, in order, including arrays in loops and branches."""
    sizes = list(map(jaxpr_cost.array_bytes, jaxpr.invars))
    for equation in jaxpr.eqns:
        sizes += map(jaxpr_cost.array_bytes, equation.outvars)
        for inner in jaxprs_in_params(equation.params):
            sizes += _sizes(inner)
    return sizes


def evaluated_examples(row: Dataset | Workload, count: int, shards: int) -> tuple[int, int]:
    """Returns how many of ``count`` examples are evaluated, in total and per shard (the last may have fewer)."""
    evaluated = min(row.evaluation_examples, count)
    return evaluated, -(-evaluated // shards)


def prepared(row: Dataset, examples: Examples, shards: int) -> Examples:
    """Returns a split for evaluation, [shards · examples per shard, ...], padded with copies of the first example."""
    evaluated, share = evaluated_examples(row, len(examples.labels), shards)
    rows = np.arange(shards * share)
    padded = np.where(rows < evaluated, rows, 0)
    return Examples(*(np.asarray(a[:evaluated] if len(rows) == evaluated else a[padded]) for a in examples))


def prepared_shapes(workload: Workload, shards: int, sharding: Any = None) -> tuple[Examples, ...]:
    """Returns the shapes of the arrays that ``prepared`` returns, by evaluated split."""
    shapes = []
    for split in workload.evaluated_splits:
        shape = getattr(workload.shapes, split)
        _, share = evaluated_examples(workload, shape.labels.shape[0], shards)
        shapes.append(with_rows(shape, shards * share, sharding=sharding))
    return tuple(shapes)


def _chunk_sizes(workload: Workload) -> dict[str, int]:
    """Returns the chunk size of each evaluated split, which is computed only once per input shape."""
    known_sizes: dict[Any, int] = {}
    sizes = {}
    for split in workload.evaluated_splits:
        inputs = getattr(workload.shapes, split).inputs
        key = inputs.shape[1:], inputs.dtype
        if key not in known_sizes:
            known_sizes[key] = chunk_size(workload, split)
        sizes[split] = known_sizes[key]
    return sizes


def evaluate_lane(
    workload: Workload, division: Division, carry: TrainState, active: Array, splits: tuple[Examples, ...]
) -> ArrayPair:
    """Returns the metrics of a trial, float32[M], and whether all are finite.

    Metrics are NaN if the lane is idle or any parameter is not finite.

    Args:
      workload: defines the metrics and the evaluated splits.
      division: partition of a batch. Evaluated examples are split across the same shards.
      carry: state of the trial.
      active: bool[], True if the lane has a trial.
      splits: results of ``prepared``, by evaluated split.
    """

    shards = division.shards
    sharding = shardings.of_step(workload, division)
    predict = shardings.gathering(workload.predict, sharding)
    specs = P() if sharding is None else shardings.by_hand(sharding.specs)

    chunk_sizes = _chunk_sizes(workload)
    shapes: dict[Any, Sums] = {}  # by shapes of a chunk

    def of_shard(splits: tuple[Examples, ...], params: Params, state: State) -> list[Sums]:
        by_split = [
            _sums(
                workload, shards, functools.partial(predict, params, state), examples, split, chunk_sizes[split], shapes
            )
            for split, examples in zip(workload.evaluated_splits, splits, strict=True)
        ]
        return mesh.summed(by_split, shards)

    def measure() -> ArrayPair:
        params = workload.evaluated(carry.params, carry.optimizer)
        by_split = mesh.over_shards(of_shard, shards, (P(DATA), specs, P()), P())(splits, params, carry.state)
        finished = [metric.finish(sums[kind]) for sums in by_split for kind, metric in workload.metrics.items()]
        metrics = jnp.stack(finished)
        params_finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]))
        metrics = jnp.where(params_finite, metrics, jnp.nan)
        return metrics, jnp.all(jnp.isfinite(metrics))

    count = len(workload.evaluated_splits) * len(workload.metrics)
    return jax.lax.cond(active, measure, lambda: (jnp.full(count, jnp.nan), jnp.bool_(False)))


def _sums(
    workload: Workload,
    shards: int,
    predict: Callable[[Array], Array],
    examples: Examples,
    split: str,
    chunk_examples: int,
    shapes: dict[Any, Sums],
) -> Sums:
    """Returns the sums of all metrics over this shard's examples of a split. ``predict`` maps inputs to outputs.

    ``shapes`` are the shapes of a chunk's sums. Splits with equal examples share them.
    """
    evaluated, share = evaluated_examples(workload, getattr(workload.shapes, split).labels.shape[0], shards)
    size = min(share, chunk_examples)

    def of_chunk(chunk: Examples, weights: Array | None) -> Sums:
        predicted = predict(chunk.inputs)
        weights = losses.label_weights(chunk.labels, weights, workload.padding)
        return {kind: metric.sums(predicted, chunk.labels, weights) for kind, metric in workload.metrics.items()}

    first = mesh.shard_index(shards) * share
    if size == share:
        return of_chunk(examples, None if shards * share == evaluated else _there(first + jnp.arange(share), evaluated))

    def add(totals: Sums, start: Array) -> tuple[Sums, None]:
        offset = jnp.minimum(start, share - size)  # the last chunk overlaps the one before, whose examples count once
        chunk = Examples(*(jax.lax.dynamic_slice_in_dim(a, offset, size) for a in examples))
        places = offset + jnp.arange(size)
        weights = _there(first + places, evaluated) * (places >= start).astype(jnp.float32)
        return jax.tree.map(jnp.add, totals, of_chunk(chunk, weights)), None

    starts = jnp.arange(0, share, size)
    chunk = with_rows(examples, size)
    key = tuple((array.shape, array.dtype) for array in chunk)
    if key not in shapes:
        shapes[key] = jax.eval_shape(of_chunk, chunk, jax.ShapeDtypeStruct((size,), np.dtype("float32")))
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes[key])
    return jax.lax.scan(add, zeros, starts)[0]


def _there(places: Array, count: int) -> Array:
    return (places < count).astype(jnp.float32)
