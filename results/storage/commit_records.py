"""Commit records: the classes for a visible study and its files, and their form as plain data."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from results import durable
from results.aliases import Fields, Json, StringMap
from results.bad_input import BadInput, TooOld
from results.durable import Damaged, Folder
from results.plans import schema
from results.plans.kinds import kind_of, study_of
from results.plans.plan import Plan
from results.plans.trial_request import MOST_TRIALS, NO_REPEATS, Repeats, TrialRequest
from results.rules import ledger
from results.rules.ledger import Endings
from results.storage.parts import MOST
from results.storage.shared import SharedFile

MANIFEST = "manifest.json"  # marks a folder as a release, which never changes; see ``results.release.release``
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")  # name of a study and of its folder
PATH = re.compile(r"(?!.*(^|/)\.\.?(/|$))[A-Za-z0-9_.+=%-]+(/[A-Za-z0-9_.+=%-]+)*")  # a relative path within a folder
_DATA = re.compile(PATH.pattern + r"((?<=\.parquet)|(?<=\.arrow))")

_SHA256 = re.compile(r"[0-9a-f]{64}")


class File(NamedTuple):
    """A file that is listed in a commit record, or a study's slice of a file in a release.

    Attributes:
      path, sha256: path and hash of the whole file.
      bytes: size of the file, or approximate size of a slice.
      rows: number of rows of the study.
      shared: the shared file that contains a slice, or None if the file belongs to one study.
      start: first row of a slice. For envelopes, the first byte.
      columns: for a slice of a table, Arrow type names of the columns that only some studies have, by column.
    """

    path: Folder
    sha256: str
    bytes: int
    rows: int
    shared: SharedFile | None = None
    start: int = 0
    columns: StringMap = MappingProxyType({})


def envelope_bytes(file: File) -> bytes:
    """Returns the content of an envelope, which may be a part of a shared file."""
    return file.shared.content(file.start, file.bytes) if file.shared else durable.read(file.path)


class Commit(NamedTuple):
    """A visible study.

    Attributes:
      name: name of the study.
      number: number of the claim that sealed the study.
      parts: number of parts included in the commit.
      plan: the study's identity, as plain data.
      trials: number of planned trials.
      repeats: requested repeats of the best trials.
      files: files by table: studies, trials, measurements and envelope.
      metrics: Arrow type name of each metric, by metric.
      ledger: ledger of the study's trials.
    """

    name: str
    number: int
    parts: int
    plan: Fields
    trials: int
    files: Mapping[str, File]
    metrics: StringMap
    ledger: ledger.Ledger
    repeats: Repeats = NO_REPEATS

    @property
    def request(self) -> TrialRequest:
        """The requested trials and repeats, which are not part of the plan."""
        return TrialRequest(self.trials, self.repeats)

    @property
    def extra(self) -> int:
        """The number of stored repeats that are no longer requested. Ledgers do not count them."""
        return self.files["trials"].rows - (self.ledger.planned - self.ledger.missing)

    @property
    def kind(self) -> str:
        """The study's kind, a key of ``results.plans.kinds.KINDS``. Raises BadInput for unknown kinds."""
        return kind_of(self.plan)

    @property
    def study(self) -> Plan:
        """The study with its request. See ``study_of``."""
        return study_of(self.plan, self.trials, self.name, self.repeats)


def commits_of(manifest: Fields, folder: Folder) -> list[Commit]:
    """Returns the studies in a release's manifest, sorted by name. Raises Damaged if the manifest is invalid."""
    path = folder / MANIFEST
    studies = manifest.get("studies")
    if not isinstance(studies, list):
        raise Damaged(f"{path} is not the manifest of a release")
    if "files" not in manifest:
        raise TooOld(folder, "is a release of scaling-limits 0.1, in which each study has files of its own")
    files = _shared_files(manifest["files"], folder, path)
    commits = sorted((commit_of(record, folder, path, files) for record in studies), key=lambda commit: commit.name)
    if len({commit.name for commit in commits}) < len(commits):
        raise Damaged(f"{path} lists a study twice")
    return commits


def commit_of(
    record: Fields, folder: Folder, path: Folder, shared_files: Mapping[str, SharedFile] | None = None
) -> Commit:
    """Parses a commit record. If it is invalid, raises Damaged with ``path`` in the message.

    Args:
      record: untrusted plain data, in the format of ``record_of``.
      folder: folder to which file paths are relative.
      path: source of the record, for error messages.
      shared_files: shared files of a release by name. A store has no shared files.
    """
    try:
        schema.check_number(path, record["schema"])
        files = {
            _matching(_NAME, table): _file(f, folder)
            if shared_files is None
            else _slice(table, f, shared_files, record)
            for table, f in record["files"].items()
        }
        if (
            not schema.COLUMNS.keys() <= files.keys() <= {*schema.COLUMNS, "envelope"}
            or min(Repeats.of_record(record)) < 0
        ):
            raise ValueError
        return Commit(
            name=_matching(_NAME, record["name"]),
            number=_size(record["number"], MOST),
            parts=_size(record["parts"], MOST),
            plan=dict(record["plan"]),
            trials=_size(record["trials"], MOST_TRIALS),
            files=files,
            metrics=dict(record["metrics"]),
            ledger=ledger.Ledger(**{kind: int(count) for kind, count in record["ledger"].items()}),
            repeats=Repeats.of_record(record),
        )
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Damaged(f"{path} is not a record of a study. Check everything with `python -m results verify`.") from None


def _file(entry: Fields, folder: Folder) -> File:
    return File(
        folder / _matching(_DATA, entry["file"]),
        _matching(_SHA256, entry["sha256"]),
        _size(entry["bytes"]),
        _size(entry["rows"]),
    )


def _slice(table: str, entry: Fields, shared_files: Mapping[str, SharedFile], record: Fields) -> File:
    """Returns a study's slice of a shared file."""
    file, start, rows = shared_files[entry["file"]], _size(entry["start"]), _size(entry["rows"])
    if table == "envelope":
        return File(file.path, file.sha256, _size(entry["bytes"], file.bytes), rows, file, start)
    columns = dict(sorted((record["metrics"] if table == "measurements" else entry.get("columns", {})).items()))
    if start + rows > file.rows or not columns.keys().isdisjoint(column.name for column in schema.COLUMNS[table]):
        raise ValueError(entry)
    return slice_of(file, start, rows, columns)


def slice_of(whole: SharedFile, start: int, rows: int, columns: StringMap) -> File:
    """Returns a slice of a shared table: some of its rows, with their share of the bytes."""
    return File(whole.path, whole.sha256, whole.bytes * rows // max(whole.rows, 1), rows, whole, start, columns)


def _shared_files(files: Any, folder: Folder, path: Folder) -> dict[str, SharedFile]:
    """Returns the shared files of a release by name. Raises Damaged if ``files`` is invalid."""
    try:
        return {
            _matching(_DATA, name): SharedFile(
                folder / name, _matching(_SHA256, f["sha256"]), _size(f["bytes"]), _size(f["rows"])
            )
            for name, f in files.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Damaged(f"{path} is not the manifest of a release") from None


def new_commit(
    folder: Folder,
    number: int,
    parts: int,
    study: Plan,
    files: Mapping[str, File],
    columns: pa.Schema,
    endings: Endings,
) -> Commit:
    """Returns a commit with its own files.

    Args:
      folder: folder of the study.
      number: number of the claim that seals the study.
      parts: number of parts included in the commit.
      study: the study with its request.
      files: files by table.
      columns: columns of the measurements.
      endings: ending of each trial.
    """
    return Commit(
        name=folder.name,
        number=number,
        parts=parts,
        plan=study.plan(),
        trials=study.request.trials,
        files=files,
        metrics={field.name: str(field.type) for field in list(columns)[len(schema.MEASUREMENTS) :]},
        ledger=ledger.tally(study.request, endings),
        repeats=study.request.repeats,
    )


def record_of(commit: Commit, number: int) -> Json:
    """Returns a commit as plain data. The inverse of ``commit_of``.

    Args:
      commit: a visible study, whose files are in the folder of the record.
      number: schema version of the files.
    """
    files = {table: _record_of_file(table, file) for table, file in commit.files.items()}
    record = commit._asdict() | {"schema": number, "files": files, "ledger": commit.ledger._asdict()}
    del record["repeats"]
    return record | (commit.repeats.record() if commit.repeats.confirm else {})


def _record_of_file(table: str, file: File) -> Json:
    record = {"file": file.path.name, "rows": file.rows}
    if file.shared is None:
        return record | {"sha256": file.sha256, "bytes": file.bytes}
    record |= {"start": file.start}
    if table == "envelope":
        return record | {"bytes": file.bytes}
    return record | ({"columns": dict(file.columns)} if table == "trials" else {})


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _size(value: object, most: int = 2**63) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(value)
    return value
