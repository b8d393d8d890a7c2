"""Contents of a release: its studies, and every column of its tables with type and meaning."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from results.plans import schema
from results.plans.kinds import KINDS
from results.plans.study import METRIC_KINDS, METRICS
from results.reading import licences
from results.reading.licences import Terms
from results.rules import ledger
from results.storage.commits import Commit

TABLES = {
    "studies": "a run of a study: its plan, where it ran and what it took",
    "trials": "a training run: its metaparameters and how it ended",
    "measurements": "the metrics of a trial at a step",
}
# What the folders of trials and measurements tell; in studies these are columns.
PARTITIONS = ("dataset", "model", "optimizer", "batch_size")
_PARTITION_FIELDS = [pa.field(c.name, c.type) for c in schema.STUDIES if c.name in PARTITIONS]


class Contents(NamedTuple):
    """The contents of a release.

    Attributes:
      commits: its studies, sorted by name.
      columns: of every table, over all studies, with the widest type of each; then those that folders tell.
      files: paths of every table's files by the names of the columns in them.
      newest: day of its newest run, ISO 8601; None if no run tells.
      version: of the software that wrote it.
    """

    commits: Sequence[Commit]
    columns: Mapping[str, pa.Schema]
    files: Mapping[str, Mapping[tuple[str, ...], Sequence[str]]]
    newest: str | None
    version: str

    @property
    def sources(self) -> dict[Terms, list[Commit]]:
        """Its studies by where they are from."""
        found: dict[Terms, list[Commit]] = {}
        for commit in self.commits:
            found.setdefault(licences.terms(commit.plan), []).append(commit)
        return dict(sorted(found.items(), key=lambda item: str(item[0])))

    @property
    def licences(self) -> list[Terms]:
        """One of its terms for every licence in it."""
        return list({terms.licence: terms for terms in self.sources}.values())

    def rows(self, table: str) -> int:
        return sum(commit.files[table].rows for commit in self.commits)


class ColumnDescription(NamedTuple):
    """A column of a table of a release: its type as a person reads it, and what it means."""

    name: str
    type: str
    meaning: str


def columns(tables: Mapping[str, Iterable[pa.Schema]]) -> dict[str, pa.Schema]:
    """All columns of every table, from the schemas of its files; a metric in float and double is double."""
    types = {}
    for table, schemas in tables.items():
        fields = pa.unify_schemas(list(schemas), promote_options="permissive")
        folders = [] if table == "studies" else _PARTITION_FIELDS
        own = len(schema.COLUMNS[table])
        further = sorted(list(fields)[own:], key=lambda field: field.name)
        types[table] = pa.schema([*list(fields)[:own], *further, *folders], metadata=fields.metadata)
    return types


def describe_columns(contents: Contents, table: str) -> list[ColumnDescription]:
    """Every column of a table in words."""
    meanings = {column.name: column.meaning for column in (*schema.STUDIES, *schema.COLUMNS[table])}
    tuned = {name for commit in contents.commits for name in commit.study.space}
    in_words = []
    for field in contents.columns[table]:
        kind = " or ".join(sorted({_words(c.metrics[field.name]) for c in contents.commits if field.name in c.metrics}))
        if table != "measurements" or not kind:
            kind = _words(str(field.type))
        if table != "studies" and field.name in PARTITIONS:
            kind += ", told by the folder"
        meaning = meanings.get(field.name) or _meaning(field.name, field.name in tuned)
        in_words.append(ColumnDescription(field.name, kind, meaning))
    return in_words


def file_columns(contents: Contents, table: str) -> list[tuple[str, str]]:
    """Name and type, in a word, of every column that is in a table's files, not only in the names of folders."""
    folders = () if table == "studies" else PARTITIONS
    return [(field.name, _words(str(field.type))) for field in contents.columns[table] if field.name not in folders]


def total(commits: Iterable[Commit]) -> ledger.Ledger:
    """The ledger of several studies."""
    return ledger.Ledger(*map(sum, zip(*(commit.ledger for commit in commits), strict=True)))


def _meaning(name: str, is_tuned: bool) -> str:
    own = {column.name: column.meaning for kind in KINDS.values() for column in kind.columns}
    if name in own:
        return own[name]
    if name in METRICS:
        split, kind = name.split("_", 1)
        return f"{METRIC_KINDS[kind]}; on the {split} split"
    return (
        "metaparameter, drawn from the range that the study's plan states"
        if is_tuned
        else "metaparameter, or what else its source tells of the trial, under the source's name"
    )


def _words(kind: str) -> str:
    return {"float": "float32", "double": "float64"}.get(kind, "string" if kind.startswith("dictionary") else kind)
