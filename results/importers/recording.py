"""Stores published studies, converting qualities to errors. A later import adds trials that are new in the source.

Values that have changed in the source are reported, and replaced only on request.
"""

import importlib.metadata
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from results import store
from results.aliases import Fields, Row
from results.bad_input import BadInput, number_of
from results.durable import Folder
from results.importers.untrusted import ImportWarnings
from results.plans import kinds, plan_columns, schema
from results.plans.recorded import Recorded
from results.printing import Report
from results.release.union import Difference, Union, union
from results.storage import commits
from results.storage.commits import Commit
from results.storage.compaction import TABLES, Piece, select_trials

KEPT = "the stored values are kept (--replace takes those of the logs)"
REPLACED = "replaced by the current values of the logs"
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_DECIMALS = 1e12  # more decimals than in any source, but few enough that binary fractions rarely match by chance


class Content(NamedTuple):
    """A published study and its rows.

    Attributes:
      study: the plan.
      trials: columns of the trials table by name, of equal length. Columns outside the schema are float64.
      measurements: columns of the measurements table by name, of equal length. Metrics are float64, as published.
      about: additional columns for the studies table, such as ``device_kind``.
    """

    study: Recorded
    trials: Fields
    measurements: Fields
    about: Fields


class Saved(NamedTuple):
    """The result of storing a study.

    Attributes:
      study: the study under its stored name.
      rows: number of measurements in the source.
      stored: whether anything was written.
      changed: differences between the source and the store, by trial.
      names: names of trials in the source, if they have names.
    """

    study: Recorded
    rows: int
    stored: bool
    changed: Mapping[int, Difference]
    names: Mapping[int, str] = {}

    def lines(self, source: str) -> list[str]:
        """Describes all changed trials if they have names, or else the first. ``source`` names the imported side."""
        texts = {trial: change.describe("the store", source) for trial, change in sorted(self.changed.items())}
        if self.names or not texts:
            return [f"{self.names[trial]}: {text}" for trial, text in texts.items()]
        trial, text = next(iter(texts.items()))
        remainder = f", and {len(texts) - 1} more trials" if len(texts) > 1 else ""
        return [f"{self.study.name}: trial {trial}: {text}{remainder}"]


def report_changes(
    saved: Sequence[Saved], report: Report, *, source: str = "the logs", replace: bool = False, kept: str = KEPT
) -> None:
    """Reports the studies with values that have changed in the source.

    Args:
      saved: the results of storing studies.
      report: called with lines for the user.
      source: name of the imported side.
      replace: whether changed values were replaced.
      kept: description of the values now in the store if they were not.
    """
    changes = [change for study in saved for change in study.changed.values()]
    if changes:
        count = number_of(sum(bool(study.changed) for study in saved), "study")
        values = sum(change.values for change in changes)
        report(f"{count} changed, {values:,} values: {REPLACED if replace else kept}")
        ImportWarnings([line for study in saved for line in study.lines(source)]).report(report)


def complement(values: np.ndarray) -> np.ndarray:
    """Returns the decimal complement 1 − q of qualities q in [0, 1]. This preserves comparisons and is its own inverse.

    In binary arithmetic, 1 − 0.9 is not the double nearest to 0.1. This would change strict comparisons. Values with up
    to 12 decimals are therefore subtracted as decimals: q > t if and only if 1 − q < 1 − t, for every such t. Other
    values are subtracted directly, which is exact for a float32 written with all digits of a double.

    Args:
      values: float64 of any shape.

    Returns:
      float64 of the same shape. NaN stays NaN.
    """
    scaled = np.rint(values * _DECIMALS)
    return np.where(scaled / _DECIMALS == values, (_DECIMALS - scaled) / _DECIMALS, 1 - values)


def may_be_column(name: str) -> bool:
    """Returns whether a metaparameter can be a column of the trials table under its own name."""
    return bool(_COLUMN.fullmatch(name)) and name not in kinds.reserved()


def from_source(commits: Iterable[Commit], source: str) -> list[tuple[Recorded, Commit]]:
    """Returns the studies from one source, with their commits."""
    pairs = [(study, commit) for commit in commits for study in kinds.of_type([commit.study], Recorded)]
    return [(study, commit) for study, commit in pairs if study.source == source]


def save(
    folder: Folder, content: Content, *, replace: bool = False, longer: Collection[int] = (), dry_run: bool = False
) -> Saved:
    """Stores a study's missing trials. Stored trials that have changed are kept, unless they are to be replaced.

    Args:
      folder: the store.
      content: the study in the current version of its source.
      replace: whether to replace stored trials that have changed.
      longer: trials whose runs were continued. They are always replaced.
      dry_run: whether to compare only.
    """
    study = store.with_stored_name(folder, content.study)
    tables = _tables(content._replace(study=study))
    commit = commits.newest_commit(folder, study.name)
    comparison = Union(frozenset(tables.trials["trial"].to_pylist()))
    if commit is not None:
        comparison = union(Piece(*(commits.read_table(commit, name) for name in TABLES)), tables, study)
    for clash in comparison.clashes:
        raise BadInput(f"{study.name}: {clash.describe(folder, 'the import')}. Import it into another store.")
    differing = {**comparison.conflicts, **comparison.shorter}
    changed = {trial: how for trial, how in differing.items() if trial not in longer}
    take = comparison.take | (differing.keys() if replace else differing.keys() - changed.keys())
    if dry_run or (commit is not None and not take and (changed or commit.trials >= study.trials)):
        return Saved(study, len(tables.measurements), False, changed)
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        claim.write(select_trials(tables, take)._asdict())
        claim.commit(study)
    return Saved(study, len(tables.measurements), True, changed)


def studies(study: Recorded, about: Fields) -> pa.Table:
    """Returns the studies table for one published study. ``about`` adds columns."""
    row = {
        "study": study.name,
        **plan_columns.names(study),
        "pruning": study.search.pruning,
        "plan": study.plan_json,
        "code_version": importlib.metadata.version("scaling-limits"),
        **about,
    }
    return schema.build(schema.STUDIES, {name: [cell] for name, cell in row.items()}, {})


def as_columns(rows: Sequence[Row]) -> Fields:
    """Returns the columns of a table, given its rows. A value that a row lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _tables(content: Content) -> Piece:
    study = content.study
    return Piece(
        studies(study, {"planned_trials": study.trials, **content.about}),
        build(schema.TRIALS, study, content.trials).sort_by("trial"),
        build(schema.MEASUREMENTS, study, content.measurements).sort_by(
            [("trial", "ascending"), ("step", "ascending")]
        ),
    )


def build(columns: tuple[schema.Column, ...], study: Recorded, data: Fields) -> pa.Table:
    """Returns a table of a study. Columns outside the schema are float64."""
    extra = dict.fromkeys(data, pa.float64())
    for column in columns:
        extra.pop(column.name, None)
    return schema.build(columns, {"study": [study.name for _ in data["trial"]], **data}, extra)
