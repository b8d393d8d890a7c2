"""Files on this machine, or on a disk shared by several machines.

To create a file, a temporary file is written next to it, flushed to disk and linked to the final name. Linking fails if
the name is taken. Then the folder is flushed. Leftovers from killed processes are removed by age, because other
processes cannot determine whether the writer is alive. If the temporary file of a live writer is removed, it is written
again. Files that replace others, and new folders, are renamed to their final names.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from results.aliases import Callback
from results.bad_input import BadInput, Damaged
from results.file_systems.entry import TEMPORARY, Entry

LOCK = ".lock"  # name of a study's lock, an empty file
LEFTOVER_SECONDS = 24 * 3600  # by the local clock; a slower writer writes again
_WRITES = 100  # attempts at writing a file if its temporary file keeps being removed
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_NO_LOCK = "should be an empty file but is a link, a folder or a pipe. Remove it."


class LocalFiles:
    """Files in local folders. ``BucketFiles`` has the same operations for objects in buckets.

    Failed operations raise OSError. A missing file raises FileNotFoundError.

    Attributes:
      is_local: whether files are on this machine, or on a disk that it mounts.
      heartbeat_seconds: time between two heartbeats of a study.
      fresh_seconds: age of a heartbeat above which its process may have ended.
    """

    is_local = True
    heartbeat_seconds = 3.0
    fresh_seconds = 15.0

    def within(self, folder: Any, *names: str) -> str:
        """Returns a path within a folder for ``read`` and ``names``. Local paths are strings, since ``/`` is slower."""
        return "/".join((str(folder), *names))

    def create(self, path: Any, data: bytes | memoryview) -> bool:
        """Creates a file atomically and durably. If another file has this name, keeps it and returns False."""
        for attempts in reversed(range(_WRITES)):
            temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
            try:
                _write(temporary, data)
                created = _link(temporary, path)
                break
            except OSError as error:  # removed by a process with a wrong clock, or after this process stalled for long
                if not attempts or error.errno not in (errno.ENOENT, errno.ESTALE) or not path.parent.is_dir():
                    raise
            finally:
                temporary.unlink(missing_ok=True)
        sync(path.parent)
        return created

    def replace(
        self, path: Any, pieces: Sequence[bytes | memoryview], check: Callback = lambda: None, *, durable: bool = True
    ) -> None:
        """Creates a file, or replaces it atomically.

        Args:
          path: the file.
          pieces: content of the file, as pieces in order.
          check: called just before the replacement. If it raises, the file is not replaced.
          durable: whether the file is flushed to disk, because it is needed after a crash.
        """
        temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            _write(temporary, *pieces, durable=durable)
            check()
            os.rename(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        if durable:
            sync(path.parent)

    def peek(self, path: Any, most: int, *, at_end: bool = False) -> tuple[bytes, float]:
        """Returns the first or last bytes of a regular file, and its time (in seconds since 1970). Follows no links."""
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            about = os.fstat(handle)
            if at_end and about.st_size > most:
                os.lseek(handle, -most, os.SEEK_END)
            return os.read(handle, most) if stat.S_ISREG(about.st_mode) else b"", about.st_mtime_ns / 1e9
        finally:
            os.close(handle)

    def read(self, path: Any, most: int | None = None) -> bytes:
        """Returns the content of a regular file, or its first ``most`` bytes."""
        if most is None:
            return Path(path).read_bytes()
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait on a pipe
        try:
            return os.read(handle, min(os.fstat(handle).st_size, most))
        finally:
            os.close(handle)

    def names(self, folder: Any) -> list[str]:
        """Returns the names in a folder. Raises FileNotFoundError or NotADirectoryError."""
        return os.listdir(folder)

    def entries(self, folder: Any) -> list[Entry]:
        """Returns the entries of a folder. Raises FileNotFoundError or NotADirectoryError."""
        result = []
        with os.scandir(folder) as scan:
            for found_entry in scan:
                try:
                    status = found_entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed in the meantime
                    continue
                kind = _KINDS.get(stat.S_IFMT(status.st_mode), "device")
                result.append(Entry(found_entry.name, kind, status.st_size, status.st_mtime))
        return result

    def make_folder(self, folder: Any) -> None:
        """Creates a folder and its parents durably."""
        if folder.is_dir():
            return
        if not folder.parent.exists():
            self.make_folder(folder.parent)
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)

    @contextlib.contextmanager
    def new_folder(self, path: Any) -> Iterator[Path]:
        """Returns a context that yields a folder to fill. At the end, the folder is named ``path``."""
        prefix = f"{TEMPORARY}{path.name}-"
        folder = path.parent / f"{prefix}{uuid.uuid4().hex}"
        try:
            self.make_folder(folder)
            self.remove_leftovers(path.parent, prefix)
            yield folder
            sync(folder)
            os.rename(folder, path)
            sync(path.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove_leftovers(self, folder: Any, prefix: str = TEMPORARY) -> None:
        """Removes old folders that were left behind by killed processes."""
        for path in folder.iterdir():
            if path.name.startswith(prefix) and self.is_leftover(path):
                shutil.rmtree(path, ignore_errors=True)

    def is_leftover(self, path: Any) -> bool:
        """Returns whether a file is so old that its writer must have ended."""
        try:
            return time.time() - path.stat().st_mtime > LEFTOVER_SECONDS
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def lock(self, folder: Any) -> Iterator[None]:
        """Returns a context that waits for other processes to release the lock of a folder, then holds it."""
        self.make_folder(folder)
        with _open_lock(folder / LOCK, os.O_RDWR | os.O_CREAT) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def is_locked(self, folder: Any) -> bool:
        """Returns whether a live process holds the lock of a folder."""
        try:
            with _open_lock(folder / LOCK, os.O_RDONLY) as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def check_writable(self, store: Any) -> None:
        """Raises BadInput unless files can be created atomically in a store (which may be missing). Leaves no files."""
        if store.exists() and not store.is_dir():
            raise BadInput(f"store={store} is a file. Name a folder.")
        parent = store
        while not parent.exists():
            parent = parent.parent
        try:
            with tempfile.NamedTemporaryFile(dir=parent, prefix=TEMPORARY) as file:
                os.link(file.name, f"{file.name}-link")
                os.unlink(f"{file.name}-link")
        except OSError as error:
            why = error.strerror
            raise BadInput(f"store={store} cannot be written ({why}). Choose another with store=DIR.") from None

    @contextlib.contextmanager
    def snapshot(self, store: Any) -> Iterator[None]:
        """Returns a context in which a store in a bucket is listed only once, and small files are read only once."""
        yield

    def fetch(self, paths: Iterable[Any]) -> None:
        """Prefetches small objects of a ``snapshot`` concurrently. Local files are not prefetched."""


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(temporary: Path, *pieces: bytes | memoryview, durable: bool = True) -> None:
    with open(temporary, "xb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def _link(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        # On NFS, the reply to a successful link can be lost. The retry then reports that the name is taken.
        return os.stat(temporary).st_nlink == 2
    return True


@contextlib.contextmanager
def _open_lock(path: Path, flags: int) -> Iterator[int]:
    """Yields a handle for locking a file. Does not follow links or change the file. Raises Damaged if not a file."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise Damaged(f"{path} {_NO_LOCK}") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Damaged(f"{path} {_NO_LOCK}")
        yield handle
    finally:
        os.close(handle)
