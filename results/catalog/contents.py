"""Contents of a release: its studies, and every column of its tables with type and meaning."""

import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from results.catalog import licences
from results.catalog.licences import Terms
from results.plans import plan_columns, schema
from results.plans.kinds import KINDS
from results.plans.points import POINTS as POINT_COLUMNS
from results.plans.study import METRIC_KINDS, METRICS
from results.rules import ledger
from results.storage.commits import Commit

TABLES = {
    "studies": "a run of a study: its plan, where it ran and what it took",
    "trials": "a training run: its metaparameters and how it ended",
    "measurements": "the metrics of a trial at a step",
}

RELEASED = "2026-11-22"  # this version of the software; of a release whose runs do not tell their day
POINTS = "points"
POINTS_FILE = f"{POINTS}.parquet"
ABOUT = TABLES | {POINTS: "what a study answers to a target, and the fit of the curve that it is on"}

KEYS = {  # columns of every table that tell its rows apart, and that it is sorted by
    "studies": ("study", "run"),
    "trials": ("study", "trial"),
    "measurements": ("study", "trial", "step"),
    POINTS: ("study", "target_metric", "target_value"),
}


class Contents(NamedTuple):
    """The contents of a release.

    Attributes:
      commits: its studies, sorted by name.
      columns: of every table.
      files: sha256 of every table's files, by name.
      newest: day of its newest run, ISO 8601; of the software, if no run tells.
      version: of the software that wrote it.
      software: versions of the software that measured or imported the studies of each source.
      sizes: bytes of every table's files, by name.
      one_point_each: whether there are points, and of every study one.
    """

    commits: Sequence[Commit]
    columns: Mapping[str, pa.Schema]
    files: Mapping[str, Mapping[str, str]]
    newest: str
    version: str
    software: Mapping[str, Sequence[str]] = MappingProxyType({})
    sizes: Mapping[str, int] = MappingProxyType({})
    one_point_each: bool = False

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


class PointsFile(NamedTuple):
    """The file of the points of a release."""

    columns: pa.Schema
    sha256: str
    bytes: int
    rows: int


def of_studies(commits: Sequence[Commit], points: PointsFile | None) -> Contents:
    """The contents of a release of studies whose tables are shared files.

    Args:
      commits: the studies, sorted by name.
      points: if there are any.
    """
    shared = {table: {file for each in commits if (file := each.files[table].shared)} for table in TABLES}
    columns = {table: next(iter(files)).schema for table, files in shared.items()}
    hashes = {table: {file.path.name: file.sha256 for file in files} for table, files in shared.items()}
    sizes = {file.path.name: file.bytes for files in shared.values() for file in files}
    if points:
        columns[POINTS], hashes[POINTS] = points.columns, {POINTS_FILE: points.sha256}
        sizes[POINTS_FILE] = points.bytes
    sources = {commit.name: licences.terms(commit.plan).source for commit in commits}
    days, software = set(), dict[str, set[str]]()
    for file in shared["studies"]:
        runs = file.table(0, file.rows).select(["study", "started_at", "code_version"])
        for study, started_at, version in zip(*(column.to_pylist() for column in runs.columns), strict=True):
            days |= {started_at[:10]} if started_at else set()
            software.setdefault(sources[study], set()).update({version} if version else ())
    return Contents(
        commits=commits,
        columns=columns,
        files=hashes,
        newest=max(days, default=RELEASED),
        version=importlib.metadata.version("scaling-limits"),
        software={source: sorted(versions) for source, versions in software.items()},
        sizes=sizes,
        one_point_each=points is not None and points.rows == len(commits),
    )


class ColumnDescription(NamedTuple):
    """A column of a table of a release: its type as a person reads it, and what it means."""

    name: str
    type: str
    meaning: str


def describe_columns(contents: Contents, table: str) -> list[ColumnDescription]:
    """Every column of a table in words."""
    own = POINT_COLUMNS if table == POINTS else (*schema.STUDIES, *plan_columns.COLUMNS, *schema.COLUMNS[table])
    meanings = {column.name: column.meaning for column in own}
    tuned = {name for commit in contents.commits for name in commit.plan.get("space", ())}
    in_words = []
    for field in contents.columns[table]:
        kind = " or ".join(sorted({_words(c.metrics[field.name]) for c in contents.commits if field.name in c.metrics}))
        if table != "measurements" or not kind:
            kind = _words(str(field.type))
        meaning = meanings.get(field.name) or _meaning(field.name, field.name in tuned)
        if (table, field.name) == ("trials", "role") and any(commit.extra for commit in contents.commits):
            meaning += f"; {schema.EXTRA_ROLE}"
        in_words.append(ColumnDescription(field.name, kind, meaning))
    return in_words


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
