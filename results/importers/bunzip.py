"""Decodes bzip2 in a separate process, so that decoding never waits for the reader's interpreter lock.

    python results/importers/bunzip.py FILE THREADS

writes records to standard output: the number of bytes of FILE read so far, the length of the data, and the data.
"""

import bz2
import importlib
import struct
import sys
from collections.abc import Generator, Iterator
from typing import BinaryIO

CHUNK = 1 << 20
HEAD = struct.Struct("<QQ")
Piece = tuple[int, bytes]  # the number of bytes read from the file so far, and data


def decode(file: BinaryIO) -> Generator[Piece]:
    """Decodes a file with the standard library, in large steps. (bz2.BZ2File decodes in steps of 8 KiB.)

    Raises:
      OSError: the file is damaged. Bytes after the last stream are ignored, as by bzip2.
      EOFError: the file is truncated.
    """
    decoder, data, is_start = bz2.BZ2Decompressor(), file.read(CHUNK), False
    while data or not is_start:
        if not data and decoder.needs_input:
            raise EOFError("the compressed file ends too early")
        try:
            decoded = decoder.decompress(data, CHUNK)
        except OSError:
            if is_start:
                return
            raise
        if decoded:
            yield file.tell(), decoded
        data, is_start = b"", decoder.eof
        if is_start:
            data, decoder = decoder.unused_data, bz2.BZ2Decompressor()
        if decoder.needs_input:
            data = data or file.read(CHUNK)


def decode_in_threads(path: str, threads: int) -> Iterator[Piece]:
    """Decodes a local file with rapidgzip, or with the standard library if rapidgzip is not installed."""
    try:
        rapidgzip = importlib.import_module("rapidgzip")
    except ImportError:
        with open(path, "rb") as file:
            yield from decode(file)
        return
    with rapidgzip.IndexedBzip2File(path, parallelization=threads) as decoded:
        reader = getattr(decoded, "bz2reader", None)
        while data := decoded.read(CHUNK):
            yield reader.tell_compressed() // 8 if reader is not None else 0, data


def main(path: str, threads: int, out: BinaryIO) -> None:
    """Decodes a file to its end."""
    for position, data in decode_in_threads(path, threads):
        out.write(HEAD.pack(position, len(data)))
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
