"""Heartbeat: the live count of a study that is being run, in a temporary file of its folder.

It is for those who look on, such as ``sweeps.status``; no result depends on it, and nobody else reads it. The process
that runs the sweep replaces it every few seconds and removes it when the study ends. Its name is that of a temporary
file, so that all other readers pass over it, and what a process that was killed has left of it goes as those do.
"""

import contextlib
import math
import os
import re
import socket
import stat
import uuid
from pathlib import Path
from typing import NamedTuple

from results import durable
from results.bad_input import BadInput
from results.rules.ledger import Ledger

FILE = f"{durable.TEMPORARY}heartbeat"
_BYTES = 4096  # more than any heartbeat has
_MOST = 10**15


class Heartbeat(NamedTuple):
    """The live count of a study.

    Attributes:
      doing: what its process does: starting, compiling, training.
      trials: that this run was to run, at most.
      ended: those of them that ended.
      unit: what a step is, such as step or epoch.
      steps: taken in this run, summed over trials.
      steps_per_second: while training.
      sweep_ends: when the whole sweep is expected to have ended, seconds since 1970; None where nobody can tell.
    """

    doing: str
    trials: int
    ended: int
    unit: str
    steps: int
    steps_per_second: float
    sweep_ends: float | None

    def settled(self, stored: Ledger) -> int:
        """Trials of the study that need no other run, counting those that are not stored yet.

        Args:
          stored: the ledger of what is stored, of trials that this run has ended, too.
        """
        return max(stored.settled, min(stored.planned, stored.planned - self.trials + self.ended))


def write(folder: Path, beat: Heartbeat) -> None:
    """Replaces the heartbeat in a study's folder, which need not be there; never raises OSError."""
    temporary = folder / f"{durable.TEMPORARY}{uuid.uuid4().hex}"
    record = beat._asdict() | {"host": socket.gethostname(), "pid": os.getpid()}
    with contextlib.suppress(OSError):  # nothing depends on it
        try:
            temporary.write_bytes(durable.seal(record))
            os.rename(temporary, folder / FILE)  # not flushed to disk: after a crash there is nobody to look on
        finally:
            temporary.unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Removes the heartbeat of a study, if there is one."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


def read(folder: Path) -> Heartbeat | None:
    """The heartbeat of a study; None if there is none of a process of this machine that is still alive."""
    path = folder / FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            data = os.read(handle, _BYTES + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
        finally:
            os.close(handle)
        record = durable.unseal(data, path) if len(data) <= _BYTES else {}
    except (OSError, BadInput):
        return None
    host, pid = record.pop("host", None), record.pop("pid", None)
    if record.keys() != set(Heartbeat._fields) or host != socket.gethostname() or not _is_alive(pid):
        return None
    beat = Heartbeat(**record)
    return beat if _is_sound(beat) else None


def _is_alive(pid: object) -> bool:
    if type(pid) is not int or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_sound(beat: Heartbeat) -> bool:
    counts = (beat.trials, beat.ended, beat.steps)
    numbers = (beat.steps_per_second, *([] if beat.sweep_ends is None else [beat.sweep_ends]))
    return (
        all(type(word) is str and re.fullmatch("[a-z]{1,20}", word) for word in (beat.doing, beat.unit))
        and all(type(count) is int and 0 <= count <= _MOST for count in counts)
        and all(type(number) in (int, float) and math.isfinite(number) and 0 <= number <= _MOST for number in numbers)
    )
