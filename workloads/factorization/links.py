"""Links: which columns each row is linked to, as a compressed sparse row matrix without values."""

from typing import NamedTuple

import numpy as np

BLOCK = 1 << 24  # links counted at once


class Links(NamedTuple):
    """A binary sparse matrix.

    Attributes:
      starts: int64[rows + 1], where each row's columns start in ``columns``.
      columns: int32[links], sorted and distinct within a row.
      column_count: how many columns there are.
    """

    starts: np.ndarray
    columns: np.ndarray
    column_count: int

    @property
    def row_count(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """int64[rows], links of every row."""
        return np.diff(self.starts)

    @property
    def column_lengths(self) -> np.ndarray:
        """int64[columns], links of every column."""
        counts = np.zeros(self.column_count, np.int64)
        for start in range(0, len(self.columns), BLOCK):
            counts += np.bincount(self.columns[start : start + BLOCK], minlength=self.column_count)
        return counts

    def of_rows(self, rows: np.ndarray) -> "Links":
        """The links of some rows, in their order."""
        lengths = self.lengths[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        return Links(starts, self.columns[np.repeat(self.starts[rows], lengths) + within], self.column_count)

    def transpose(self, kept: np.ndarray | None = None) -> "Links":
        """The same links, seen from the columns; with ``kept``, bool[columns], those of these columns alone.

        Of a part of the columns memory is taken for their links, and for a block of all.
        """
        if kept is not None:
            return self._of_columns(kept)
        import scipy.sparse

        ones = np.ones(len(self.columns), np.int8)
        turned = scipy.sparse.csr_array((ones, self.columns, self.starts), (self.row_count, self.column_count)).tocsc()
        return Links(turned.indptr.astype(np.int64), turned.indices.astype(np.int32, copy=False), self.row_count)

    def _of_columns(self, kept: np.ndarray) -> "Links":
        rows, columns = [], []
        for start in range(0, len(self.columns), BLOCK):
            block = self.columns[start : start + BLOCK]
            at = np.flatnonzero(kept[block])
            columns.append(block[at])
            rows.append((np.searchsorted(self.starts, start + at, side="right") - 1).astype(np.int32))
        row, column = (np.concatenate([np.empty(0, np.int32), *parts]) for parts in (rows, columns))
        starts = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=self.column_count))])
        return Links(starts, row[np.argsort(column, kind="stable")], self.row_count)
