"""Commit records, which make studies visible, and functions that read the files listed in them."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa

from results import bounds, durable
from results.bad_input import first_line, number_of
from results.durable import Damaged, Folder
from results.located import located
from results.plans import schema
from results.plans.kinds import KINDS
from results.rules.descriptions import METRIC_TYPES
from results.storage import migrations, parts, shared
from results.storage.commit_records import MANIFEST as MANIFEST, Commit as Commit, commit_of, commits_of
from results.storage.parts import commit_file, list_study as list_study

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

# Maximum number of rows per byte of a Parquet file. Rows of studies and trials are numbered, and each row of
# measurements a value; our files have 0.0001, 0.03 and 0.3. A file that claims more was built to exhaust memory.
ROWS_PER_BYTE = {"studies": 1, "trials": 1, "measurements": 16}


class Tables(NamedTuple):
    """The three tables of ``results.plans.schema``, for one study or a whole store."""

    studies: "pd.DataFrame"
    trials: "pd.DataFrame"
    measurements: "pd.DataFrame"


@located
def newest_commit(store: Folder, name: str) -> Commit | None:
    """Returns the newest commit of a study, or None if it has not been committed."""
    folder = store / name
    commits = list_study(folder).commits
    if not commits:
        return None
    path = folder / commit_file(commits[-1])
    commit = commit_of(durable.read_sealed(path), folder, path)
    if commit.name != name:
        raise Damaged(f"{path} is of the study {commit.name}. Check everything with `python -m results verify`.")
    return commit


def fetch_commits(store: Folder, names: Iterable[str], *others: str) -> None:
    """Prefetches the newest commit records of studies in a bucket, and the files ``others`` of these commits."""
    if durable.system(store).is_local:
        return
    paths = []
    for name in names:
        if commits := list_study(store / name).commits:
            paths.append(store / name / commit_file(commits[-1]))
            paths += [store / name / parts.table_file(table, commits[-1]) for table in others]
    durable.system(store).fetch(paths)


@located
def released_commits(folder: Folder) -> list[Commit] | None:
    """Returns the studies in a release, sorted by name, or None if the folder is not a release."""
    path = folder / MANIFEST
    return commits_of(durable.read_sealed(path, durable.LIST_BYTES), folder) if path.is_file() else None


def check_rows(table: str, path: Folder, size: int, rows: int) -> None:
    """Raises Damaged if a table claims more rows than a file of ``size`` bytes can hold."""
    if rows > size * ROWS_PER_BYTE[table]:
        raise Damaged(f"{path} claims {rows:,} rows, too many for {size:,} bytes")


def read_table(commit: Commit, table: str) -> pa.Table:
    """Reads one table of a visible study, upgraded to the current schema.

    Raises:
      BadInput: the table's schema is newer.
      Damaged: the table cannot be read.
    """
    path = commit.files[table].path
    with shared.decoding(path):
        content = migrations.upgrade(table, _stored(commit, table), path)
        columns = [(name, content.schema.field(i).type) for i, name in enumerate(content.column_names)]
    expected = [(column.name, column.type) for column in schema.COLUMNS[table]]
    columns_of_kind = {(column.name, column.type) for column in KINDS[commit.kind].columns}
    further_types = [
        kind for name, kind in columns[len(expected) :] if (name, kind) not in columns_of_kind
    ]  # metaparameters and metrics
    names = {name for name, _ in columns}
    if columns[: len(expected)] != expected or len(names) < len(columns) or not all(map(_is_number, further_types)):
        raise Damaged(f"{path} has other columns than {table}. Check everything with `python -m results verify`.")
    for name in names & set(schema.NEVER_NULL):
        if count := content[name].null_count:
            rows = number_of(count, "row")
            raise Damaged(f"{path} has {rows} without {name}. Check everything with `python -m results verify`.")
    return content


def _stored(commit: Commit, table: str, names: Sequence[str] | None = None) -> pa.Table:
    """Reads a table, or some of its columns, in the schema that it was written in."""
    file = commit.files[table]
    durable.check_file(file.path)
    if file.shared:
        check_rows(table, file.path, file.shared.bytes, file.shared.rows)
        return shared.narrow(table, file.shared.table(file.start, file.rows, names), file.columns, names)
    with file.path.open("rb") as stream:
        parquet = bounds.Parquet(stream)
        check_rows(table, file.path, parquet.bytes, parquet.metadata.num_rows)
        return parquet.read(names)


def read_columns(commit: Commit, table: str, names: Sequence[str]) -> pa.Table:
    """Reads only some columns of one table of a visible study.

    Args:
      commit: the study.
      table: studies, trials or measurements.
      names: names of the columns, in the order of the table.

    Raises:
      Damaged: the columns cannot be read.
    """
    file = commit.files[table]
    try:
        content = _stored(commit, table, names)
        types = {column.name: column.type for column in schema.COLUMNS[table]}
        types |= {name: METRIC_TYPES[commit.metrics[name]] for name in names if name in commit.metrics}
        for name in names:
            if content[name].type != types[name]:
                raise ValueError(f"its column {name} is {content[name].type} instead of {types[name]}")
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        reason = first_line(error)
        raise Damaged(
            f"{file.path} cannot be read ({reason}). Check everything with `python -m results verify`."
        ) from None
    return content


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def to_frame(table: pa.Table) -> "pd.DataFrame":
    frame = table.to_pandas()
    frame["study"] = frame["study"].astype(str)
    return frame


def retry(look: Callable[[], T]) -> T:
    """Returns the result of ``look``. Retries if the folder changes. Raises Damaged if a file is still missing."""
    for _ in range(3):
        with contextlib.suppress(FileNotFoundError, LookupError):
            return look()
        durable.refresh()
    try:
        return look()
    except FileNotFoundError as error:
        missing = error.filename or error
        raise Damaged(f"{missing} is missing. Check everything with `python -m results verify`.") from None
