"""Silence: the time since a process's last sign of life. A stopped process is silent, or one whose device hangs.

Reports and used processor time are signs of life, because compiling takes long and sends no reports. Without /proc
only reports count.
"""

import contextlib
import os
import time
from pathlib import Path

LOOK_SECONDS = 2.0  # between looks at a process
SHARE = 0.05  # of a core: a process that uses less is not computing


class Silence:
    """The silence of a process.

    Args:
      process: the process id.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self.restart()

    def restart(self) -> None:
        """Starts counting again, after a report of the process."""
        self._seconds = 0.0
        self._looked, self._computed = time.monotonic(), _processor_seconds(self._process)

    def look(self, *, by_computing: bool) -> float:
        """Returns the seconds since the last sign of life. Time in which this process itself was stopped is excluded.

        Args:
          by_computing: whether processor time is a sign of life.
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
    """Returns the processor seconds of a process and its children, such as a GPU assembler. 0 if unknown."""
    ticks = 0
    waiting = [process]
    while waiting:
        folder = Path("/proc", str(waiting.pop()))
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))  # its own, and those of children that have ended
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")
