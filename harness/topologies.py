"""Devices of TPUs that are not there, for the compiler of the extra ``plan`` to compile for."""

import os

import jax

from results.bad_input import BadInput

# More than one process may load the library, and none asks for a TPU's metadata.
_ENVIRONMENT = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1"}


def devices(topology: str) -> list[jax.Device]:
    """The devices of a slice, in an order in which the last axis of a mesh is of neighbours.

    Args:
      topology: such as v5e:16x16, chips along each direction.

    Raises:
      BadInput: there is no such slice, or no compiler for it.
    """
    from jax.experimental import topologies as described

    os.environ |= {name: os.environ.get(name, value) for name, value in _ENVIRONMENT.items()}
    try:
        found = described.get_topology_desc(platform="tpu", topology_name=topology).devices
    except Exception as error:  # of whatever class the library takes
        why = " ".join(str(error).split())[:200]
        raise BadInput(f"engine=tpu-aot:{topology} cannot be compiled for: {why}; it needs the extra plan") from None
    return list(found)
