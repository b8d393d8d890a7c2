"""Logs: the content of a run's files, in any format. All input is untrusted."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from results import bounds
from results.aliases import Fields, Json
from results.bad_input import first_line
from results.durable import Folder
from results.importers import untrusted
from results.importers.runs import counters, mlflow_runs, plain_yaml, tensorboard, text_lines
from results.importers.runs.log import Log
from results.importers.runs.places import Place, compile_pattern
from results.importers.runs.run_map import (
    CHART,
    MLFLOW,
    RAY,
    TENSORBOARD,
    TEXT,
    TRAINER,
    WANDB,
    Reference,
    RunMap,
    fields,
)
from results.importers.runs.series import Series
from results.importers.untrusted import Unusable, brief

MOST_BYTES = 64 << 20
GZIP = b"\x1f\x8b"  # first bytes of a compressed file
MOST_COLUMNS = 4096
NULLS = ["", "None", "null", "NULL", "NA", "N/A", "<NA>"]  # NaN is a logged value: the run diverged
LENIENT = json.JSONDecoder()  # loggers write NaN and Infinity

Column: TypeAlias = pa.ChunkedArray | Sequence[Any]


def read(places: Sequence[Place], run_map: RunMap, root: Folder) -> Iterator[Log | tuple[str, str]]:
    """Yields the runs in some files, or the name and the fault of an unusable file.

    Args:
      places: files of one run, or one file with several runs.
      run_map: the map.
      root: the imported folder.
    """
    first = places[0]
    try:
        if run_map.format == TENSORBOARD:
            yield _events(places, run_map, root)
        elif run_map.format == MLFLOW:
            for run in mlflow_runs.read(first, root, MOST_BYTES):
                config = {**run.parameters, **_config(first, run_map, root)}
                yield _of_tags(Log(run.name, first, {}, config, tuple(run.metrics)), run.metrics, run_map)
        else:
            yield from _file(first, run_map, root)
    except (Unusable, bounds.TooLarge) as error:
        yield first.path, str(error)


def _file(first: Place, run_map: RunMap, root: Folder) -> Iterator[Log | tuple[str, str]]:
    """Yields the runs in a file with one row per logged step, or the name and the fault of an unusable run."""
    data = untrusted.read_bytes(first.folder / first.name, root, MOST_BYTES)
    if data.startswith(GZIP):
        raise Unusable("is compressed. Decompress it first.")
    config = _config(first, run_map, root)
    if run_map.format == TRAINER:
        rows, entries = _trainer(data)
        yield _log(first.path, first, _columns(rows), run_map, {**entries, **config})
        return
    if run_map.format == TEXT:
        rows, skipped = text_lines.rows(data, run_map.line)
        if not rows:
            raise Unusable(f"has no line like {brief(run_map.line[0])}")
        notes = (f"{skipped:,} lines match no pattern",) if skipped else ()
        yield _log(first.path, first, _columns(rows), run_map, config)._replace(notes=notes)
        return
    whole = _without_cut_line(data, run_map.format, first.name)
    found = list(_of_table(first, _table(whole, run_map.format, first.name), run_map, config))
    yield from found
    if len(whole) < len(data) and any(isinstance(each, Log) for each in found):
        yield first.path, "its last line has no newline and was left out"


def _of_table(
    first: Place, table: Mapping[str, Column], run_map: RunMap, config: Fields
) -> Iterator[Log | tuple[str, str]]:
    """Yields the runs in a table, or the name and the fault of an unusable run."""
    if run_map.format == CHART:
        yield from _of_chart(first, table, run_map, config)
        return
    if not isinstance(run_map.run, Reference) or run_map.run.origin != "column":
        yield from _attempt(first.path, first, table, run_map, config)
        return
    if run_map.run.name not in table:
        raise Unusable(f"has no column {brief(run_map.run.name)}, which the key run names")
    ids = pa.chunked_array([[None if each is None else str(each) for each in _values(table[run_map.run.name])]])
    for each in ids.unique().drop_null().to_pylist():
        chosen = np.flatnonzero(pc.equal(ids, each).fill_null(False).to_numpy())
        own = {name: _rows(values, chosen) for name, values in table.items()}
        yield from _attempt(f"{first.path}:{untrusted.word(each, 'unnamed')}", first, own, run_map, config)


def _of_chart(
    first: Place, table: Mapping[str, Column], run_map: RunMap, config: Fields
) -> Iterator[Log | tuple[str, str]]:
    """Yields the runs in a chart that W&B exported. It has the step, and columns such as ``RUN - val/loss``."""
    pattern = compile_pattern(str(run_map.run))
    shared = {name: column for name, column in table.items() if " - " not in name}
    runs: dict[str, dict[str, Column]] = {}
    for column in table.keys() - shared.keys():
        run, _, tag = column.rpartition(" - ")
        if not tag.endswith(("__MIN", "__MAX")):
            runs.setdefault(run, {})[tag] = table[column]
    for run, columns in sorted(runs.items()):
        name, match = f"{first.path}:{untrusted.word(run, 'unnamed')}", pattern.fullmatch(run)
        if match is None:
            yield name, f"its name does not match run: {run_map.run}"
            continue
        place = first._replace(parts={**first.parts, **match.groupdict()})
        yield from _attempt(name, place, shared | columns, run_map, config)


def _attempt(
    name: str, place: Place, table: Mapping[str, Column], run_map: RunMap, config: Fields
) -> Iterator[Log | tuple[str, str]]:
    try:
        yield _log(name, place, table, run_map, config)
    except Unusable as error:
        yield name, str(error)


def _events(places: Sequence[Place], run_map: RunMap, root: Folder) -> Log:
    """Reads the event files of one run. If they are in several folders, tags start with the name of the subfolder."""
    folders = sorted({untrusted.relative(place.folder, root) for place in places})
    common = folders[0] if len(folders) == 1 else _common(folders)
    parts: dict[str, list[Series]] = {}
    hyperparameters: Json = {}
    for place in places:
        below = untrusted.relative(place.folder, root).removeprefix(common).strip("/")
        found, own = tensorboard.read(untrusted.read_bytes(place.folder / place.name, root, MOST_BYTES))
        hyperparameters |= own
        for tag, series in found.items():
            parts.setdefault(f"{below}/{tag}" if below else tag, []).append(series)
    if not parts:
        raise Unusable("has no scalars")
    joined = {tag: Series(*map(np.concatenate, zip(*each, strict=True))) for tag, each in parts.items()}
    # Files of one folder are attempts of the same run. The time of logging orders their rows.
    ordered = {tag: each.where(np.argsort(each.seconds, kind="stable")) for tag, each in joined.items()}
    config = hyperparameters | dict(_config(places[0], run_map, root))
    return _of_tags(Log(common or places[0].path, places[0], {}, config, tuple(ordered)), ordered, run_map)


def _of_tags(log: Log, tags: Mapping[str, Series], run_map: RunMap) -> Log:
    """Returns a log with the series of tags that have steps of their own."""
    metrics = {metric.tag: metric.name for metric in run_map.metrics}
    series = {}
    for tag, logged in tags.items():
        metric = metrics.get(tag, "")
        counts = _counts_beside(logged, run_map.counter(metric).column, tags)
        counted = np.isfinite(counts)
        if counted.any():
            step = counters.steps(counts[counted], metric, log, run_map)
            series[tag] = logged.where(counted)._replace(step=step)
    return log._replace(series=series, order={tag: rows.seconds for tag, rows in series.items()})


def _counts_beside(series: Series, counter: str, tags: Mapping[str, Series]) -> np.ndarray:
    """Returns the counter of each event, float64[n]: its step, or the scalar that was logged at the same step."""
    if counter == "step":
        return series.step.astype(np.float64)
    if counter not in tags:
        raise Unusable(
            f"has no scalar {brief(counter)[1:-1]} with the step. Its numbers: {', '.join([*tags][:8])[:200]}"
        )
    values = dict(zip(tags[counter].step.tolist(), tags[counter].value.tolist(), strict=True))
    return np.array([values.get(step, np.nan) for step in series.step.tolist()])


def _common(folders: Sequence[str]) -> str:
    first, last = (each.split("/") for each in (min(folders), max(folders)))
    shared = []
    for a, b in zip(first, last, strict=False):
        if a != b:
            break
        shared.append(a)
    return "/".join(shared)


def column_names(place: Place, format: str, root: Folder) -> list[str]:
    """Returns the names of the columns of a file, or an empty list if it cannot be read."""
    try:
        data = untrusted.read_bytes(place.folder / place.name, root, MOST_BYTES)
        return list(_table(_without_cut_line(data, format, place.name), format, place.name))
    except (Unusable, bounds.TooLarge):
        return []


def _table(data: bytes, format: str, name: str) -> dict[str, Column]:
    """Returns the columns of a file with one row per logged step."""
    if format == "parquet":
        return _parquet(data)
    if _is_csv(format, name):
        return _csv(data)
    rows = _json_lines(data)
    return _columns([_flat(row) for row in rows] if format == RAY else rows)


def _flat(row: Fields, within: str = "") -> Json:
    """Returns an object without nested objects. Names are joined by slashes, as in Ray's ``progress.csv``."""
    cells: Json = {}
    for name, value in row.items():
        cells |= _flat(value, f"{within}{name}/") if isinstance(value, dict) else {f"{within}{name}": value}
    return cells


def _is_csv(format: str, name: str) -> bool:
    return format in ("csv", CHART) or (format in (WANDB, RAY) and name.endswith(".csv"))


def _without_cut_line(data: bytes, format: str, name: str) -> bytes:
    """Returns a text. Omits the last line if the run may have been killed while writing it."""
    lines, newline, last = data.rpartition(b"\n")
    if format == "parquet" or not last.strip():
        return data
    if not _is_csv(format, name):
        try:
            untrusted.json_object(last, LENIENT)
        except Unusable:
            return lines + newline
        return data
    return lines + newline  # a number such as 0.123 could be cut to 0.1


def _json_lines(data: bytes) -> list[Fields]:
    rows: list[Fields] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(untrusted.json_object(line, LENIENT))
        except Unusable as error:
            raise Unusable(f"line {number:,} {error}") from None
    return rows


def _csv(data: bytes) -> dict[str, Column]:
    if not data.strip():
        raise Unusable("is empty")
    try:
        header = data.split(b"\n", 1)[0].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unusable("is not text in UTF-8") from None
    if header.count(",") >= MOST_COLUMNS:
        raise Unusable(f"has {header.count(',') + 1:,} columns")
    convert = pyarrow.csv.ConvertOptions(null_values=NULLS, strings_can_be_null=True)
    try:
        return _of_arrow(pyarrow.csv.read_csv(bounds.csv_source(data), convert_options=convert))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise Unusable(f"cannot be parsed ({brief(first_line(error)[:36])})") from None


def _parquet(data: bytes) -> dict[str, Column]:
    try:
        return _of_arrow(bounds.Parquet(io.BytesIO(data)).read())
    except (pa.ArrowException, OSError) as error:
        raise Unusable(f"is not a readable Parquet file ({brief(first_line(error)[:36])})") from None


def _of_arrow(table: pa.Table) -> dict[str, Column]:
    names = [str(name) for name in table.column_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Unusable(f"has column {brief(twice)} twice")
    return dict(zip(names, table.columns, strict=True))


def _trainer(data: bytes) -> tuple[list[Fields], Fields]:
    """Returns the log in a Hugging Face trainer_state.json file, and the file's other entries."""
    content = untrusted.json_object(data, LENIENT)
    history = content.pop("log_history", None)
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise Unusable("has no log_history, so it is not a trainer_state.json")
    return history, content


def _columns(rows: Sequence[Fields]) -> dict[str, Column]:
    """Returns the columns of rows, with nulls for missing values."""
    names = dict.fromkeys(name for row in rows for name in row)
    if len(names) > MOST_COLUMNS:
        raise Unusable(f"has {len(names):,} columns")
    return {name: [row.get(name) for row in rows] for name in names}


def _log(name: str, place: Place, table: Mapping[str, Column], run_map: RunMap, config: Fields) -> Log:
    """Returns the log of one run from its rows."""
    referred = [field.name for _, field in fields(run_map) if isinstance(field, Reference) and field.origin == "column"]
    constants = {column: _constant(column, table[column]) for column in referred if column in table}
    log = Log(name, place, constants, config, tuple(table))
    metrics = {metric.tag: metric.name for metric in run_map.metrics}
    columns = {metric: run_map.counter(metric).column for metric in ("", *metrics.values())}
    if columns[""] not in table and all(metric in run_map.step for metric in metrics.values()) and metrics:
        del columns[""]
    counts = {metric: _counts(column, table) for metric, column in columns.items()}
    rows = len(next(iter(counts.values())))
    seconds = numbers(table[run_map.seconds]) if run_map.seconds in table else np.full(rows, np.nan)
    series, order = {}, {}
    for tag, column in table.items():
        metric = metrics.get(tag, "")
        if metric not in counts or tag == columns[metric]:
            continue
        logged = np.flatnonzero(np.isfinite(counts[metric]) & _logged(column))
        if len(logged):
            step = counters.steps(counts[metric][logged], metric, log, run_map)
            series[tag] = Series(step, seconds[logged], numbers(column)[logged])
            order[tag] = logged
    return log._replace(series=series, order=order)


def _counts(column: str, table: Mapping[str, Column]) -> np.ndarray:
    """Returns a counter, float64[n], with NaN for rows without a step. Raises Unusable if there are no others."""
    if column not in table:
        known = ", ".join(name if name.isprintable() else ascii(name) for name in [*table][:8]) or "none"
        raise Unusable(f"has no column {column} with the step. Its columns: {known[:200]}")
    counts = numbers(table[column])
    if not np.isfinite(counts).any():
        raise Unusable("has no row with a step")
    return counts


def numbers(column: Column) -> np.ndarray:
    """Returns a column as float64[n], with NaN for missing numbers."""
    if isinstance(column, pa.ChunkedArray):
        if not _is_number(column.type):
            return np.full(len(column), np.nan)
        return column.cast(pa.float64(), safe=False).to_numpy()
    return np.array([float(each) if _is_plain_number(each) else np.nan for each in column])


def _values(column: Column) -> Sequence[Any]:
    return column.to_pylist() if isinstance(column, pa.ChunkedArray) else column


def _rows(column: Column, rows: np.ndarray) -> Column:
    return column.take(rows) if isinstance(column, pa.ChunkedArray) else [column[i] for i in rows]


def _logged(column: Column) -> np.ndarray:
    """Returns whether each row has a number (which may be NaN): bool[n]."""
    if isinstance(column, pa.ChunkedArray):
        return column.is_valid().to_numpy() if _is_number(column.type) else np.zeros(len(column), bool)
    return np.array([_is_plain_number(each) for each in column], bool)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _constant(name: str, column: Column) -> Any:
    """Returns the single value of a column, or None if it has no values. Raises Unusable if there are several."""
    values = column.unique().drop_null().to_pylist() if isinstance(column, pa.ChunkedArray) else column
    distinct = dict.fromkeys(each for each in values if isinstance(each, str | int | float))
    if len(distinct) > 1:
        first, second = map(brief, list(distinct)[:2])
        raise Unusable(f"has several values in column {brief(name)}, such as {first} and {second}")
    return next(iter(distinct), None)


def _config(place: Place, run_map: RunMap, root: Folder) -> Fields:
    """Returns the content of the run's config file, from the run's folder or the nearest folder above."""
    if not run_map.config:
        return {}
    folder = place.folder
    while True:
        try:
            return parse_config(untrusted.read_bytes(folder / run_map.config, root, untrusted.JSON_BYTES))
        except Unusable as error:
            if "No such file" not in str(error):
                raise Unusable(f"{run_map.config} {error}") from None
        if folder in (root, folder.parent):
            raise Unusable(f"has no {run_map.config} in its folder or above")
        folder = folder.parent


def parse_config(data: bytes) -> Fields:
    """Returns the entries of a JSON or YAML file. In W&B's files, each entry has its value under the key ``value``."""
    try:
        content = plain_yaml.load(data)
    except ValueError as error:
        raise Unusable(f"is not JSON or YAML ({first_line(error)[:80]})") from None
    if not isinstance(content, dict):
        raise Unusable("has no keys")
    entries = {str(name): each for name, each in content.items() if name not in ("wandb_version", "_wandb")}
    if entries and all(isinstance(each, dict) and "value" in each for each in entries.values()):
        return {name: each["value"] for name, each in entries.items()}
    return entries
