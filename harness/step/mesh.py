"""The mesh that a study runs on: one axis for lanes, one for the examples of a batch."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from harness.processes import multihost
from results.bad_input import BadInput
from workloads import memory
from workloads.workload import DATA

TRIAL = "trial"


def devices() -> list[jax.Device]:
    """Returns the devices that a study runs on: those of this process, or of all participating hosts in host order."""
    return sorted(jax.devices(), key=lambda d: (d.process_index, d.id)) if multihost.are_many() else jax.local_devices()


def device_bytes() -> int | None:
    """Returns the smallest device memory of all hosts, or None if unknown. CPU devices share the free memory."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        free = memory.available()
        own = free and free // jax.local_device_count()
    else:
        own = (device.memory_stats() or {}).get("bytes_limit")
    return int(-multihost.longest(-(own or 0))[0]) or None


def groups(shards: int) -> int:
    """Returns the number of device groups. Each group splits a batch across its devices and has its own lanes."""
    return max(1, len(devices()) // shards)


def mesh(shards: int) -> Mesh:
    """Returns the mesh [trial, data], with ``shards`` devices on the axis ``data``. Devices of a host are adjacent.

    Raises:
      BadInput: the number of devices is not a multiple of ``shards``.
    """
    found = devices()
    if len(found) % shards:
        raise BadInput(f"shards={shards} does not divide the {len(found)} devices of a study")
    shape = (len(found) // shards, shards)
    return jax.make_mesh(shape, (TRIAL, DATA), devices=found, axis_types=(AxisType.Auto, AxisType.Auto))


def device_put_sharded(arrays: Any, sharding: NamedSharding) -> Any:
    """Puts NumPy arrays on the devices. Every process has the complete arrays and puts the parts of its own devices."""
    if sharding.is_fully_addressable:
        return jax.device_put(arrays, sharding)
    return jax.tree.map(lambda a: jax.make_array_from_callback(a.shape, sharding, a.__getitem__), arrays)


def by_lane(mesh: Mesh) -> NamedSharding:
    """Sharding for arrays with a leading lane axis, replicated over ``data``."""
    return NamedSharding(mesh, P(TRIAL))


def replicated(mesh: Mesh) -> NamedSharding:
    """Sharding for arrays that are replicated on all devices."""
    return NamedSharding(mesh, P())


def by_shard(mesh: Mesh) -> NamedSharding:
    """Sharding for arrays whose leading axis is divided over the shards."""
    return NamedSharding(mesh, P(DATA))


def fed(mesh: Mesh) -> NamedSharding:
    """Sharding for prefetched batches [lanes, steps, examples, ...], which differ between lanes."""
    return NamedSharding(mesh, P(TRIAL, None, DATA))


def over_shards(of_shard: Callable[..., Any], shards: int, replicated: int) -> Callable[..., Any]:
    """Maps ``of_shard(divided, *replicated)`` over the shards of a batch, inside ``programs.over_lanes``.

    Args:
      of_shard: function that may sum over the axis ``data``. Its results must be replicated over that axis.
      shards: number of shards.
      replicated: number of arguments that every shard needs. Only the leading axis of the first argument is divided.
    """
    if shards == 1:
        return of_shard
    specs = (P(DATA), *(P() for _ in range(replicated)))
    return jax.shard_map(of_shard, in_specs=specs, out_specs=P(), axis_names={DATA}, check_vma=False)


def divided(arrays: Any, shards: int) -> Any:
    """Returns arrays whose leading axis, the examples of a batch, is divided over the shards."""
    if shards == 1:
        return arrays
    return jax.tree.map(lambda array: jax.lax.with_sharding_constraint(array, P(DATA)), arrays)


def summed(values: Any, shards: int) -> Any:
    """Arrays summed over the axis ``data``."""
    return values if shards == 1 else jax.lax.psum(values, DATA)


def shard_index(shards: int) -> int | Array:
    """Returns the index of this shard. With a single shard it is the int 0, so that no computation depends on it."""
    return 0 if shards == 1 else jax.lax.axis_index(DATA)
