"""Storing studies that others published: each once, whole, and again only if the source holds more of it now."""

import importlib.metadata
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from results import commits, schema, store
from results.durable import Folder
from results.recorded import Recorded

_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


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


def may_be_column(name: str) -> bool:
    """Whether a metaparameter's name can be that of a column of the trials table."""
    return bool(_COLUMN.fullmatch(name)) and name not in schema.RESERVED


def there(folder: Folder, source: str) -> list[Recorded]:
    """The studies of one source that a store holds already."""
    if not folder.is_dir():
        return []
    found = [commit.study for commit in store.catalogue(folder)]
    return [study for study in found if isinstance(study, Recorded) and study.source == source]


def save(folder: Folder, content: Content) -> bool:
    """Stores a study; says whether there was anything new in it."""
    study = store.called(folder, content.study)
    tables = _tables(content._replace(study=study))
    if _is_stored(folder, study, tables):
        return False
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        claim.write(tables)
        claim.commit(study)
    return True


def _is_stored(folder: Folder, study: Recorded, tables: Mapping[str, pa.Table]) -> bool:
    commit = commits.committed(folder, study.name)
    if commit is None:
        return False
    for name, keys in (("trials", ["trial"]), ("measurements", ["trial", "step"])):
        held = commits.frame(commits.read_table(commit, name)).drop(columns="run", errors="ignore")
        new = commits.frame(tables[name]).drop(columns="run", errors="ignore").sort_values(keys, ignore_index=True)
        if not held.equals(new):
            return False
    return commit.trials == study.trials


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


def _tables(content: Content) -> dict[str, pa.Table]:
    study = content.study
    return {
        "studies": studies(study, {"planned_trials": study.trials, **content.about}),
        "trials": _named(schema.TRIALS, study.name, content.trials),
        "measurements": _named(schema.MEASUREMENTS, study.name, content.measurements),
    }


def _named(columns: tuple[schema.Column, ...], study: str, data: Mapping[str, Any]) -> pa.Table:
    known = {column.name for column in columns}
    rows = len(next(iter(data.values())))
    return schema.build(
        columns, {"study": [study] * rows, **data}, {name: pa.float64() for name in data if name not in known}
    )
