"""Migrations: tables of an older schema, upgraded to the current one as they are read.

There is no older schema that this software reads: schemas 1 to 3 are refused in one line. Files on disk never change.
"""

from collections.abc import Callable

import pyarrow as pa

from results.durable import Damaged, Folder
from results.plans import schema


def upgrade(name: str, table: pa.Table, path: Folder | str) -> pa.Table:
    """Returns a table in the current schema.

    Args:
      name: studies, trials or measurements.
      table: as read.
      path: of its file, for errors.

    Raises:
      Damaged: the file was not written by this software.
      BadInput: its schema is newer, or older than ``schema.OLDEST_SCHEMA``.
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
        table = table.replace_schema_metadata({schema.VERSION_KEY: str(schema.SCHEMA_VERSION).encode()})
    return table


# By the version that a function upgrades from, to the next one.
_STEPS: dict[int, Callable[[str, pa.Table], pa.Table]] = {}
