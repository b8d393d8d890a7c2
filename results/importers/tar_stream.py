"""A streaming reader for tar archives. It limits every size that an archive can request.

Nothing is unpacked to disk: a member consists of a name, a size and, on request, bytes. The standard library parses the
headers. It would take a damaged header for the end of an archive, and hold extra headers of any size in memory, so both
are checked here. Links, devices and other special members are reported and never followed.
"""

import tarfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

CHUNK = 1 << 20
LONGEST_NAME = 1 << 13  # maximum bytes of an extra header, for names that do not fit in a block
LARGEST = 1 << 36  # maximum bytes of a member; skipping more would take minutes, even if they do not exist

_EXTRA = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
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


class _Source:
    """A byte stream over consecutive chunks, with the only method that ``tarfile`` needs."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks, self._remaining = chunks, memoryview(b"")

    def read(self, size: int) -> memoryview:
        self._remaining = self._remaining or memoryview(next(self._chunks, b""))
        data, self._remaining = self._remaining[:size], self._remaining[size:]
        return data


class _Header(tarfile.TarInfo):
    """The header of a member. A fault in it raises Broken."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> "_Header":
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0:
            raise tarfile.HeaderError("negative size")
        if header.type in _EXTRA and header.size > LONGEST_NAME:
            raise Broken(f"a name in it claims to take {header.size:,} bytes")
        return header

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> "_Header":
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError):  # type: ignore[attr-defined]
            fault = "it is truncated: its end marker is missing"
        except (tarfile.HeaderError, RecursionError, ValueError):  # ValueError: a number with too many digits
            fault = "a header in it is damaged"
        raise Broken(fault if tar.offset else "it is not a tar archive")


def entries(chunks: Iterator[bytes]) -> Iterator[ArchiveEntry]:
    """Yields all members of a tar archive except folders.

    Args:
      chunks: bytes of the archive, in pieces of any size.

    Raises:
      Broken: the bytes are not a tar archive, are truncated, or contain a damaged header.
    """
    source: Any = _Source(chunks)
    try:
        with tarfile.open(None, "r|", source, tarinfo=_Header, encoding="utf-8", errors="backslashreplace") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # otherwise, all headers stay in memory
                if member.size > LARGEST:
                    raise Broken(f"a file in it claims to take {member.size:,} bytes")
                if not (member.isdir() or (member.type in _REGULAR and member.name.endswith("/"))):
                    yield _entry(tar, member)
    except tarfile.TarError:
        raise Broken("it is truncated") from None


def _entry(tar: tarfile.TarFile, member: tarfile.TarInfo) -> ArchiveEntry:
    if member.type in _WITHOUT_DATA:
        return ArchiveEntry(member.name, 0, _WITHOUT_DATA[member.type], bytes)
    is_plain = member.type in _REGULAR and not member.issparse()

    def read() -> bytes:
        data = tar.fileobj.read(member.size)
        if len(data) < member.size:
            raise Broken(f"it is truncated within {member.name!r:.200}")
        return data

    return ArchiveEntry(member.name, member.size, "" if is_plain else f"of an unknown kind ({member.type!r})", read)
