"""A program: the programs of a factorization for a slice of TPUs, without a TPU, from one host's part of it.

    python -m tests.harness.on_pod TOPOLOGY             of data, laid out for all hosts and routed for one
    python -m tests.harness.on_pod TOPOLOGY VARIANT     of WebGraph's size, shapes alone; compiles the row half

Prints as JSON, by program, the hosts and devices, the MiB of the arguments of a core, and what the compiler says, or
"not compiled". Needs the extra ``plan``.
"""

import json
import os
import sys
import tempfile
import time
from typing import Any, NamedTuple

DIM = 128
BUCKETS = 2
LENGTHS = (32, 128)  # of rows in shapes alone, half of them each: 80 links a row, as WebGraph-sparse has
LINKS = {"sparse": LENGTHS, "dense": (64, 288)}  # 22 billion links of 123 million rows: 179 a row


class Parts(NamedTuple):
    """Places, routes and batches of one host, or of one core; and the numbers of rows and columns."""

    sides: list[Any]
    work: list[Any]
    batches: Any
    sizes: tuple[int, int]


def of_data(cores: int, hosts: int, als: Any) -> Parts:
    """Of a graph that is there: where all rows lie, and the work of the first host's cores."""
    from tests.workloads.graphs import ratings
    from workloads.factorization import recall, routes, training

    data, here = ratings(40_000, 20_000, 1_000_000), slice(0, cores // hosts)
    chunk, hubs, _ = training.lengths(als)
    lengths = (data.train.lengths, data.train.column_lengths, data.history.lengths)
    sides = [routes.places(each, cores, chunk, hubs, BUCKETS) for each in lengths]
    links = (data.train, data.train.transpose(routes.needed(sides[1], here)), data.history)
    work = [
        routes.with_exchange(
            routes.route(each, own, other, chunk, hubs, here),
            other,
            training.GATHER_BYTES // (4 * als.dim),
            dealt=lambda wanted: wanted,
        )
        for each, own, other in zip(links, sides, (sides[1], sides[0], sides[1]), strict=True)
    ]
    return Parts(sides, work, recall.batches(data.history, sides[2], sides[1]), (40_000, 20_000))


def of_size(variant: str, cores: int, als: Any) -> Parts:
    """Of as many rows and columns as WebGraph has, in two buckets, whose links are all to different rows."""
    from workloads.datasets import web_graph
    from workloads.factorization import outline

    size = web_graph.size(variant)
    found = outline.outline(size, cores, als, LINKS[variant])
    return Parts(list(found.places), list(found.work), None, found.sizes)


def main(topology: str, variant: str | None) -> None:
    """Prints what was found."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from harness.compiled import ahead_of_time, jaxpr_cost
    from results.als import Als
    from workloads.factorization import half_epoch, recall
    from workloads.factorization.half_epoch import AXIS, Weights

    mesh = ahead_of_time.mesh(topology, {AXIS: None})
    hosts, cores = len({device.process_index for device in mesh.devices.flat}), mesh.devices.size
    als = Als(dim=DIM, epochs=1, solver="cg", table_dtype="bfloat16", gather="all_to_all")
    parts = of_size(variant, cores, als) if variant else of_data(cores, hosts, als)
    by_core, everywhere = (NamedSharding(mesh, spec) for spec in (PartitionSpec(AXIS), PartitionSpec()))

    def of_all(array: Any) -> Any:
        return jax.ShapeDtypeStruct((cores, *array.shape[1:]), array.dtype, sharding=by_core)

    kinds = [als.table_dtype, als.table_dtype, "float32"]
    rows, columns, *unsolved = (
        jax.ShapeDtypeStruct((cores * side.slots_per_core, DIM), jax.numpy.dtype(kind), sharding=by_core)
        for side, kind in zip(parts.sides, kinds, strict=False)
    )
    row_work, column_work, *folded_work = jax.tree.map(of_all, parts.work)
    weights = Weights(*(jax.ShapeDtypeStruct((), np.dtype("float32"), sharding=everywhere) for _ in range(2)))
    sides, sizes, half = parts.sides, parts.sizes, half_epoch.half_epoch
    calls: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "row half": (half(mesh, places=sides[0], other_rows=sizes[1], als=als), (rows, columns, row_work, weights)),
        "column half": (
            half(mesh, places=sides[1], other_rows=sizes[0], als=als),
            (columns, rows, column_work, weights),
        ),
        "objective": (
            half_epoch.objective(mesh, places=sides[0], sizes=sizes, frequency_ridge=True),
            (rows, columns, row_work, column_work.counts, weights),
        ),
    }
    if not variant:
        rows_of_batches, *blocks = parts.batches
        told = jax.ShapeDtypeStruct(rows_of_batches.shape, rows_of_batches.dtype, sharding=everywhere)
        calls["fold in"] = (
            half(mesh, places=sides[2], other_rows=sizes[1], als=als, fold_in=True),
            (*unsolved, columns, *folded_work, weights),
        )
        calls["rank"] = (recall.program(mesh, 50), (*unsolved, columns, recall.Batches(told, *map(of_all, blocks))))
    said: dict[str, Any] = {}
    for name, (program, arguments) in calls.items():
        lowered = program.lower(*arguments)
        own = jaxpr_cost.device_bytes(arguments)
        said[name] = {"hosts": hosts, "devices": cores, "MiB of arguments": round(own / 2**20, 1)}
        if not variant or name != "row half":
            said[name]["compiled"] = "not compiled"
            continue
        began = time.process_time()
        try:
            needed = jaxpr_cost.peak_bytes(lowered.compile())
        except jax.errors.JaxRuntimeError as error:  # of what does not fit the compiler says by how much
            said[name]["compiled"] = str(error).splitlines()[0]
            continue
        said[name]["compiled"] = {
            "processor seconds": round(time.process_time() - began),
            "GiB": round(needed / 2**30, 2),
        }
    print(json.dumps(said))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder  # the library keeps a lock there
        main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
