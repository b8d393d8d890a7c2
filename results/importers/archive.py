"""A published archive (.tar.bz2, .tar or a folder): its files, in order.

Nothing is unpacked to disk. bzip2 data are decoded ahead of use: local files in a separate process that uses all cores
except one, and remote files in a thread.
"""

import collections
import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

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


@dataclasses.dataclass
class OpenArchive:
    """An open archive or folder.

    Attributes:
      size: size of the archive in bytes, or 0 for a folder.
      entries: all contents except folders, in order. Iterating may raise Broken.
      position: number of bytes read so far.
    """

    size: int
    entries: Iterator[ArchiveEntry]
    position: int = 0


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
        yield OpenArchive(0, _folder(path, top))
        return
    if not path.is_file():
        raise Broken("it is neither a file nor a folder")
    with contextlib.ExitStack() as stack:
        try:
            archive = OpenArchive(path.stat().st_size, iter(()))
            file = stack.enter_context(path.open("rb"))
            is_compressed = file.read(len(_MAGIC)) == _MAGIC
            file.seek(0)
        except (OSError, RuntimeError, ValueError) as error:
            raise Broken(f"it cannot be opened ({_reason(error)})") from None
        if not is_compressed:
            pieces = _plain(file)
        elif durable.system(path).is_local:
            pieces = _decoded_in_process(Path(str(path)))
        else:
            pieces = bunzip.decode(file)
        stack.enter_context(contextlib.closing(pieces))
        pool = stack.enter_context(ThreadPoolExecutor(1))  # one thread keeps chunks in order
        stack.callback(pool.shutdown, cancel_futures=True)
        archive.entries = tar_stream.entries(_chunks(archive, pieces, pool))
        yield archive


def _plain(file: BinaryIO) -> Generator[bunzip.Piece]:
    while data := file.read(CHUNK):
        yield file.tell(), data


def _decoded_in_process(path: Path) -> Generator[bunzip.Piece]:
    """Yields the content of a local bzip2 file, decoded by a process that runs ``bunzip``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    command = [sys.executable, *DECODE, str(path.absolute()), str(max(1, min(cores - 1, DECODERS)))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=CHUNK) as process:
        assert process.stdout and process.stderr
        try:
            while len(head := process.stdout.read(bunzip.HEAD.size)) == bunzip.HEAD.size:
                position, length = bunzip.HEAD.unpack(head)
                if not length:
                    return
                yield position, process.stdout.read(length)
            lines = process.stderr.read().decode(errors="replace").splitlines()
            raise RuntimeError(lines[-1] if lines else "the decoder was killed")
        finally:
            process.kill()


def _chunks(archive: OpenArchive, pieces: Iterator[bunzip.Piece], pool: ThreadPoolExecutor) -> Iterator[bytes]:
    """Yields the content. A chunk is yielded only once the next one is decoded, because bz2 detects damage late."""
    chunk, total, end = b"", 0, (0, b"")
    ahead = collections.deque(pool.submit(next, pieces, end) for _ in range(AHEAD))
    try:
        while True:
            position, following = ahead.popleft().result()
            ahead.append(pool.submit(next, pieces, end))
            archive.position = max(archive.position, position)
            total += len(following)
            if total > SMALL + MOST_GROWTH * archive.size:
                raise Broken(f"it unpacks to more than {MOST_GROWTH} times its size")
            if chunk:
                yield chunk
            if not following:
                return
            chunk = following
    except (OSError, EOFError, RuntimeError, ValueError) as error:
        raise Broken(f"it is damaged or truncated ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).partition("\n")[0]
    return text[:100] if text.isprintable() and text not in ("", "std::exception") else type(error).__name__


def _folder(root: Folder, top: str) -> Iterator[ArchiveEntry]:
    """Yields the files in a folder before those in its subfolders. Links are never followed."""
    waiting = [("" if (root / top).is_dir() else f"{top}/", root)]
    while waiting:
        prefix, folder = waiting.pop()
        folders = []
        with contextlib.ExitStack() as stack:
            try:
                opened = stack.enter_context(untrusted.open_folder(folder, root))
                entries = sorted(opened.entries())
            except (OSError, Unusable) as error:
                yield ArchiveEntry(prefix or str(root), 0, f"a folder that cannot be read ({_reason(error)})", bytes)
                continue
            for name, kind, size, _ in entries:
                if kind != "folder":
                    odd = _ODD.get(kind, "")
                    yield ArchiveEntry(f"{prefix}{name}", size, odd, functools.partial(opened.read, name, size))
                elif prefix.count("/") >= DEEPEST:
                    yield ArchiveEntry(f"{prefix}{name}", 0, "a folder nested too deep", bytes)
                else:
                    folders.append((f"{prefix}{name}/", folder / name))
        waiting += reversed(folders)
