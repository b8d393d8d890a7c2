"""Incoming studies of a merge or an export: from a store or a release."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from results import bounds, durable, store
from results.bad_input import first_line
from results.checks import commit_checks, release_checks
from results.durable import Damaged, Folder
from results.plans.plan import Plan
from results.storage import compaction, envelope, migrations
from results.storage.commits import Commit, File, read_table
from results.storage.compaction import TABLES, Piece, select_trials

MOST_CLAIMS = 1000  # of a study that is copied as it is; one with more is written anew


class Incoming(NamedTuple):
    """A study in another store or release.

    Attributes:
      study: as it was asked for.
      commit: its commit record; None if its place has none, or has it under another name.
      runs: reads its runs, oldest first, once they are seen to be what was written.
    """

    study: Plan
    commit: Commit | None
    runs: Callable[[], list[Piece]]


def incoming(folder: Folder) -> dict[str, Incoming]:
    """The visible studies of a store or a release, by plan.

    Raises:
      Damaged: one is not what was written, or is there under two names.
    """
    studies = [Incoming(commit.study, commit, partial(_runs, commit)) for commit in store.catalogue(folder)]
    by_plan: dict[str, Incoming] = {}
    for each in studies:
        if (other := by_plan.setdefault(each.study.plan_json, each)) is not each:
            raise Damaged(f"{folder} holds one plan twice, as {other.study.name} and {each.study.name}; remove one")
    return by_plan


def with_stored_name(offer: Incoming, into: Folder) -> Incoming:
    """The study under the name that it has in a store, or gets there."""
    study = store.with_stored_name(into, offer.study)
    if study.name == offer.study.name:
        return offer
    return Incoming(study, None, lambda: [compaction.rename_study(run, study.name) for run in offer.runs()])


class Alone(NamedTuple):
    """A study with files of its own.

    Attributes:
      commit: its record, which lists these files.
      data: their bytes, by what they hold.
    """

    commit: Commit
    data: Mapping[str, bytes | memoryview]


def read_checked(commit: Commit) -> Piece:
    """The tables of a study, in today's schema, once they have passed every check of ``results verify``.

    Raises:
      Damaged: a file is not what the commit record says, or something does not hold; the envelope is rebuilt for that.
    """
    if commit.files["studies"].shared is None:
        return _piece(commit, files_checked(commit).data)
    for fault in release_checks.slice_faults(commit, commit.study):
        if fault.what == commit_checks.OLDER_ENVELOPE:
            continue  # which is made again with the tables
        raise Damaged(f"{fault.line}; for details run `python -m results verify`")
    return Piece(*(read_table(commit, table) for table in TABLES))


def files_checked(commit: Commit) -> Alone:
    """All files of a study, checked likewise; of a slice of shared files, those that it would have alone."""
    if commit.files["studies"].shared is not None:
        return _alone(commit, read_checked(commit))
    data = {name: _bytes(file) for name, file in commit.files.items()}
    numbers = frozenset(range(1, commit.number + 1)) if commit.number <= MOST_CLAIMS else None
    sources = {name: pa.py_buffer(content) for name, content in data.items()}
    folder = commit.files["studies"].path.parent
    for fault in commit_checks.content_faults(commit, commit.study, folder, sources, {}, numbers):
        raise Damaged(f"{fault.line}; for details run `python -m results verify`")
    return Alone(commit, data)


def _alone(commit: Commit, whole: Piece) -> Alone:
    data: dict[str, bytes | memoryview] = {
        table: compaction.parquet_bytes(content) for table, content in whole._asdict().items()
    }
    hashes = {table: hashlib.sha256(content).hexdigest() for table, content in data.items()}
    data["envelope"], rows = envelope.build(commit.study, whole, hashes)
    files = {}
    for table, content in data.items():
        name = f"{table}-{commit.number:06d}.{'arrow' if table == 'envelope' else 'parquet'}"
        count = rows if table == "envelope" else len(getattr(whole, table))
        digest = hashlib.sha256(content).hexdigest()
        files[table] = File(commit.files[table].path.parent / name, digest, len(content), count)
    return Alone(commit._replace(files=files), data)


def parquet_file(data: bytes | memoryview, table: str, path: Folder) -> bounds.Parquet:
    """A table's file in memory; BadInput, naming ``path``, if it is none or of a schema this software does not read."""
    try:
        file = bounds.Parquet(pa.BufferReader(data), bounds.allowed(len(data)))
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a column's name is no text
        raise Damaged(f"{path} is not a readable table ({first_line(error)})") from None
    migrations.upgrade(table, file.schema_arrow.empty_table(), path)
    return file


def _bytes(file: File) -> bytes:
    try:
        data = durable.read(file.path, file.bytes)
    except FileNotFoundError:
        raise Damaged(f"{file.path} is missing. Check everything with `python -m results verify`.") from None
    if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
        raise Damaged(f"{file.path} is not what was written. Check everything with `python -m results verify`.")
    return data


def _piece(commit: Commit, data: Mapping[str, bytes | memoryview]) -> Piece:
    tables = []
    for table in TABLES:
        path = commit.files[table].path
        tables.append(migrations.upgrade(table, parquet_file(data[table], table, path).read(), path))
    return Piece(*tables)


def _runs(commit: Commit) -> list[Piece]:
    whole = read_checked(commit)
    run_of = dict(zip(whole.trials["trial"].to_pylist(), whole.trials["run"].to_pylist(), strict=True))
    runs = []
    for row, run in enumerate(whole.studies["run"].to_pylist()):
        own = select_trials(whole, [trial for trial, number in run_of.items() if number == run])
        runs.append(own._replace(studies=whole.studies.slice(row, 1)))
    return runs
