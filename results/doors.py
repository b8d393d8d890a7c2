"""What doors share: how they open and end, read words and print, and that nothing from a file can steer a terminal.

Imports next to nothing, so that a door is guarded before it imports anything that takes time.
"""

import argparse
import contextlib
import functools
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn, ParamSpec

from results.bad_input import BadInput, shown

P = ParamSpec("P")


class _Terminated(BaseException):
    """SIGTERM, told like an interrupt."""


def guarded(door: Callable[P, int | None]) -> Callable[P, int]:
    """Makes a door give its exit code, whatever happens in it.

    Nothing is a traceback that a user can bring about: a mistake, and a disk or a network that gave out, is one line
    and 2; an interrupt 130 and SIGTERM 143, once what was begun is left in order; 141 where the reader of what we
    print, such as head, has seen enough.
    """

    @functools.wraps(door)
    def opened(*words: P.args, **named: P.kwargs) -> int:
        try:
            with _terminable():
                try:
                    return _told(lambda: door(*words, **named))
                finally:
                    sys.stdout.flush()
        except BrokenPipeError:  # Python's own flush at exit must not fail again
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return 141

    return opened


def run(module: str) -> NoReturn:
    """Ends the process with the exit code of the ``main`` of a module, which is imported once it is guarded, too."""

    @guarded
    def door() -> int:
        code: int = importlib.import_module(module).main(sys.argv[1:])
        return code

    sys.exit(door())


class Parser(argparse.ArgumentParser):
    """Raises BadInput where argparse prints its usage; the manual is a --help away."""

    def error(self, message: str) -> NoReturn:
        """Raises BadInput with what is wrong."""
        raise BadInput(f"{message}; see `{self.prog} --help`")


def location(text: str) -> Any:
    """An argument of a ``Parser`` that ``durable.location`` understands."""
    from results import durable

    try:
        return durable.location(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def answer(lines: str) -> None:
    """Prints what was asked for."""
    print("\n".join(map(shown, lines.split("\n"))), flush=True)


def say(line: str) -> None:
    """Prints a line for the reader that is not part of the answer."""
    print(shown(line), file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], left: Iterable[str] | None = None) -> str:
    """Lines of a table, columns two spaces apart.

    Args:
      header: names of the columns.
      rows: their cells; of an int, thousands are set apart.
      left: columns that start at their header, the others end there; all but those of ints, if it is None.
    """
    held = list(rows)
    if left is None:
        left = [name for i, name in enumerate(header) if not all(isinstance(row[i], int) for row in held)]
    starts = [name in set(left) for name in header]
    lines = [[f"{cell:,}" if isinstance(cell, int) else shown(cell) for cell in row] for row in (header, *held)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if start else cell.rjust(width)
            for cell, width, start in zip(line, widths, starts, strict=True)
        ).rstrip()
        for line in lines
    )


def _told(door: Callable[[], int | None]) -> int:
    try:
        return door() or 0
    except SystemExit as exiting:  # argparse, after --help
        return int(exiting.code or 0)
    except BadInput as error:
        say(f"error: {error}")
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"error: {_reason(error)}")
        return 2
    except KeyboardInterrupt:
        say("interrupted; what is stored stays, and the same command goes on from there")
        return 128 + signal.SIGINT
    except _Terminated:
        say("terminated; what is stored stays, and the same command goes on from there")
        return 128 + signal.SIGTERM


def _reason(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename} cannot be read or written ({error.strerror}); see to its permissions, or its disk"


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Within, SIGTERM is an exception, so that what was begun can be left in order."""

    def terminated(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
