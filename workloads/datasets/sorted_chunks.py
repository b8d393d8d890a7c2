"""Sorts records on disk: writes them in sorted chunks, and merges the chunks.

A record consists of the key (128 bits), the size of the value (32 bits) and the value.
"""

import heapq
import itertools
from collections.abc import Iterator
from pathlib import Path

from workloads.base import BadInput, durable

CHUNK_BYTES = 1 << 30  # of records in a chunk, twice of which are in memory; all chunks are open when they are merged
KEY_BYTES = 16
SIZE_BYTES = 4
HEAD_BYTES = KEY_BYTES + SIZE_BYTES  # of a record, before its value
BLOCK_BYTES = 1 << 18  # read from a chunk at once


def record(key: int, value: bytes) -> bytes:
    """Returns a record."""
    return key.to_bytes(KEY_BYTES, "big") + len(value).to_bytes(SIZE_BYTES, "big") + value


def write(folder: Path, records: Iterator[bytes]) -> None:
    """Writes records as chunks. Each is sorted, and created atomically and durably."""
    for number in itertools.count():
        chunk = sorted(_first(records))
        if not chunk:
            return
        durable.replace(folder / f"chunk-{number:06}", b"".join(chunk))


def remove(folder: Path) -> None:
    """Removes all chunks of a folder."""
    for file in folder.glob("chunk-*"):
        file.unlink()


def values(folder: Path) -> Iterator[bytes]:
    """Yields the values of all chunks of a folder in the order of their keys.

    Raises:
      BadInput: two records have the same key, or a chunk is damaged.
    """
    records = heapq.merge(*map(_records, folder.glob("chunk-*")))
    for previous, following in itertools.pairwise(itertools.chain([b""], records)):
        if previous[:KEY_BYTES] == following[:KEY_BYTES]:
            raise BadInput("two examples have the same key")
        yield following[HEAD_BYTES:]


def _first(records: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the records of the next chunk."""
    size = 0
    for record in records:
        yield record
        size += len(record)
        if size >= CHUNK_BYTES:
            return


def _records(file: Path) -> Iterator[bytes]:
    with open(file, "rb", buffering=BLOCK_BYTES) as chunk:
        while head := chunk.read(HEAD_BYTES):
            size = int.from_bytes(head[KEY_BYTES:], "big")
            value = chunk.read(size)
            if len(head) < HEAD_BYTES or len(value) < size:
                raise BadInput(f"{file} is damaged. Delete the folder {file.parent}.")
            yield head + value
