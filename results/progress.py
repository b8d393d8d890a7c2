"""Progress of long work: a bar on a terminal, elsewhere a line every few seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

FIRST_SECONDS = 2.0  # until the first line
SECONDS = 10.0  # between lines


@contextmanager
def show_progress(what: str, total: int, unit: str, report: Callable[[str], None]) -> Iterator[Callable[[int], None]]:
    """A function that takes the total amount done so far.

    Args:
      what: the work.
      total: how much there is to do; 0 if nobody knows.
      unit: of both; bytes are shown as megabytes and so on.
      report: takes a line where there is no terminal.
    """
    if sys.stderr.isatty():
        with tqdm(total=total or None, desc=what, unit=unit, unit_scale=True) as bar:

            def move(done: int) -> None:
                bar.update(done - bar.n)

            yield move
        return
    due = time.monotonic() + FIRST_SECONDS

    def tell(done: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + SECONDS
            share = f" ({done / total:.0%})" if total else ""
            report(f"{what}: {tqdm.format_sizeof(done, unit)}{share}")

    yield tell
