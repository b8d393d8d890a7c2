"""Devices of TPUs that are not there, for the compiler of the extra ``plan`` to compile for."""

import importlib.util
import math
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from results.bad_input import BadInput, nearest

if TYPE_CHECKING:
    import jax

# Directions in which chips of a version are linked.
DIRECTIONS = {"v2": 2, "v3": 2, "v4": 3, "v5e": 2, "v5p": 3, "v6e": 2, "tpu7x": 3}
TWO_DEVICES = ("v2", "v3", "tpu7x")  # versions of which each chip is two, as JAX counts devices
# More than one process may load the library, and none asks for a TPU's metadata.
_ENVIRONMENT = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1"}


def check(topology: str) -> None:
    """Raises BadInput for what names no slice, such as v5e:2x2x2, whose chips have two directions."""
    version, colon, chips = topology.partition(":")
    if colon and version not in DIRECTIONS:
        known = nearest(version, DIRECTIONS)
        raise BadInput(
            f"unknown version of TPUs {version!r}; {known}; only TPUs are compiled for without being there; "
            "on a GPU leave topology= out, on a machine that has one"
        )
    directions = DIRECTIONS.get(version, 2)
    example = f"{version if colon or version in DIRECTIONS else 'v5e'}:{'x'.join(['2', '2', '1'][:directions])}"
    if not re.fullmatch("x".join([r"[1-9]\d*"] * directions), chips):
        along = "two directions" if directions == 2 else "three directions"
        raise BadInput(f"{topology!r} is no slice of TPUs; write its chips along {along}, such as {example}")


def count(topology: str) -> int:
    """The devices of a slice; raises BadInput for what names none."""
    check(topology)
    version, _, chips = topology.partition(":")
    return math.prod(map(int, chips.split("x"))) * (2 if version in TWO_DEVICES else 1)


def chips(devices: "Iterable[jax.Device]") -> list[int] | None:
    """Chips of devices along each direction of their torus; None of devices that are in none, such as emulated ones."""
    places = [getattr(device, "coords", None) for device in devices]
    if any(place is None for place in places):
        return None
    return [len(set(along)) for along in zip(*places, strict=True)]


def devices(topology: str) -> "list[jax.Device]":
    """The devices of a slice, in an order in which the last axis of a mesh is of neighbours.

    Args:
      topology: such as v5e:16x16, chips along each direction.

    Raises:
      BadInput: there is no such slice, or no compiler for it.
    """
    check(topology)
    if importlib.util.find_spec("libtpu") is None:
        raise BadInput(f"{topology}: the compiler of TPUs is not here; pip install 'scaling-limits[plan]' brings it")
    from jax.experimental import topologies as described

    os.environ |= {name: os.environ.get(name, value) for name, value in _ENVIRONMENT.items()}
    try:
        found = described.get_topology_desc(platform="tpu", topology_name=topology).devices
    except Exception as error:  # of whatever class the library takes
        chips = topology.partition(":")[2].split("x")
        if any(int(each) % 2 for each in chips[:2]) and math.prod(map(int, chips)) > 0:
            why = "hosts have 2x2 chips, so there is an even number along the first two directions"
        else:
            why = " ".join(str(error).split())[:200]
        raise BadInput(f"there is no slice {topology}: {why}") from None
    return list(found)
