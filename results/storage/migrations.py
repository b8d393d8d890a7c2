"""Migrations: older files, upgraded to today's schema as they are read.

A store of schema 1 had neither hashes nor claims: STORE/<study>/plan-<trials>.json were not sealed, and each run was a
folder, STORE/<study>/<run>/{studies,trials,measurements}.parquet. Of a trial in several runs the newest counted.
A store of schema 2 is read, and grown, as one of today: its trials have no role, and are all of the search.
"""

import json
import os
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from results import bounds, durable
from results.bad_input import BadInput, first_line
from results.durable import Damaged, Folder
from results.plans import schema
from results.plans.kinds import from_plan
from results.plans.plan import Plan

_RUN = "[0-9]" * 6


def upgrade(name: str, table: pa.Table, path: Folder | str) -> pa.Table:
    """A table of any older version as today's software writes it.

    Args:
      name: studies, trials or measurements.
      table: as read.
      path: of its file, for errors.

    Raises:
      Damaged: the file was not written by this software.
      BadInput: it was written under a newer schema.
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


def _from_1(name: str, table: pa.Table) -> pa.Table:
    """Version 2 tells of every trial which run made it; version 1 had a run's trials in the run's own folder."""
    if name != "trials":
        return table
    return table.add_column(2, pa.field("run", pa.int32()), pa.nulls(len(table), pa.int32()))


def _from_2(name: str, table: pa.Table) -> pa.Table:
    """Version 3 tells of every trial its role; before, all were of the search."""
    if name != "trials":
        return table
    return table.add_column(3, pa.field("role", pa.string()), pa.array(["search"] * len(table), pa.string()))


def _from_3(name: str, table: pa.Table) -> pa.Table:
    """Version 4 tells how batches were divided; before, each lane had a device to itself, and its batches whole."""
    if name != "studies":
        return table
    undivided = pc.if_else(pc.is_valid(table["lanes"]), 1, None).cast(pa.int32())
    before = table.schema.get_field_index("compile_seconds")
    for field in ("microbatches", "shards"):
        table = table.add_column(before, pa.field(field, pa.int32()), undivided)
    return table


_STEPS: dict[int, Callable[[str, pa.Table], pa.Table]] = {1: _from_1, 2: _from_2, 3: _from_3}


def studies_of_1(store: Folder) -> list[str]:
    """Names of the studies that a store of schema 1 holds runs of, sorted."""
    return sorted({path.parent.parent.name for path in store.glob(f"*/{_RUN}/studies.parquet")})


def plan_of_1(store: Folder, name: str) -> Plan:
    """A study of a store of schema 1, as asked for with the most trials."""
    paths: list[Folder] = sorted((store / name).glob("plan-*.json"), key=lambda path: path.name)
    if not paths:
        raise Damaged(f"{store / name} has runs but no plan")
    try:
        record = json.loads(durable.read(paths[-1], durable.RECORD_BYTES))
        durable.check_depth(record, durable.MOST_DEPTH)
        study = from_plan(record["plan"], record["trials"], name=name)
    except BadInput as error:
        raise BadInput(f"{paths[-1]}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise Damaged(f"{paths[-1]} is not a plan of schema 1") from None
    if study.name != name:
        raise Damaged(f"{paths[-1]} is the plan of {study.name}")
    return study


def runs_of_1(store: Folder, name: str) -> list[dict[str, pa.Table]]:
    """The runs of a study of a store of schema 1, oldest first, as tables; ``run`` is the number of the folder."""
    folders = sorted((f.parent for f in (store / name).glob(f"{_RUN}/studies.parquet")), key=lambda f: int(f.name))
    return [
        {table: _table_of_1(folder, table) for table in ("studies", "trials", "measurements")} for folder in folders
    ]


def _table_of_1(folder: Folder, name: str) -> pa.Table:
    path = folder / f"{name}.parquet"
    try:
        with path.open("rb") as file:
            table = upgrade(name, bounds.Parquet(file, bounds.allowed(file.seek(0, os.SEEK_END))).read(), path)
        if name == "measurements":
            return table
        index = table.schema.get_field_index("run")
        numbers = pa.array([int(folder.name)] * len(table), pa.int32())
        return table.set_column(index, table.schema.field(index), numbers)
    except BadInput:
        raise
    except (OSError, ValueError, IndexError, pa.ArrowException) as error:
        raise Damaged(f"{path} cannot be read ({first_line(error)}); remove its folder") from None
