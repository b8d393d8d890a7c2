"""Attempts: a log in a study's folder for each time it was begun; it stays there where it did not get to its end.

    attempt 3: slurm 17_4                                       by which launcher, and its job if there is one
    began on node2, process 812, at 2026-11-23T16:30:00+00:00   missing while the job waits
    …                                                           whatever the process printed
    attempt 3 ended at 2026-11-23T16:31:07+00:00 with 137: killed as memory ran out

No result depends on them: whoever checks or copies a store passes over them.
"""

import contextlib
import datetime
import os
import re
import socket
import stat
from pathlib import Path
from typing import NamedTuple

from results import exit_codes
from results.bad_input import BadInput, printable
from results.storage.parts import MOST, attempt_file, listing

VARIABLE = "SCALING_LIMITS_ATTEMPT"  # in the environment of a command that is an attempt itself: its log
_BYTES = 4096  # of the beginning and of the end of a log, which are looked at
_SHOWN = 1 << 16  # of what a process printed, which are given back
_FIRST = re.compile(r"attempt ([0-9]{1,6}): ([a-z]+)(?: (\S{1,64}))?")
_BEGAN = re.compile(r"began on (\S{1,255}), process ([0-9]{1,10}), at (\S{1,40})")
_LAST = re.compile(r"attempt ([0-9]{1,6}) ended at (\S{1,40}) with (-?[0-9]{1,3}): (.*)")


class Attempt(NamedTuple):
    """An attempt, as its log tells of it.

    Attributes:
      log: path of the log.
      number: from 1.
      launcher: its name.
      job: of a cluster; None where there is none.
      host, process, began: None while it waits to begin.
      code: the exit code, or minus the signal; None while it is under way, or where its machine was lost.
      cause: of its end, in one line; None likewise.
    """

    log: Path
    number: int
    launcher: str
    job: str | None = None
    host: str | None = None
    process: int | None = None
    began: str | None = None
    code: int | None = None
    cause: str | None = None


def begin(folder: Path, launcher: str, job: str | None = None, *, waits: bool = False) -> Path:
    """Makes the log of the next attempt at a study, and gives its path.

    Args:
      folder: of the study.
      launcher: its name.
      job: of a cluster.
      waits: for the job to begin, which then calls ``begun``.
    """
    while True:
        number = max(listing(os.listdir(folder)).attempts, default=0) + 1
        if number > MOST:  # nothing would find it
            last = attempt_file(MOST)
            raise BadInput(f"{folder} holds {last}, the last possible attempt. Remove the attempt logs in it.")
        path = folder / attempt_file(number)
        with contextlib.suppress(FileExistsError):  # another process was quicker
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            break
    with os.fdopen(handle, "w") as log:
        print(f"attempt {number}: {launcher}{f' {job}' if job else ''}", file=log)
    if not waits:
        begun(path)
    return path


def begun(log: Path) -> None:
    """Says in a log that its attempt begins, here and now."""
    _append(log, f"began on {socket.gethostname()}, process {os.getpid()}, at {_now()}")


def end(log: Path, code: int, cause: str) -> None:
    """Says in a log how its attempt ended. Of a study that came to its end removes it, and preempted ones.

    Args:
      log: its path.
      code: the exit code, or minus the signal that ended it.
      cause: in words.
    """
    with contextlib.suppress(OSError):  # nothing depends on it
        if code == exit_codes.DONE:
            needless = (each.log for each in read(log.parent) if each.code == exit_codes.PREEMPTED)
            for each in (log, *needless):
                each.unlink(missing_ok=True)
        elif log.exists():
            number = log.stem.removeprefix("attempt-")
            _append(log, f"attempt {number} ended at {_now()} with {code}: {' '.join(cause.split())}")


def printed(log: Path) -> str:
    """What a process has printed into its log so far, without the lines that are not its own; at most 64 KiB."""
    with contextlib.suppress(OSError):
        text = _bytes(log, _SHOWN, at_end=False).decode(errors="replace")
        return "\n".join(line for line in text.splitlines() if not any(p.match(line) for p in (_FIRST, _BEGAN, _LAST)))
    return ""


def read(folder: Path) -> list[Attempt]:
    """The attempts at a study whose logs are there, in their order."""
    with contextlib.suppress(OSError):
        numbers = sorted(listing(os.listdir(folder)).attempts)
        return [found for number in numbers if (found := _attempt(folder / attempt_file(number), number))]
    return []


def _attempt(log: Path, number: int) -> Attempt | None:
    try:
        head = _bytes(log, _BYTES, at_end=False).decode(errors="replace").splitlines()[:2]
        tail = _bytes(log, _BYTES, at_end=True).decode(errors="replace").splitlines()[-1:]
    except OSError:
        return None
    first = _FIRST.fullmatch(head[0]) if head else None
    if first is None:
        return None
    began = _BEGAN.fullmatch(head[1]) if len(head) > 1 else None
    last = _LAST.fullmatch(tail[0]) if tail else None
    return Attempt(
        log,
        number,
        first[2],
        first[3],
        *((printable(began[1]), int(began[2]), printable(began[3])) if began else (None, None, None)),
        *((int(last[3]), printable(last[4])) if last else (None, None)),
    )


def _bytes(path: Path, most: int, *, at_end: bool) -> bytes:
    """The first or the last bytes of a regular file."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            return b""
        if at_end:
            file.seek(max(0, about.st_size - most))
        return file.read(most)


def _append(log: Path, line: str) -> None:
    with contextlib.suppress(OSError), open(log, "ab+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        within_line = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * within_line + f"{line}\n".encode())


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
