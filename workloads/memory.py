"""Finds the memory available to this process, and raises an error for data that would not fit."""

import os
from pathlib import Path

from workloads.base import BadInput

MEMINFO = Path("/proc/meminfo")
OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def require(needed: int, what: str, instead: str) -> None:
    """Raises BadInput unless ``needed`` bytes are free.

    Args:
      needed: number of bytes.
      what: the task that needs the memory, with which the message starts.
      instead: a remedy, as a sentence without its period.
    """
    free = available()
    if free is not None and needed > free:
        raise BadInput(f"{what} needs about {size_text(needed)} of memory and {size_text(free)} are free. {instead}.")


def available() -> int | None:
    """Returns the bytes that this process can use without swapping, within its control group, or None if unknown."""
    bounds = [bound for bound in (_free_on_machine(), _free_in_group()) if bound is not None]
    return min(bounds, default=None)


def _free_on_machine() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:  # macOS: all memory, free or not
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _free_in_group() -> int | None:
    """Returns the bytes left under the tightest limit of this process's control groups (version 2)."""
    try:
        lines = OWN_GROUP.read_text().splitlines()
    except OSError:
        return None
    group = next((line[4:] for line in lines if line.startswith("0::/")), None)
    if group is None:
        return None
    folder = GROUPS / group
    rests = []
    while True:
        try:
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            numbers = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = int(numbers["inactive_file"]) + int(numbers["active_file"])  # the kernel can drop these
            rests.append(max(0, limit - used + cached))
        except (OSError, KeyError, ValueError):
            pass  # no limit here
        if folder == GROUPS:
            return min(rests, default=None)
        folder = folder.parent


def size_text(count: int) -> str:
    """Returns a number of bytes as text, such as "12 MB"."""
    if count < 1e9:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB" if count < 1e11 else f"{count / 1e9:.0f} GB"
