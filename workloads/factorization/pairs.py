"""Pairs: links in any order, gathered block by block into a sparse matrix."""

import numpy as np

from results.bad_input import BadInput
from workloads.factorization.links import Links

MOST_IDS = 2**31 - 2**16  # of rows and of columns; they are stored as int32
BLOCK = 1 << 22  # pairs handled at once
BYTES_PER_LINK = 12  # at most, while ``links`` works: a key and a column
BYTES_PER_ROW = 24


class Pairs:
    """Pairs of ids, each packed into 64 bits, row above column, so that one sort in place orders and merges them.

    Attributes:
      rows, columns: one more than the largest ids so far.
    """

    def __init__(self) -> None:
        self.rows = self.columns = 0
        self._blocks: list[np.ndarray] = []

    def add(self, rows: np.ndarray, columns: np.ndarray, where: str) -> None:
        """Adds links; raises BadInput, beginning with ``where``, if an id is negative or too large.

        Args:
          rows, columns: integer[pairs].
          where: they come from.
        """
        if not len(rows):
            return
        self.rows = max(self.rows, _count(rows, "row", where))
        self.columns = max(self.columns, _count(columns, "col", where))
        keys = rows.astype(np.int64)
        keys <<= 32
        keys |= columns.astype(np.int64, copy=False)
        self._blocks.append(keys)

    def links(self, shape: tuple[int, int]) -> tuple[Links, int]:
        """Links, and the number of duplicates; consumes the pairs.

        Args:
          shape: rows and columns there are, at least those that were added.
        """
        # One sort brings duplicates together; then blocks of distinct keys are unpacked into the matrix.
        keys = self._take()
        keys.sort()
        columns = np.empty(len(keys), np.int32)
        starts = np.zeros(shape[0] + 1, np.int64)
        count, last = 0, -1
        for start in range(0, len(keys), BLOCK):
            block = keys[start : start + BLOCK]
            distinct = np.empty(len(block), bool)
            distinct[0] = block[0] != last
            np.not_equal(block[1:], block[:-1], out=distinct[1:])
            last = block[-1]
            block = block[distinct]
            if not len(block):
                continue
            columns[count : count + len(block)] = block & 0xFFFFFFFF
            count += len(block)
            first = block[0] >> 32
            counts = np.bincount((block >> 32) - first)
            starts[first + 1 : first + 1 + len(counts)] += counts
        merged = len(keys) - count
        return Links(np.cumsum(starts, out=starts), columns[:count] if merged else columns, shape[1]), merged

    def _take(self) -> np.ndarray:
        """All keys in one array; blocks are freed one by one, so that memory is not needed twice."""
        if len(self._blocks) == 1:
            return self._blocks.pop()
        keys = np.empty(sum(map(len, self._blocks)), np.int64)
        end = len(keys)
        while self._blocks:
            block = self._blocks.pop()
            keys[end - len(block) : end] = block
            end -= len(block)
        return keys


def _count(ids: np.ndarray, name: str, where: str) -> int:
    low, high = int(ids.min()), int(ids.max())
    if low < 0:
        raise BadInput(f"{where}: {name} {low} is negative; ids start at 0")
    if high >= MOST_IDS:
        raise BadInput(f"{where}: {name} {high} is out of range; ids go to {MOST_IDS - 1}")
    return high + 1
