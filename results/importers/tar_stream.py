"""A streaming reader for tar archives. It limits every size that an archive can request.

Nothing is unpacked to disk: a member consists of a name, a size and, on request, bytes. The reader supports ustar
names, and the long names of GNU and POSIX tar. Links, devices and other special members are reported and never
followed.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

BLOCK = 512
CHUNK = 1 << 20
LONGEST_NAME = 1 << 16  # maximum bytes of an extra header, for names that do not fit in a block

_REGULAR, _FOLDER = (b"0", b"\0", b"7"), b"5"
_LONG_NAME, _LONG_LINK, _EXTENDED, _GLOBAL = b"L", b"K", b"x", b"g"
_WITHOUT_DATA = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a named pipe",
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


class _TarHeader(NamedTuple):
    name: bytes
    size: int
    kind: bytes


class _Stream:
    """A byte stream over consecutive chunks."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks, self._held, self._at = chunks, b"", 0

    def take(self, count: int) -> bytes:
        """Returns the next ``count`` bytes, or fewer at the end."""
        end = self._at + count
        if end <= len(self._held):
            piece = self._held[self._at : end]
            self._at = end
            return piece
        pieces = [self._held[self._at :]]
        missing = count - len(pieces[0])
        self._held, self._at = b"", 0
        for chunk in self._chunks:
            pieces.append(chunk[:missing])
            if len(chunk) >= missing:
                self._held, self._at = chunk, missing
                break
            missing -= len(chunk)
        return b"".join(pieces)

    def skip(self, count: int) -> None:
        """Skips the next ``count`` bytes. Raises Broken if fewer remain."""
        while count > 0:
            step = len(self.take(min(count, CHUNK)))
            if not step:
                raise Broken("it is truncated")
            count -= step


def entries(chunks: Iterator[bytes]) -> Iterator[ArchiveEntry]:
    """Yields all members of a tar archive except folders.

    Args:
      chunks: bytes of the archive, in pieces of any size.

    Raises:
      Broken: the bytes are not a tar archive, are truncated, or contain a damaged header.
    """
    stream = _Stream(chunks)
    long_name = None
    long_size = None
    first = True
    while (block := stream.take(BLOCK)) != bytes(BLOCK):
        header = _header(block, first)
        first = False
        if header.kind in (_LONG_NAME, _EXTENDED):
            data = _payload(stream, header)
            if header.kind == _LONG_NAME:
                long_name = data.rstrip(b"\0")
            else:
                records = _records(data)
                long_name = records.get(b"path", long_name)
                long_size = _decimal(records[b"size"]) if b"size" in records else long_size
            continue
        if header.kind in (_LONG_LINK, _GLOBAL):
            stream.skip(_padded(header.size))
            continue
        size = header.size if long_size is None else long_size
        name = header.name if long_name is None else long_name
        long_name = long_size = None
        if header.kind == _FOLDER or (header.kind in _REGULAR and name.endswith(b"/")):
            continue
        yield from _entry(stream, name, size, header.kind)


def _entry(stream: _Stream, name: bytes, size: int, kind: bytes) -> Iterator[ArchiveEntry]:
    """Yields one entry, then skips the bytes that the caller did not read."""
    path = name.decode("utf-8", "backslashreplace")
    if kind in _WITHOUT_DATA:
        yield ArchiveEntry(path, 0, _WITHOUT_DATA[kind], bytes)
        return
    remaining = size

    def read() -> bytes:
        nonlocal remaining
        data, remaining = stream.take(size), 0
        if len(data) < size:
            raise Broken(f"it is truncated within {path!r:.200}")
        return data

    yield ArchiveEntry(path, size, "" if kind in _REGULAR else f"of an unknown kind ({kind!r})", read)
    stream.skip(remaining + _padded(size) - size)


def _header(block: bytes, first: bool) -> _TarHeader:
    if len(block) < BLOCK:
        raise Broken("it is not a tar archive" if first else "it is truncated: its end marker is missing")
    try:
        if int(block[148:156].strip(b" \0"), 8) != sum(block) - sum(block[148:156]) + 8 * 32:
            raise ValueError
        size = int(block[124:136].strip(b" \0") or b"0", 8) if block[124] < 0x80 else _binary(block[124:136])
        if size < 0:
            raise ValueError
    except ValueError:
        raise Broken("it is not a tar archive" if first else "a header in it is damaged") from None
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return _TarHeader(prefix + b"/" + name if prefix else name, size, block[156:157])


def _binary(field: bytes) -> int:
    if field[0] != 0x80:
        raise ValueError("negative, or beyond any disk")
    return int.from_bytes(field[1:])


def _decimal(field: bytes) -> int:
    if not field.isdigit() or len(field) > 20:
        raise Broken("an extended header in it is damaged")
    return int(field)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _payload(stream: _Stream, header: _TarHeader) -> bytes:
    if header.size > LONGEST_NAME:
        raise Broken(f"a name in it claims to take {header.size:,} bytes")
    data = stream.take(_padded(header.size))[: header.size]
    if len(data) < header.size:
        raise Broken("it is truncated")
    return data


def _records(data: bytes) -> dict[bytes, bytes]:
    """Parses the records of a POSIX extended header: lines of the form `length key=value`."""
    records = {}
    while data:
        length, space, _ = data.partition(b" ")
        if not space or not length.isdigit() or len(length) > 6 or not len(length) + 1 < int(length) <= len(data):
            raise Broken("an extended header in it is damaged")
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        records[key] = value
        data = data[int(length) :]
    return records
