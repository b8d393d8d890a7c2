"""Stores records on disk in sorted chunks, and reads them back in the order of their keys.

A chunk is a file that is created atomically, so a killed process loses only the records that it has not written yet.
Each file starts with an index of buckets, which are ranges of keys. To read all records in order, buckets are processed
one by one: the bucket is read from all chunks and sorted in memory.
"""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from results import durable
from results.bad_input import BadInput

CHUNK_BYTES = 128 << 20  # of records in a chunk; also the approximate memory needed to write it, twice
BUCKETS = 1024  # ranges of keys, by their first 10 bits; TFDS uses 1,000
KEY_BYTES = 16
SIZE_BYTES = 4  # of the size of a value
HEAD_BYTES = KEY_BYTES + SIZE_BYTES  # of a record, before its value
INDEX = np.dtype("<i8")
INDEX_BYTES = 2 * (BUCKETS + 1) * INDEX.itemsize
PREFIXES = tuple((bucket << 6).to_bytes(2, "big") for bucket in range(BUCKETS))  # the first two bytes of each bucket


class Chunk(NamedTuple):
    """A file of sorted records.

    Attributes:
      file: its path.
      ranks: index of the first record of each bucket, and the number of records: int64[BUCKETS + 1].
      ends: start of each bucket and end of the last one, in bytes after the index: int64[BUCKETS + 1].
    """

    file: Path
    ranks: np.ndarray
    ends: np.ndarray

    def value_bytes(self) -> int:
        """Returns the total size of all values."""
        return int(self.ends[-1] - HEAD_BYTES * self.ranks[-1])


def record(key: int, value: bytes) -> bytes:
    """Returns a record: the key (128 bits), the size of the value (32 bits), and the value."""
    return key.to_bytes(KEY_BYTES, "big") + len(value).to_bytes(SIZE_BYTES, "big") + value


def write(folder: Path, number: int, records: list[bytes]) -> Chunk:
    """Sorts the records in place and writes them atomically and durably as the chunk with this number (from 0)."""
    records.sort()
    firsts = [bisect.bisect_left(records, prefix) for prefix in PREFIXES]
    ranks = np.array([*firsts, len(records)], INDEX)
    sizes = np.fromiter(map(len, records), INDEX, len(records))
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(INDEX)[ranks]
    file = _file(folder, number)
    durable.replace(file, ranks.tobytes() + ends.tobytes(), b"".join(records))
    return Chunk(file, ranks, ends)


def found(folder: Path) -> list[Chunk]:
    """Returns the chunks in a folder, without reading their records.

    Raises:
      BadInput: the size of a file has changed since it was written.
    """
    chunks: list[Chunk] = []
    while (file := _file(folder, len(chunks))).exists():
        chunks.append(_opened(file))
    return chunks


def remove(folder: Path) -> None:
    """Removes all chunks of a folder."""
    for file in folder.glob("chunk-*"):
        file.unlink()


def values(chunks: Sequence[Chunk], first: int = 0) -> Iterator[bytes]:
    """Yields the values of all chunks in the order of their keys.

    Args:
      chunks: all chunks.
      first: number of values to skip at the start. Buckets whose values are all skipped are not read.

    Raises:
      BadInput: two records have the same key.
    """
    ranks = np.sum([chunk.ranks for chunk in chunks], axis=0)
    for bucket in range(BUCKETS):
        if ranks[bucket + 1] <= first:
            continue
        records = sorted(itertools.chain.from_iterable(_bucket(chunk, bucket) for chunk in chunks))
        for one, other in itertools.pairwise(records):
            if one[:KEY_BYTES] == other[:KEY_BYTES]:
                raise BadInput("two examples have the same key")
        for each in records[max(0, first - int(ranks[bucket])) :]:
            yield each[HEAD_BYTES:]


def _opened(file: Path) -> Chunk:
    size = file.stat().st_size
    with open(file, "rb") as opened:
        index = opened.read(INDEX_BYTES)
    if len(index) == INDEX_BYTES:
        ranks, ends = np.frombuffer(index, INDEX).reshape(2, BUCKETS + 1)
        if size == INDEX_BYTES + ends[-1]:
            return Chunk(file, ranks, ends)
    raise BadInput(f"{file} is damaged. Delete the folder {file.parent}.")


def _bucket(chunk: Chunk, bucket: int) -> Iterator[bytes]:
    """Yields the records of a bucket of a chunk."""
    start, end = int(chunk.ends[bucket]), int(chunk.ends[bucket + 1])
    if start == end:
        return
    with open(chunk.file, "rb") as opened:
        opened.seek(INDEX_BYTES + start)
        data = opened.read(end - start)
    at = 0
    while at < len(data):
        value = at + HEAD_BYTES
        following = value + int.from_bytes(data[at + KEY_BYTES : value], "big")
        yield data[at:following]
        at = following


def _file(folder: Path, number: int) -> Path:
    return folder / f"chunk-{number:06}"
