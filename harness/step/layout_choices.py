"""Suggests layouts, based on estimates, for a trial that does not fit in the memory of its devices."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

from harness.step import programs, shardings
from harness.step.batch_partition import Division
from results.bad_input import BadInput
from workloads.workload import DATA, Workload

MODEL = "model"  # mesh axis that tensors are divided over
MOST_DEVICES = 512
SHOWN = 3
STATES = 2  # a step holds a trial's state, and as many bytes for gradients and updates
SHARE = 0.8  # of the memory, because the estimate is rough


def choices(workload: Workload, batch_size: int, division: Division, needed: float, free: float) -> list[str]:
    """Returns up to three meshes and layouts as arguments of a sweep, starting with the fewest devices.

    Args:
      workload: workload that does not fit.
      batch_size: number of examples in a batch.
      division: partition that was tried.
      needed: bytes that a trial needs on each device under this partition.
      free: bytes of memory on each device.
    """
    try:
        sizes = shardings.tensors(workload, batch_size).sizes
    except BadInput:
        return []
    state = _state_bytes(workload, Division())
    carry, _ = programs.one_lane(workload)
    data = _bytes([examples for examples in workload.shapes if examples]) if not workload.feed else 0
    activations = max(0.0, needed - data - STATES * _state_bytes(workload, division))
    layouts: dict[str, str] = {}  # layout by mesh
    for way in _ways(sizes, batch_size):
        if way.mesh_text in layouts:
            continue
        try:
            shardings.check(workload, way, batch_size)
        except BadInput:
            continue
        share = min(1.0, way.examples(batch_size) / (division.examples(batch_size) / division.microbatches))
        over = way.devices // way.shards
        gathered = _bytes(carry.params) / over if way.shards > 1 else 0
        divided = all(name in dict(way.layout) for name in ("heads", "mlp") if name in sizes)
        held = STATES * _state_bytes(workload, way) + gathered + activations * share / (over if divided else 1)
        if held < SHARE * (free - data) and held < STATES * state + activations:
            layouts[way.mesh_text] = way.layout_text
        if len(layouts) == SHOWN:
            break
    return [f"'mesh={mesh}' 'layout={layout}'" for mesh, layout in layouts.items()]


def _ways(sizes: Mapping[str, int], batch_size: int) -> Iterator[Division]:
    """Yields partitions by number of devices. They shard only parameters, only tensors, or both."""
    for devices in (1 << i for i in range(1, MOST_DEVICES.bit_length())):
        for model in (1 << i for i in range(devices.bit_length())):
            data = devices // model
            if data > batch_size:
                continue
            over_data = [(name, DATA) for name in ("embed", "inputs") if data > 1 and sizes.get(name, 1) % data == 0]
            for names in (("heads", "key_heads", "mlp", "vocab"), ("heads", "key_heads", "mlp"), ("embed",)):
                over_model = [(name, MODEL) for name in names if model > 1 and sizes.get(name, 1) % model == 0]
                pairs = tuple(sorted({name: axis for name, axis in (*over_data, *over_model) if name in sizes}.items()))
                if pairs and (model == 1 or any(axis == MODEL for _, axis in pairs)):
                    yield Division(data, 1, ((MODEL, model),) if model > 1 else (), pairs)
                if model == 1:
                    break


def _bytes(arrays: Any) -> int:
    leaves = jax.tree.leaves(arrays, is_leaf=lambda leaf: hasattr(leaf, "dtype"))
    return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in leaves)


def _state_bytes(workload: Workload, division: Division) -> int:
    """Returns the bytes of a trial's state on each device."""
    sizes = {DATA: division.shards, **dict(division.mesh)}
    abstract = AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=tuple(AxisType.Auto for _ in sizes))
    carry, _ = programs.one_lane(workload)
    specs = shardings.of_carry(carry, shardings.of_step(workload, division))

    def size(leaf: jax.ShapeDtypeStruct, spec: P) -> int:
        return math.prod(NamedSharding(abstract, spec).shard_shape(leaf.shape)) * leaf.dtype.itemsize

    return sum(jax.tree.leaves(jax.tree.map(size, carry, specs)))
