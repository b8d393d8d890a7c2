"""Notify: tells somebody else how a sweep gets on: by a command that you choose, or by a URL; nothing waits for it."""

import concurrent.futures
import contextlib
import datetime
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import exit_codes
from results.bad_input import BadInput, first_line
from results.cli import Terminated, say

TIMEOUT = 10.0  # seconds that a command or a server has
_LAST = 30.0  # seconds that the end of a sweep waits for what is still to be told
END, FAILURE, STALL = "end", "failure", "stall"


class Hook:
    """Tells of events of a sweep, each by a JSON object. If that fails, one line warns, and the sweep goes on.

    Args:
      target: a command line for the shell, which reads the object on standard input; a URL of http or https, to which
        it is posted; or None, so that nothing is told.
      store: folder of the store.
    """

    def __init__(self, target: str | None, store: Path) -> None:
        self._target, self._store = target, str(store.absolute())
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "notify")  # whose thread begins with the first event
        self._pending: list[concurrent.futures.Future[None]] = []
        self._warned = ""

    def tell(self, event: str, line: str, **more: Any) -> None:
        """Tells of an event in the background; further words are further keys."""
        if self._target is not None:
            now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            about = {"event": event, "time": now, "store": self._store, "line": line, **more}
            self._pending.append(self._pool.submit(self._send, self._target, json.dumps(about)))

    def around(self, run: Callable[[], int]) -> int:
        """The exit code of a sweep, which this tells of once it has ended, however it does."""
        try:
            code = run()
        except BaseException as error:
            self._end(_code_of(error))
            raise
        self._end(code)
        return code

    def _end(self, code: int) -> None:
        self.tell(END, f"the sweep ended with exit code {code}", exit_code=code)
        concurrent.futures.wait(self._pending, _LAST)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _send(self, target: str, text: str) -> None:
        try:
            if is_url(target):
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(target, text.encode(), headers, method="POST")
                urllib.request.urlopen(request, timeout=TIMEOUT).close()
            else:
                _run(target, text)
        except Exception as error:  # whatever it is, the sweep goes on
            if (why := first_line(error)) != self._warned:
                self._warned = why
                say(f"note: notify failed: {why}; the sweep goes on")


def is_url(target: str) -> bool:
    """Whether that is a URL rather than a command."""
    return target.lower().startswith(("http://", "https://"))


def _run(command: str, text: str) -> None:
    """Runs a command; ChildProcessError if it fails."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(
        command, shell=True, stdin=pipe, stdout=null, stderr=pipe, text=True, errors="replace", start_new_session=True
    )
    try:
        _, said = process.communicate(text, TIMEOUT)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise ChildProcessError(f"the command took longer than {TIMEOUT:g} s") from None
    if process.returncode:
        why = f": {first_line(said)}" if said.strip() else ""
        raise ChildProcessError(f"the command ended with exit code {process.returncode}{why}")


def _code_of(error: BaseException) -> int:
    """The exit code of a command that an exception ends."""
    if isinstance(error, Terminated):
        return exit_codes.PREEMPTED if error.saved else exit_codes.TERMINATED
    if isinstance(error, KeyboardInterrupt):
        return exit_codes.INTERRUPTED
    return exit_codes.INVALID if isinstance(error, BadInput | OSError) else exit_codes.FAILED
