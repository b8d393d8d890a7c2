"""Migrations: upgrades tables with an older schema to the current schema when they are read.

Schemas 1 to 3 are rejected with a one-line error. Files on disk never change.
"""

from collections.abc import Callable

import pyarrow as pa

from results.durable import Damaged, Folder
from results.plans import schema


def upgrade(name: str, table: pa.Table, path: Folder | str) -> pa.Table:
    """Returns a table in the current schema.

    Args:
      name: studies, trials or measurements.
      table: the table as read from disk.
      path: path of the table's file, for error messages.

    Raises:
      Damaged: the file was not written by this software.
      BadInput: the table's schema is newer, or older than ``schema.OLDEST_SCHEMA``.
    """
    try:
        version = schema.version(table.schema)
    except ValueError:
        version = 0
    if version < 1:
        raise Damaged(f"{path} is not a table of scaling-limits")
    schema.check_number(path, version)
    for older in range(version, schema.SCHEMA_VERSION):
        table = _STEPS[older](name, table)
    if version < schema.SCHEMA_VERSION:
        table = table.replace_schema_metadata(schema.METADATA)
    return table


def _from_4(name: str, table: pa.Table) -> pa.Table:
    """Version 5 records the mesh and the layout of batch studies, which are null in earlier versions."""
    if name != "studies":
        return table
    before = table.schema.get_field_index("compile_seconds")
    for column in ("layout", "mesh"):
        table = table.add_column(before, pa.field(column, pa.string()), pa.nulls(len(table), pa.string()))
    return table


# Keyed by the version from which a function upgrades to the next one.
_STEPS: dict[int, Callable[[str, pa.Table], pa.Table]] = {4: _from_4}
