"""Decodes bzip2 in a separate process, so that decoding never waits for the reader's interpreter lock.

    python results/importers/bunzip.py FILE THREADS

writes records to standard output: the number of bytes of FILE read so far, the length of the data, and the data.
"""

import bz2
import contextlib
import importlib
import struct
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

CHUNK = 1 << 20
HEAD = struct.Struct("<QQ")


class Decoded(NamedTuple):
    """An open bzip2 file.

    Attributes:
      read: function that returns up to the given number of bytes, and empty bytes only at the end. It may raise
        OSError, EOFError, RuntimeError or ValueError.
      position: function that returns the number of bytes read from the file so far.
    """

    read: Callable[[int], bytes]
    position: Callable[[], int]


class Decoder:
    """The standard library's decoder, run in large steps. (bz2.BZ2File decodes in steps of 8 KiB.)"""

    def __init__(self, file: BinaryIO):
        self._file, self._decoder = file, bz2.BZ2Decompressor()

    def read(self, size: int) -> bytes:
        """Returns up to ``size`` bytes, and empty bytes only at the end."""
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
                if starts:  # trailing bytes after the last stream, which bzip2 also ignores
                    return b""
                raise
            if data:
                return data


@contextlib.contextmanager
def open_bzip2(path: str, threads: int) -> Iterator[Decoded]:
    """Opens a local file for decoding with rapidgzip, or with the standard library if rapidgzip is not installed."""
    try:
        rapidgzip = importlib.import_module("rapidgzip")
    except ImportError:
        with open(path, "rb") as file:
            yield Decoded(Decoder(file).read, file.tell)
        return
    with rapidgzip.IndexedBzip2File(path, parallelization=threads) as decoded:
        reader = getattr(decoded, "bz2reader", None)
        yield Decoded(decoded.read, lambda: reader.tell_compressed() // 8 if reader is not None else 0)


def main(path: str, threads: int, out: BinaryIO) -> None:
    """Decodes a file to its end."""
    with open_bzip2(path, threads) as source:
        while data := source.read(CHUNK):
            out.write(HEAD.pack(source.position(), len(data)))
            out.write(data)
    out.write(HEAD.pack(0, 0))  # marks the end of complete output
    out.flush()


def run() -> None:
    """Runs the program. If the file is damaged, the error is printed as the last line of standard error."""
    try:
        main(sys.argv[1], int(sys.argv[2]), sys.stdout.buffer)
    except (OSError, EOFError, RuntimeError, ValueError) as error:
        sys.stdout.flush()
        sys.exit(str(getattr(error, "strerror", None) or error).partition("\n")[0] or type(error).__name__)


if __name__ == "__main__":
    run()
