"""Shuts a training process down in an orderly way: reports finished trials and saves running trials.

Python runs signal handlers only between computations, which may take minutes. Therefore, a thread waits for a signal or
for the parent process to end. Training usually stops shortly afterwards. If it does not, the thread reports the
finished trials and ends the process.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

from results.aliases import Callback
from results.exit_codes import PREEMPTED, TERMINATED
from results.printing import say

STOP_SECONDS = 5.0  # time that training may take to stop
SAVE_SECONDS = 60.0  # additional time for a write in progress


class Stopped(Exception):
    """Training stopped because its process must end. Running trials are saved."""


class Shutdown:
    """The state of a shutdown, and the work to do before the process ends.

    Attributes:
      lock: held while trials are recorded, stored or saved. The process does not end while it is held.
      requested: whether the process must end. The training loop stops at the next point at which it can resume.
      saved: whether there is a checkpoint to resume from.
      time_is_up: whether SIGUSR1 was received. Running trials must be saved and end as INCOMPLETE(time_limit).
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.requested = False
        self.saved = False
        self.time_is_up = False
        self._signalled = False
        self._first: Callback | None = None

    @contextlib.contextmanager
    def first(self, hand_over: Callback) -> Iterator[None]:
        """Enters a context in which training polls ``requested`` and the process calls ``hand_over`` before it ends."""
        before = self._first
        self._first = hand_over
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
        except Exception as error:  # such as a failed disk, or another process that took over the study
            say(f"the last finished trials are not stored: {error}")
        finally:
            self.leave()

    def leave(self) -> NoReturn:
        """Ends the process after everything is stored. The exit code indicates whether the run can be resumed."""
        os._exit(PREEMPTED if self._signalled and self.saved else TERMINATED)

    def watch(self, parent: int) -> None:
        """Watches for SIGUSR1, SIGTERM and the end of the parent process. The latter two end this process.

        Call it from the main thread of a child process.

        Args:
          parent: descriptor of a pipe. Only the parent holds the other end, and never writes to the pipe.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        for watched in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(watched, lambda number, frame: None)  # only the byte in the pipe, its number, matters

        def wait() -> None:
            waiting = select.poll()  # select fails for descriptors above 1,023, poll does not
            for descriptor in (reader, parent):
                waiting.register(descriptor, select.POLLIN)
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
