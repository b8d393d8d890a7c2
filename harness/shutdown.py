"""Orderly termination of a process that trains: finished trials are handed over first.

Python runs handlers of signals only between computations, which may take minutes; so a thread waits for the signal, and
for the end of the parent process.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

from results.command_line import say

GRACE_SECONDS = 5.0  # that what is being stored may take until the process ends all the same
CODE = 128 + signal.SIGTERM


class Shutdown:
    """The work to do before the process ends.

    Attributes:
      lock: held while finished trials are counted or stored; the process does not end meanwhile.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._first: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def first(self, hand_over: Callable[[], None]) -> Iterator[None]:
        """Within, the process calls ``hand_over`` before it ends."""
        before, self._first = self._first, hand_over
        try:
            yield
        finally:
            with self.lock:
                self._first = before

    def end(self) -> NoReturn:
        """Ends the process."""
        try:
            if self.lock.acquire(timeout=GRACE_SECONDS):
                self._first()
        except Exception as error:  # a disk that gave out, or somebody else has the study by now
            say(f"the last finished trials are not stored: {error}")
        finally:
            os._exit(CODE)

    def watch(self, parent: int) -> None:
        """Starts to watch for SIGTERM and for the end of the parent, either of which ends the process.

        For the main thread of a child process.

        Args:
          parent: descriptor of a pipe whose other end only the parent has, and never writes to.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # what counts is the byte in the pipe

        def wait() -> None:
            waiting = select.poll()  # select takes no descriptor beyond 1,023
            for each in (reader, parent):
                waiting.register(each, select.POLLIN)
            waiting.poll()
            self.end()

        threading.Thread(target=wait, daemon=True).start()
