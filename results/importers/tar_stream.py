"""A streaming reader for tar archives. It limits every size that an archive can request.

Nothing is unpacked to disk: a member consists of a name, a size and, on request, bytes. The reader supports ustar
names, and the long names of GNU and POSIX tar. Links, devices and other special members are reported and never
followed.
"""

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

CHUNK = 1 << 20
LONGEST_NAME = 1 << 16  # maximum bytes of an extra header, for names that do not fit in a block

_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_WITHOUT_DATA = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
}


class Broken(Exception):
    """Raised if the rest of an archive cannot be read. The message gives the reason."""


class ArchiveEntry(NamedTuple):
    """A member of an archive or a folder.

    Attributes:
      path: name with forward slashes.
      size: size in bytes.
      odd: type of a special member, such as "a symbolic link". Empty for regular files.
      read: function that returns the bytes. Call it at most once, before requesting the next entry.
    """

    path: str
    size: int
    odd: str
    read: Callable[[], bytes]


class _Source(io.RawIOBase):
    """A byte stream over consecutive chunks."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks, self._remaining = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._remaining = self._remaining or memoryview(next(self._chunks, b""))
        count = min(len(buffer), len(self._remaining))
        buffer[:count], self._remaining = self._remaining[:count], self._remaining[count:]
        return count


def entries(chunks: Iterator[bytes]) -> Iterator[ArchiveEntry]:
    """Yields all members of a tar archive except folders.

    Args:
      chunks: bytes of the archive, in pieces of any size.

    Raises:
      Broken: the bytes are not a tar archive, are truncated, or contain a damaged header.
    """
    stream = io.BufferedReader(_Source(chunks), CHUNK)
    stated = {}  # path and size of the next member, if they are in extra headers
    is_first = True
    while (block := stream.read(tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE):
        header = _header(block, is_first)
        is_first = False
        if header.type == tarfile.GNUTYPE_LONGNAME:
            stated[b"path"] = _payload(stream, header.size).rstrip(b"\0")
        elif header.type == tarfile.XHDTYPE:
            stated |= _records(_payload(stream, header.size))
        elif header.type in (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE):
            _skip(stream, _padded(header.size))
        else:
            size = int(stated.get(b"size", header.size))
            path = stated[b"path"].decode("utf-8", "backslashreplace") if b"path" in stated else header.name
            stated = {}
            if not (header.isdir() or (header.type in _REGULAR and path.endswith("/"))):
                yield from _entry(stream, path, size, header.type)


def _entry(stream: BinaryIO, path: str, size: int, kind: bytes) -> Iterator[ArchiveEntry]:
    """Yields one entry, then skips the bytes that the caller did not read."""
    if kind in _WITHOUT_DATA:
        yield ArchiveEntry(path, 0, _WITHOUT_DATA[kind], bytes)
        return
    remaining = _padded(size)

    def read() -> bytes:
        nonlocal remaining
        data, remaining = stream.read(size), remaining - size
        if len(data) < size:
            raise Broken(f"it is truncated within {path!r:.200}")
        return data

    yield ArchiveEntry(path, size, "" if kind in _REGULAR else f"of an unknown kind ({kind!r})", read)
    _skip(stream, remaining)


def _header(block: bytes, is_first: bool) -> tarfile.TarInfo:
    fault = (
        "a header in it is damaged" if len(block) == tarfile.BLOCKSIZE else "it is truncated: its end marker is missing"
    )
    with contextlib.suppress(tarfile.HeaderError):
        header = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
        if header.size >= 0:
            return header
    raise Broken("it is not a tar archive" if is_first else fault)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _skip(stream: BinaryIO, count: int) -> None:
    """Skips the next ``count`` bytes. Raises Broken if fewer remain."""
    while count > 0:
        step = len(stream.read(min(count, CHUNK)))
        if not step:
            raise Broken("it is truncated")
        count -= step


def _payload(stream: BinaryIO, size: int) -> bytes:
    if size > LONGEST_NAME:
        raise Broken(f"a name in it claims to take {size:,} bytes")
    data = stream.read(_padded(size))[:size]
    if len(data) < size:
        raise Broken("it is truncated")
    return data


def _records(data: bytes) -> dict[bytes, bytes]:
    """Parses the records of a POSIX extended header: lines of the form `length key=value`."""
    records = {}
    while data:
        length, space, _ = data.partition(b" ")
        if not space or not length.isdigit() or len(length) > 6 or not len(length) + 1 < int(length) <= len(data):
            raise Broken("an extended header in it is damaged")
        key, _, text = data[len(length) + 1 : int(length) - 1].partition(b"=")
        if key == b"size" and not (text.isdigit() and len(text) <= 20):
            raise Broken("an extended header in it is damaged")
        records[key] = text
        data = data[int(length) :]
    return records
