"""The machines of a Kubernetes cluster that run a study: the hosts of a TPU slice, or hosts with GPUs.

Machine types, topologies and limits are taken from GoogleCloudPlatform/cluster-toolkit at commit 1047080
(`pkg/config/hardware.go`, and `pkg/orchestrator/gke/gke_job_orchestrator.go` for the labels of nodes).
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from results.bad_input import BadInput, check_choice

ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY = "cloud.google.com/gke-tpu-topology"
GPU = "cloud.google.com/gke-accelerator"


class Machines(NamedTuple):
    """The hosts that run a study. Each host runs one pod with all of its devices.

    Attributes:
      name: version and topology of a TPU slice, or name of a GPU.
      hosts: number of hosts.
      devices: number of chips or GPUs per host.
      resource: name of the Kubernetes resource for the devices.
      labels: labels of the nodes.
      topology: topology of a TPU slice.
      arm: whether the hosts have Arm processors, so that they need an image for linux/arm64.
    """

    name: str
    hosts: int
    devices: int
    resource: str
    labels: Mapping[str, str]
    topology: str | None = None
    arm: bool = False


class Version(NamedTuple):
    """A TPU version.

    Attributes:
      label: value of the label ``ACCELERATOR`` of its nodes.
      directions: number of directions in which chips are linked.
      machine_types: machine types by number of chips.
      most_cubes: maximum number of cubes of 64 chips, if chips are linked in three directions.
    """

    label: str
    directions: int
    machine_types: Mapping[int, str]
    most_cubes: int = 0


# The types ct5p-hightpu-1t and -2t are missing, because no topology of a v5p has 1 or 2 chips.
VERSIONS = {
    "v4": Version("tpu-v4-podslice", 3, {4: "ct4p-hightpu-4t"}, 64),
    "v5e": Version("tpu-v5-lite-podslice", 2, {n: f"ct5lp-hightpu-{n}t" for n in (1, 4, 8)}),
    "v5p": Version("tpu-v5p-slice", 3, {4: "ct5p-hightpu-4t"}, 140),
    "v6e": Version("tpu-v6e-slice", 2, {n: f"ct6e-standard-{n}t" for n in (1, 4, 8)}),
    "tpu7x": Version("tpu7x", 3, {4: "tpu7x-standard-4t"}, 144),
}
FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
# Larger ones have sides that are multiples of 4.
DEEP = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
SEVERAL_HOSTS = 4  # chips of each host in a slice of several hosts

GPUS: Mapping[str, Sequence[int]] = {  # numbers of GPUs per host, by the label ``GPU`` of nodes
    "nvidia-tesla-t4": (1, 2, 4),
    "nvidia-l4": (1, 2, 4, 8),
    "nvidia-tesla-a100": (1, 2, 4, 8, 16),
    "nvidia-a100-80gb": (1, 2, 4, 8),
    "nvidia-h100-80gb": (1, 2, 4, 8),
    "nvidia-h100-mega-80gb": (8,),
    "nvidia-h200-141gb": (8,),
    "nvidia-b200": (8,),
    "nvidia-gb200": (4,),
}
ARM = ("nvidia-gb200",)  # GPUs of hosts with Arm processors
MOST_HOSTS = 10_000  # Kubernetes limits the pods of a job


def tpus(text: str, machine: str | None = None, hosts: int | None = None) -> Machines:
    """Returns the hosts of a TPU slice.

    Args:
      text: version and topology, such as v6e:4x4.
      machine: machine type. By default, the type that needs the fewest hosts.
      hosts: expected number of hosts, or None for any number.

    Raises:
      BadInput: the slice does not exist, or the machine type or the number of hosts does not match it.
    """
    name, _, topology = text.partition(":")
    if name not in VERSIONS:
        raise BadInput(f"topology={text}: give a TPU version and its chips, such as v6e:4x4. {_known(VERSIONS)}")
    version = VERSIONS[name]
    _check_topology(text, version, topology)
    chips = math.prod(map(int, topology.split("x")))
    fitting = {
        kind: n for n, kind in version.machine_types.items() if n == chips or (n == SEVERAL_HOSTS and chips % n == 0)
    }
    kind = machine or max(fitting, key=lambda machine_type: fitting[machine_type])
    if kind not in fitting:
        raise BadInput(f"machine={kind} cannot have topology={text}. {_known(fitting)}")
    count = chips // fitting[kind]
    if hosts is not None and hosts != count:
        raise BadInput(
            f"hosts={hosts}: {text} has {count} of {kind}, with {fitting[kind]} chips each. Leave hosts out."
        )
    labels = {ACCELERATOR: version.label, TOPOLOGY: topology}
    return Machines(text, count, fitting[kind], "google.com/tpu", labels, topology)


def gpus(name: str, count: int, hosts: int = 1) -> Machines:
    """Returns hosts with GPUs.

    Args:
      name: label of the GPU, such as nvidia-h100-80gb.
      count: number of GPUs per host.
      hosts: number of hosts.

    Raises:
      BadInput: the machine does not exist.
    """
    check_choice("gpu", name, GPUS)
    counts = GPUS[name]
    if count not in counts:
        raise BadInput(f"gpus={count}: hosts with {name} have {' or '.join(map(str, counts))} GPUs")
    if not 1 <= hosts <= MOST_HOSTS:
        raise BadInput(f"hosts={hosts} must be from 1 to {MOST_HOSTS:,}")
    full = min(8, max(counts))
    if hosts > 1 and count < full:
        raise BadInput(f"hosts={hosts}: use hosts with {full} GPUs, that is, gpus={full}")
    return Machines(name, hosts, count, "nvidia.com/gpu", {GPU: name}, arm=name in ARM)


def _known(names: Mapping[str, object]) -> str:
    return f"Choices: {', '.join(names)}"


def _check_topology(text: str, version: Version, topology: str) -> None:
    """Raises BadInput for an invalid topology. If possible, the error suggests a valid one."""
    common = FLAT if version.directions == 2 else DEEP
    if not re.fullmatch("x".join([r"[1-9]\d{0,3}"] * version.directions), topology):
        raise BadInput(f"topology={text}: give chips along {version.directions} directions, such as {common[2]}")
    if topology in common:
        return
    sides = sorted(map(int, topology.split("x")))
    right = "2x2x1" if sides == [1, 2, 2] else "x".join(map(str, sides))
    is_deep = version.directions == 3 and all(side % 4 == 0 for side in sides)
    cubes = math.prod(side // 4 for side in sides)
    if is_deep and cubes > version.most_cubes:
        raise BadInput(
            f"topology={text} has {cubes} cubes of 4x4x4 chips, but at most {version.most_cubes} are possible"
        )
    if right != topology and (is_deep or right in common):
        raise BadInput(f"topology={text}: sides must be in ascending order. Write {text.partition(':')[0]}:{right}")
    if not is_deep:
        further_sides = ", or sides that are multiples of 4" if version.directions == 3 else ""
        chips = math.prod(sides)
        raise BadInput(
            f"topology={text}: there is no such slice of {chips} chips. Choices: {', '.join(common)}{further_sides}"
        )
