"""Decoding of bzip2, for a process of its own: it neither takes nor waits for the interpreter's lock of the reader.

    python results/importers/bunzip.py FILE THREADS

writes to standard output, again and again: how many bytes of FILE have been read, how many follow, and these.
"""

import bz2
import contextlib
import importlib
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

CHUNK = 1 << 20
HEAD = struct.Struct("<QQ")


class Decoded(NamedTuple):
    """An opened bzip2 file.

    Attributes:
      read: at most so many bytes, at least one but at the end; raises OSError, EOFError, RuntimeError or ValueError.
      position: how many bytes of the file have been read.
    """

    read: Callable[[int], bytes]
    position: Callable[[], int]


class Decoder:
    """The standard library's decoder in large steps: bz2.BZ2File takes one for every 8 KiB."""

    def __init__(self, file: BinaryIO):
        self._file, self._decoder = file, bz2.BZ2Decompressor()

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes, at least one but at the end."""
        while True:
            rest, starts = b"", self._decoder.eof
            if starts:
                rest, self._decoder = self._decoder.unused_data, bz2.BZ2Decompressor()
            if self._decoder.needs_input:
                rest = rest or self._file.read(CHUNK)
                if not rest and starts:
                    return b""
                if not rest:
                    raise EOFError("the compressed file ends too early")
            try:
                data = self._decoder.decompress(rest, size)
            except OSError:
                if starts:  # what follows the last stream is none, and bzip2 itself passes over it
                    return b""
                raise
            if data:
                return data


@contextlib.contextmanager
def open_bzip2(path: str, threads: int) -> Iterator[Decoded]:
    """Opens a local file for decoding by rapidgzip, or, where that is not installed, by the standard library."""
    try:
        rapidgzip: Any = importlib.import_module("rapidgzip")
    except ImportError:
        with open(path, "rb") as file:
            yield Decoded(Decoder(file).read, file.tell)
        return
    with rapidgzip.IndexedBzip2File(path, parallelization=threads) as decoded:
        reader = getattr(decoded, "bz2reader", None)
        yield Decoded(decoded.read, lambda: reader.tell_compressed() // 8 if reader is not None else 0)


def main(path: str, threads: int, out: BinaryIO) -> None:
    """Decodes all of a file."""
    with open_bzip2(path, threads) as source:
        while data := source.read(CHUNK):
            out.write(HEAD.pack(source.position(), len(data)))
            out.write(data)
    out.write(HEAD.pack(0, 0))  # without which it did not come to its end
    out.flush()


def run() -> None:
    """The program; an error in the file is the last line of standard error."""
    try:
        main(sys.argv[1], int(sys.argv[2]), sys.stdout.buffer)
    except (OSError, EOFError, RuntimeError, ValueError) as error:
        sys.stdout.flush()
        sys.exit(str(getattr(error, "strerror", None) or error).partition("\n")[0] or type(error).__name__)


if __name__ == "__main__":
    run()
