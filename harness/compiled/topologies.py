"""Describes TPU devices that are not attached, for the compiler in the ``plan`` extra."""

import importlib.util
import math
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from results.bad_input import BadInput, nearest

if TYPE_CHECKING:
    import jax

# Number of directions in which the chips of a TPU version are linked.
DIRECTIONS = {"v2": 2, "v3": 2, "v4": 3, "v5e": 2, "v5p": 3, "v6e": 2, "tpu7x": 3}
TWO_DEVICES = ("v2", "v3", "tpu7x")  # versions with two devices per chip, as JAX counts them
# Lets several processes load the library, and keeps it from querying a TPU's metadata.
_ENVIRONMENT = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1"}


def check(topology: str) -> None:
    """Raises BadInput for an invalid slice, such as v5e:2x2x2. (v5e chips are linked in only two directions.)"""
    version, colon, chips = topology.partition(":")
    if colon and version not in DIRECTIONS:
        suggestion = nearest(version, DIRECTIONS)
        raise BadInput(
            f"unknown TPU version {version!r}: {suggestion}. Only TPUs can be compiled for without being attached. "
            "For a GPU, use device=NAME devices=N, such as device=h100 devices=8."
        )
    directions = DIRECTIONS.get(version, 2)
    example = f"{version if colon or version in DIRECTIONS else 'v5e'}:{'x'.join(['2', '2', '1'][:directions])}"
    if not re.fullmatch("x".join([r"[1-9]\d*"] * directions), chips):
        directions_text = "two directions" if directions == 2 else "three directions"
        raise BadInput(f"{topology!r} is not a TPU slice. Give its chips along {directions_text}, such as {example}.")


def count(topology: str) -> int:
    """Returns the number of devices in a slice. Raises BadInput for an invalid slice."""
    check(topology)
    version, _, chips = topology.partition(":")
    return math.prod(map(int, chips.split("x"))) * (2 if version in TWO_DEVICES else 1)


def chips(devices: "Iterable[jax.Device]") -> list[int] | None:
    """Returns the number of chips along each torus dimension, or None for emulated devices, which have no torus."""
    places = [getattr(device, "coords", None) for device in devices]
    if any(place is None for place in places):
        return None
    return [len(set(coordinates)) for coordinates in zip(*places, strict=True)]


def has_compiler() -> bool:
    """Returns whether the TPU compiler is installed. It is part of the ``plan`` extra."""
    return importlib.util.find_spec("libtpu") is not None


def devices(topology: str) -> "list[jax.Device]":
    """Returns the devices of a slice, in an order in which the last axis of a mesh consists of adjacent devices.

    Args:
      topology: version and number of chips along each direction, such as v5e:16x16.

    Raises:
      BadInput: the slice does not exist, or its compiler is not installed.
    """
    check(topology)
    if not has_compiler():
        raise BadInput(f"{topology}: the TPU compiler is not installed. Run pip install 'scaling-limits[plan]'.")
    from jax.experimental import topologies as described

    os.environ |= {name: os.environ.get(name, value) for name, value in _ENVIRONMENT.items()}
    try:
        slice_devices = described.get_topology_desc(platform="tpu", topology_name=topology).devices
    except Exception as error:  # the library raises exceptions of various types
        chips = topology.partition(":")[2].split("x")
        if any(int(size) % 2 for size in chips[:2]) and math.prod(map(int, chips)) > 0:
            why = "hosts have 2x2 chips, so the number along the first two directions must be even"
        else:
            why = " ".join(str(error).split())[:200]
        raise BadInput(f"no slice {topology}: {why}") from None
    return list(slice_devices)
