"""The queue of SLURM: reports why jobs wait."""

import collections
import time
from collections.abc import Iterable, Sequence

from results.printing import say
from results.progress import SECONDS


class Queue:
    """Reports the number of queued jobs and why they wait, at most every few seconds and only if there is a change."""

    def __init__(self) -> None:
        self._reported = ""
        self._due = 0.0

    def report(self, reasons: Sequence[str]) -> None:
        """Prints a line if necessary, given SLURM's reason for each queued job."""
        given = [reason for reason in reasons if reason != "None"]
        text = f"{len(reasons)} queued: {why(given)}"
        if given and text != self._reported and time.monotonic() >= self._due:
            self._reported = text
            self._due = time.monotonic() + SECONDS
            say(text)


def why(reasons: Iterable[str]) -> str:
    """Joins reasons, starting with the most frequent one. If there are several, adds their counts."""
    counts = collections.Counter(reasons).most_common()
    return ", ".join(reason if len(counts) == 1 else f"{count} {reason}" for reason, count in counts)
