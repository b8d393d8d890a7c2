"""Commit records: what makes a study visible, and the reading of what they list."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from results import durable, ledger, migrations, parts, schema
from results.durable import Damaged
from results.parts import Listing, commit_file
from results.study import Recorded, Study, from_plan

Folder = Path | UPath
T = TypeVar("T")


class Tables(NamedTuple):
    """The three tables of ``results.schema``, of one study or of a whole store."""

    studies: pd.DataFrame
    trials: pd.DataFrame
    measurements: pd.DataFrame


class File(NamedTuple):
    """A file that a commit record lists."""

    path: Folder
    sha256: str
    bytes: int
    rows: int


class Commit(NamedTuple):
    """A visible study.

    Attributes:
      name: of the study.
      number: of the claim it was sealed under.
      parts: how many parts it holds.
      plan: its identity, plain data.
      trials: how many were planned.
      files: by what they hold: studies, trials, measurements.
      metrics: Arrow's name of the type of every metric, by the name of the metric.
      ledger: of its trials.
    """

    name: str
    number: int
    parts: int
    plan: Mapping[str, Any]
    trials: int
    files: Mapping[str, File]
    metrics: Mapping[str, str]
    ledger: ledger.Ledger

    @property
    def study(self) -> Study | Recorded:
        return from_plan(self.plan, self.trials)


def committed(store: Folder, name: str) -> Commit | None:
    """What the newest commit record of a study says; None if there is none yet."""
    folder = store / name
    commits = listed(folder).commits
    if not commits:
        return None
    path = folder / commit_file(commits[-1])
    record = durable.unseal(path.read_bytes(), path)
    schema.check_number(path, record["schema"])
    files = {table: File(folder / f.pop("file"), **f) for table, f in record["files"].items()}
    counts = ledger.Ledger(**record["ledger"])
    return Commit(
        **{k: record[k] for k in ("name", "number", "parts", "plan", "trials", "metrics")}, files=files, ledger=counts
    )


def read_table(commit: Commit, table: str) -> pa.Table:
    """One table of a visible study, brought up to today's schema.

    Raises:
      BadInput: it was written under a newer schema.
      Damaged: it cannot be read.
    """
    path = commit.files[table].path
    try:
        with path.open("rb") as file:
            found = pq.read_table(file)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise Damaged(f"{path} cannot be read ({reason}); look at all of it with `python -m results verify`") from None
    return migrations.upgrade(table, found, path)


def listed(folder: Folder) -> Listing:
    try:
        return parts.listing(os.listdir(folder) if isinstance(folder, Path) else [f.name for f in folder.iterdir()])
    except (FileNotFoundError, NotADirectoryError):
        return parts.listing(())


def frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    frame["study"] = frame["study"].astype(str)
    return frame


def steady(look: Callable[[], T]) -> T:
    """What ``look`` sees, looking again if the folder changed under its eyes."""
    for _ in range(3):
        with contextlib.suppress(FileNotFoundError, LookupError):
            return look()
    return look()
