"""The end of a process: its description, and whether the system killed processes for lack of memory."""

import contextlib
import itertools
import signal
from pathlib import Path


def out_of_memory_kills() -> int:
    """Returns how often the system has killed processes for lack of memory, on this machine and in its cgroup."""
    files = ("/proc/vmstat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
    kills = 0
    for file in files:
        with contextlib.suppress(OSError):
            words = Path(file).read_text().split()
            kills += sum(int(n) for name, n in itertools.pairwise(words) if name == "oom_kill" and n.isdecimal())
    return kills


def exit_description(exitcode: int, *, no_memory: bool | None = None) -> str:
    """Describes the end of a process.

    Args:
      exitcode: exit code of the process (or minus the signal that ended it).
      no_memory: whether the process was killed for lack of memory, or None if this is unknown.
    """
    if exitcode >= 0:
        return f"with exit code {exitcode}"
    why = ""
    if no_memory:
        why = ", out of memory"
    elif -exitcode == signal.SIGKILL and no_memory is None:
        why = ": by you, by the system, or for lack of memory"
    return f"by signal {-exitcode} ({signal.strsignal(-exitcode)}){why}"
