"""MLflow runs: reads MLflow's folder ``mlruns``, or its database, without the package mlflow."""

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from results.aliases import Fields, Json
from results.durable import Folder
from results.importers import untrusted
from results.importers.runs import plain_yaml
from results.importers.runs.places import Place
from results.importers.runs.series import Series
from results.importers.untrusted import ImportWarnings, Unusable

SQLITE = b"SQLite format 3"  # first bytes of a database
MOST_METRICS = 4096


class Recorded(NamedTuple):
    """A run that MLflow recorded: its name, its metrics by name and its parameters."""

    name: str
    metrics: dict[str, Series]
    parameters: Fields


def read(place: Place, root: Folder, most_bytes: int) -> Iterator[Recorded]:
    """Yields the run in the folder of a file ``meta.yaml``, or all runs in a database.

    Runs that were deleted in MLflow are left out. The ``meta.yaml`` of an experiment holds no run.

    Raises:
      Unusable: a file is damaged or too large.
    """
    data = untrusted.read_bytes(place.folder / place.name, root, most_bytes)
    if data.startswith(SQLITE):
        yield from _of_database(data, place)
        return
    try:
        meta = plain_yaml.load(data)
    except ValueError as error:
        raise Unusable(f"is neither a meta.yaml nor a database of MLflow ({error})") from None
    if not isinstance(meta, dict) or "run_id" not in meta or meta.get("lifecycle_stage") == "deleted":
        return
    metrics: dict[str, list[tuple[float, ...]]] = {}
    for name, text in _texts(place.folder / "metrics", root, most_bytes):
        metrics[name] = [_row(name, line) for line in text.splitlines() if line.strip()]
    yield Recorded(place.path, _series(metrics), dict(_texts(place.folder / "params", root, untrusted.JSON_BYTES)))


def _texts(folder: Folder, root: Folder, most_bytes: int) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each file below a folder. Names may contain slashes."""
    for inner, names in untrusted.files(folder, ImportWarnings()):
        for name in names:
            path = inner / name
            yield (
                untrusted.relative(path, folder),
                untrusted.read_bytes(path, root, most_bytes).decode("utf-8", "replace"),
            )


def _row(name: str, line: str) -> tuple[float, ...]:
    """Returns the step, the time in milliseconds and the value in a line of a metric's file."""
    try:
        time, value, *step = map(float, line.split())
        return (step or [0.0])[0], time, value
    except ValueError:
        raise Unusable(f"has metrics/{name} with the line {untrusted.brief(line)}") from None


def _series(metrics: dict[str, list[tuple[float, ...]]]) -> dict[str, Series]:
    if len(metrics) > MOST_METRICS:
        raise Unusable(f"has {len(metrics):,} metrics")
    series = {}
    for name, rows in metrics.items():
        if rows:
            step, time, value = np.array(sorted(rows, key=lambda row: row[1]), np.float64).T
            series[name] = Series(step, time / 1000, value)
    return series


def _of_database(data: bytes, place: Place) -> Iterator[Recorded]:
    parameters: dict[str, Json] = {}
    metrics: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(data)
            for run, name, value in database.execute("SELECT run_uuid, key, value FROM params"):
                parameters.setdefault(run, {})[name] = value
            rows = database.execute(
                "SELECT run_uuid, key, step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics"
                " JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active' ORDER BY run_uuid, key, timestamp, step"
            )
            for run, name, step, time, value in rows:
                row = (float(step), float(time), np.nan if value is None else float(value))
                metrics.setdefault(run, {}).setdefault(name, []).append(row)
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise Unusable(f"is not a readable database of MLflow ({str(error)[:80]})") from None
    for run, rows_by_name in metrics.items():
        yield Recorded(
            f"{place.path}:{untrusted.word(str(run), 'unnamed')}", _series(rows_by_name), parameters.get(run, {})
        )
