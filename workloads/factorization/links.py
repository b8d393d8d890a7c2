"""Links: a binary sparse matrix, and its construction from unordered pairs."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from workloads.base import BadInput

BLOCK = 1 << 24  # links counted at once
MOST_IDS = 2**31 - 2**16  # limit on rows and on columns, whose ids are stored as int32
PAIRS_BLOCK = 1 << 22  # pairs processed at once
BYTES_PER_LINK = 12  # peak memory of ``links``: a key and a column
BYTES_PER_ROW = 24


class Links(NamedTuple):
    """A binary sparse matrix.

    Attributes:
      starts: int64[rows + 1], index in ``columns`` at which each row starts.
      columns: int32[links], columns of all rows, sorted and distinct within a row.
      column_count: number of columns of the matrix.
    """

    starts: np.ndarray
    columns: np.ndarray
    column_count: int

    @property
    def row_count(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of links of each row, int64[rows]."""
        return np.diff(self.starts)

    @property
    def row_of_link(self) -> np.ndarray:
        """Row of each link, int64[links]."""
        return np.repeat(np.arange(self.row_count), self.lengths)

    @property
    def column_lengths(self) -> np.ndarray:
        """Number of links of each column, int64[columns]."""
        counts = np.zeros(self.column_count, np.int64)
        for start in range(0, len(self.columns), BLOCK):
            counts += np.bincount(self.columns[start : start + BLOCK], minlength=self.column_count)
        return counts

    def of_rows(self, rows: np.ndarray) -> "Links":
        """Returns the links of some rows, in the given order."""
        lengths = self.lengths[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        offsets = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        return Links(starts, self.columns[np.repeat(self.starts[rows], lengths) + offsets], self.column_count)

    def transpose(self, kept: np.ndarray | None = None) -> "Links":
        """Returns the transposed links, restricted to the columns in ``kept`` (bool[columns]) if it is given.

        With ``kept``, memory is needed only for the kept links and for one block of all links.
        """
        if kept is not None:
            return self._of_columns(kept)
        import scipy.sparse

        ones = np.ones(len(self.columns), np.int8)
        turned = scipy.sparse.csr_array((ones, self.columns, self.starts), (self.row_count, self.column_count)).tocsc()
        return Links(turned.indptr.astype(np.int64), turned.indices.astype(np.int32, copy=False), self.row_count)

    def _of_columns(self, kept: np.ndarray) -> "Links":
        rows = []
        columns = []
        for start in range(0, len(self.columns), BLOCK):
            block = self.columns[start : start + BLOCK]
            places = np.flatnonzero(kept[block])
            columns.append(block[places])
            rows.append((np.searchsorted(self.starts, start + places, side="right") - 1).astype(np.int32))
        row, column = (np.concatenate([np.empty(0, np.int32), *parts]) for parts in (rows, columns))
        starts = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=self.column_count))])
        return Links(starts, row[np.argsort(column, kind="stable")], self.row_count)


class Pairs:
    """Pairs of ids, packed into 64 bits (row in the high bits) so that one in-place sort orders and merges them.

    Attributes:
      shape: largest row and column so far, plus one.
    """

    def __init__(self) -> None:
        self.shape = (0, 0)
        self._blocks: list[np.ndarray] = []

    def add(self, rows: np.ndarray, columns: np.ndarray, where: str) -> None:
        """Adds links. Raises BadInput if an id is negative or too large.

        Args:
          rows, columns: integer[pairs], ids.
          where: source of the links, with which the error message starts.
        """
        if not len(rows):
            return
        self.shape = (max(self.shape[0], _count(rows, "row", where)), max(self.shape[1], _count(columns, "col", where)))
        keys = rows.astype(np.int64)
        keys <<= 32
        keys |= columns.astype(np.int64, copy=False)
        self._blocks.append(keys)

    def links(self, shape: tuple[int, int]) -> tuple[Links, int]:
        """Returns the links and the number of duplicates. Consumes the pairs.

        Args:
          shape: number of rows and of columns, each at least that of ``self.shape``.
        """
        # One sort makes duplicates adjacent. Blocks of distinct keys are then unpacked into the matrix.
        keys = self._take()
        keys.sort()
        columns = np.empty(len(keys), np.int32)
        starts = np.zeros(shape[0] + 1, np.int64)
        count = 0
        last = -1
        for start in range(0, len(keys), PAIRS_BLOCK):
            block = keys[start : start + PAIRS_BLOCK]
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
        """Returns all keys as one array. Blocks are freed one by one, so the keys are never in memory twice."""
        if len(self._blocks) == 1:
            return self._blocks.pop()
        keys = np.empty(sum(map(len, self._blocks)), np.int64)
        end = len(keys)
        while self._blocks:
            block = self._blocks.pop()
            keys[end - len(block) : end] = block
            end -= len(block)
        return keys


def common_shape(parts: Iterable[Pairs]) -> tuple[int, int]:
    """Returns the smallest shape of a matrix that holds each of the given pairs."""
    rows, columns = zip(*(part.shape for part in parts), strict=True)
    return max(rows), max(columns)


def _count(ids: np.ndarray, name: str, where: str) -> int:
    low = int(ids.min())
    high = int(ids.max())
    if low < 0:
        raise BadInput(f"{where}: {name} {low} is negative. Ids start at 0.")
    if high >= MOST_IDS:
        raise BadInput(f"{where}: {name} {high} is out of range. Ids go to {MOST_IDS - 1}.")
    return high + 1
