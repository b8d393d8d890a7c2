"""Progress of long-running work: a bar on a terminal, or a line every few seconds."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from results.aliases import OnCount
from results.printing import Report

FIRST_SECONDS = 2.0  # before the first line
SECONDS = 10.0  # between lines


@contextmanager
def show_progress(what: str, total: int, unit: str, report: Report) -> Iterator[OnCount]:
    """Yields a function to call with the total amount done so far.

    Args:
      what: name of the work.
      total: total amount, or 0 if unknown.
      unit: unit of the amounts. Large amounts are shown with a prefix, such as megabytes.
      report: called with progress lines if there is no terminal.
    """
    if sys.stderr.isatty():
        with tqdm(total=total or None, desc=what, unit=unit, unit_scale=True) as bar:

            def move(done: int) -> None:
                bar.update(done - bar.n)

            yield move
        return
    due = time.monotonic() + FIRST_SECONDS

    def report_line(done: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + SECONDS
            share = f" ({done / total:.0%})" if total else ""
            report(f"{what}: {tqdm.format_sizeof(done, unit)}{share}")

    yield report_line
