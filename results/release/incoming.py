"""Studies that are read from a store or a release, to be merged or exported."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from results import bounds, durable, store
from results.bad_input import first_line
from results.checks import commit_checks, release_checks
from results.durable import Damaged, Folder
from results.plans.plan import Plan
from results.storage import compaction, envelope, migrations
from results.storage.commits import Commit, File
from results.storage.compaction import TABLES, Piece, select_trials
from results.storage.parts import table_file

MOST_CLAIMS = 1000  # maximum claims of a study that is copied unchanged; a study with more is rewritten


TableBytes = dict[str, bytes | memoryview]  # by table
_CHECK = "Check everything with `python -m results verify`."


class Incoming(NamedTuple):
    """A study in another store or release.

    Attributes:
      study: the study with its request.
      commit: the commit record, or None if the study has another name in the destination.
      runs: function that checks and reads the runs, oldest first.
    """

    study: Plan
    commit: Commit | None
    runs: Callable[[], list[Piece]]


def incoming(folder: Folder) -> dict[str, Incoming]:
    """Returns the visible studies of a store or a release, by plan.

    Raises:
      Damaged: a study has changed since it was written, or has two names.
    """
    studies = [Incoming(commit.study, commit, partial(_runs, commit)) for commit in store.catalogue(folder)]
    by_plan: dict[str, Incoming] = {}
    for offer in studies:
        if (first := by_plan.setdefault(offer.study.plan_json, offer)) is not offer:
            raise Damaged(f"{folder} has one plan twice, as {first.study.name} and {offer.study.name}. Remove one.")
    return by_plan


def with_stored_name(offer: Incoming, into: Folder) -> Incoming:
    """Returns the study with the name that it has or would get in a store."""
    study = store.with_stored_name(into, offer.study)
    if study.name == offer.study.name:
        return offer
    return Incoming(study, None, lambda: [compaction.rename_study(run, study.name) for run in offer.runs()])


def read_checked(commit: Commit) -> Piece:
    """Returns the tables of a study in the current schema, after all checks of `results verify`.

    Raises:
      Damaged: a file differs from the commit record, or a check fails. The checks include rebuilding the envelope.
    """
    if commit.files["studies"].shared is None:
        return _piece(commit, files_checked(commit)[1])
    tables: dict[str, pa.Table] = {}
    for fault in release_checks.slice_faults(commit, commit.study, {}, tables):
        raise Damaged(f"{fault.line}. {_CHECK}")
    return Piece(**tables)


def files_checked(commit: Commit) -> tuple[Commit, TableBytes]:
    """Returns a study with separate files, and the bytes of the files, after the checks of ``read_checked``.

    A study in shared files gets the files that it would have if it were stored separately.
    """
    if commit.files["studies"].shared is not None:
        return _own_files(commit, read_checked(commit))
    data: TableBytes = {name: _bytes(file) for name, file in commit.files.items()}
    numbers = frozenset(range(1, commit.number + 1)) if commit.number <= MOST_CLAIMS else None
    sources = {name: pa.py_buffer(content) for name, content in data.items()}
    folder = commit.files["studies"].path.parent
    for fault in commit_checks.content_faults(commit, commit.study, folder, sources, {}, numbers):
        raise Damaged(f"{fault.line}. {_CHECK}")
    return commit, data


def _own_files(commit: Commit, whole: Piece) -> tuple[Commit, TableBytes]:
    data: TableBytes = {table: compaction.parquet_bytes(content) for table, content in whole._asdict().items()}
    hashes = {table: hashlib.sha256(content).hexdigest() for table, content in data.items()}
    counts = {table: len(content) for table, content in whole._asdict().items()}
    data["envelope"], counts["envelope"] = envelope.build(commit.study, whole, hashes)
    files = {}
    for table, content in data.items():
        path = commit.files[table].path.parent / table_file(table, commit.number)
        files[table] = File(path, hashlib.sha256(content).hexdigest(), len(content), counts[table])
    return commit._replace(files=files), data


def parquet_file(data: bytes | memoryview, table: str, path: Folder) -> bounds.Parquet:
    """Opens an in-memory table. Raises BadInput with ``path`` if it is not a table or if its schema is unsupported."""
    try:
        file = bounds.Parquet(pa.BufferReader(data))
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a column name is not text
        raise Damaged(f"{path} is not a readable table ({first_line(error)})") from None
    migrations.upgrade(table, file.schema_arrow.empty_table(), path)
    return file


def _bytes(file: File) -> bytes:
    try:
        data = durable.read(file.path, file.bytes)
    except FileNotFoundError:
        raise Damaged(f"{file.path} is missing. {_CHECK}") from None
    if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
        raise Damaged(f"{file.path} is not what was written. {_CHECK}")
    return data


def _piece(commit: Commit, data: TableBytes) -> Piece:
    tables = []
    for table in TABLES:
        path = commit.files[table].path
        tables.append(migrations.upgrade(table, parquet_file(data[table], table, path).read(), path))
    return Piece(*tables)


def _runs(commit: Commit) -> list[Piece]:
    piece = read_checked(commit)
    run_of = dict(zip(piece.trials["trial"].to_pylist(), piece.trials["run"].to_pylist(), strict=True))
    runs = []
    for row, run in enumerate(piece.studies["run"].to_pylist()):
        rows = select_trials(piece, [trial for trial, number in run_of.items() if number == run])
        runs.append(rows._replace(studies=piece.studies.slice(row, 1)))
    return runs
