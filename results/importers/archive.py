"""A published archive (.tar.bz2, .tar or a folder): its files, in order.

Nothing is unpacked to disk. bzip2 data are decoded ahead of use: local files in a separate process that uses all cores
except one, and remote files in a thread.
"""

import collections
import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from results import durable
from results.durable import Folder
from results.importers import bunzip, tar_stream, untrusted
from results.importers.tar_stream import CHUNK, ArchiveEntry, Broken
from results.importers.untrusted import Unusable

AHEAD = 8  # chunks to decode in advance
DECODERS = 8  # maximum number of threads: more would only wait for the reader, and each holds decoded data
DECODE = ("-P", bunzip.__file__)  # a file, so no folder is searched for the module
DEEPEST = 12  # maximum depth of nested folders
# Numbers in text form compress to a fifth. Much stronger compression must be a decompression bomb.
MOST_GROWTH, SMALL = 300, 64 << 20
_MAGIC = b"BZh"
_ODD = {"link": "a symbolic link", "device": "a device, pipe or socket"}


class OpenArchive(NamedTuple):
    """An open archive or folder.

    Attributes:
      entries: all contents except folders, in order. Iterating may raise Broken.
      position: function that returns the number of bytes read so far.
      size: size of the archive in bytes, or 0 for a folder.
    """

    entries: Iterator[ArchiveEntry]
    position: Callable[[], int]
    size: int


@contextlib.contextmanager
def open_archive(path: Folder, top: str) -> Iterator[OpenArchive]:
    """Opens a .tar.bz2, a .tar or a folder, recognized by its content.

    Args:
      path: the archive, its unpacked top-level folder, or the parent of that folder.
      top: name of the top-level folder.

    Raises:
      Broken: the archive cannot be opened. Reading entries can raise this error too.
    """
    if path.is_dir():
        yield OpenArchive(_folder(path, top), lambda: 0, 0)
        return
    if not path.is_file():
        raise Broken("it is neither a file nor a folder")
    with contextlib.ExitStack() as stack:
        try:
            size = path.stat().st_size
            file = stack.enter_context(path.open("rb"))
            compressed = file.read(len(_MAGIC)) == _MAGIC
            file.seek(0)
            source = _decoder(path, file, stack) if compressed else bunzip.Decoded(file.read, file.tell)
        except (OSError, RuntimeError, ValueError) as error:
            raise Broken(f"it cannot be opened ({_reason(error)})") from None
        pool = ThreadPoolExecutor(1)  # one thread keeps chunks in order
        stack.callback(pool.shutdown, cancel_futures=True)  # runs before the file is closed
        chunks = _Chunks(source, size, pool)
        yield OpenArchive(tar_stream.entries(iter(chunks)), lambda: chunks.position, size)


def _decoder(path: Folder, file: Any, stack: contextlib.ExitStack) -> bunzip.Decoded:
    if not durable.system(path).is_local:
        return bunzip.Decoded(bunzip.Decoder(file).read, file.tell)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    decoder = _BunzipProcess(Path(str(path)), max(1, min(cores - 1, DECODERS)))
    stack.callback(decoder.end)
    return bunzip.Decoded(decoder.read, lambda: decoder.position)


class _BunzipProcess:
    """A process that runs ``bunzip`` to decode a file."""

    def __init__(self, path: Path, threads: int):
        command = [sys.executable, *DECODE, str(path.absolute()), str(threads)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=CHUNK)
        self.position = 0

    def read(self, size: int) -> bytes:
        """Returns the next piece of data, in the size that the decoder returns, or empty bytes at the end."""
        assert self._process.stdout and self._process.stderr
        head = self._process.stdout.read(bunzip.HEAD.size)
        if len(head) < bunzip.HEAD.size:
            lines = self._process.stderr.read().decode(errors="replace").splitlines()
            raise RuntimeError(lines[-1] if lines else "the decoder was killed")
        position, length = bunzip.HEAD.unpack(head)
        self.position = max(self.position, position)
        return self._process.stdout.read(length)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Chunks:
    """The content in chunks. A chunk is yielded only once the next one is decoded, because bz2 detects damage late."""

    def __init__(self, decoded: bunzip.Decoded, size: int, pool: ThreadPoolExecutor):
        self._decoded, self._size, self._pool, self.position = decoded, size, pool, 0

    def __iter__(self) -> Iterator[bytes]:
        chunk, total = b"", 0
        ahead = collections.deque(self._pool.submit(self._read) for _ in range(AHEAD))
        try:
            while True:
                following, self.position = ahead.popleft().result()
                ahead.append(self._pool.submit(self._read))
                total += len(following)
                if total > SMALL + MOST_GROWTH * self._size:
                    raise Broken(f"it unpacks to more than {MOST_GROWTH} times its size")
                if chunk:
                    yield chunk
                if not following:
                    return
                chunk = following
        except (OSError, EOFError, RuntimeError, ValueError) as error:
            raise Broken(f"it is damaged or truncated ({_reason(error)})") from None

    def _read(self) -> tuple[bytes, int]:
        return self._decoded.read(CHUNK), self._decoded.position()


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).partition("\n")[0]
    return text[:100] if text.isprintable() and text not in ("", "std::exception") else type(error).__name__


def _folder(root: Folder, top: str) -> Iterator[ArchiveEntry]:
    """Yields the files in a folder before those in its subfolders. Links are never followed."""
    waiting = [("" if (root / top).is_dir() else f"{top}/", root)]
    while waiting:
        below, folder = waiting.pop()
        folders = []
        with contextlib.ExitStack() as stack:
            try:
                opened = stack.enter_context(untrusted.open_folder(folder, root))
                entries = sorted(opened.entries())
            except (OSError, Unusable) as error:
                yield ArchiveEntry(below or str(root), 0, f"a folder that cannot be read ({_reason(error)})", bytes)
                continue
            for name, kind, size, _ in entries:
                if kind != "folder":
                    odd = _ODD.get(kind, "")
                    yield ArchiveEntry(f"{below}{name}", size, odd, functools.partial(opened.read, name, size))
                elif below.count("/") >= DEEPEST:
                    yield ArchiveEntry(f"{below}{name}", 0, "a folder nested too deep", bytes)
                else:
                    folders.append((f"{below}{name}/", folder / name))
        waiting += reversed(folders)
