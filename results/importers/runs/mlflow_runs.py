"""MLflow runs: reads MLflow's folder ``mlruns``, or its database, without the package mlflow."""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from results.aliases import Fields
from results.durable import Folder
from results.grouping import grouped
from results.importers import untrusted
from results.importers.runs import plain_yaml
from results.importers.runs.log import Log
from results.importers.runs.places import MOST_BYTES, Place
from results.importers.runs.series import Curves, Series
from results.importers.untrusted import ImportWarnings, Unusable

SQLITE = b"SQLite format 3"  # first bytes of a database
_PARAMETERS = "SELECT run_uuid, key, value FROM params"
_METRICS = """SELECT run_uuid, key, timestamp, CASE WHEN is_nan THEN 'nan' ELSE value END, step FROM metrics
JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active'"""

Rows = Mapping[str, Sequence[Sequence[float | str]]]  # time in milliseconds, value and step of each metric


def read(place: Place, root: Folder) -> Iterator[tuple[Log, Curves]]:
    """Yields the run in the folder of a file ``meta.yaml``, or all runs in a database, with their metrics.

    Runs that were deleted in MLflow are left out. The ``meta.yaml`` of an experiment holds no run.

    Raises:
      Unusable: a file is damaged or too large.
    """
    data = place.read(root)
    try:
        if data.startswith(SQLITE):
            for name, rows, parameters in _of_database(data):
                yield _log(f"{place.path}:{untrusted.word(name, 'unnamed')}", place, rows, parameters)
            return
        meta = plain_yaml.load(data)
        if isinstance(meta, dict) and "run_id" in meta and meta.get("lifecycle_stage") != "deleted":
            metrics = _texts(place.folder / "metrics", root)
            rows = {name: [line.split() for line in text.splitlines()] for name, text in metrics}
            yield _log(place.path, place, rows, dict(_texts(place.folder / "params", root)))
    except (sqlite3.Error, TypeError, ValueError) as error:
        if isinstance(error, Unusable):
            raise
        raise Unusable(f"is not a readable run or database of MLflow ({str(error)[:80]})") from None


def _log(name: str, place: Place, rows: Rows, parameters: Fields) -> tuple[Log, Curves]:
    metrics = {}
    for metric, logged in rows.items():
        time, value, step = np.array(sorted(logged, key=lambda row: int(row[0])), np.float64).T
        metrics[metric] = Series(step, time / 1000, value, time)
    return Log(name, place, {}, parameters, tuple(metrics)), metrics


def _texts(folder: Folder, root: Folder) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each file below a folder. Names may contain slashes."""
    for inner, names in untrusted.files(folder, ImportWarnings()):
        for name in names:
            text = untrusted.read_bytes(inner / name, root, MOST_BYTES).decode("utf-8", "replace")
            yield untrusted.relative(inner / name, folder), text


def _of_database(data: bytes) -> Iterator[tuple[str, Rows, Fields]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(data)
        parameters, metrics = (
            grouped(database.execute(query), lambda row: row[0]) for query in (_PARAMETERS, _METRICS)
        )
    for run, rows in sorted(metrics.items()):
        by_name = grouped(rows, lambda row: row[1])
        logged = {name: [row[2:] for row in group] for name, group in by_name.items()}
        yield run, logged, {name: text for _, name, text in parameters.get(run, ())}
