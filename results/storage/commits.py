"""The data of a study that count: its newest commit, the tables in it, and the later parts."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa

from results import bounds, durable
from results.bad_input import first_line, number_of
from results.durable import Damaged, Folder
from results.located import located
from results.plans import schema
from results.plans.kinds import KINDS
from results.printing import quoted
from results.rules.descriptions import METRIC_TYPES
from results.rules.ledger import Endings, TrialEnding
from results.storage import compaction, migrations, parts, shared
from results.storage.commit_records import MANIFEST as MANIFEST, Commit as Commit, commit_of, commits_of
from results.storage.compaction import TABLES, Piece
from results.storage.parts import MOST, Listing, Part, claim_file, commit_file, list_study as list_study

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


class StudyState(NamedTuple):
    """The data of a study that count, whether or not they are visible.

    Attributes:
      folder: the study's folder.
      listing: names in the folder.
      base: the newest commit, if there is one.
      parts: the later parts that count, in order.
    """

    folder: Folder
    listing: Listing
    base: Commit | None
    parts: list[Part]

    @property
    def next_part(self) -> int:
        """The number of the next part, which is the number of parts so far."""
        return (self.base.parts if self.base else 0) + len(self.parts)

    @property
    def visible(self) -> bool:
        """Whether a commit record includes all data that count."""
        return self.base is not None and not self.parts

    def pieces(self, held: Mapping[Part, Piece] = {}) -> list[Piece]:
        """Returns the tables of the commit and of each part. ``held`` contains parts that do not have to be read."""
        committed = [Piece(*(read_table(self.base, table) for table in TABLES))] if self.base else []
        return committed + [held.get(part) or compaction.read_part(self.folder / part.file) for part in self.parts]

    def stored(self, table: str) -> list[pa.Table]:
        """Returns one of the tables, of the commit and of each part."""
        committed = [read_table(self.base, table)] if self.base else []
        return committed + [getattr(compaction.read_part(self.folder / part.file), table) for part in self.parts]

    def endings(self) -> Endings:
        """Returns the ending of every trial, by id. If a trial occurs several times, the last copy counts."""
        return join_endings(self.stored("trials"))


def read_state(store: Folder, name: str) -> StudyState:
    """Reads the state of a study. Raises Damaged if a part or a claim is missing."""
    folder = store / name

    def look() -> StudyState:
        listing = list_study(folder)
        newest = max(listing.claims, default=0)
        if len(listing.claims) != newest:  # a listing is not a snapshot, so it missed a claim
            raise LookupError(f"some of the claims 1 to {newest} are missing")
        base = newest_commit(store, name)
        merged = base.parts if base else 0
        waiting = [part for part in listing.parts if part.seq >= merged]
        cutoffs = {number: _cutoff(folder / claim_file(number)) for number in listing.claims} if waiting else {}
        return StudyState(folder, listing, base, parts.counting_parts(waiting, cutoffs, merged))

    try:
        return retry(look)
    except LookupError as error:
        remedy = f"Repair it with `python -m results repair --store {quoted(store)}`."
        raise Damaged(f"{folder}: {error}. {remedy}") from None


def _cutoff(path: Folder) -> int:
    cutoff = durable.read_sealed(path).get("parts")
    if type(cutoff) is not int or not 0 <= cutoff <= MOST:
        raise Damaged(f"{path} is not a claim. Check everything with `python -m results verify`.")
    return cutoff


def frames(pieces: list[Piece]) -> Tables:
    """Merges pieces into data frames. Empty if there are no pieces."""
    import pandas as pd

    return Tables(*map(to_frame, compaction.merge(pieces))) if pieces else Tables(*[pd.DataFrame()] * 3)


def join_endings(tables: Iterable[pa.Table]) -> Endings:
    """Returns the ending of every trial in some trials tables, by id. The last copy of a trial counts."""
    endings: Endings = {}
    ending = functools.cache(TrialEnding)  # there are few distinct ones
    for table in tables:
        fields = (table[name].to_numpy() for name in TrialEnding._fields)
        for trial, how in zip(table["trial"].to_pylist(), map(ending, *fields), strict=True):
            endings.pop(trial, None)  # the dictionary keeps the order in which trials were stored
            endings[trial] = how
    return endings
