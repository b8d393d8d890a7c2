"""Orderly termination of a process that trains: what has finished is handed over, and what is under way is saved.

Python runs handlers of signals only between computations, which may take minutes; so a thread waits for the signal, and
for the end of the parent process. Training comes to a stop by itself, soon after; where it does not, the thread hands
over what has finished and ends the process.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from results.cli import say
from results.exit_codes import PREEMPTED, TERMINATED

STOP_SECONDS = 5.0  # that training may take to come to a stop
SAVE_SECONDS = 60.0  # that what is being stored may take after it


class Stopped(Exception):
    """Training came to a stop because its process is to end; what was under way is saved."""


class Shutdown:
    """The work to do before the process ends.

    Attributes:
      lock: held while finished trials are counted or stored, or others saved; the process does not end meanwhile.
      requested: whether the process is to end; whoever trains stops where that can be gone on with.
      saved: whether there is anything that can be gone on with.
      time_is_up: whether what is under way is to be saved and end as INCOMPLETE(time_limit), as SIGUSR1 says.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.requested = False
        self.saved = False
        self.time_is_up = False
        self._signalled = False
        self._first: Callable[[], None] | None = None

    @contextlib.contextmanager
    def first(self, hand_over: Callable[[], None]) -> Iterator[None]:
        """Within, the process calls ``hand_over`` before it ends, and whoever trains looks at ``requested``."""
        before, self._first = self._first, hand_over
        try:
            yield
        finally:
            with self.lock:
                self._first = before

    def end(self) -> NoReturn:
        """Ends the process."""
        try:
            if self.lock.acquire(timeout=SAVE_SECONDS) and self._first is not None:
                self._first()
        except Exception as error:  # a disk that gave out, or somebody else has the study by now
            say(f"the last finished trials are not stored: {error}")
        finally:
            self.leave()

    def leave(self) -> NoReturn:
        """Ends the process, of which everything is stored; what is saved makes the difference to whoever started it."""
        os._exit(PREEMPTED if self._signalled and self.saved else TERMINATED)

    def watch(self, parent: int) -> None:
        """Starts to watch for SIGUSR1, and for SIGTERM and the end of the parent, either of which ends the process.

        For the main thread of a child process.

        Args:
          parent: descriptor of a pipe whose other end only the parent has, and never writes to.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        for each in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(each, lambda number, frame: None)  # what counts is the byte in the pipe, which is its number

        def wait() -> None:
            waiting = select.poll()  # select takes no descriptor beyond 1,023
            for each in (reader, parent):
                waiting.register(each, select.POLLIN)
            while not self._signalled and reader in dict(waiting.poll()):
                for number in os.read(reader, 1):
                    self.time_is_up |= number == signal.SIGUSR1
                    self._signalled |= number == signal.SIGTERM
            self.requested = True
            deadline = time.monotonic() + STOP_SECONDS
            while self._first is not None and time.monotonic() < deadline:
                time.sleep(0.01)
            self.end()

        threading.Thread(target=wait, daemon=True).start()
