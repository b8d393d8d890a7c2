"""Logs: the content of a run's files, in any format. All input is untrusted."""

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from results import bounds
from results.aliases import Fields, Json
from results.bad_input import first_line
from results.durable import Folder
from results.importers import untrusted
from results.importers.runs import counters, mlflow_runs, plain_yaml, tables, tensorboard, text_lines
from results.importers.runs.log import Log
from results.importers.runs.places import Place, compile_pattern
from results.importers.runs.run_map import (
    CHART,
    MILLISECONDS,
    MLFLOW,
    RAY,
    STEPS,
    TENSORBOARD,
    TEXT,
    TRAINER,
    WANDB,
    Reference,
    RunMap,
    fields,
)
from results.importers.runs.series import Series
from results.importers.runs.tables import Column, Table
from results.importers.untrusted import Unusable, brief

MOST_BYTES = 64 << 20
GZIP = b"\x1f\x8b"  # first bytes of a compressed file


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
            for log, metrics in mlflow_runs.read(first, root, MOST_BYTES):
                config = {**log.config, **_config(first, run_map, root)}
                yield _of_tags(log._replace(config=config), metrics, run_map)
        else:
            yield from _file(first, run_map, root)
    except (Unusable, bounds.TooLarge) as error:
        yield first.path, str(error)


def _file(first: Place, run_map: RunMap, root: Folder) -> Iterator[Log | tuple[str, str]]:
    """Yields the runs in a file with one row per logged step, or the name and the fault of an unusable run."""
    data = untrusted.read_bytes(first.folder / first.name, root, MOST_BYTES)
    if data.startswith(GZIP):
        raise Unusable("is compressed. Decompress it first.")
    config, needed = _config(first, run_map, root), _needed(run_map)
    if run_map.format == TRAINER:
        table, entries = tables.of_trainer(data, needed)
        yield _log(first.path, first, table, run_map, {**entries, **config})
        return
    if run_map.format == TEXT:
        rows, skipped = text_lines.rows(data, run_map.line)
        if not rows:
            raise Unusable(f"has no line like {brief(run_map.line[0])}")
        log = _log(first.path, first, tables.of_rows(rows, needed), run_map, config)
        yield log._replace(notes=(f"{skipped:,} lines match no pattern",) if skipped else ())
        return
    whole = _without_cut_line(data, run_map.format, first.name)
    logs = list(_of_table(first, _table(whole, run_map.format, first.name, needed), run_map, config))
    yield from logs
    if len(whole) < len(data) and any(isinstance(log, Log) for log in logs):
        yield first.path, "its last line has no newline and was left out"


def _needed(run_map: RunMap) -> set[str] | None:
    """Returns the columns that a map needs, or None for all: for a map without metrics, and for charts."""
    if not run_map.metrics or run_map.format == CHART:
        return None
    counted = {run_map.counter(metric).column for metric in ("", *(metric.name for metric in run_map.metrics))}
    referred = {field.name for _, field in fields(run_map) if isinstance(field, Reference) and field.origin == "column"}
    return (
        counted | referred | {metric.tag for metric in run_map.metrics} | {run_map.seconds.removesuffix(MILLISECONDS)}
    )


def _of_table(first: Place, table: Table, run_map: RunMap, config: Fields) -> Iterator[Log | tuple[str, str]]:
    """Yields the runs in a table, or the name and the fault of an unusable run."""
    if run_map.format == CHART:
        yield from _of_chart(first, table, run_map, config)
        return
    names = run_map.run_columns()
    if not names:
        yield from _attempt(first.path, first, table, run_map, config)
        return
    for name in names:
        if name not in table.columns:
            raise Unusable(f"has no column {brief(name)}, which the key run names")
    for key, rows in table.groups(names):
        yield from _attempt(f"{first.path}:{untrusted.word(key, 'unnamed')}", first, rows, run_map, config)


def _of_chart(first: Place, chart: Table, run_map: RunMap, config: Fields) -> Iterator[Log | tuple[str, str]]:
    """Yields the runs in a chart that W&B exported. It has the step, and columns such as ``RUN - val/loss``."""
    pattern = compile_pattern(str(run_map.run[0]))
    shared = {name: column for name, column in chart.columns.items() if " - " not in name}
    runs: dict[str, dict[str, Column]] = {}
    for name in chart.columns.keys() - shared.keys():
        run, _, tag = name.rpartition(" - ")
        if not tag.endswith(("__MIN", "__MAX")):
            runs.setdefault(run, {})[tag] = chart.columns[name]
    for run, columns in sorted(runs.items()):
        name, match = f"{first.path}:{untrusted.word(run, 'unnamed')}", pattern.fullmatch(run)
        if match is None:
            yield name, f"its name does not match run: {run_map.run[0]}"
            continue
        place = first._replace(parts={**first.parts, **match.groupdict()})
        table = chart._replace(names=(*shared, *columns), columns=shared | columns)
        yield from _attempt(name, place, table, run_map, config)


def _attempt(name: str, place: Place, table: Table, run_map: RunMap, config: Fields) -> Iterator[Log | tuple[str, str]]:
    try:
        yield _log(name, place, table, run_map, config)
    except Unusable as error:
        yield name, str(error)


def _events(places: Sequence[Place], run_map: RunMap, root: Folder) -> Log:
    """Reads the event files of one run. If they are in several folders, tags start with the name of the subfolder."""
    common = posixpath.commonpath([untrusted.relative(place.folder, root) for place in places])
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
    series, order = {}, {}
    for tag, logged in tags.items():
        counts = _counts_beside(logged, run_map.counter(metrics.get(tag, "")).column, tags)
        rows, kept = _counted(logged, counts, np.zeros(len(counts), bool), metrics.get(tag, ""), log, run_map)
        if len(kept):
            series[tag], order[tag] = rows, rows.seconds
    ends = [series[tag].step.max() for tag in metrics if tag in series]
    alike = [rows for rows in series.values() if not ends or max(ends) / 2 <= rows.step.max() <= 2 * max(ends)]
    densest = max(alike, key=lambda rows: len(rows.step), default=log.rows)
    return log._replace(series=series, order=order, rows=densest)


def _counted(
    logged: Series, counts: np.ndarray, filled: np.ndarray, metric: str, log: Log, run_map: RunMap
) -> tuple[Series, np.ndarray]:
    """Returns the rows of a metric that count, with their steps, and their indices int[n].

    NaN before a number means that the metric was not logged. So does NaN after the last number in a row with other
    numbers, unless there is no such NaN before, and the next evaluation was due by the steps between the last two.

    Args:
      logged: rows. Their steps are ignored.
      counts: float64[n], the counter of each row, or NaN.
      filled: bool[n], whether the rows have other numbers.
      metric: name of the metric, or an empty string.
      log: the log, for lookups.
      run_map: the map.
    """
    rows = np.flatnonzero(np.isfinite(counts))
    step, is_number = counters.steps(counts[rows], metric, log, run_map), ~np.isnan(logged.value[rows])
    numbers = np.flatnonzero(is_number)
    if len(numbers):
        last = step[numbers[-1]]
        interval = last - (step[numbers[-2]] if len(numbers) > 1 else 0)
        filled = filled[rows]
        has_gaps = (filled & ~is_number)[: numbers[-1]].any()
        evaluated = ~filled | ((step - last >= interval) & ~has_gaps)
        evaluated[: numbers[-1]] = False
        step, rows = step[is_number | evaluated], rows[is_number | evaluated]
    return logged.where(rows)._replace(step=step), rows


def _counts_beside(series: Series, counter: str, tags: Mapping[str, Series]) -> np.ndarray:
    """Returns the counter of each event, float64[n]: its step, or the scalar that was logged at the same step."""
    if counter == "step":
        return series.step.astype(np.float64)
    if counter not in tags:
        names = ", ".join(brief(tag)[1:-1] for tag in [*tags][:8])
        raise Unusable(f"has no scalar {brief(counter)[1:-1]} with the step. It has {names}")
    values = dict(zip(tags[counter].step.tolist(), tags[counter].value.tolist(), strict=True))
    return np.array([values.get(step, np.nan) for step in series.step.tolist()])


def column_names(place: Place, format: str, root: Folder) -> list[str]:
    """Returns the names of the columns of a file, or an empty list if it cannot be read."""
    try:
        data = untrusted.read_bytes(place.folder / place.name, root, MOST_BYTES)
        return list(_table(_without_cut_line(data, format, place.name), format, place.name, set()).names)
    except (Unusable, bounds.TooLarge):
        return []


def _table(data: bytes, format: str, name: str, needed: Collection[str] | None) -> Table:
    """Returns a file with one row per logged step."""
    if format == "parquet":
        return tables.of_parquet(data, needed)
    if _is_csv(format, name):
        return tables.of_csv(data, needed)
    return tables.of_json_lines(data, needed, flat=format == RAY)


def _is_csv(format: str, name: str) -> bool:
    return format in ("csv", CHART) or (format in (WANDB, RAY) and name.endswith(".csv"))


def _without_cut_line(data: bytes, format: str, name: str) -> bytes:
    """Returns a text. Omits the last line if the run may have been killed while writing it."""
    lines, newline, last = data.rpartition(b"\n")
    if format == "parquet" or not last.strip():
        return data
    if not _is_csv(format, name):
        try:
            untrusted.json_object(last, tables.LENIENT)
        except Unusable:
            return lines + newline
        return data
    return lines + newline  # a number such as 0.123 could be cut to 0.1


def _log(name: str, place: Place, table: Table, run_map: RunMap, config: Fields) -> Log:
    """Returns the log of one run from its rows."""
    referred = [field.name for _, field in fields(run_map) if isinstance(field, Reference) and field.origin == "column"]
    constants = {column: _constant(column, table.columns[column]) for column in referred if column in table.columns}
    log = Log(name, place, constants, config, table.names)
    metrics = {metric.tag: metric.name for metric in run_map.metrics}
    columns = {metric: _counter(metric, table.names, run_map) for metric in ("", *metrics.values())}
    if columns[""] not in table.columns and metrics and all(metric in run_map.step for metric in metrics.values()):
        del columns[""]
    counts = {metric: _counts(column, table) for metric, column in columns.items()}
    seconds = _seconds(table, run_map)
    places = seconds if np.isfinite(seconds).all() else np.arange(len(seconds), dtype=np.float64)
    series, order = {}, {}
    for tag in table.columns:
        metric = metrics.get(tag, "")
        if metric in counts and tag != columns[metric]:
            values, logged = table.numbers(tag, strict=bool(metric))
            counter = np.where(logged, counts[metric], np.nan)
            rows, kept = _counted(Series(counter, seconds, values), counter, table.filled, metric, log, run_map)
            if len(kept):
                series[tag], order[tag] = rows, places[kept]
    log = log._replace(series=series, order=order)
    if "" not in counts:
        return log
    rows, kept = _counted(
        Series(counts[""], seconds, np.zeros(len(seconds))), counts[""], table.filled, "", log, run_map
    )
    order[""] = places[kept]
    return log._replace(rows=rows)


def _counter(metric: str, names: Sequence[str], run_map: RunMap) -> str:
    """Returns the column with a metric's counter. W&B's ``_step`` counts calls of the logger."""
    if run_map.format == WANDB and not {metric, ""} & {*run_map.step} and not run_map.examples_seen:
        return next((name for name in names if name.endswith("global_step")), STEPS[WANDB])
    return run_map.counter(metric).column


def _counts(column: str, table: Table) -> np.ndarray:
    """Returns a counter, float64[n], with NaN for rows without a step. Raises Unusable if there are no others."""
    if column not in table.columns:
        known = ", ".join(name if name.isprintable() else ascii(name) for name in table.names[:8]) or "none"
        raise Unusable(f"has no column {column} with the step. Its columns: {known[:200]}")
    counts, _ = table.numbers(column, strict=True)
    if not np.isfinite(counts).any():
        raise Unusable("has no row with a step")
    return counts


def _seconds(table: Table, run_map: RunMap) -> np.ndarray:
    """Returns the time of each row in seconds, float64[n], or NaN if it was not logged."""
    column = run_map.seconds.removesuffix(MILLISECONDS)
    if column not in table.columns:
        return np.full(len(table.line), np.nan)
    return table.numbers(column)[0] / (1000 if column != run_map.seconds else 1)


def _constant(name: str, column: Column) -> Any:
    """Returns the single value of a column, if it has values. Raises Unusable if there are several."""
    values = column.unique().drop_null().to_pylist() if isinstance(column, pa.Array) else column
    distinct = dict.fromkeys(value for value in values if isinstance(value, str | int | float))
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
