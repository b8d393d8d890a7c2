"""Parser for CSV files of curves, one file per trial.

Each value becomes the double nearest to its decimal text, and an empty cell becomes null. A broken file does not affect
the others.
"""

import csv
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

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


_NO_ROWS = pa.table({"trial": pa.array([], pa.int32()), "step": pa.array([], pa.int32())})


def parse(files: Mapping[int, bytes], columns: Columns) -> ParsedCurves:
    """Parses the files of several trials.

    Args:
      files: contents by trial.
      columns: maps source columns to our names. It does not have to contain the column ``step``.
    """
    tables, broken, repeated, left_out = [_NO_ROWS], {}, {}, set()
    for trial, text in sorted(files.items()):
        try:
            names, unknown = _header(text.partition(b"\n")[0], columns)
            left_out.update(unknown)
            table = _rows(text, names)
        except Unusable as error:
            broken[trial] = str(error)
            continue
        steps, first = np.unique(table["step"].to_numpy(), return_index=True)
        if len(first) < len(table):
            repeated[trial] = len(table) - len(first)
        table = table.take(first).set_column(0, "step", pa.array(steps))
        tables.append(table.add_column(0, "trial", pa.array(np.full(len(table), trial, np.int32))))
    return ParsedCurves(pa.concat_tables(tables, promote_options="default"), broken, repeated, frozenset(left_out))


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


def _rows(text: bytes, names: Mapping[str, str]) -> pa.Table:
    """Returns the columns step, int32, and metrics, sorted by name. Raises Unusable if they cannot be parsed."""
    wanted = sorted(names, key=lambda name: (name != "step", names[name]))
    types = dict.fromkeys(wanted, pa.float64())  # steps may be written as 100.0
    table = csv_text.read(text, column_types=types, include_columns=wanted, null_values=[""])
    steps = csv_text.as_steps(table["step"].to_numpy(), "step").astype(np.int32)
    return table.rename_columns([names[name] for name in wanted]).set_column(0, "step", pa.array(steps))
