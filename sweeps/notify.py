"""Sends events of a sweep to a command or a URL, in the background."""

import concurrent.futures
import contextlib
import datetime
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from typing import Any

from results import exit_codes
from results.bad_input import BadInput, first_line
from results.cli import Terminated
from results.durable import Folder
from results.printing import say

TIMEOUT = 10.0  # seconds, for a command or a server
_LAST = 30.0  # seconds to wait for pending events at the end of a sweep
END = "end"
FAILURE = "failure"
STALL = "stall"


class Hook:
    """Sends events of a sweep as JSON objects. If this fails, prints a single warning, and the sweep continues.

    Args:
      target: a shell command that reads each object from standard input, or an HTTP URL to which each object is posted.
        With None, events are not sent.
      store: folder of the store.
    """

    def __init__(self, target: str | None, store: Folder) -> None:
        self._target = target
        self._store = str(store.absolute())
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "notify")  # its thread starts with the first event
        self._pending: list[concurrent.futures.Future[None]] = []
        self._warned = ""

    def send(self, event: str, line: str, **more: Any) -> None:
        """Sends an event in the background. Keyword arguments are additional keys of the object."""
        if self._target is not None:
            now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            about = {"event": event, "time": now, "store": self._store, "line": line, **more}
            self._pending.append(self._pool.submit(self._deliver, self._target, json.dumps(about)))

    def around(self, run: Callable[[], int]) -> int:
        """Runs a sweep, sends an event when it ends, and returns the sweep's exit code."""
        try:
            code = run()
        except BaseException as error:
            self._end(_code_of(error))
            raise
        self._end(code)
        return code

    def _end(self, code: int) -> None:
        self.send(END, f"the sweep ended with exit code {code}", exit_code=code)
        concurrent.futures.wait(self._pending, _LAST)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, target: str, text: str) -> None:
        try:
            if is_url(target):
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(target, text.encode(), headers, method="POST")
                urllib.request.urlopen(request, timeout=TIMEOUT).close()
            else:
                _run(target, text)
        except Exception as error:
            why = first_line(error)
            if why != self._warned:
                self._warned = why
                say(f"note: notify failed: {why}. The sweep continues.")


def is_url(target: str) -> bool:
    """Returns whether a target is a URL instead of a command."""
    return target.lower().startswith(("http://", "https://"))


def _run(command: str, text: str) -> None:
    """Runs a command. Raises ChildProcessError if it fails."""
    pipe = subprocess.PIPE
    null = subprocess.DEVNULL
    process = subprocess.Popen(
        command, shell=True, stdin=pipe, stdout=null, stderr=pipe, text=True, errors="replace", start_new_session=True
    )
    try:
        _, output = process.communicate(text, TIMEOUT)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise ChildProcessError(f"the command took longer than {TIMEOUT:g} s") from None
    if process.returncode:
        why = f": {first_line(output)}" if output.strip() else ""
        raise ChildProcessError(f"the command ended with exit code {process.returncode}{why}")


def _code_of(error: BaseException) -> int:
    """Returns the exit code of a command that ended with an exception."""
    if isinstance(error, Terminated):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return exit_codes.INTERRUPTED
    return exit_codes.INVALID if isinstance(error, BadInput | OSError) else exit_codes.FAILED
