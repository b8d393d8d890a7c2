"""Measures how long a process has been silent: the time since its last sign of life.

A stopped or hung process is silent. Both reports and CPU time are signs of life, because compilation may take a long
time without a report. Without /proc, only reports count.
"""

import contextlib
import os
import time
from pathlib import Path

LOOK_SECONDS = 2.0  # interval between checks of a process
SHARE = 0.05  # fraction of a core below which a process is considered idle


class Silence:
    """The silence of a process.

    Args:
      process: id of the process.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self.restart()

    def restart(self) -> None:
        """Restarts the count after a report of the process."""
        self._seconds = 0.0
        self._looked, self._computed = time.monotonic(), _processor_seconds(self._process)

    def look(self, *, by_computing: bool) -> float:
        """Returns the seconds since the last sign of life, excluding any time when this process itself was stopped.

        Args:
          by_computing: whether CPU time counts as a sign of life.
        """
        passed = time.monotonic() - self._looked
        if passed >= LOOK_SECONDS:
            computed = _processor_seconds(self._process)
            computes = computed - self._computed >= SHARE * passed
            self._seconds = 0.0 if by_computing and computes else self._seconds + min(passed, 5 * LOOK_SECONDS)
            self._looked += passed
            self._computed = computed
        return self._seconds


def _processor_seconds(process: int) -> float:
    """Returns the CPU seconds of a process and its children, such as a GPU assembler, or 0 if unknown."""
    ticks = 0
    waiting = [process]
    while waiting:
        folder = Path("/proc", str(waiting.pop()))
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))  # of the process itself and of its ended children
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")
