"""The contents of a release: its studies, and the type and meaning of every column."""

import importlib.metadata
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from results.catalog import licences
from results.catalog.licences import Terms
from results.grouping import grouped
from results.plans import plan_columns, schema
from results.plans.kinds import KINDS
from results.plans.points import POINTS as POINT_COLUMNS
from results.plans.study import METRIC_KINDS, METRICS
from results.storage.commits import Commit
from results.storage.shared import SharedFile

TABLES = {
    "studies": "a run of a study: its plan, its machine and its cost",
    "trials": "a training run: its metaparameters and how it ended",
    "measurements": "the metrics of a trial at a step",
}

RELEASED = "2026-11-22"  # the date of a release if its runs have no dates
POINTS = "points"
POINTS_FILE = f"{POINTS}.parquet"
ABOUT = TABLES | {POINTS: "the answer of a study for a target, and the fit of its curve"}

KEYS = {  # primary keys, which are also the sort order
    "studies": ("study", "run"),
    "trials": ("study", "trial"),
    "measurements": ("study", "trial", "step"),
    POINTS: ("study", "target_metric", "target_value"),
}

# Meanings of the metaparameters of our own studies.
METAPARAMETERS = {
    "learning_rate": "initial learning rate",
    "momentum": "factor by which accumulated gradients decay in each step",
    "b1": "decay of the average of gradients, or for schedule_free the weight of the averaged parameters",
    "b2": "decay of the average of squared gradients",
    "eps": "number added to the denominator of an update",
    "beta": "decay of the accumulated gradients that are orthogonalized",
    "trust_coefficient": "factor of the layer-wise learning rates",
    "weight_decay": "weight decay, decoupled for adamw, lamb and muon, otherwise part of the gradient",
    "decay_fraction": "length of the learning rate's decay, as a fraction of the budget",
    "end_learning_rate_factor": "learning rate after the decay, relative to the initial one",
    "label_smoothing": "share of a label's probability that is spread evenly over all classes",
    "unobserved_weight": "weight of pairs without a link in the objective, α in ALX",
    "norm_penalty": "weight of the squared norms of both tables in the objective, λ in ALX",
}


class Contents(NamedTuple):
    """The contents of a release.

    Attributes:
      commits: studies, sorted by name.
      columns: schema of each table.
      files: files of each table, sorted by name.
      newest: date of the newest run, ISO 8601, or ``RELEASED`` if the runs have no dates.
      version: version of the software that wrote the release.
      software: versions of the software that measured or imported the studies, by source.
      one_point_each: whether the points table has exactly one row per study.
    """

    commits: Sequence[Commit]
    columns: Mapping[str, pa.Schema]
    files: Mapping[str, Sequence[SharedFile]]
    newest: str
    version: str
    software: Mapping[str, Sequence[str]] = MappingProxyType({})
    one_point_each: bool = False

    @property
    def sources(self) -> dict[Terms, list[Commit]]:
        """Studies by source."""
        by_terms = grouped(self.commits, lambda commit: licences.terms(commit.plan))
        return dict(sorted(by_terms.items(), key=lambda item: str(item[0])))

    @property
    def licences(self) -> list[Terms]:
        """Returns one entry per licence."""
        return list({terms.licence: terms for terms in self.sources}.values())

    def rows(self, table: str) -> int:
        return sum(commit.files[table].rows for commit in self.commits)


def of_studies(commits: Sequence[Commit], points: SharedFile | None) -> Contents:
    """Collects the contents of a release, in which studies share files.

    Args:
      commits: studies, sorted by name.
      points: the points file, or None for a release without points.
    """
    files = {}
    for table in TABLES:
        shared = {file for commit in commits if (file := commit.files[table].shared)}
        files[table] = sorted(shared, key=lambda file: file.path.name)
    if points:
        files[POINTS] = [points]
    sources = {commit.name: licences.terms(commit.plan).source for commit in commits}
    days = set()
    software: dict[str, set[str]] = {source: set() for source in sources.values()}
    for file in files["studies"]:
        for run in file.table(0, file.rows).select(["study", "started_at", "code_version"]).to_pylist():
            days.add((run["started_at"] or "")[:10])
            software[sources[run["study"]]].add(run["code_version"])
    return Contents(
        commits=commits,
        columns={table: members[0].schema for table, members in files.items()},
        files=files,
        newest=max(days, default="") or RELEASED,
        version=importlib.metadata.version("scaling-limits"),
        software={source: sorted(filter(None, versions)) for source, versions in software.items()},
        one_point_each=points is not None and points.rows == len(commits),
    )


class ColumnDescription(NamedTuple):
    """A column of a table: its name, its readable type and its meaning."""

    name: str
    type: str
    meaning: str


def describe_columns(contents: Contents, table: str) -> list[ColumnDescription]:
    """Describes every column of a table."""
    described = POINT_COLUMNS if table == POINTS else (*schema.STUDIES, *plan_columns.COLUMNS, *schema.COLUMNS[table])
    of_kinds = [column for kind in KINDS.values() for column in kind.columns]
    meanings = {column.name: column.meaning for column in (*of_kinds, *described)}
    optimizers: dict[str, set[str]] = {}  # by metaparameter
    for commit in contents.commits:
        for name in commit.plan.get("space", ()):
            optimizers.setdefault(name, set()).add(commit.study.labels.optimizer)
    in_words = []
    for field in contents.columns[table]:
        kind = " or ".join(sorted({_words(c.metrics[field.name]) for c in contents.commits if field.name in c.metrics}))
        if table != "measurements" or not kind:
            kind = _words(str(field.type))
        meaning = meanings.get(field.name) or _meaning(field.name, optimizers.get(field.name, set()), table)
        if (table, field.name) == ("trials", "role") and any(commit.extra for commit in contents.commits):
            meaning += f"; {schema.EXTRA_ROLE}"
        in_words.append(ColumnDescription(field.name, kind, meaning))
    return in_words


def _meaning(name: str, optimizers: Collection[str], table: str) -> str:
    """Returns the meaning of a metric, or of a metaparameter that was tuned for these optimizers."""
    if name in METRICS:
        split, kind = name.split("_", 1)
        return f"{METRIC_KINDS[kind]}; on the {split} split"
    trial = "the selected trial" if table == POINTS else "the trial"
    if not optimizers:
        return f"metaparameter or other value of {trial}, under the name its source uses"
    drawn = " of the selected trial" if table == POINTS else ", drawn from the range in the study's plan"
    used_by = " and ".join(filter(None, (", ".join(sorted(optimizers)[:-1]), max(optimizers))))
    return f"metaparameter{drawn}: {METAPARAMETERS.get(name, name)}. Used by {used_by}"


def _words(kind: str) -> str:
    return {"float": "float32", "double": "float64"}.get(kind, "string" if kind.startswith("dictionary") else kind)
