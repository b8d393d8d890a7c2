"""Parser for CSV files of curves, one file per trial. Files with the same header are joined and parsed together.

Each value becomes the double nearest to its decimal text, and an empty cell becomes null. If joined files cannot be
parsed, or the row count is wrong, they are parsed one by one. A broken file therefore does not affect the others.
"""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from results import bounds
from results.grouping import grouped
from results.importers.untrusted import Unusable, brief

MOST_COLUMNS = 256
LAST_STEP = 2**31 - 1

# Maps a source column to our column, or to None.
Columns = Callable[[str], str | None]


class ParsedCurves(NamedTuple):
    """The parsed content of several files.

    Attributes:
      table: columns trial, step (both int32) and metrics (float64), sorted by trial and step.
      broken: reason for each unusable file, by trial.
      repeated: number of dropped rows that repeat a step, by trial.
      left_out: names of columns that were not imported.
    """

    table: pa.Table
    broken: dict[int, str]
    repeated: dict[int, int]
    left_out: frozenset[str]


class _CsvHeader(NamedTuple):
    """The first line of a file: unique names for all its columns, and the columns to read, by our names."""

    names: list[str]
    taken: dict[str, str]
    left_out: frozenset[str]


def parse(files: Mapping[int, bytes], columns: Columns) -> ParsedCurves:
    """Parses the files of several trials.

    Args:
      files: contents by trial.
      columns: maps source columns to our names. It does not have to contain the column ``step``.
    """
    broken: dict[int, str] = {}
    left_out: set[str] = set()
    tables = []
    for line, trials in grouped(sorted(files), lambda trial: _first_line(files[trial])).items():
        try:
            header = _header(line, columns)
        except Unusable as error:
            broken |= dict.fromkeys(trials, str(error))
            continue
        left_out |= header.left_out
        tables += list(_parse_together({trial: files[trial] for trial in trials}, len(line) + 1, header, broken))
    table, repeated = _sort(tables)
    return ParsedCurves(table, broken, repeated, frozenset(left_out))


def _header(line: bytes, columns: Columns) -> _CsvHeader:
    if not line.strip():
        raise Unusable("holds no header")
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
        theirs = next(csv.reader([text], strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise Unusable("has a first line that is not a header") from None
    if len(theirs) > MOST_COLUMNS:
        raise Unusable(f"has {len(theirs):,} columns")
    names, taken = [], {}
    for i, name in enumerate(theirs):
        ours = "step" if name == "step" else columns(name)
        names.append(str(i))  # the source's names may repeat
        if ours in taken:
            raise Unusable(f"has column {brief(name)} twice")
        if ours is not None:
            taken[ours] = str(i)
    if "step" not in taken:
        raise Unusable("has no column step")
    unknown = frozenset(name for name in theirs if name != "step" and columns(name) is None)
    return _CsvHeader(names, taken, unknown)


def _first_line(text: bytes) -> bytes:
    end = text.find(b"\n")
    return text if end < 0 else text[:end]


def _parse_together(
    files: Mapping[int, bytes], skip: int, header: _CsvHeader, broken: dict[int, str]
) -> Iterable[pa.Table]:
    """Parses files that have the same header of ``skip`` bytes. Adds faults to ``broken``."""
    try:
        yield _rows(files, skip, header)
        return
    except Unusable as error:
        if len(files) == 1:
            broken |= dict.fromkeys(files, str(error))
            return
    # Bisection finds one broken file among many in few passes.
    trials = list(files)
    for half in (trials[: len(trials) // 2], trials[len(trials) // 2 :]):
        yield from _parse_together({trial: files[trial] for trial in half}, skip, header, broken)


def _rows(files: Mapping[int, bytes], skip: int, header: _CsvHeader) -> pa.Table:
    """Returns all rows of several files with their trials. Raises Unusable if rows cannot be assigned to trials."""
    trials = list(files)
    pieces: list[bytes | memoryview] = []
    counts = []
    for text in files.values():
        closed = len(text) <= skip or text.endswith(b"\n")
        pieces += [memoryview(text)[skip:]] if closed else [memoryview(text)[skip:], b"\n"]
        counts.append(text.count(b"\n", skip) + (not closed))
    text = b"".join(pieces)
    if len(trials) > 1 and (b'"' in text or text.count(b"\r") != text.count(b"\r\n")):
        raise Unusable("has quotes or an invalid line end")
    table = _read(text, header) if text.strip() else _no_rows(header)
    if len(trials) == 1:
        counts = [table.num_rows]
    elif table.num_rows != sum(counts):  # blank lines
        raise Unusable("has blank lines")
    step = table["step"]
    if step.null_count:
        raise Unusable("has rows without a step")
    if table.num_rows and not 0 <= pc.min(step).as_py() <= pc.max(step).as_py() <= LAST_STEP:
        raise Unusable("has a step that is negative or beyond any training run")
    ids = pa.array(np.repeat(np.array(trials, np.int32), counts))
    return table.set_column(0, "step", step.cast(pa.int32())).add_column(0, "trial", ids)


def _no_rows(header: _CsvHeader) -> pa.Table:
    kinds = {name: pa.int64() if name == "step" else pa.float64() for name in ["step", *_metrics(header)]}
    return pa.schema(list(kinds.items())).empty_table()


def _read(text: bytes, header: _CsvHeader) -> pa.Table:
    metrics = _metrics(header)
    wanted = [header.taken[name] for name in ("step", *metrics)]
    read = pa.csv.ReadOptions(column_names=header.names, use_threads=True)
    problem = ""
    for kind in (pa.int64(), pa.float64()):  # accepts steps written as 100.0
        types = {header.taken["step"]: kind} | {header.taken[name]: pa.float64() for name in metrics}
        convert = pa.csv.ConvertOptions(column_types=types, include_columns=wanted, null_values=[""])
        try:
            table = pa.csv.read_csv(bounds.csv_source(text), read, convert_options=convert)
            steps = table.column(0).cast(pa.int64())
            return table.set_column(0, "step", steps).rename_columns(["step", *metrics])
        except pa.ArrowException as error:
            problem = problem or str(error).partition("\n")[0]
    raise Unusable(f"cannot be parsed ({problem[:160] if problem.isprintable() else ascii(problem)[1:160]})")


def _metrics(header: _CsvHeader) -> list[str]:
    return sorted(name for name in header.taken if name != "step")


def _sort(tables: Sequence[pa.Table]) -> tuple[pa.Table, dict[int, int]]:
    """Sorts all rows by trial and step. Keeps the first row of each step and counts the others by trial."""
    if not tables:
        return pa.table({"trial": pa.array([], pa.int32()), "step": pa.array([], pa.int32())}), {}
    table = pa.concat_tables(tables, promote_options="default")
    trial, step = table["trial"].to_numpy(), table["step"].to_numpy()
    later, equal, further = np.diff(trial) > 0, np.diff(trial) == 0, np.diff(step) > 0
    if np.all(later | (equal & further)):
        return table, {}
    order = np.lexsort((step, trial))
    trial, step = trial[order], step[order]
    first = np.append(True, (np.diff(trial) != 0) | (np.diff(step) != 0))[: len(trial)]
    ids, counts = np.unique(trial[~first], return_counts=True)
    return table.take(pa.array(order[first])), dict(zip(ids.tolist(), counts.tolist(), strict=True))
