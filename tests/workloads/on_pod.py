"""A program: the programs of a factorization lowered for a slice of TPUs, without a TPU, from one host's part of it.

    python -m tests.workloads.on_pod TOPOLOGY [compile]

Prints as JSON, by program, the hosts and devices, and the bytes of the arguments of a core; with `compile` also what
the compiler says of the row half, with two buckets; of the others "not compiled". Needs the extra ``plan``.
"""

import json
import math
import os
import sys
import tempfile
import time
from typing import Any

ROWS, COLUMNS, LINKS, DIM = 40_000, 20_000, 1_000_000, 128
BUCKETS = 2


def main(topology: str, compiles: bool) -> None:
    """Prints what was found."""
    import jax
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    from results.als import Als
    from tests.workloads.graphs import ratings
    from workloads.factorization import half_epoch, recall, routes
    from workloads.factorization.half_epoch import AXIS, Weights

    found = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    devices = np.array(sorted(found, key=lambda device: (device.process_index, device.id)))
    hosts = len({device.process_index for device in devices})
    mesh = Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))
    cores, here = len(devices), slice(0, len(devices) // hosts)

    # Everything that is computed of data is computed for the cores of one host.
    data, als = ratings(ROWS, COLUMNS, LINKS), Als(dim=DIM, epochs=1, solver="cg", gather="all_to_all")
    lengths = (data.train.lengths, data.train.column_lengths, data.history.lengths)
    sides = [routes.places(each, cores, 8192, 1024, BUCKETS) for each in lengths]
    links = (data.train, data.train.transpose(routes.needed(sides[1], here)), data.history)
    others = (sides[1], sides[0], sides[1])
    work = [
        routes.with_exchange(
            routes.route(each, own, other, 8192, 1024, here), other, 1 << 20, dealt=lambda wanted: wanted
        )
        for each, own, other in zip(links, sides, others, strict=True)
    ]
    by_core, everywhere = (NamedSharding(mesh, spec) for spec in (PartitionSpec(AXIS), PartitionSpec()))

    def of_all(array: Any) -> Any:
        return jax.ShapeDtypeStruct((cores, *array.shape[1:]), array.dtype, sharding=by_core)

    tables = [
        jax.ShapeDtypeStruct((cores * side.slots_per_core, DIM), np.dtype("float32"), sharding=by_core)
        for side in sides
    ]
    rows, columns, unsolved = tables
    row_work, column_work, folded_work = jax.tree.map(of_all, work)
    weights = Weights(*(jax.ShapeDtypeStruct((), np.dtype("float32"), sharding=everywhere) for _ in range(2)))
    rows_of_batches, *blocks = recall.batches(data.history, sides[2], sides[1])
    batches = recall.Batches(
        jax.ShapeDtypeStruct(rows_of_batches.shape, rows_of_batches.dtype, sharding=everywhere), *map(of_all, blocks)
    )
    sizes = (ROWS, COLUMNS)
    half = half_epoch.half_epoch
    calls: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "row half": (half(mesh, places=sides[0], other_rows=COLUMNS, als=als), (rows, columns, row_work, weights)),
        "column half": (half(mesh, places=sides[1], other_rows=ROWS, als=als), (columns, rows, column_work, weights)),
        "objective": (
            half_epoch.objective(mesh, places=sides[0], sizes=sizes, frequency_ridge=True),
            (rows, columns, row_work, column_work.counts, weights),
        ),
        "fold in": (
            half(mesh, places=sides[2], other_rows=COLUMNS, als=als, fold_in=True),
            (unsolved, columns, folded_work, weights),
        ),
        "rank": (recall.program(mesh, 50), (unsolved, columns, batches)),
    }
    said: dict[str, Any] = {}
    for name, (program, arguments) in calls.items():
        lowered = program.lower(*arguments)
        own = sum(
            math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
            for leaf in jax.tree.leaves(arguments)
        )
        said[name] = {"hosts": hosts, "devices": cores, "MiB of arguments": round(own / 2**20, 1)}
        if not compiles or name != "row half":
            said[name]["compiled"] = "not compiled"
            continue
        began = time.process_time()
        statistics = lowered.compile().memory_analysis()
        said[name]["compiled"] = {
            "processor seconds": round(time.process_time() - began),
            "temporary MiB": round(statistics.temp_size_in_bytes / 2**20, 1),
        }
    print(json.dumps(said))


if __name__ == "__main__":
    # As in tests/harness/on_tpu.py: other processes may load the library, and none asks for a TPU's metadata.
    os.environ |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder  # the library keeps a lock there
        main(sys.argv[1], "compile" in sys.argv[2:])
