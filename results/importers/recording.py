"""Stores published studies, converting qualities to errors. A later import adds trials that are new in the source.

Values that have changed in the source are reported, and replaced only on request.
"""

import importlib.metadata
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from results import store
from results.aliases import Fields
from results.bad_input import BadInput, number_of
from results.durable import Folder
from results.importers.untrusted import ImportWarnings
from results.plans import kinds, plan_columns, schema
from results.plans.recorded import Recorded
from results.printing import Report
from results.release.union import Difference, Union, union
from results.storage import commits
from results.storage.compaction import TABLES, Piece, select_trials

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
      stored: whether anything was written.
      changed: differences between the source and the store, by trial.
      names: names of trials in the source, if they have names.
    """

    stored: bool
    changed: Mapping[int, Difference] = {}
    names: Mapping[int, str] = {}

    @property
    def values(self) -> int:
        """Returns the number of changed values."""
        return sum(change.values for change in self.changed.values())

    def lines(self, study: str, source: str) -> list[str]:
        """Describes all changed trials if they have names, or else the first. ``source`` names the imported side."""
        if self.names:
            changed = self.changed.items()
            return [f"{self.names[trial]}: {change.describe('the store', source)}" for trial, change in changed]
        trial, difference = min(self.changed.items())
        more = f", and {len(self.changed) - 1} more trials" if len(self.changed) > 1 else ""
        return [f"{study}: trial {trial}: {difference.describe('the store', source)}{more}"]


def report_changes(saved: Mapping[str, Saved], source: str, kept: str, report: Report) -> None:
    """Reports the studies with values that have changed in the source.

    Args:
      saved: the results of storing studies, by name.
      source: name of the imported side.
      kept: description of the values now in the store.
      report: called with lines for the user.
    """
    changed = {name: each for name, each in saved.items() if each.changed}
    if changed:
        values = sum(each.values for each in changed.values())
        report(f"{number_of(len(changed), 'study')} changed, {values:,} values: {kept}")
        ImportWarnings([line for name, each in changed.items() for line in each.lines(name, source)]).report(report)


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
    whole = np.rint(values * _DECIMALS)
    return np.where(whole / _DECIMALS == values, (_DECIMALS - whole) / _DECIMALS, 1 - values)


def may_be_column(name: str) -> bool:
    """Returns whether a metaparameter can be a column of the trials table under its own name."""
    return bool(_COLUMN.fullmatch(name)) and name not in kinds.reserved()


def stored_studies(folder: Folder, source: str) -> list[Recorded]:
    """Returns the stored studies from one source."""
    if not folder.is_dir():
        return []
    plans = [commit.study for commit in store.committed(folder)]
    return [study for study in kinds.of_type(plans, Recorded) if study.source == source]


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
        return Saved(False, changed)
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        claim.write(select_trials(tables, take)._asdict())
        claim.commit(study)
    return Saved(True, changed)


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
    return schema.build(schema.STUDIES, {name: [value] for name, value in row.items()}, {})


def _tables(content: Content) -> Piece:
    study = content.study
    measured = _build(schema.MEASUREMENTS, study.name, content.measurements)
    return Piece(
        studies(study, {"planned_trials": study.trials, **content.about}),
        _build(schema.TRIALS, study.name, content.trials).sort_by("trial"),
        measured.sort_by([("trial", "ascending"), ("step", "ascending")]),
    )


def _build(columns: tuple[schema.Column, ...], study: str, data: Fields) -> pa.Table:
    known = {column.name for column in columns}
    rows = len(next(iter(data.values())))
    return schema.build(
        columns, {"study": [study] * rows, **data}, {name: pa.float64() for name in data if name not in known}
    )
