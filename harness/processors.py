"""The processors this process may run on: physical cores, and accelerators. Does not initialise JAX."""

import fcntl
import functools
import importlib.util
import itertools
import math
import os
import platform
import re
import tempfile
from pathlib import Path

from results.bad_input import BadInput

DEVICES, PCI, GPUS = Path("/dev"), Path("/sys/bus/pci/devices"), Path("/proc/driver/nvidia/gpus")
# The devices that JAX shows of a chip, by PCI's number of it: of a v2 or v3 and of a TPU7x each half is one.
GOOGLE = "0x1ae0"
TPUS = {"0x0027": 2, "0x0056": 1, "0x005e": 1, "0x0062": 1, "0x0063": 1, "0x006f": 1, "0x0076": 2}
# How JAX calls them where one number is of one version: of v2 and v3 it is the same.
TPU_NAMES = {
    "0x005e": "TPU v4",
    "0x0062": "TPU v5",
    "0x0063": "TPU v5 lite",
    "0x006f": "TPU v6 lite",
    "0x0076": "TPU7x",
}
# What JAX needs for accelerators of a kind: modules, of which one will do; the extra that has them; what they are.
PLUGINS = {
    "gpu": (("jax_cuda12_plugin", "jax_cuda13_plugin"), "cuda", "NVIDIA GPU"),
    "tpu": (("libtpu",), "tpu", "TPU"),
}


def affinity() -> tuple[int, ...]:
    """Logical processors this process may run on, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_cores() -> list[tuple[int, ...]]:
    """The physical cores this process may use, each as its logical processors.

    Fewer than the machine's where affinity or a control group's quota says so. Where the system does not tell which
    logical processors share a core, each counts as one.
    """
    cores: dict[str, list[int]] = {}
    for cpu in affinity():
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings.read_text().strip() if siblings.exists() else str(cpu), []).append(cpu)
    groups = [tuple(cpus) for cpus in cores.values()]
    return groups[: max(1, math.floor(_quota(len(groups))))]


@functools.cache
def unclaimed_cores(count: int) -> list[tuple[int, ...]]:
    """So many physical cores that no other process has claimed by this function, or as many as there are left.

    A claim ends with the process. It is for processes that a cluster starts side by side without binding them.
    """
    folder = Path(tempfile.gettempdir()) / f"scaling-limits-cores-{os.getuid()}"
    claimed: list[tuple[int, ...]] = []
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
            claimed.append(core)  # and the handle stays open
    except OSError:  # no such folder is to be had
        pass
    return claimed


def model() -> str:
    """The model of the processor, such as "AMD EPYC"; times on different models are not comparable."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or platform.machine() or "cpu"])[0]


def accelerators() -> tuple[str, int]:
    """The kind and number of the machine's accelerators as JAX counts devices: ("gpu", n), ("tpu", n), or ("cpu", 0).

    Raises:
      BadInput: JAX lacks its plugin for them, and would compute on the CPU without a word.
    """
    if os.environ.get("JAX_PLATFORMS", "").lower() == "cpu":
        return "cpu", 0
    kind, count = _accelerators_there()
    if count:
        _check_plugin(kind)
    return kind, count


def accelerator_model(kind: str) -> str:
    """The name that JAX has for the machine's first accelerator, as far as it is told without JAX; else its kind."""
    if kind == "gpu":
        for told in sorted(GPUS.glob("*/information")):
            lines = dict(line.split(":", 1) for line in told.read_text().splitlines() if ":" in line)
            return lines.get("Model", kind).strip()
        return kind
    found = [(folder / "device").read_text().strip() for folder in _of_google()]
    return next((TPU_NAMES[number] for number in found if number in TPU_NAMES), kind)


def _accelerators_there() -> tuple[str, int]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = sorted(DEVICES.glob("nvidia[0-9]*"))
    count = len(gpus) if visible is None else _visible(visible, len(gpus))
    if gpus and count:
        return "gpu", count
    tpus = devices_of_chips()
    return ("tpu", sum(tpus)) if tpus else ("cpu", 0)


def _visible(names: str, gpus: int) -> int:
    """How many GPUs CUDA shows of those that are named: the first name of none, such as -1, ends the list."""

    def names_one(name: str) -> bool:
        return 0 <= int(name) < gpus if re.fullmatch(r"[+-]?\d+", name) else bool(name)

    return len(list(itertools.takewhile(names_one, map(str.strip, names.split(",")))))


def devices_of_chips() -> list[int]:
    """Of each TPU of the machine how many devices JAX shows of it."""
    numbers = [(folder / "device").read_text().strip() for folder in _of_google()]
    return [TPUS[number] for number in numbers if number in TPUS]


def _of_google() -> list[Path]:
    return [vendor.parent for vendor in sorted(PCI.glob("*/vendor")) if vendor.read_text().strip() == GOOGLE]


def _check_plugin(kind: str) -> None:
    modules, extra, name = PLUGINS[kind]
    told = kind == "tpu" and os.environ.get("TPU_LIBRARY_PATH")  # where JAX looks first
    if not told and not any(importlib.util.find_spec(module) for module in modules):
        raise BadInput(
            f"this machine has {'an' if kind == 'gpu' else 'a'} {name}, and JAX's plugin for it is not installed: in a "
            f"checkout make quickstart EXTRA={extra} installs it, elsewhere pip install 'scaling-limits[{extra}]'; "
            f"JAX_PLATFORMS=cpu goes on without it, on the CPU"
        )


def _quota(default: float) -> float:
    limit = Path("/sys/fs/cgroup/cpu.max")
    if not limit.exists():
        return default
    quota, period = limit.read_text().split()
    return default if quota == "max" else int(quota) / int(period)
