"""Tables: logs with one row per logged step, from CSV, JSON lines, Parquet, a trainer's state or lines of text."""

import io
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results import bounds
from results.aliases import Fields, Strings
from results.bad_input import first_line
from results.grouping import grouped
from results.importers import csv_text, untrusted
from results.importers.runs import vocabulary
from results.importers.runs.vocabulary import kind
from results.importers.untrusted import Unusable, brief

MOST_COLUMNS = 4096
NULLS = ["", "None", "null", "NULL", "NA", "N/A", "<NA>"]  # NaN is a logged value: the run diverged
LENIENT = json.JSONDecoder()  # loggers write NaN and Infinity
_WORDS = ("nan", "inf", "infinity", "-inf", "-infinity", "+inf", "+infinity")  # numbers that loggers write as text


Needed: TypeAlias = Collection[str] | None  # names of the columns to keep if they exist, or None for all


class Table(NamedTuple):
    """Rows of a log.

    Attributes:
      names: names of all columns.
      columns: the columns that were asked for: numbers[n], or cells of any type as object[n].
      line: int64[n], number of each row's line in the file, or of the row.
      filled: bool[n], whether a row has a finite number in any column other than counters and times.
      is_text: whether numbers are written as text, as in CSV.
      entries: other values in the file, which are part of the run's config.
      notes: notes for the user.
    """

    names: Strings
    columns: Mapping[str, np.ndarray]
    line: np.ndarray
    filled: np.ndarray
    is_text: bool = False
    entries: Mapping[str, Any] = {}
    notes: Strings = ()

    def numbers(self, name: str, *, strict: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Returns a column as float64[n], with NaN for missing numbers, and whether each row has a number, bool[n].

        Raises:
          Unusable: ``strict`` is set, and a cell is a text that is not a number.
        """
        column = self.columns[name]
        if column.dtype != object:
            return column.astype(np.float64), np.ones(len(column), bool)
        values = [number(cell, self.is_text) for cell in column]
        logged = np.array([cell is not None for cell in values], bool)
        for i in np.flatnonzero(~logged) if strict else ():
            if isinstance(column[i], str | bytes):
                raise Unusable(f"line {self.line[i]:,} has {name} {brief(column[i])}, which is not a number")
        return np.array(values, np.float64), logged

    def groups(self, names: Sequence[str]) -> Iterator[tuple[str, "Table"]]:
        """Yields the rows for each combination of values of some columns, in the order of their first rows."""
        cells = zip(*(self.columns[name].tolist() for name in names), strict=True)
        keys = [None if None in row else "-".join(map(str, row)) for row in cells]
        for key, rows in grouped(range(len(keys)), keys.__getitem__).items():
            if key is not None:
                columns = {name: column[rows] for name, column in self.columns.items()}
                yield key, self._replace(columns=columns, line=self.line[rows], filled=self.filled[rows])


def number(cell: Any, is_text: bool = False) -> float | None:
    """Returns the number in a cell, or None. The words NaN and Infinity are numbers, and all texts if ``is_text``."""
    if isinstance(cell, float):
        return cell
    if isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) < 2**63:
        return float(cell)
    if not isinstance(cell, str) or "_" in cell or (not is_text and cell.strip().lower() not in _WORDS):
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def of_rows(rows: Sequence[Fields], needed: Needed = None, line: Sequence[int] | None = None) -> Table:
    """Returns a table of objects.

    Args:
      rows: an object per row.
      needed: names of the columns to keep if they exist. By default, all are kept. Counters are always kept.
      line: number of each row's line. By default, rows are numbered from 1.

    Raises:
      Unusable: there are more than ``MOST_COLUMNS`` columns.
    """
    kinds = {name: kind(name) for name in dict.fromkeys(name for row in rows for name in row)}
    if len(kinds) > MOST_COLUMNS:
        raise Unusable(f"has {len(kinds):,} columns")
    filled = [
        any(not kinds[name] and isinstance(cell, int | float) and math.isfinite(cell) for name, cell in row.items())
        for row in rows
    ]
    columns = {
        name: np.fromiter((row.get(name) for row in rows), object)
        for name, counter in kinds.items()
        if needed is None or name in needed or counter
    }
    return Table(tuple(kinds), columns, np.array(line or range(1, len(rows) + 1)), np.array(filled, bool))


def of_json_lines(data: bytes, needed: Needed, *, flat: bool) -> Table:
    """Returns a table of JSON lines. Names in nested objects are joined by slashes if ``flat``, as in Ray's CSV."""
    rows, numbers = [], []
    for count, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = untrusted.json_object(line, LENIENT)
        except Unusable as error:
            raise Unusable(f"line {count:,} {error}") from None
        rows.append(vocabulary.flat(row, "/") if flat else row)
        numbers.append(count)
    return of_rows(rows, needed, numbers)


def of_trainer(data: bytes, needed: Needed) -> Table:
    """Returns the log in a Hugging Face trainer_state.json file, with the file's other entries."""
    content = untrusted.json_object(data, LENIENT)
    history = content.pop("log_history", None)
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise Unusable("has no log_history, so it is not a trainer_state.json")
    return of_rows(history, needed)._replace(entries=content)


def of_csv(data: bytes, needed: Needed) -> Table:
    """Returns a table of a CSV file. A header that is repeated, as by a logger that was restarted, is left out."""
    if not data.strip():
        raise Unusable("is empty")
    header = data.split(b"\n", 1)[0]
    try:
        count = header.decode("utf-8-sig").count(",") + 1
    except UnicodeDecodeError:
        raise Unusable("is not text in UTF-8") from None
    if count > MOST_COLUMNS:
        raise Unusable(f"has {count:,} columns")
    lines = data.split(b"\n")
    lines[1:] = [b"" if line == header else line for line in lines[1:]]
    text = b"\n".join(lines)
    table = csv_text.read(text, max(len(text), csv_text.BLOCK), null_values=NULLS, strings_can_be_null=True)
    line = np.flatnonzero([bool(line.strip()) for line in lines])[1:] + 1
    return _of_arrow(table, needed, line[: len(table)] if len(line) >= len(table) else None)._replace(is_text=True)


def of_parquet(data: bytes, needed: Needed) -> Table:
    """Returns a table of a Parquet file."""
    try:
        return _of_arrow(bounds.Parquet(io.BytesIO(data)).read(), needed)
    except (pa.ArrowException, OSError) as error:
        raise Unusable(f"is not a readable Parquet file ({brief(first_line(error)[:36])})") from None


def _of_arrow(table: pa.Table, needed: Needed, line: np.ndarray | None = None) -> Table:
    names = [str(name) for name in table.column_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Unusable(f"has column {brief(twice)} twice")
    columns, filled = {}, np.zeros(len(table), bool)
    for name, column in zip(names, table.columns, strict=True):
        counter = kind(name)
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64(), safe=False)
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if needed is None or name in needed or counter:
            is_full = is_number and not column.null_count
            columns[name] = column.to_numpy() if is_full else np.fromiter(column.to_pylist(), object)
        if is_number and not counter:
            filled |= pc.is_finite(column).fill_null(False).to_numpy()
    return Table(tuple(names), columns, np.arange(1, len(table) + 1) if line is None else line, filled)
