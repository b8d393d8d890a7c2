"""Parser for CSV files of curves, one file per trial. Files with the same header are joined and parsed together.

Each value becomes the double nearest to its decimal text, and an empty cell becomes null. If joined files cannot be
parsed, or the row count is wrong, they are parsed one by one. A broken file therefore does not affect the others.
"""

import collections
import csv
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from results.aliases import StringMap
from results.grouping import grouped
from results.importers import csv_text
from results.importers.untrusted import Unusable, brief

MOST_COLUMNS = 256

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


_NO_ROWS = pa.table({"step": pa.array([], pa.float64())})


def parse(files: Mapping[int, bytes], columns: Columns) -> ParsedCurves:
    """Parses the files of several trials.

    Args:
      files: contents by trial.
      columns: maps source columns to our names. It does not have to contain the column ``step``.
    """
    tables, trials, left_out = [_NO_ROWS], [np.zeros(0, np.int64)], set[str]()
    broken: dict[int, str] = {}
    for line, group in grouped(sorted(files), lambda trial: files[trial].partition(b"\n")[0]).items():
        try:
            names, unknown = _header(line, columns)
        except Unusable as error:
            broken |= dict.fromkeys(group, str(error))
            continue
        left_out.update(unknown)
        waiting = [group]
        while waiting:
            group = waiting.pop()
            try:
                table, counts = _rows([files[trial] for trial in group], len(line) + 1, names)
            except Unusable as error:
                if len(group) == 1:
                    broken[group[0]] = str(error)
                else:
                    waiting += [[trial] for trial in reversed(group)]
                continue
            tables.append(table)
            trials.append(np.repeat(np.array(group, np.int64), counts))
    table, ids = pa.concat_tables(tables, promote_options="default"), np.concatenate(trials)
    keys = (ids << 32) + table["step"].to_numpy().astype(np.int64)
    repeated = collections.Counter[int]()
    if np.any(np.diff(keys) <= 0):
        first = np.unique(keys, return_index=True)[1]
        repeated.update(np.delete(ids, first).tolist())
        table, ids = table.take(first), ids[first]
    table = table.set_column(0, "step", table["step"].cast(pa.int32()))
    return ParsedCurves(table.add_column(0, "trial", pa.array(ids, pa.int32())), broken, repeated, frozenset(left_out))


def _header(line: bytes, columns: Columns) -> tuple[dict[str, str], list[str]]:
    """Returns our names of the columns to read, by their names in the source, and the names of other columns."""
    if not line.strip():
        raise Unusable("holds no header")
    try:
        names = next(csv.reader([line.decode("utf-8-sig").rstrip("\r")], strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise Unusable("has a first line that is not a header") from None
    if len(names) > MOST_COLUMNS:
        raise Unusable(f"has {len(names):,} columns")
    renamed = {name: "step" if name == "step" else columns(name) for name in names}
    taken = {name: our_name for name, our_name in renamed.items() if our_name is not None}
    if "step" not in taken:
        raise Unusable("has no column step")
    for name in names:
        if name in taken and (names.count(name) > 1 or list(taken.values()).count(taken[name]) > 1):
            raise Unusable(f"has column {brief(name)} twice")
    return taken, [name for name in renamed if name not in taken]


def _rows(texts: Sequence[bytes], start: int, names: StringMap) -> tuple[pa.Table, list[int]]:
    """Parses files with the same header of ``start`` bytes.

    Returns:
      The columns step and metrics, sorted by name, float64, and the number of rows of each file.

    Raises:
      Unusable: a file cannot be parsed, or rows cannot be assigned to files.
    """
    bodies = [text[start:] + (b"" if text.endswith(b"\n") else b"\n") for text in texts]
    joined = texts[0][:start] + b"".join(bodies)
    if len(texts) > 1 and (b'"' in joined or joined.count(b"\r") != joined.count(b"\r\n")):
        raise Unusable("has quotes or an invalid line end")
    wanted = sorted(names, key=lambda name: (name != "step", names[name]))
    types = dict.fromkeys(wanted, pa.float64())  # steps may be written as 100.0
    table = csv_text.read(joined, column_types=types, include_columns=wanted, null_values=[""])
    csv_text.as_steps(table["step"].to_numpy(), "step")
    counts = [body.count(b"\n") for body in bodies] if len(texts) > 1 else [len(table)]
    if len(table) != sum(counts):
        raise Unusable("has blank lines")
    return table.rename_columns([names[name] for name in wanted]), counts
