"""Shared files: one table for all studies in a release, in one or more Parquet files. Each study has a slice of rows.

Rows are sorted by study. They have the columns of all studies, in the widest type, with null if a study lacks a column.
The studies table also has ``plan_columns.COLUMNS``. The trials and measurements tables also have the columns of the
workload. ``narrow`` restores a study's original table.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results import bounds, durable
from results.aliases import Fields, StringMap
from results.bad_input import BadInput, first_line
from results.durable import Damaged, Folder
from results.plans import plan_columns, schema
from results.plans.plan import Plan

WORKLOAD = tuple(column for column in schema.STUDIES if column.name in ("dataset", "model", "optimizer", "batch_size"))
_FURTHER = (pa.float32(), pa.float64(), pa.int64(), pa.int32(), pa.string(), pa.bool_())
_TYPES = {str(kind): kind for kind in _FURTHER}  # types of the additional columns
MOST_AHEAD = 8  # row groups decoded in advance; more would take too much memory
_CHECK = "Check everything with `python -m results verify`."


@contextlib.contextmanager
def decoding(path: Folder) -> Iterator[None]:
    """Turns errors of decoding a file into Damaged."""
    try:
        yield
    except (FileNotFoundError, BadInput):
        raise
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:  # ValueError: a column's name is not text
        raise Damaged(f"{path} cannot be read ({first_line(error)}). {_CHECK}") from None


class SharedFile:
    """A file shared by several studies. It is opened on first use.

    Attributes:
      path, sha256, bytes: path, hash and size of the file.
      rows: number of rows of a table, or 0 for other files.
    """

    def __init__(self, path: Folder, sha256: str, size: int, rows: int):
        self.path, self.sha256, self.bytes, self.rows = path, sha256, size, rows
        self._lock = threading.Lock()
        self._intact: bool | None = None
        self._hidden: str | None = None
        self._groups = range(0)  # most recently decoded row groups
        self._decoded = pa.table({})  # their rows
        self._columns: Sequence[str] | None = None  # columns decoded in them, or None for all

    @property
    def intact(self) -> bool:
        """Whether the file matches its hash. This is computed only once."""
        with self._lock:
            if self._intact is None:
                self._intact = self.path.stat().st_size == self.bytes and durable.sha256(self.path) == self.sha256
            return self._intact

    def content(self, start: int, size: int) -> bytes:
        """Returns ``size`` bytes starting at ``start``. The file is read only once."""
        with self._lock:
            return self._data[start : start + size]

    @functools.cached_property
    def _data(self) -> bytes:
        return durable.read(self.path, self.bytes)

    @property
    def hidden(self) -> str:
        """The first column whose statistics wrongly report only nulls, or an empty string."""
        with self._lock:
            if self._hidden is None:
                self._hidden = self._first_hidden()
            return self._hidden

    def table(self, start: int, rows: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns some of the rows. Only the row groups that contain them are decoded.

        Args:
          start: first row.
          rows: number of rows.
          columns: names of the columns, in the order of the file. By default, all columns.

        Raises:
          Damaged: the file is not a table, or has too few rows.
        """
        with decoding(self.path), self._lock:
            if columns != self._columns:
                self._groups, self._columns = range(0), columns
            return self._table(start, rows)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.table(0, 0).schema

    @functools.cached_property
    def _metadata(self) -> Any:
        durable.check_file(self.path)
        with self.path.open("rb") as stream:
            file = bounds.Parquet(stream)
        if file.metadata.num_rows != self.rows or file.bytes != self.bytes:
            raise Damaged(f"{self.path} is not what was written. {_CHECK}")
        return file.metadata

    @functools.cached_property
    def _first_rows(self) -> np.ndarray:
        """The first row of each row group, then the end."""
        groups = range(self._metadata.num_row_groups)
        return np.cumsum([0, *(self._metadata.row_group(i).num_rows for i in groups)])

    def _table(self, start: int, rows: int) -> pa.Table:
        first = self._first_rows
        if start + rows > self.rows:
            raise Damaged(f"{self.path} has {self.rows:,} rows, but {start + rows:,} are listed. {_CHECK}")
        if not rows:
            return self._metadata.schema.to_arrow_schema().empty_table()
        begin, end = int(np.searchsorted(first, start, "right")) - 1, int(np.searchsorted(first, start + rows, "left"))
        if begin < self._groups.start or end > self._groups.stop:
            # A sequential reader will likely continue, so it gets more and more groups at once.
            ahead = min(2 * len(self._groups), MOST_AHEAD) if begin == self._groups.stop else 0
            groups = range(begin, min(end + ahead, len(first) - 1))
            self._decoded, self._groups = self._decode(groups), groups
        return self._decoded.slice(start - int(first[self._groups.start]), rows)

    def _first_hidden(self) -> str:
        with self.path.open("rb") as stream:
            file = bounds.Parquet(stream, metadata=self._metadata)
            for group in file.groups:
                names = [name for name in file.schema_arrow.names if self._is_null(name, [group])]
                rows = file.read(names, [group], plain=False)
                for name in names:
                    if rows[name].null_count < len(rows):
                        return name
        return ""

    def _decode(self, groups: range) -> pa.Table:
        """Returns row groups. Columns that have no values, according to the statistics, are not decoded."""
        columns = self._metadata.schema.to_arrow_schema()
        if self._columns is not None:
            columns = pa.schema([field for field in columns if field.name in self._columns], columns.metadata)
        with self.path.open("rb") as stream:
            file = bounds.Parquet(stream, metadata=self._metadata)
            rows = file.read([name for name in columns.names if not self._is_null(name, groups)], groups)
        filled = set(rows.column_names)
        arrays = [rows[field.name] if field.name in filled else pa.nulls(len(rows), field.type) for field in columns]
        return pa.Table.from_arrays(arrays, schema=columns)

    def _is_null(self, name: str, groups: Sequence[int]) -> bool:
        """Returns whether a column of some row groups has no values, according to the statistics."""
        place = self._metadata.schema.names.index(name)
        return all(_has_only_nulls(self._metadata.row_group(group), place) for group in groups)


def _has_only_nulls(group: Any, place: int) -> bool:
    statistics = group.column(place).statistics
    return bool(statistics and statistics.has_null_count and statistics.null_count == group.num_rows)


def union(table: str, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Returns the columns of a shared table, given those of its studies. Float and double are combined to double."""
    fields = list(pa.unify_schemas(list(schemas), promote_options="permissive"))
    known_columns = len(schema.COLUMNS[table])
    derived = plan_columns.COLUMNS if table == "studies" else WORKLOAD
    fields[known_columns:] = [pa.field(c.name, c.type) for c in derived] + sorted(
        fields[known_columns:], key=lambda field: field.name
    )
    # Strings are plain: Parquet stores them as dictionaries anyway, and some readers do not support Arrow's.
    plain = [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in fields]
    return pa.schema(
        [field.with_nullable(field.name not in schema.NEVER_NULL) for field in plain],
        schema.METADATA,
    )


def widen(table: str, content: pa.Table, study: Plan, columns: pa.Schema) -> pa.Table:
    """Converts a study's table, in the current schema, to rows of a shared table.

    Args:
      table: studies, trials or measurements.
      content: the rows of the study.
      study: the plan.
      columns: columns of the shared table, from ``union``.
    """
    derived = _plan_values(table, study)
    arrays = []
    for field in columns:
        if field.name in content.column_names and field.name not in derived:
            arrays.append(content[field.name].cast(field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(derived.get(field.name), field.type), len(content)))
    return pa.Table.from_arrays(arrays, schema=columns)


def narrow(table: str, rows: pa.Table, further: StringMap, names: Sequence[str] | None = None) -> pa.Table:
    """Restores a study's own table, or some of its columns, from its rows in a shared table.

    Args:
      table: studies, trials or measurements.
      rows: rows of this study only.
      further: Arrow type names of the columns that only some studies have, by column.
      names: names of the columns. By default, all columns.

    Raises:
      ValueError, pyarrow.ArrowException: a column is missing or has a value outside its type.
    """
    columns = schema.COLUMNS[table]
    if not schema.is_of_today(rows.schema):  # ``migrations`` adds columns that an older file lacks
        columns = tuple(column for column in columns if column.name in rows.column_names)
    types = {column.name: column.type for column in columns}
    types |= {name: _TYPES[kind] for name, kind in further.items()}
    if names is not None:
        types = {name: types[name] for name in names}
    if missing := sorted(types.keys() - set(rows.column_names)):
        raise ValueError(f"column {missing[0]} is missing")
    arrays = [_narrow(rows[name], kind) for name, kind in types.items()]
    return pa.Table.from_arrays(arrays, schema=pa.schema(list(types.items()), rows.schema.metadata))


def differing(table: str, rows: pa.Table, further: StringMap, study: Plan) -> list[str]:
    """Returns the columns in a shared table that are inconsistent with the study's own table or plan.

    Args:
      table: studies, trials or measurements.
      rows: rows of this study only.
      further: see ``narrow``.
      study: the plan.
    """
    derived = _plan_values(table, study)
    known_columns = {column.name for column in schema.COLUMNS[table]}
    wrong = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name in derived:
            right = column.unique().to_pylist() in ([], [derived[name]])
        elif name in known_columns:
            right = True
        elif name not in further:
            right = column.null_count == len(column)
        else:
            right = _keeps(column, _TYPES[further[name]])
        if not right:
            wrong.append(name)
    return wrong


def _keeps(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Returns whether all values in a column fit a narrower type, for example float32 values in a column of doubles."""
    if column.type == kind:
        return True
    back = _narrow(column, kind).cast(column.type)
    return back.equals(column) or bool(
        pa.types.is_floating(column.type)
        and np.array_equal(back.to_numpy(), column.to_numpy(), equal_nan=True)
        and back.null_count == column.null_count
    )


def _plan_values(table: str, study: Plan) -> Fields:
    """Returns the shared-table columns derived from the plan: for trials and measurements, ``WORKLOAD``."""
    if table == "studies":
        return plan_columns.columns(study)
    return plan_columns.names(study)


def _narrow(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(kind):
        return column.dictionary_encode().cast(kind)
    return column if column.type == kind else pc.cast(column, kind, safe=not pa.types.is_floating(kind))
