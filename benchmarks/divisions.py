"""Which collectives does a step need if parameters are sharded? Compares three ways of partitioning a step.

    python benchmarks/divisions.py [--json FILE] [--smoke]

Each step runs on eight emulated devices, across which its batch of 64 is split. Every parameter and its optimizer state
are sharded into eight parts along the first divisible axis. The collectives are read from the compiled program:

1. The compiler's partitioner partitions the whole step.
2. Gradients are mapped over shards by hand, starting from whole parameters. The engine does this.
3. Like 2, but each shard gathers the parameters and sums its part of the gradients.
"""

import functools
import os
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P
from report import open_report, study_of

from harness.compiled import hlo
from harness.step import mesh, programs, rng, training
from harness.step.batch_partition import TRIAL, Division
from harness.step.programs_key import programs_key
from results.costs import collectives
from workloads.workload import DATA

SHARDS = 8
BATCH = 64
TASKS = {"tiny/resnet": "momentum", "tiny/transformer_decoder": "adam", "pydoc_lstm": "adam"}


def split(shape: tuple[int, ...]) -> P:
    """Returns the spec of an array that is sharded along its first divisible axis."""
    axis = next((i for i, size in enumerate(shape) if size % SHARDS == 0), None)
    return P() if axis is None else P(*(None for _ in range(axis)), DATA)


def gathered(array: Any, spec: P) -> Any:
    return jax.lax.all_gather(array, DATA, axis=len(spec) - 1, tiled=True) if spec else array


def step_with_gathers(workload: Any, division: Division, spans: Any, step: Any, carry: Any, batch: Any) -> Any:
    """Takes one step in the third way. The arguments are those of ``training.take_step``."""
    specs = jax.tree.map(lambda a: split(a.shape), carry.params)

    def of_shard(arrays: Any, params: Any, state: Any, seed: Any, shard_step: Any, smoothing: Any) -> Any:
        examples, weights, positions = arrays

        def loss(params: Any) -> Any:
            gathered_params = jax.tree.map(gathered, params, specs)
            keys = rng.example_keys(seed, shard_step, positions)
            value, after = workload.loss(gathered_params, state, examples, weights, keys, smoothing)
            return value / np.float32(batch.labels), after

        grads, after = jax.grad(loss, has_aux=True)(params)
        grads = jax.tree.map(lambda g, spec: g if spec else jax.lax.psum(g, DATA), grads, specs)
        return grads, jax.tree.map(lambda a: a / np.float32(SHARDS), jax.lax.psum(after, DATA))

    in_specs = (P(DATA), specs, P(), P(), P(), P())
    mapped = jax.shard_map(of_shard, in_specs=in_specs, out_specs=(specs, P()), axis_names={DATA}, check_vma=False)
    arrays = (batch.examples, batch.weights, batch.positions)
    smoothing = spans.metaparameters["label_smoothing"]
    grads, state = mapped(arrays, carry.params, carry.state, spans.seed, step, smoothing)
    updates, optimizer = training._rule(workload, spans, step).update(grads, carry.optimizer, carry.params)
    return training.TrainState(optax.apply_updates(carry.params, updates), state, optimizer)


def partitioned_batch(batch_of: Any, *arguments: Any) -> Any:
    """Returns a batch that only the partitioner splits."""
    batch = batch_of(*arguments)
    return batch._replace(
        examples=mesh.divided(batch.examples, SHARDS), positions=mesh.divided(batch.positions, SHARDS)
    )


def compiled(task: str, optimizer: str, way: str) -> tuple[hlo.Compiled, dict[str, int]]:
    """Returns the compiled step of a task, and the sizes of the mesh."""
    line = [f"task={task}", f"optimizer={optimizer}", f"batch_size={BATCH}", "pruning=off"]
    plan = study_of(*line)
    workload = programs.workload_of(programs_key(plan))
    device_mesh = mesh.mesh(Division(SHARDS))
    shapes = programs.shapes(workload, device_mesh, 1)

    def stored(array: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        spec = P(TRIAL, *split(array.shape[1:]))
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(device_mesh, spec))

    carry = jax.tree.map(stored, shapes.carry)
    division = Division(1 if way == "partitioner" else SHARDS)
    batch_of, take_step = training.batch_of, training.take_step
    try:
        if way == "partitioner":
            training.batch_of = functools.partial(partitioned_batch, batch_of)
        if way == "gathers":
            training.take_step = step_with_gathers
        lane = functools.partial(training.train_lane, workload, BATCH, division, None)
        program = jax.jit(
            programs.over_lanes(device_mesh, "map", lane), donate_argnums=0, out_shardings=programs._shardings(carry)
        )
        text = programs.lower(program, device_mesh, carry, shapes.spans, shapes.train).compile().as_text()
    finally:
        training.batch_of, training.take_step = batch_of, take_step
    return hlo.read(text).check(), dict(device_mesh.shape)


if __name__ == "__main__":
    with open_report(__doc__) as report:
        tasks = dict(list(TASKS.items())[:1]) if report.smoke else TASKS
        for task, optimizer in tasks.items():
            for way in ("partitioner", "whole", "gathers"):
                found, sizes = compiled(task, optimizer, way)
                for (operation, _), (count, size, _) in sorted(collectives.totals(found.collectives, sizes).items()):
                    report.add(f"{task}, {way}: {operation}, {count} times", size / 1e3, "kB")
