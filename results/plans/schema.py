"""The three tables in a store: the type, unit and meaning of every column."""

import csv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from results.aliases import Fields, StringMap
from results.bad_input import BadInput, TooOld
from results.plans.study import METRICS

SCHEMA_VERSION = 5
OLDEST_SCHEMA = 4  # oldest schema that this software reads
VERSION_KEY = b"scaling_limits_schema"
METADATA = {VERSION_KEY: str(SCHEMA_VERSION).encode()}  # of every table


class Column(NamedTuple):
    """A column in a table: its name, type and meaning as stored."""

    name: str
    type: pa.DataType
    meaning: str


_CATEGORY = pa.dictionary(pa.int32(), pa.string())


def read_columns(table: str, **phrases: str) -> tuple[Column, ...]:
    """Returns the columns of a table in ``columns.csv``, in order.

    Args:
      table: value of the file's column ``table``.
      phrases: texts to insert into meanings, by their names in braces.
    """
    with open(Path(__file__).with_name("columns.csv"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    types = [_CATEGORY if row["type"] == "category" else pa.type_for_alias(row["type"]) for row in rows]
    return tuple(
        Column(row["name"], kind, row["meaning"].format(**phrases)) for row, kind in zip(rows, types, strict=True)
    )


STUDIES = read_columns("studies")
TRIALS = read_columns("trials")  # then one float64 column per metaparameter, under its own name
# Then one column per metric, under its own name: float32 as computed here, float64 as published elsewhere.
MEASUREMENTS = read_columns("measurements")
COSTS = read_columns("costs")  # of the epochs of a factorization, after the metrics of its measurements
COLUMNS = {"studies": STUDIES, "trials": TRIALS, "measurements": MEASUREMENTS}  # by table
EXTRA_ROLE = "extra: a repeat that the study's request no longer includes"  # a third ``role``, listed if a trial has it

NEVER_NULL = ("study", "run", "trial", "role", "status", "step")  # in any of the tables

# A metaparameter becomes a column of `trials`, so it cannot have one of these names; see also ``kinds.reserved``.
RESERVED = frozenset(c.name for c in (*STUDIES, *TRIALS, *MEASUREMENTS)) | frozenset(METRICS)


def build(columns: tuple[Column, ...], data: Fields, extra: Mapping[str, pa.DataType]) -> pa.Table:
    """Returns an Arrow table of ``columns`` followed by ``extra``, with the schema version in its metadata.

    Args:
      columns: STUDIES, TRIALS or MEASUREMENTS.
      data: lists or arrays of equal length, by column name. A missing role is ``search``. Other missing columns are
        filled with null.
      extra: types of the additional columns: metaparameters for trials, metrics for measurements.
    """
    fields = [pa.field(c.name, c.type) for c in columns]
    fields += [pa.field(name, kind) for name, kind in extra.items()]
    schema = pa.schema(fields, metadata=METADATA)
    rows = len(next(iter(data.values()), ()))
    values = {"role": ["search"] * rows, **data}
    return pa.Table.from_arrays([_array(values.get(f.name), f.type, rows) for f in schema], schema=schema)


def empty(columns: tuple[Column, ...], extra: StringMap = MappingProxyType({})) -> pa.Schema:
    """Returns the schema of a table. ``extra`` maps additional columns to the names of their Arrow types."""
    return build(columns, {}, {name: pa.type_for_alias(kind) for name, kind in extra.items()}).schema


def constant(column: pa.Field, value: object, rows: int) -> pa.Array:
    """Returns an array that repeats one value ``rows`` times, with the type of a column."""
    if column.type == _CATEGORY:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value], pa.string()))
    return pa.repeat(pa.scalar(value, column.type), rows)


def version(schema: pa.Schema) -> int:
    """Returns the schema version of a file, or 0 if this software did not write it."""
    return int((schema.metadata or {}).get(VERSION_KEY, b"0"))


def is_of_today(schema: pa.Schema) -> bool:
    """Returns whether a file has the current schema version."""
    return bool((schema.metadata or {}).get(VERSION_KEY) == METADATA[VERSION_KEY])


def check_number(path: object, number: int) -> None:
    """Raises BadInput unless this software can read schema version ``number``."""
    if number < 1:
        raise BadInput(f"{path} has the unknown schema {number}")
    if number > SCHEMA_VERSION:
        raise BadInput(f"{path} has schema {number}, but this software reads up to {SCHEMA_VERSION}. Upgrade it.")
    if number < OLDEST_SCHEMA:
        raise TooOld(path, f"has schema {number}, which scaling-limits 0.1 wrote")


def _array(values: Any, kind: pa.DataType, rows: int) -> pa.Array | pa.ChunkedArray:
    if values is None:
        return pa.nulls(rows, kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(kind)
    return pa.array(values, pa.string()).dictionary_encode() if kind == _CATEGORY else pa.array(values, kind)
