"""Shows the progress of long-running work, as a bar on a terminal or as a line every few seconds."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from results.printing import Report

T = TypeVar("T")

FIRST_SECONDS = 2.0  # before the first line
SECONDS = 10.0  # between lines
PREFIX_FROM = 1000  # smaller amounts are shown as plain numbers


@contextmanager
def show_progress(
    what: str,
    total: int,
    unit: str,
    report: Report,
    *,
    began: float | None = None,
    delay: float = 0.0,
    with_rest: bool = False,
) -> Iterator[Callable[[int], None]]:
    """Yields a function that must be called with the total amount done so far.

    Args:
      what: name of the work.
      total: total amount, or 0 if unknown.
      unit: unit of the amounts. Large amounts are shown with a prefix, such as megabytes.
      report: called with progress lines if there is no terminal.
      began: ``time.monotonic()`` at the start of the work, if it began before this call.
      delay: seconds until a bar appears on a terminal. There is no bar for shorter work.
      with_rest: whether lines include the remaining time.
    """
    from tqdm import tqdm

    if sys.stderr.isatty():
        scaled = total >= PREFIX_FROM
        with tqdm(total=total or None, desc=what, unit=unit, unit_scale=scaled, delay=delay) as bar:

            def move(done: int) -> None:
                bar.update(done - bar.n)

            yield move
        return
    start = time.monotonic() if began is None else began
    due = start + FIRST_SECONDS

    def report_line(done: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + SECONDS
            share = f" ({done / total:.0%})" if total else ""
            amount = tqdm.format_sizeof(done, unit) if done >= PREFIX_FROM else f"{done}{unit}"
            left = ""
            if with_rest and 0 < done <= total:
                seconds = (time.monotonic() - start) * (total - done) / done
                left = f", {tqdm.format_interval(seconds)} left"
            report(f"{what}: {amount}{share}{left}")

    yield report_line


def track(items: Sequence[T], what: str, unit: str, report: Report | None, began: float | None = None) -> Iterator[T]:
    """Yields ``items``, and shows the number of finished ones if they take long. Silent without ``report``."""
    if report is None:
        yield from items
        return
    with show_progress(what, len(items), unit, report, began=began, delay=FIRST_SECONDS) as move:
        for done, item in enumerate(items):
            move(done)
            yield item
        move(len(items))
