"""The processors this process may run on: physical cores, and accelerators. Does not initialise JAX."""

import math
import os
import platform
from pathlib import Path


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


def model() -> str:
    """The model of the processor, such as "AMD EPYC"; times on different models are not comparable."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or platform.machine() or "cpu"])[0]


def accelerators() -> tuple[str, int]:
    """The kind and number of the machine's accelerators: ("gpu", n), ("tpu", n), or ("cpu", 0)."""
    if os.environ.get("JAX_PLATFORMS", "").lower() == "cpu":
        return "cpu", 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = sorted(p for p in Path("/dev").glob("nvidia[0-9]*"))
    if gpus and visible != "":
        return "gpu", len(visible.split(",")) if visible else len(gpus)
    tpus = list(Path("/dev").glob("accel[0-9]*")) or list(Path("/dev/vfio").glob("[0-9]*"))
    return ("tpu", len(tpus)) if tpus else ("cpu", 0)


def _quota(default: float) -> float:
    limit = Path("/sys/fs/cgroup/cpu.max")
    if not limit.exists():
        return default
    quota, period = limit.read_text().split()
    return default if quota == "max" else int(quota) / int(period)
