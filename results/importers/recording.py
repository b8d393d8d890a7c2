"""Storing studies that others published, errors for qualities: once, whole, and again if the source holds more now.

Values that a source has changed since are reported, and taken only on request.
"""

import importlib.metadata
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from results import store
from results.bad_input import BadInput
from results.durable import Folder
from results.plans import kinds, schema
from results.plans.recorded import Recorded
from results.release.union import Difference, Union, union
from results.storage import commits
from results.storage.compaction import TABLES, Piece, select_trials

_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_DECIMALS = 1e12  # more than anybody writes on purpose, and few enough that hardly a binary fraction is one by chance


class Content(NamedTuple):
    """A published study with its rows.

    Attributes:
      study: what it is.
      trials: columns of the trials table by name, all of one length; further ones are float64.
      measurements: columns of the measurements table, likewise; every metric is float64, as its source states it.
      about: further columns of the studies table, such as ``device_kind``.
    """

    study: Recorded
    trials: Mapping[str, Any]
    measurements: Mapping[str, Any]
    about: Mapping[str, Any]


class Saved(NamedTuple):
    """The result of storing a study.

    Attributes:
      stored: whether anything of it was written.
      changed: by trial, where the source says something else than it did when the trial was stored.
    """

    stored: bool
    changed: Mapping[int, Difference] = {}

    @property
    def values(self) -> int:
        """The number of values that have changed."""
        return sum(change.values for change in self.changed.values())

    def told(self, source: str) -> str:
        """The first trial that has changed, in words; ``source`` names the imported side."""
        trial, how = min(self.changed.items())
        further = f", and {len(self.changed) - 1} more trials" if len(self.changed) > 1 else ""
        return f"trial {trial}: {how.told('the store', source)}{further}"


def complement(values: np.ndarray) -> np.ndarray:
    """The decimal complement 1 − q of a quality q in [0, 1]: it keeps comparisons, and gives q again of 1 − q.

    In binary, 1 − 0.9 is not the double nearest to 0.1, so that strict comparisons would come out differently. Values
    of up to 12 decimals are therefore subtracted as decimals: q > t says the same as 1 − q < 1 − t, for every such t.
    Any other value is subtracted as it is, which is exact for a float32 written with all the digits of a double.

    Args:
      values: float64 of any shape.

    Returns:
      float64 of the same shape; NaN stays NaN.
    """
    whole = np.rint(values * _DECIMALS)
    return np.where(whole / _DECIMALS == values, (_DECIMALS - whole) / _DECIMALS, 1 - values)


def may_be_column(name: str) -> bool:
    """Whether a metaparameter's name can be that of a column of the trials table."""
    return bool(_COLUMN.fullmatch(name)) and name not in kinds.reserved()


def stored_studies(folder: Folder, source: str) -> list[Recorded]:
    """The studies of one source that a store holds already."""
    if not folder.is_dir():
        return []
    plans = [commit.study for commit in store.committed(folder)]
    return [study for study in kinds.of_type(plans, Recorded) if study.source == source]


def save(folder: Folder, content: Content, *, replace: bool = False) -> Saved:
    """Stores the missing trials of a study; if stored ones have changed, nothing, unless ``replace`` is set."""
    study = store.with_stored_name(folder, content.study)
    tables = _tables(content._replace(study=study))
    commit = commits.newest_commit(folder, study.name)
    comparison = Union(frozenset(tables.trials["trial"].to_pylist()))
    if commit is not None:
        comparison = union(Piece(*(commits.read_table(commit, name) for name in TABLES)), tables, study)
    for clash in comparison.clashes:
        raise BadInput(f"{study.name}: {clash.told(folder, 'what is imported')}; import it into another store")
    changed = {**comparison.conflicts, **comparison.shorter}
    take = comparison.take | changed.keys()
    if (changed and not replace) or (commit is not None and not take and commit.trials >= study.trials):
        return Saved(False, changed)
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        claim.write(select_trials(tables, take)._asdict())
        claim.commit(study)
    return Saved(True, changed)


def studies(study: Recorded, about: Mapping[str, Any]) -> pa.Table:
    """The studies table of one published study; ``about`` fills further columns."""
    row = {
        "study": study.name,
        "dataset": study.dataset,
        "model": study.model_label,
        "optimizer": study.optimizer,
        "batch_size": study.batch_size,
        "pruning": study.pruning,
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


def _build(columns: tuple[schema.Column, ...], study: str, data: Mapping[str, Any]) -> pa.Table:
    known = {column.name for column in columns}
    rows = len(next(iter(data.values())))
    return schema.build(
        columns, {"study": [study] * rows, **data}, {name: pa.float64() for name in data if name not in known}
    )
