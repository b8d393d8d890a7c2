"""Logs: the content of a run's files, in any format. All input is untrusted."""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from results import bounds
from results.aliases import Fields, Json, Strings
from results.bad_input import first_line
from results.durable import Folder
from results.importers import untrusted
from results.importers.runs import counters, mlflow_runs, plain_yaml, series, tables, tensorboard, text_lines
from results.importers.runs.log import Log
from results.importers.runs.places import Place, compile_pattern
from results.importers.runs.run_map import (
    CHART,
    MILLISECONDS,
    MLFLOW,
    RAY,
    STEPS,
    TAGGED,
    TENSORBOARD,
    TEXT,
    TRAINER,
    WANDB,
    RunMap,
)
from results.importers.runs.series import Curves, Series
from results.importers.runs.tables import Needed, Table
from results.importers.untrusted import Unusable, brief

GZIP = b"\x1f\x8b"  # first bytes of a compressed file


def read(places: Sequence[Place], run_map: RunMap, root: Folder) -> Iterator[Log]:
    """Yields the runs in some files. An unusable file or run has only a fault.

    Args:
      places: files of one run, or one file with several runs.
      run_map: the map.
      root: the imported folder.
    """
    first = places[0]
    try:
        if run_map.format == TENSORBOARD:
            yield _of_events(places, run_map, root)
        elif run_map.format == MLFLOW:
            for log, tags in mlflow_runs.read(first, root):
                config = {**log.config, **_config(first, run_map, root)}
                yield _with_steps(log._replace(config=config), tags, run_map)
        else:
            yield from _of_file(first, run_map, root)
    except (Unusable, bounds.TooLarge) as error:
        yield Log(first.path, first, fault=str(error))


def _of_file(first: Place, run_map: RunMap, root: Folder) -> Iterator[Log]:
    """Yields the runs in a file with one row per logged step."""
    data = first.read(root)
    if data.startswith(GZIP):
        raise Unusable("is compressed. Decompress it first.")
    config = _config(first, run_map, root)
    text = _without_cut_line(data, run_map.format, first.name)
    table = _table(text, run_map.format, first.name, _needed(run_map), run_map.line)
    is_read = False
    for run, rows in _runs(table, run_map):
        name = first.path if run is None else f"{first.path}:{untrusted.word(run, 'unnamed')}"
        try:
            yield _of_table(Log(name, _within_chart(first, run, run_map), config=config), rows, run_map)
            is_read = True
        except Unusable as error:
            yield Log(name, first, fault=str(error))
    if is_read and len(text) < len(data):
        yield Log(first.path, first, fault="its last line has no newline and was left out")


def _needed(run_map: RunMap) -> set[str] | None:
    """Returns the columns that a map needs, or None for all: for a map without metrics, and for charts."""
    if not run_map.metrics or run_map.format == CHART:
        return None
    names = run_map.names_by_tag()
    counted = {run_map.counter(metric).column for metric in ("", *names.values())}
    return {*counted, *names, *run_map.references("column"), run_map.seconds.removesuffix(MILLISECONDS)}


def _runs(table: Table, run_map: RunMap) -> Iterator[tuple[str | None, Table]]:
    """Yields the runs in a table, with their names if there are several."""
    names = run_map.run_columns()
    if run_map.format == CHART:
        yield from _runs_of_chart(table)
    elif names:
        for name in names:
            if name not in table.columns:
                raise Unusable(f"has no column {brief(name)}, which the key run names")
        yield from table.groups(names)
    else:
        yield None, table


def _runs_of_chart(chart: Table) -> Iterator[tuple[str, Table]]:
    """Yields the runs in a chart that W&B exported. It has the step, and columns such as ``RUN - val/loss``."""
    shared = {name: column for name, column in chart.columns.items() if " - " not in name}
    runs: dict[str, dict[str, np.ndarray]] = {}
    for name, column in chart.columns.items():
        run, _, tag = name.rpartition(" - ")
        if name not in shared and not tag.endswith(("__MIN", "__MAX")):
            runs.setdefault(run, dict(shared))[tag] = column
    for run, columns in sorted(runs.items()):
        yield run, chart._replace(names=tuple(columns), columns=columns)


def _within_chart(place: Place, run: str | None, run_map: RunMap) -> Place:
    """Returns a place with the named parts of a run's name in a chart. Other places stay as they are."""
    if run is None or run_map.format != CHART:
        return place
    match = compile_pattern(str(run_map.run[0])).fullmatch(run)
    if match is None:
        raise Unusable(f"its name does not match run: {run_map.run[0]}")
    return place._replace(parts={**place.parts, **match.groupdict()})


def _of_events(places: Sequence[Place], run_map: RunMap, root: Folder) -> Log:
    """Reads the event files of one run. If they are in several folders, tags start with the name of the subfolder."""
    common = posixpath.commonpath([untrusted.relative(place.folder, root) for place in places])
    parts: dict[str, list[Series]] = {}
    config: Json = {}
    for place in places:
        subfolder = untrusted.relative(place.folder, root).removeprefix(common).strip("/")
        tags, hyperparameters = tensorboard.read(place.read(root))
        config |= hyperparameters
        for tag, rows in tags.items():
            parts.setdefault(f"{subfolder}/{tag}" if subfolder else tag, []).append(rows)
    if not parts:
        raise Unusable("has no scalars")
    joined = {tag: series.joined(rows) for tag, rows in parts.items()}
    # Files of one folder are attempts of the same run. The time of logging orders their rows.
    ordered = {tag: rows.in_order() for tag, rows in joined.items()}
    config |= _config(places[0], run_map, root)
    return _with_steps(Log(common or places[0].path, places[0], {}, config, tuple(ordered)), ordered, run_map)


def _with_steps(log: Log, tags: Curves, run_map: RunMap, filled: np.ndarray | None = None) -> Log:
    """Returns a log with the rows of tags or columns that have a step.

    Args:
      log: the log.
      tags: rows by tag or column. Their steps are those of events, or numbers of rows. The entry "" is for all rows.
      run_map: the map.
      filled: bool[n], whether each row of a table has a number that is no counter. Events have no such array.
    """
    metrics, series = run_map.names_by_tag(), {}
    columns = {metric: _counter(metric, log, run_map) for metric in ("", *metrics.values())}
    if filled is not None and columns[""] not in tags and metrics and {*metrics.values()} <= run_map.step.keys():
        del columns[""]
    for tag, rows in tags.items():
        metric = metrics.get(tag, "")
        if metric in columns and tag != columns[metric]:
            beside = np.zeros(len(rows.step), bool) if filled is None else filled[rows.step.astype(np.int64)]
            counts = _counts(rows, columns[metric], tags, log, run_map)
            counted = _counted(rows._replace(step=counts), beside, metric, log, run_map)
            if len(counted.step):
                series[tag] = counted
    if filled is not None:
        return log._replace(rows=series.pop("", log.rows), series=series)
    ends = [series[tag].step.max() for tag in metrics if tag in series]
    alike = [rows for rows in series.values() if not ends or max(ends) / 2 <= rows.step.max() <= 2 * max(ends)]
    return log._replace(rows=max(alike, key=lambda rows: len(rows.step), default=log.rows), series=series)


def _counter(metric: str, log: Log, run_map: RunMap) -> str:
    """Returns the column with a metric's counter. W&B's ``_step`` counts calls of the logger."""
    if run_map.format == WANDB and not {metric, ""} & {*run_map.step} and not run_map.examples_seen:
        return next((name for name in log.names if name.endswith("global_step")), STEPS[WANDB])
    return run_map.counter(metric).column


def _counts(rows: Series, counter: str, tags: Curves, log: Log, run_map: RunMap) -> np.ndarray:
    """Returns the counter in the same events or rows, float64[n], or NaN. Raises Unusable if it is missing."""
    if counter == "step" and run_map.format in TAGGED:
        return rows.step
    if counter not in tags:
        if run_map.format in TAGGED:
            raise Unusable(f"has no scalar {brief(counter)[1:-1]} with the step. It has {log.first_names}")
        raise Unusable(f"has no column {counter} with the step. Its columns: {log.first_names or 'none'}")
    ordered = tags[counter].where(np.argsort(tags[counter].step, kind="stable"))
    if not np.isfinite(ordered.value).any():
        raise Unusable("has no row with a step")
    index = np.searchsorted(ordered.step, rows.step, "right") - 1
    return np.where(ordered.step[index] == rows.step, ordered.value[index], np.nan)


def _counted(rows: Series, filled: np.ndarray, metric: str, log: Log, run_map: RunMap) -> Series:
    """Returns the rows of a metric that count, with training steps.

    NaN before a number means that the metric was not logged. So does NaN after the last number in a row with other
    numbers, unless there is no such NaN before, and the next evaluation was due by the steps between the last two.

    Args:
      rows: rows whose steps are counters, float64[n], or NaN.
      filled: bool[n], whether the rows have other numbers.
      metric: name of the metric, or an empty string.
      log: the log, for lookups.
      run_map: the map.
    """
    has_step = np.isfinite(rows.step)
    rows, filled = rows.where(has_step), filled[has_step]
    step, is_number = counters.steps(rows.step, metric, log, run_map), ~np.isnan(rows.value)
    rows = rows._replace(step=step)
    numbers = np.flatnonzero(is_number)
    if not len(numbers):
        return rows
    last = numbers[-1]
    interval = step[last] - (step[numbers[-2]] if len(numbers) > 1 else 0)
    has_gaps = (filled & ~is_number)[:last].any()
    evaluated = ~filled | ((step - step[last] >= interval) & ~has_gaps)
    evaluated[:last] = False
    return rows.where(is_number | evaluated)


def column_names(place: Place, format: str, root: Folder) -> Strings:
    """Returns the names of the columns of a file. Empty if it cannot be read."""
    try:
        return _table(_without_cut_line(place.read(root), format, place.name), format, place.name, ()).names
    except (Unusable, bounds.TooLarge):
        return ()


def _table(data: bytes, format: str, name: str, needed: Needed, line: Strings = ()) -> Table:
    """Returns a file with one row per logged step."""
    if format == "parquet":
        return tables.of_parquet(data, needed)
    if format == TRAINER:
        return tables.of_trainer(data, needed)
    if format == TEXT:
        rows, skipped = text_lines.rows(data, line)
        if not rows:
            raise Unusable(f"has no line like {brief(line[0])}")
        notes = (f"{skipped:,} lines match no pattern",) if skipped else ()
        return tables.of_rows(rows, needed)._replace(notes=notes)
    if _is_csv(format, name):
        return tables.of_csv(data, needed)
    return tables.of_json_lines(data, needed, flat=format == RAY)


def _is_csv(format: str, name: str) -> bool:
    return format in ("csv", CHART) or (format in (WANDB, RAY) and name.endswith(".csv"))


def _without_cut_line(data: bytes, format: str, name: str) -> bytes:
    """Returns a text. Omits the last line if the run may have been killed while writing it."""
    lines, newline, last = data.rpartition(b"\n")
    if format in ("parquet", TRAINER, TEXT) or not last.strip():
        return data
    if not _is_csv(format, name):
        try:
            untrusted.json_object(last, tables.LENIENT)
            return data
        except Unusable:
            pass
    return lines + newline  # a number such as 0.123 could be cut to 0.1


def _of_table(log: Log, table: Table, run_map: RunMap) -> Log:
    """Returns the log of one run, with its rows."""
    columns, metrics = table.columns, run_map.names_by_tag()
    constants = {name: _constant(name, columns[name]) for name in run_map.references("column") if name in columns}
    log = log._replace(columns=constants, config={**table.entries, **log.config}, names=table.names, notes=table.notes)
    counters_of_rows = {_counter(metric, log, run_map) for metric in ("", *metrics.values())}
    number = np.arange(len(table.line), dtype=np.float64)
    seconds, column = np.full(len(number), np.nan), run_map.seconds.removesuffix(MILLISECONDS)
    if run_map.seconds and column in columns:  # an index that pandas wrote has no name
        seconds = table.numbers(column)[0] / (1000 if column != run_map.seconds else 1)
    order = seconds if np.isfinite(seconds).all() else number
    rows = Series(number, seconds, np.zeros(len(number)), order)
    tags = {}
    for name in columns:
        values, is_logged = table.numbers(name, strict=name in metrics or name in counters_of_rows)
        tags[name] = rows._replace(value=values).where(is_logged)
    return _with_steps(log, {**tags, "": rows}, run_map, table.filled)


def _constant(name: str, column: np.ndarray) -> Any:
    """Returns the single value of a column, if it has values. Raises Unusable if there are several."""
    values = (column if column.dtype == object else np.unique(column)).tolist()
    distinct = list(dict.fromkeys(value for value in values if isinstance(value, str | int | float)))
    if len(distinct) > 1:
        first, second = map(brief, distinct[:2])
        raise Unusable(f"has several values in column {brief(name)}, such as {first} and {second}")
    return next(iter(distinct), None)


def _config(place: Place, run_map: RunMap, root: Folder) -> Fields:
    """Returns the content of the run's config file, from the run's folder or the nearest folder above."""
    if not run_map.config:
        return {}
    for folder in place.folders(root):
        try:
            return parse_config(untrusted.read_bytes(folder / run_map.config, root, untrusted.JSON_BYTES))
        except Unusable as error:
            if "No such file" not in str(error):
                raise Unusable(f"{run_map.config} {error}") from None
    raise Unusable(f"has no {run_map.config} in its folder or above")


def parse_config(data: bytes) -> Fields:
    """Returns the entries of a JSON or YAML file. In W&B's files, each entry has its value under the key ``value``."""
    try:
        content = plain_yaml.load(data)
    except ValueError as error:
        raise Unusable(f"is not JSON or YAML ({first_line(error)[:80]})") from None
    if not isinstance(content, dict):
        raise Unusable("has no keys")
    entries = {str(name): setting for name, setting in content.items() if name not in ("wandb_version", "_wandb")}
    if entries and all(isinstance(setting, dict) and "value" in setting for setting in entries.values()):
        return {name: setting["value"] for name, setting in entries.items()}
    return entries
