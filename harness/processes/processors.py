"""Finds the physical cores and accelerators that this process may use. This module does not initialize JAX."""

import contextlib
import fcntl
import functools
import importlib.util
import itertools
import math
import os
import platform
import re
import resource
import tempfile
from pathlib import Path

from results.bad_input import BadInput

Cpus = tuple[int, ...]  # logical processors
DEVICES = Path("/dev")
PCI = Path("/sys/bus/pci/devices")
GPUS = Path("/proc/driver/nvidia/gpus")
# The number of devices per chip that JAX shows, by PCI device id: each half of a v2, v3 or TPU7x chip is one.
GOOGLE = "0x1ae0"
TPUS = {"0x0027": 2, "0x0056": 1, "0x005e": 1, "0x0062": 1, "0x0063": 1, "0x006f": 1, "0x0076": 2}
# JAX's names by PCI device id. v2 and v3 are missing because they share an id.
TPU_NAMES = {
    "0x005e": "TPU v4",
    "0x0062": "TPU v5",
    "0x0063": "TPU v5 lite",
    "0x006f": "TPU v6 lite",
    "0x0076": "TPU7x",
}
# JAX's plugins by accelerator: modules (any one suffices), the extra that installs them, and a description.
PLUGINS = {
    "gpu": (("jax_cuda12_plugin", "jax_cuda13_plugin"), "cuda", "NVIDIA GPU"),
    "tpu": (("libtpu",), "tpu", "TPU"),
}


def affinity() -> Cpus:
    """Returns the logical processors that this process may run on, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_cores() -> list[Cpus]:
    """Returns the physical cores that this process may use, each as a list of its logical processors.

    CPU affinity or a cgroup quota may reduce the number of cores. If the system does not report which logical
    processors share a core, each logical processor counts as a core.
    """
    cores: dict[str, list[int]] = {}
    for cpu in affinity():
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings.read_text().strip() if siblings.exists() else str(cpu), []).append(cpu)
    groups = [tuple(cpus) for cpus in cores.values()]
    return groups[: max(1, math.floor(_quota(len(groups))))]


@functools.cache
def unclaimed_cores(count: int) -> list[Cpus]:
    """Claims and returns up to ``count`` physical cores that no other process has claimed with this function.

    A claim ends with the process. Use this function if a cluster starts several processes on one machine without
    binding them to cores.
    """
    folder = Path(tempfile.gettempdir()) / f"scaling-limits-cores-{os.getuid()}"
    claimed: list[Cpus] = []
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for core in physical_cores():
            if len(claimed) == count:
                break
            handle = os.open(folder / str(core[0]), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            claimed.append(core)  # the handle stays open to keep the claim
    except OSError:  # the folder cannot be created
        pass
    return claimed


def model() -> str:
    """Returns the model of the processor, such as "AMD EPYC". Times measured on different models are not comparable."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or platform.machine() or "cpu"])[0]


def accelerators() -> tuple[str, int]:
    """Returns the kind and number of the machine's accelerators as JAX devices: ("gpu", n), ("tpu", n), or ("cpu", 0).

    Raises:
      BadInput: JAX's plugin for the accelerators is missing, so JAX would silently use the CPU.
    """
    if os.environ.get("JAX_PLATFORMS", "").lower() == "cpu":
        return "cpu", 0
    kind, count = _accelerators_there()
    if count:
        _check_plugin(kind)
    return kind, count


def check_platforms() -> None:
    """Raises BadInput if JAX would silently skip the first of several platforms in ``JAX_PLATFORMS``."""
    asked = os.environ.get("JAX_PLATFORMS", "").lower()
    present, _ = _accelerators_there()
    for kind, (_, extra, name) in PLUGINS.items():  # extras have the names of platforms
        if asked.startswith(f"{extra},") and kind != present:
            raise BadInput(
                f"JAX_PLATFORMS={asked} requires {name}s, but this machine does not show any, so JAX would compute "
                "on the next platform. Check the driver and CUDA_VISIBLE_DEVICES, or set JAX_PLATFORMS=cpu."
            )


def allow_locked_memory() -> None:
    """Raises the limit on locked memory as far as allowed. TPUs access locked memory directly."""
    for limit in (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
            return


def accelerator_model(kind: str) -> str:
    """Returns JAX's name for the machine's first accelerator if it can be found without JAX, otherwise its kind."""
    if kind == "gpu":
        for described in sorted(GPUS.glob("*/information")):
            lines = dict(line.split(":", 1) for line in described.read_text().splitlines() if ":" in line)
            return lines.get("Model", kind).strip()
        return kind
    return next((TPU_NAMES[number] for number in _google_ids() if number in TPU_NAMES), kind)


def _accelerators_there() -> tuple[str, int]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = sorted(DEVICES.glob("nvidia[0-9]*"))
    count = len(gpus) if visible is None else _visible(visible, len(gpus))
    if gpus and count:
        return "gpu", count
    tpus = devices_of_chips()
    return ("tpu", sum(tpus)) if tpus else ("cpu", 0)


def _visible(names: str, gpus: int) -> int:
    """Returns the number of listed GPUs that are visible to CUDA. The first invalid name, such as -1, ends the list."""

    def names_one(name: str) -> bool:
        return 0 <= int(name) < gpus if re.fullmatch(r"[+-]?\d+", name) else bool(name)

    return len(list(itertools.takewhile(names_one, map(str.strip, names.split(",")))))


def devices_of_chips() -> list[int]:
    """Returns the number of JAX devices of each TPU chip of the machine."""
    return [TPUS[number] for number in _google_ids() if number in TPUS]


def _google_ids() -> list[str]:
    """Returns the device ids of Google's PCI devices."""
    vendors = [vendor for vendor in sorted(PCI.glob("*/vendor")) if vendor.read_text().strip() == GOOGLE]
    return [vendor.with_name("device").read_text().strip() for vendor in vendors]


def _check_plugin(kind: str) -> None:
    modules, extra, name = PLUGINS[kind]
    library = kind == "tpu" and os.environ.get("TPU_LIBRARY_PATH")  # JAX looks there first
    if not library and not any(importlib.util.find_spec(module) for module in modules):
        raise BadInput(
            f"this machine has {'an' if kind == 'gpu' else 'a'} {name}, but JAX's plugin for it is not installed. Run "
            f"make quickstart EXTRA={extra} in a checkout, or pip install 'scaling-limits[{extra}]'. Set "
            "JAX_PLATFORMS=cpu to compute on the CPU."
        )


def _quota(default: float) -> float:
    limit = Path("/sys/fs/cgroup/cpu.max")
    if not limit.exists():
        return default
    quota, period = limit.read_text().split()
    return default if quota == "max" else int(quota) / int(period)
