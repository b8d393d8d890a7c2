"""Heartbeat: the live progress of a running study, in a temporary file in its folder.

It is read by observers such as ``sweeps.status``. Results do not depend on it. The process that runs the sweep replaces
the file every few seconds (every 30 seconds in a bucket), and removes it when the study ends. The file is named like a
temporary file. Other readers therefore skip it, and the heartbeat of a killed process is removed like other leftovers.
"""

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterable
from typing import NamedTuple

from results import durable
from results.bad_input import BadInput
from results.durable import Folder
from results.file_systems.liveness import is_alive
from results.rules.ledger import Ledger

FILE = f"{durable.TEMPORARY}heartbeat"
_BYTES = 4096  # maximum size of a heartbeat
_MOST = 10**15


class Heartbeat(NamedTuple):
    """The live progress of a study.

    Attributes:
      doing: phase of the process: starting, compiling or training.
      trials: maximum number of trials to run.
      ended: number of these trials that have ended.
      steps: steps in this run, summed over trials.
      steps_per_second: speed while training.
      silent: seconds since the process that runs the study last showed activity, as observed by another process.
    """

    doing: str
    trials: int
    ended: int
    steps: int
    steps_per_second: float
    silent: float = 0.0

    def settled(self, stored: Ledger) -> int:
        """Returns the number of trials that do not need to run again, including trials that are not stored yet.

        Args:
          stored: ledger of the stored trials, which may include trials of this run.
        """
        return max(stored.settled, min(stored.planned, stored.planned - self.trials + self.ended))


def write(folder: Folder, beat: Heartbeat) -> None:
    """Replaces the heartbeat in a study's folder, which may be missing. Never raises OSError."""
    record = beat._asdict() | {"host": socket.gethostname(), "pid": os.getpid()}
    with contextlib.suppress(OSError):  # results do not depend on it
        durable.system(folder).replace(folder / FILE, [durable.seal(record)], durable=False)


def remove(folder: Folder) -> None:
    """Removes a study's heartbeat, if there is one."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


class Seen(NamedTuple):
    """A heartbeat as read by an observer.

    Attributes:
      beat: the heartbeat.
      host: host of the process that wrote it.
      alive: whether this process is alive. None for another host, because only the next heartbeat can show this.
      written: time of writing, in seconds since 1970, by the clock of the file system.
    """

    beat: Heartbeat
    host: str
    alive: bool | None
    written: float


def seen(folder: Folder) -> Seen | None:
    """Returns a study's heartbeat from any host, or None if there is no valid one."""
    path = folder / FILE
    try:
        data, written = durable.system(folder).peek(path, _BYTES + 1)
        record = durable.unseal(data, path) if len(data) <= _BYTES else {}
    except (OSError, BadInput):
        return None
    host, pid = record.pop("host", None), record.pop("pid", None)
    if record.keys() != set(Heartbeat._fields) or type(host) is not str:
        return None
    beat = Heartbeat(**record)
    alive = is_alive(pid) if host == socket.gethostname() else None
    return Seen(beat, host, alive, written) if _is_sound(beat) else None


def read(folder: Folder) -> Heartbeat | None:
    """Returns a study's heartbeat from a live process on this machine, or None."""
    sighting = seen(folder)
    return sighting.beat if sighting and sighting.alive else None


def running(folders: Iterable[Folder]) -> dict[Folder, Heartbeat]:
    """Returns the heartbeats of live processes, by folder of the study.

    A process on another host counts as alive if its heartbeat is recent by the local clock. Because the clocks of hosts
    can differ, it also counts as alive if another heartbeat arrives, for which this function waits a few seconds.
    """
    beats = {}
    doubtful = {}  # times of writing
    for folder in folders:
        sighting = seen(folder)
        if sighting is None or sighting.alive is False:
            continue
        if sighting.alive or abs(time.time() - sighting.written) < durable.system(folder).fresh_seconds:
            beats[folder] = sighting.beat
        else:
            doubtful[folder] = sighting.written
    if doubtful:
        time.sleep(1 + max(durable.system(folder).heartbeat_seconds for folder in doubtful))
    for folder, written in doubtful.items():
        sighting = seen(folder)
        if sighting is not None and sighting.written != written:
            beats[folder] = sighting.beat
    return beats


def _is_sound(beat: Heartbeat) -> bool:
    counts, numbers = (beat.trials, beat.ended, beat.steps), (beat.steps_per_second, beat.silent)
    return (
        type(beat.doing) is str
        and bool(re.fullmatch("[a-z]{1,20}", beat.doing))
        and all(type(count) is int for count in counts)
        and all(type(number) in (int, float) and 0 <= number <= _MOST for number in (*counts, *numbers))
    )
