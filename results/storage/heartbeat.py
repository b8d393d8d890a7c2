"""Heartbeat: the live count of a study that is being run, in a temporary file of its folder.

It is for those who look on, such as ``sweeps.status``; no result depends on it, and nobody else reads it. The process
that runs the sweep replaces it every few seconds and removes it when the study ends. Its name is that of a temporary
file, so that all other readers pass over it, and what a process that was killed has left of it goes as those do.
"""

import contextlib
import os
import re
import socket
import stat
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from results import durable
from results.bad_input import BadInput
from results.rules.ledger import Ledger

FILE = f"{durable.TEMPORARY}heartbeat"
SECONDS = 3.0  # between two of a study
FRESH_SECONDS = 15.0
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
      silent: seconds since the process that runs the study gave a sign of life; another process writes heartbeats.
    """

    doing: str
    trials: int
    ended: int
    unit: str
    steps: int
    steps_per_second: float
    sweep_ends: float | None
    silent: float = 0.0

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


class Seen(NamedTuple):
    """A heartbeat as it is seen.

    Attributes:
      beat: what it says.
      host: whose process wrote it.
      alive: whether that process is; None on another host, which only its next heartbeat tells.
      written: when, in ns, by a clock that may be another one's.
    """

    beat: Heartbeat
    host: str
    alive: bool | None
    written: int


def seen(folder: Path) -> Seen | None:
    """The heartbeat of a study, of whatever host; None if there is none."""
    path = folder / FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            about = os.fstat(handle)
            data = os.read(handle, _BYTES + 1) if stat.S_ISREG(about.st_mode) else b""
        finally:
            os.close(handle)
        record = durable.unseal(data, path) if len(data) <= _BYTES else {}
    except (OSError, BadInput):
        return None
    host, pid = record.pop("host", None), record.pop("pid", None)
    if record.keys() != set(Heartbeat._fields) or type(host) is not str:
        return None
    beat = Heartbeat(**record)
    alive = _is_alive(pid) if host == socket.gethostname() else None
    return Seen(beat, host, alive, about.st_mtime_ns) if _is_sound(beat) else None


def read(folder: Path, *, anywhere: bool = False) -> Heartbeat | None:
    """The heartbeat of a study; None if there is none of a process of this machine that is still alive.

    Args:
      folder: of the study.
      anywhere: whether one of another machine counts, too, alive or not.
    """
    found = seen(folder)
    return found.beat if found and (found.alive or (anywhere and found.alive is None)) else None


class Watch:
    """Looks at heartbeats again and again, and tells which are of processes that live.

    Those of another host live if a heartbeat is new by the clock of this one, or if the next one comes: clocks differ.
    """

    def __init__(self) -> None:
        self._last: dict[Path, tuple[int, float]] = {}  # when it was written by its clock, and when seen so by ours

    def look(self, folders: Iterable[Path]) -> dict[Path, Heartbeat]:
        """The heartbeats of studies that are being run, by their folders; waits a few seconds where it takes that."""
        folders = list(folders)
        known = {folder: self.one(folder) for folder in folders}
        doubtful = [folder for folder, beat in known.items() if beat is None and self._is_elsewhere(folder)]
        if any(time.monotonic() - self._last[folder][1] < SECONDS for folder in doubtful):
            time.sleep(SECONDS + 1)
            known |= {folder: self.one(folder) for folder in doubtful}
        return {folder: beat for folder, beat in known.items() if beat is not None}

    def one(self, folder: Path) -> Heartbeat | None:
        """The heartbeat of a study that is being run, as far as that is known by now; None if there is none."""
        found = seen(folder)
        if found is None or found.alive is not None:
            return found.beat if found and found.alive else None
        now, before = time.monotonic(), self._last.get(folder)
        if before is None or before[0] != found.written:
            self._last[folder] = found.written, now
            if before is None:
                return found.beat if abs(time.time() - found.written / 1e9) < FRESH_SECONDS else None
            return found.beat
        is_new = now - before[1] < FRESH_SECONDS and abs(time.time() - found.written / 1e9) < FRESH_SECONDS
        return found.beat if is_new else None

    def _is_elsewhere(self, folder: Path) -> bool:
        return folder in self._last


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
    numbers = (beat.steps_per_second, beat.silent, *([] if beat.sweep_ends is None else [beat.sweep_ends]))
    return (
        all(type(word) is str and re.fullmatch("[a-z]{1,20}", word) for word in (beat.doing, beat.unit))
        and all(type(count) is int and 0 <= count <= _MOST for count in counts)
        and all(type(number) in (int, float) and 0 <= number <= _MOST for number in numbers)
    )
