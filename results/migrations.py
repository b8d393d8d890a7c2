"""Older files, brought up to the schema of today as they are read."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from upath import UPath

from results import schema
from results.durable import Damaged


def upgrade(name: str, table: pa.Table, path: Path | UPath) -> pa.Table:
    """A table of any older version as today's software writes it.

    Args:
      name: studies, trials or measurements.
      table: as read.
      path: of its file, for errors.

    Raises:
      Damaged: the file is none of ours.
      BadInput: it was written under a newer schema.
    """
    schema.check_version(path, table.schema)
    version = schema.version(table.schema)
    if version < 1:
        raise Damaged(f"{path} is not a table of scaling-limits")
    for older in range(version, schema.SCHEMA_VERSION):
        table = _STEPS[older](name, table)
    if version < schema.SCHEMA_VERSION:
        table = table.replace_schema_metadata({schema.VERSION_KEY: str(schema.SCHEMA_VERSION).encode()})
    return table


def _from_1(name: str, table: pa.Table) -> pa.Table:
    """Version 2 tells of every trial which run made it; version 1 had a run's trials in the run's own folder."""
    if name != "trials":
        return table
    return table.add_column(2, pa.field("run", pa.int32()), pa.nulls(len(table), pa.int32()))


_STEPS: dict[int, Callable[[str, pa.Table], pa.Table]] = {1: _from_1}
