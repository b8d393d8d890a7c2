"""What a process is about to do to files, told before each of it, so that it can be killed, halted or refused there."""

import builtins
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from results.file_systems import local

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.chmod": "chmod",
    "os.link": "link",
    "os.mkdir": "mkdir",
    "os.remove": "unlink",
    "os.rename": "rename",
    "os.rmdir": "rmdir",
    "os.symlink": "symlink",
    "os.truncate": "truncate",
}

Moment = Callable[[str, str | None], None]  # what is about to be done, and to which path, if that is known


class Watched:
    """A file whose writes are somebody else's: ``write`` is called with the file and what is to be written."""

    def __init__(self, file: IO[bytes], write: Callable[[IO[bytes], bytes], None]):
        self._file, self._write = file, write

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> None:
        self._write(self._file, data)


def on_every_call(folder: Path, moment: Moment, *, flushed: bool = False) -> None:
    """Has ``moment`` called before everything this process changes in a folder, and in the middle of every write.

    Python itself tells of opens, links, removals and the like (``sys.addaudithook``), so none is forgotten here. What
    ``moment`` raises is raised by the call.

    Args:
      folder: whose files count.
      moment: is called with what is about to be done.
      flushed: whether files are really flushed to disk. Only a machine that goes down forgets what was not; killed
        processes need not wait for the disk.
    """

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES:
            told(CHANGES[event], arguments[0])
        elif event == "open" and (arguments[2] or 0) & WRITING:
            told("open", arguments[0])

    def told(what: str, path: Any) -> None:
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        if not os.path.isabs(name) or Path(name).is_relative_to(folder):  # names alone: of shutil.rmtree
            moment(what, name)

    def flush(handle: int) -> None:
        moment("fsync", None)
        if flushed:
            fsync(handle)

    def halting(path: Path, mode: str) -> Watched:
        return Watched(builtins.open(path, mode), write)

    def write(file: IO[bytes], data: bytes) -> None:
        moment("write", None)
        file.write(data[: len(data) // 2])
        file.flush()
        moment("half a write", None)
        file.write(data[len(data) // 2 :])

    fsync = os.fsync
    os.fsync = flush
    local.open = halting  # type: ignore[attr-defined]
    sys.addaudithook(heard)


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
      code: its exit code, or minus the signal that killed it.
      moments: what it was about to do, one after the other.
      said: what it printed.
    """

    code: int
    moments: list[str]
    said: str


def fork(work: Callable[[], int | None], said: Path) -> int:
    """Runs ``work`` in a process of its own, what it prints going to a file; the id of the process."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 70
    try:
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(handle, stream)
        code = work() or 0
    except BaseException as error:
        print(f"a process raised {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def waited(pid: int) -> int:
    """The exit code of a process, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ran(folder: Path, work: Callable[[], int | None], at: Callable[[int, str, str | None], None]) -> Ended:
    """Runs ``work`` in a process of its own, with ``at`` called at every moment of it: its number, from 1, and what."""
    beside = folder.with_name(f"{folder.name}-told")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    seen, said = beside / "moments", beside / "said"

    def told() -> int | None:
        numbers = itertools.count(1)
        log = os.open(seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def moment(what: str, path: str | None) -> None:
            os.write(log, f"{what}\n".encode())
            at(next(numbers), what, path)

        on_every_call(folder, moment)
        return work()

    code = waited(fork(told, said))
    return Ended(code, seen.read_text().splitlines() if seen.exists() else [], said.read_text())


def killed(number: int, when: int) -> None:
    """Kills this process if it is time."""
    if number == when:
        os.kill(os.getpid(), signal.SIGKILL)
