"""Shards: the tables of a release as files of up to 64 MB, which are written study by study."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from results.catalog import contents
from results.storage import compaction
from results.storage.shared import SharedFile

MOST_BYTES = 64_000_000  # maximum size of a file, including its footer
_MARGIN = 64  # extra footer bytes per column of a row group, because one row may not reach the full size
# Minimum rows of a row group, which has whole studies. For fast filtering, each study's measurements are a row group.
GROUP_ROWS = {"studies": 1 << 16, "trials": 1 << 16, "measurements": 1}
MOST_ROWS = 1 << 20  # maximum rows of a row group; a larger study has several

Put = Callable[[str, bytes | memoryview, int], SharedFile]  # writes a file, given its name, content and rows


def parquet_bytes(table: str, rows: pa.Table) -> memoryview:
    """Returns the rows as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **_options(table, rows.schema))
    return memoryview(sink.getvalue())


def _options(table: str, columns: pa.Schema) -> dict[str, Any]:
    """Returns arguments for PyArrow's writers: one codec for all columns, and the sort order."""
    order = [pq.SortingColumn(columns.get_field_index(name), nulls_first=True) for name in contents.KEYS[table]]
    encoded = compaction.parquet_options(columns)
    return encoded | {"compression": "zstd", "compression_level": 3, "sorting_columns": order}


def _empty_bytes(table: str, columns: pa.Schema) -> memoryview:
    """Returns a Parquet file without rows."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, columns, **_options(table, columns)).close()
    return memoryview(sink.getvalue())


def _footer_bytes(data: memoryview) -> int:
    """Returns the size of a Parquet file's footer, including the length field and the final magic bytes."""
    return int.from_bytes(data[-8:-4], "little") + 8


class Shards:
    """Writes ``TABLE.parquet``, or several numbered files if it is too large.

    A study is never split across files. The same rows always produce the same bytes.

    Attributes:
      places: index of the file and first row of each study, in the order in which they were added.
      files: finished files.
    """

    def __init__(self, table: str, columns: pa.Schema, put: Put):
        self._table, self._columns, self._put = table, columns, put
        self._waiting: list[pa.Table] = []
        self._first: memoryview | None = None  # the first file; its name depends on whether there is a second
        self._counts: list[int] = []  # rows per shard
        self._open()
        self.places: list[tuple[int, int]] = []
        self.files: list[SharedFile] = []

    def add(self, rows: pa.Table) -> None:
        """Adds the rows of the next study."""
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= GROUP_ROWS[self._table]:
            self._flush()

    def close(self) -> None:
        """Writes all remaining rows."""
        self._flush()
        self._end(last=True)

    def _open(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, self._columns, **_options(self._table, self._columns))
        self._counts.append(0)
        self._footer = _footer_bytes(_empty_bytes(self._table, self._columns))

    def _flush(self) -> None:
        if not self._waiting:
            return
        group = pa.concat_tables(self._waiting).combine_chunks()
        growth = self._further_footer(group)
        filled = self._sink.tell() + self._footer + growth
        may_be_full = self._counts[-1] and filled + group.nbytes > MOST_BYTES  # the encoded group is smaller
        if may_be_full and filled + len(parquet_bytes(self._table, group)) > MOST_BYTES:
            self._end(last=False)
            self._open()
        self._footer += growth
        for rows in self._waiting:
            self.places.append((len(self._counts) - 1, self._counts[-1]))
            self._counts[-1] += len(rows)
        self._writer.write_table(group, row_group_size=MOST_ROWS)
        self._waiting = []

    def _further_footer(self, group: pa.Table) -> int:
        """Returns an upper bound on a group's bytes in the footer: the bytes for its first row, plus a margin."""
        empty, first_row = _empty_bytes(self._table, self._columns), parquet_bytes(self._table, group.slice(0, 1))
        row_groups = -(-len(group) // MOST_ROWS)
        return (_footer_bytes(first_row) - _footer_bytes(empty) + _MARGIN * len(self._columns)) * row_groups

    def _end(self, *, last: bool) -> None:
        self._writer.close()
        data, number = memoryview(self._sink.getvalue()), len(self._counts)
        if number == 1 and not last:
            self._first = data
            return
        if number == 2 and self._first is not None:
            self._write(1, self._first)
            self._first = None
        self._write(None if number == 1 else number, data)

    def _write(self, number: int | None, data: memoryview) -> None:
        name = f"{self._table}.parquet" if number is None else f"{self._table}-{number:05d}.parquet"
        self.files.append(self._put(name, data, self._counts[0 if number is None else number - 1]))
