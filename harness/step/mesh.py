"""The mesh that a study runs on: axes for lanes, for the examples of a batch, and for the layout."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from harness.processes import multihost
from harness.step.batch_partition import TRIAL, Division
from results.bad_input import BadInput
from workloads import memory
from workloads.workload import DATA


def devices() -> list[jax.Device]:
    """Returns the devices that a study runs on: those of this process, or of all participating hosts in order."""
    return sorted(jax.devices(), key=lambda d: (d.process_index, d.id)) if multihost.are_many() else jax.local_devices()


def device_bytes() -> int | None:
    """Returns the memory of the smallest device on any host, or None if unknown. CPU devices share the free memory."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        free = memory.available()
        bytes_here = free and free // jax.local_device_count()
    else:
        bytes_here = (device.memory_stats() or {}).get("bytes_limit")
    return int(-multihost.longest(-(bytes_here or 0))[0]) or None


def groups(division: Division) -> int:
    """Returns the number of device groups. Each group trains separate lanes and splits them across its devices."""
    return max(1, len(devices()) // division.devices)


def mesh(division: Division) -> Mesh:
    """Returns the mesh [trial, data, ...], which ends with the axes of the partition. Devices of a host are adjacent.

    Raises:
      BadInput: the number of devices is not a multiple of the number that the partition needs.
    """
    available = devices()
    if len(available) % division.devices:
        name = f"mesh={division.mesh_text}" if division.mesh else f"shards={division.shards}"
        raise BadInput(f"{name} does not divide the {len(available)} devices of a study")
    sizes = {TRIAL: len(available) // division.devices, DATA: division.shards, **dict(division.mesh)}
    auto = tuple(AxisType.Auto for _ in sizes)
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), devices=available, axis_types=auto)


def device_put_sharded(arrays: Any, sharding: NamedSharding) -> Any:
    """Puts NumPy arrays on the devices. Every process has the complete arrays, and puts only its own devices' parts."""
    if sharding.is_fully_addressable:
        return jax.device_put(arrays, sharding)
    return jax.tree.map(lambda a: jax.make_array_from_callback(a.shape, sharding, a.__getitem__), arrays)


def by_lane(mesh: Mesh) -> NamedSharding:
    """Returns the sharding for arrays with a leading lane axis, replicated over ``data``."""
    return NamedSharding(mesh, P(TRIAL))


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding for arrays that are replicated on all devices."""
    return NamedSharding(mesh, P())


def by_shard(mesh: Mesh) -> NamedSharding:
    """Returns the sharding for arrays whose leading axis is split across the shards."""
    return NamedSharding(mesh, P(DATA))


def fed(mesh: Mesh) -> NamedSharding:
    """Returns the sharding for prefetched batches [lanes, steps, examples, ...], which differ between lanes."""
    return NamedSharding(mesh, P(TRIAL, None, DATA))


def over_shards(of_shard: Callable[..., Any], shards: int, in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """Maps a function over the shards of a batch, inside ``programs.over_lanes``.

    Args:
      of_shard: function of one shard, which may sum over the ``data`` axis.
      shards: number of shards.
      in_specs, out_specs: how arguments and results are split across the ``data`` axis.
    """
    if shards == 1:
        return of_shard
    return jax.shard_map(of_shard, in_specs=in_specs, out_specs=out_specs, axis_names={DATA}, check_vma=False)


def divided(arrays: Any, shards: int) -> Any:
    """Returns arrays whose leading axis, the examples of a batch, is split across the shards."""
    if shards == 1:
        return arrays
    return jax.tree.map(lambda array: jax.lax.with_sharding_constraint(array, P(DATA)), arrays)


def summed(values: Any, shards: int) -> Any:
    """Returns arrays summed over the ``data`` axis."""
    return values if shards == 1 else jax.lax.psum(values, DATA)


def shard_index(shards: int) -> int | Array:
    """Returns the index of this shard. With a single shard, it is the int 0, so no computation depends on it."""
    return 0 if shards == 1 else jax.lax.axis_index(DATA)
