"""What every door shares: how it ends, and that nothing from a file can steer the terminal it prints to."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from results.bad_input import BadInput
from results.entries import shown


class _Terminated(BaseException):
    """SIGTERM, told like an interrupt."""


def guarded(door: Callable[[], int | None]) -> int:
    """Runs a door and gives its exit code.

    Nothing is a traceback that a user can bring about: a mistake, and a disk or a network that gave out, is one line
    and 2; an interrupt 130 and SIGTERM 143, once what was begun is left in order; 141 where the reader of what we
    print, such as head, has seen enough.
    """
    try:
        with _terminable():
            try:
                return _told(door)
            finally:
                sys.stdout.flush()
    except BrokenPipeError:  # Python's own flush at exit must not fail again
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 141


def answer(lines: str) -> None:
    """Prints what was asked for."""
    print("\n".join(map(shown, lines.split("\n"))), flush=True)


def say(line: str) -> None:
    """Prints a line for the reader that is not part of the answer."""
    print(shown(line), file=sys.stderr, flush=True)


def _told(door: Callable[[], int | None]) -> int:
    try:
        return door() or 0
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
