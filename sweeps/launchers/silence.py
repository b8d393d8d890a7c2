"""Silence: how long a process gave no sign of life, such as one that is stopped or waits for a device that hangs.

A report is a sign of life. So is the processor time that a process uses: compiling is long, and reports nothing.
Without /proc only reports count.
"""

import contextlib
import os
import time
from pathlib import Path

LOOK_SECONDS = 2.0  # between looks at a process
SHARE = 0.05  # of a core, that a process uses at least if it computes


class Silence:
    """The silence of a process.

    Args:
      process: its number.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self.news()

    def news(self) -> None:
        """Takes in a report of the process."""
        self._seconds = 0.0
        self._looked, self._computed = time.monotonic(), _processor_seconds(self._process)

    def look(self, *, by_computing: bool) -> float:
        """The seconds since the last sign of life; those in which this process stood still itself do not count.

        Args:
          by_computing: whether processor time is such a sign.
        """
        passed = time.monotonic() - self._looked
        if passed >= LOOK_SECONDS:
            computed = _processor_seconds(self._process)
            computes = computed - self._computed >= SHARE * passed
            self._seconds = 0.0 if by_computing and computes else self._seconds + min(passed, 5 * LOOK_SECONDS)
            self._looked, self._computed = self._looked + passed, computed
        return self._seconds


def _processor_seconds(process: int) -> float:
    """The processor time of a process and of those that it started, such as an assembler of GPUs; 0 if unknown."""
    ticks, waiting = 0, [process]
    while waiting:
        folder = Path("/proc", str(waiting.pop()))
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))  # its own, and of children that have ended
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")
