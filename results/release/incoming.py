"""Studies that are read from a store or a release, to be merged or exported."""

import hashlib
from typing import NamedTuple

import pyarrow as pa

from results import durable, store
from results.checks import commit_checks, release_checks
from results.durable import Damaged, Folder
from results.plans.plan import Plan
from results.storage import compaction, envelope
from results.storage.commit_records import File
from results.storage.commits import Commit, read_table
from results.storage.compaction import TABLES, Piece, select_trials

MOST_CLAIMS = 1000  # maximum claims of a study that is copied unchanged; a study with more is rewritten


TableBytes = dict[str, bytes | memoryview]  # by table
_CHECK = "Check everything with `python -m results verify`."


class Incoming(NamedTuple):
    """A study in another store or release.

    Attributes:
      source: the store or release.
      study: the study with its request, and with the name that it has or would get in the destination.
      commit: the commit record.
    """

    source: Folder
    study: Plan
    commit: Commit

    @property
    def is_renamed(self) -> bool:
        return self.study.name != self.commit.name

    def runs(self) -> list[Piece]:
        """Checks and reads the runs, oldest first."""
        tables = read_checked(self.commit)
        if self.is_renamed:
            tables = compaction.rename_study(tables, self.study.name)
        ids, runs = (tables.trials[name].to_numpy() for name in ("trial", "run"))
        return [
            select_trials(tables, ids[runs == run].tolist())._replace(studies=tables.studies.slice(row, 1))
            for row, run in enumerate(tables.studies["run"].to_pylist())
        ]


def incoming(source: Folder, into: Folder) -> list[Incoming]:
    """Returns the visible studies of a store or a release, to be merged into a store.

    Raises:
      Damaged: a study has changed since it was written, or has two names.
    """
    by_plan: dict[str, Incoming] = {}
    for commit in store.catalogue(source):
        offer = Incoming(source, store.with_stored_name(into, commit.study), commit)
        if (first := by_plan.setdefault(offer.study.plan_json, offer)) is not offer:
            raise Damaged(f"{source} has one plan twice, as {first.commit.name} and {commit.name}. Remove one.")
    return list(by_plan.values())


def read_checked(commit: Commit) -> Piece:
    """Returns the tables of a study in the current schema, after all checks of `results verify`.

    Raises:
      Damaged: a file differs from the commit record, or a check fails. The checks include rebuilding the envelope.
    """
    if commit.files["studies"].shared is None:
        files_checked(commit)
        return Piece(*(read_table(commit, table) for table in TABLES))
    tables: dict[str, pa.Table] = {}
    for fault in release_checks.slice_faults(commit, tables):
        raise Damaged(f"{fault.line}. {_CHECK}")
    return Piece(**tables)


def files_checked(commit: Commit) -> tuple[Commit, TableBytes]:
    """Returns a study with separate files, and the bytes of the files, after the checks of ``read_checked``.

    A study in shared files gets the files that it would have if it were stored separately.
    """
    folder = commit.files["studies"].path.parent
    if commit.files["studies"].shared is not None:
        files, contents = envelope.commit_files(commit.study, read_checked(commit), folder, commit.number)
        return commit._replace(files=files), contents
    data: TableBytes = {name: _bytes(file) for name, file in commit.files.items()}
    numbers = frozenset(range(1, commit.number + 1)) if commit.number <= MOST_CLAIMS else None
    sources = {name: pa.py_buffer(content) for name, content in data.items()}
    for fault in commit_checks.content_faults(commit, folder, sources, {}, numbers):
        raise Damaged(f"{fault.line}. {_CHECK}")
    return commit, data


def _bytes(file: File) -> bytes:
    try:
        data = durable.read(file.path, file.bytes)
    except FileNotFoundError:
        raise Damaged(f"{file.path} is missing. {_CHECK}") from None
    if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
        raise Damaged(f"{file.path} is not what was written. {_CHECK}")
    return data
