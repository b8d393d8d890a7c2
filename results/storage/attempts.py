"""Attempts: each attempt to run a study has a log in the study's folder. Logs of unfinished attempts are kept.

    attempt 3: slurm 17_4                                       launcher, and its job if any
    began on node2, process 812, at 2026-11-23T16:30:00+00:00   missing while the job waits
    …                                                           whatever the process printed
    attempt 3 ended at 2026-11-23T16:31:07+00:00 with 137: killed as memory ran out

Results do not depend on these logs, and checks and copies of a store skip them. If the store is in a bucket, the log of
a running attempt stays on the machine that runs it. It is copied to the bucket if the attempt fails.
"""

import contextlib
import datetime
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path
from typing import NamedTuple

from results import durable, exit_codes
from results.bad_input import BadInput, printable
from results.durable import Folder
from results.storage.parts import MOST, attempt_file, list_study

VARIABLE = "SCALING_LIMITS_ATTEMPT"  # environment variable with the log of the attempt that this command belongs to
_BYTES = 4096  # bytes read from each end of a log
_SHOWN = 1 << 16  # maximum bytes of printed output returned
_FIRST = re.compile(r"attempt ([0-9]{1,6}): ([a-z]+)(?: (\S{1,64}))?")
_BEGAN = re.compile(r"began on (\S{1,255}), process ([0-9]{1,10}), at (\S{1,40})")
_LAST = re.compile(r"attempt ([0-9]{1,6}) ended at (\S{1,40}) with (-?[0-9]{1,3}): (.*)")

_COPIES: dict[Path, Folder] = {}  # folders in buckets that get a copy of a local log


class Attempt(NamedTuple):
    """An attempt to run a study, as read from its log.

    Attributes:
      log: path of the log.
      number: number of the attempt, from 1.
      launcher: name of the launcher.
      job: cluster job, or None if there is no cluster.
      host, process, began: host, process and time of the start, or None until the attempt begins.
      code: exit code or negative signal number. None if the attempt is still running or its machine was lost.
      cause: one-line description of why it ended, or None if there is no code.
    """

    log: Folder
    number: int
    launcher: str
    job: str | None = None
    host: str | None = None
    process: int | None = None
    began: str | None = None
    code: int | None = None
    cause: str | None = None


def begin(folder: Folder, launcher: str, job: str | None = None, *, waits: bool = False) -> Path:
    """Creates the log of the next attempt at a study. Returns its path, which is on this machine.

    Args:
      folder: the study's folder.
      launcher: name of the launcher.
      job: cluster job.
      waits: whether the job starts later. It then calls ``begun``.
    """
    place = folder if durable.system(folder).is_local else Path(tempfile.mkdtemp(prefix="scaling-limits-attempt-"))
    while True:
        number = max(list_study(folder).attempts, default=0) + 1
        if number > MOST:
            log_name = attempt_file(MOST)
            raise BadInput(f"{folder} holds {log_name}, the last possible attempt. Remove the attempt logs in it.")
        path = Path(str(place)) / attempt_file(number)
        with contextlib.suppress(FileExistsError), open(path, "x") as log:  # otherwise another process was faster
            print(f"attempt {number}: {launcher}{f' {job}' if job else ''}", file=log)
            break
    if place != folder:
        _COPIES[path] = folder
    if not waits:
        begun(path)
    return path


def begun(log: Path) -> None:
    """Records in a log that the attempt begins now, in this process."""
    _append(log, f"began on {socket.gethostname()}, process {os.getpid()}, at {_now()}")


def end(log: Path, code: int, cause: str) -> None:
    """Records the end of an attempt in its log. If the study is done, removes this log and those of preempted attempts.

    Args:
      log: path of the log.
      code: exit code, or negative number of the signal that ended the attempt.
      cause: description of the cause.
    """
    with contextlib.suppress(OSError):  # results do not depend on it
        folder = _COPIES.pop(log, log.parent)
        if code == exit_codes.DONE:
            needless = [attempt.log for attempt in read(folder) if attempt.code == exit_codes.PREEMPTED]
            for attempt in (log, *needless):
                attempt.unlink(missing_ok=True)
        elif log.exists():
            number = log.stem.removeprefix("attempt-")
            _append(log, f"attempt {number} ended at {_now()} with {code}: {' '.join(cause.split())}")
            if folder != log.parent:
                durable.create(folder / log.name, log.read_bytes())
        if folder != log.parent:
            shutil.rmtree(log.parent, ignore_errors=True)


def printed(log: Path) -> str:
    """Returns the process output in a log (at most 64 KiB), without the lines written by this module."""
    with contextlib.suppress(OSError):
        text = durable.system(log).peek(log, _SHOWN)[0].decode(errors="replace")
        return "\n".join(line for line in text.splitlines() if not any(p.match(line) for p in (_FIRST, _BEGAN, _LAST)))
    return ""


def read(folder: Folder) -> list[Attempt]:
    """Returns the attempts at a study for which there are logs, in order."""
    with contextlib.suppress(OSError):
        numbers = sorted(list_study(folder).attempts)
        return [attempt for number in numbers if (attempt := _attempt(folder / attempt_file(number), number))]
    return []


def last(folder: Folder) -> Attempt | None:
    """Returns the last attempt at a study for which there is a log."""
    return next(reversed(read(folder)), None)


def _attempt(log: Folder, number: int) -> Attempt | None:
    try:
        head, tail = (durable.system(log).peek(log, _BYTES, at_end=at_end)[0] for at_end in (False, True))
    except OSError:
        return None
    lines = head.decode(errors="replace").splitlines()
    first = _FIRST.fullmatch("".join(lines[:1]))
    if first is None:
        return None
    attempt = Attempt(log, number, first[2], first[3])
    if began := _BEGAN.fullmatch("".join(lines[1:2])):
        attempt = attempt._replace(host=printable(began[1]), process=int(began[2]), began=printable(began[3]))
    if ended := _LAST.fullmatch("".join(tail.decode(errors="replace").splitlines()[-1:])):
        attempt = attempt._replace(code=int(ended[3]), cause=printable(ended[4]))
    return attempt


def _append(log: Path, line: str) -> None:
    with contextlib.suppress(OSError), open(log, "ab+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        if file.read(1) not in (b"", b"\n"):
            line = f"\n{line}"
        file.write(f"{line}\n".encode())


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
