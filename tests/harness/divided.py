"""A program: training of a task on emulated devices, over every division asked for, against that of one.

    python -m tests.harness.divided TASK STEPS [SHARDSxMICROBATCHES ...]

Prints for each division, as JSON, the largest difference of a parameter after so many steps relative to the largest
value of that parameter, in any lane; after 0 steps that of the gradients of the first step.
"""

import json
import sys

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from harness import mesh, programs, streams, training
from harness.division import Division
from harness.programs_key import ProgramsKey, programs_key
from harness.training import Carry, Spans
from sweeps import overrides, planning

LANES = 8  # a multiple of the devices on any axis ``trial``
BATCH = 22  # that 4 and 8 do not divide


def gradients(key: ProgramsKey, division: Division, strategy: str) -> list[np.ndarray]:
    """The gradients of the first step of all lanes, [L, ...] of each parameter."""
    workload, on = programs.workload_of(key), mesh.mesh(division.shards)
    of = programs.shapes(workload, on, LANES)

    def lane(carry: Carry, spans: Spans, train: object) -> object:
        carry = training.fresh(workload, spans)
        _, data_key = streams.keys(spans.seed)
        if workload.draw:
            drawn = workload.draw(jax.random.fold_in(data_key, 0), key.batch_size)
            batch = training.batch_of(drawn, None, np.int32(0), len(drawn.labels), division)
        else:
            order = streams.epoch_order(data_key, np.int32(0), len(train.labels))
            batch = training.batch_of(train, order, np.int32(0), key.batch_size, division)
        keys = streams.example_keys(spans.seed, np.int32(0), batch.positions)
        return training.gradients(workload, division, carry, batch, keys, np.float32(0.1))[0]

    program = jax.jit(mesh.over_lanes(on, strategy, lane, P()))
    spans = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), of.spans)
    spans = spans._replace(stop=np.ones(LANES, np.int32), seed=np.arange(LANES, dtype=np.uint32))
    carry = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), of.carry)
    train = programs.data(key, division.shards).train
    return [np.asarray(a, np.float64) for a in jax.tree.leaves(program(carry, spans, train))]


def parameters(key: ProgramsKey, division: Division, strategy: str, steps: int) -> list[np.ndarray]:
    """The parameters of all lanes after ``steps``, [L, ...] each, through the programs of a study."""
    built, _ = programs.programs_for(key, LANES, strategy, division)
    workload, on = programs.workload_of(key), mesh.mesh(division.shards)
    spans = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), programs.shapes(workload, on, LANES).spans)
    rates = {"learning_rate": np.geomspace(0.01, 0.1, LANES).astype(np.float32)}
    spans = spans._replace(
        stop=np.full(LANES, steps, np.int32),
        seed=np.arange(LANES, dtype=np.uint32),
        end_factor=np.ones(LANES, np.float32),
        metaparameters=spans.metaparameters | rates,
    )
    return [np.asarray(a, np.float64) for a in jax.tree.leaves(built.advance(built.empty(), spans).params)]


def difference(ours: list[np.ndarray], alone: list[np.ndarray]) -> float:
    """The largest difference relative to the largest gradient of the same parameter and lane."""

    def of(a: np.ndarray, b: np.ndarray) -> float:
        axes = tuple(range(1, b.ndim))
        scale = np.abs(b).max(axes)
        return float((np.abs(a - b).max(axes) / np.where(scale > 0, scale, 1)).max())

    return max(of(a, b) for a, b in zip(ours, alone, strict=True))


def main(task: str, steps: int, divisions: list[str]) -> None:
    """Prints the differences."""
    batch = [] if task == "noisy_quadratic" else [f"batch_size={BATCH}"]
    line = [f"task={task}", "optimizer=sgd", *batch, "pruning=off", "store=none"]
    (study,) = planning.request(overrides.command_line(line)).studies
    key = programs_key(study)

    def found_by(division: Division, strategy: str) -> list[np.ndarray]:
        return parameters(key, division, strategy, steps) if steps else gradients(key, division, strategy)

    alone = found_by(Division(), "map")
    found = {}
    for words in divisions:
        shards, microbatches = map(int, words.split("x"))
        found[words] = difference(found_by(Division(shards, microbatches), "vmap"), alone)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
