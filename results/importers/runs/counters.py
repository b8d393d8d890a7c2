"""Counters: converts the counters of a log, such as epochs or examples, to training steps, and compares them."""

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from results.bad_input import BadInput
from results.importers import csv_text
from results.importers.runs.log import Log, integer, product
from results.importers.runs.run_map import PER_BATCH, STEPS, TAGGED, WANDB, Field, Metric, RunMap
from results.importers.runs.series import Series
from results.importers.runs.vocabulary import kind

MOST_APART = 2.0  # ratio of two counters of steps, above which one of them counts something else
_EXAMPLES = re.compile("sample|token|example")


def _at(counter: Series, moment: float) -> tuple[float, float]:
    """Returns the range of a counter at a place in the log. Before its first row, it is at least 0."""
    before = int(np.searchsorted(counter.order, moment, "right")) - 1
    after = int(np.searchsorted(counter.order, moment, "left"))
    values = counter.step[before] if before >= 0 else 0, counter.step[min(after, len(counter.step) - 1)]
    return float(min(values)), float(max(values))


def _together(first: Series, second: Series) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the ranges of two counters at the last place in the log that both have.

    If a log has one counter before the other, and they do not continue each other, its rows are not in the order of
    training. Then the ends are returned.
    """
    earlier, later = sorted((first, second), key=lambda counter: float(counter.order[-1]))
    moment = float(earlier.order[-1])
    if moment <= later.order[0] and earlier.step[-1] > later.step[0]:
        moment = math.inf
    return _at(first, moment), _at(second, moment)


def steps(counts: np.ndarray, metric: str, log: Log, run_map: RunMap) -> np.ndarray:
    """Returns the training steps of rows.

    Args:
      counts: float64[n], the counter of the metric.
      metric: name of the metric, or an empty string for other columns.
      log: the log, from which steps per epoch and the batch size are looked up.
      run_map: the map.

    Returns:
      int64[n], steps.

    Raises:
      Unusable: a step is not an integer in range.
    """
    counter, factors = run_map.counter(metric), run_map.factors(metric)
    taken = counts + counter.plus
    if factors:
        taken = np.rint(taken * _epoch_length(factors, log, run_map))
    elif counter.column == run_map.examples_seen:
        taken = np.ceil(taken / product("batch_size", run_map.batch_size, log))
    return csv_text.as_steps(taken, counter.column)


def _epoch_length(factors: Sequence[Field], log: Log, run_map: RunMap) -> int:
    """Returns the steps per epoch. Examples per epoch are divided by the batch size."""
    if factors[-1] == PER_BATCH:
        examples = product("steps_per_epoch", factors[:-1], log)
        return math.ceil(examples / product("batch_size", run_map.batch_size, log))
    return product("steps_per_epoch", factors, log)


def check(log: Log, run_map: RunMap) -> None:
    """Raises BadInput if the steps of a metric and those of another metric, tag or counter differ by a factor of two.

    Steps are compared at the last place in the log that both have, so a metric that was logged for a short time agrees.
    """
    for metric in run_map.metrics:
        if metric.tag not in log.series or metric.name in run_map.step:
            continue
        series = log.series[metric.tag].in_order()
        for name, counter, key, both in _others(metric, series, log, run_map):
            (low, high), (other_low, other_high) = _together(series, counter.in_order())
            is_ahead = both and low > MOST_APART * max(other_high, 1.0)
            if is_ahead or other_low > MOST_APART * max(high, 1.0):
                end, other_end = (low, other_high) if is_ahead else (high, other_low)
                from_zero = int(series.step.min() == 0)
                ratio = float(f"{other_end / max(end + from_zero, 1.0):.4g}")
                key = key or _steps_per_epoch(metric.name, ratio, from_zero, run_map)
                raise BadInput(
                    f"{log.name}: {metric.tag} ends at step {end:,.0f}, {name} at {other_end:,.0f}: state {key}"
                )


def _others(metric: Metric, series: Series, log: Log, run_map: RunMap) -> Iterator[tuple[str, Series, str, bool]]:
    """Yields the counters to compare with a metric, each with a name, the text of the map that
    settles it, and whether both must agree.

    Otherwise, the metric may be ahead of the counter, which may count something else. Without a text, it is per epoch.
    """
    imported, is_table = run_map.names_by_tag(), run_map.format not in TAGGED
    batch_size = product("batch_size", run_map.batch_size, log)
    telling = not run_map.counter().column.endswith("global_step")
    stated = "" in run_map.step or bool(run_map.examples_seen)
    has_no_metric = ~np.isin(log.rows.order, series.order)
    if is_table and has_no_metric.any():
        yield "other rows", log.rows.where(has_no_metric), "", False
    for tag, rows in log.series.items():
        unit, is_global = kind(tag), tag.endswith("global_step")
        if tag in imported:
            if tag != metric.tag:
                yield tag, rows, "", False
        elif not unit and not is_table and len(rows.step) > 1 and not _EXAMPLES.search(tag.lower()):
            if abs(rows.step[-1] / max(series.step[-1], 1) / batch_size - 1) > 0.01:
                yield tag, rows, "", False
        elif not rows.value[0] < rows.value[-1] == rows.value.max():
            continue  # does not count
        elif unit == "epochs" and not run_map.factors(metric.name) and not run_map.examples_seen:
            key = f"steps_per_epoch: {{{metric.name}: N}}, with 1 if an epoch is one step"
            yield f"3 x {tag}", rows._replace(step=3 * rows.value), key, False
        elif unit in ("examples", "tokens") and not run_map.examples_seen:
            per_step = _per_step(unit, batch_size, log, run_map)
            if per_step:
                key = f"examples_seen: {tag}, or the global batch_size"
                yield f"{tag} / batch size", rows._replace(step=rows.value / per_step), key, True
        elif unit == "steps" and telling and tag != STEPS[WANDB] and (is_global or not stated):
            yield tag, rows._replace(step=rows.value), f"step: {tag}" if is_global else "", is_global


def _per_step(unit: str, batch_size: int, log: Log, run_map: RunMap) -> float:
    """Returns the examples or tokens per step, or 0 if the map does not determine them."""
    length = integer("sequence_length", run_map.sequence_length, log, 1)
    if run_map.unit == "tokens":
        return batch_size if unit == "tokens" else batch_size / (length or 1)
    return batch_size if unit == "examples" else batch_size * (length or 0)


def _steps_per_epoch(metric: str, ratio: float, from_zero: int, run_map: RunMap) -> str:
    if run_map.factors(metric):
        return f"a value of steps_per_epoch for {metric} that is {ratio:g} times as large"
    column = run_map.counter(metric).column
    first = f" and step: {{{metric}: {column} + 1}}, because it starts at 0" if from_zero else ""
    return f"steps_per_epoch: {{{metric}: {ratio:g}}} or EXAMPLES / batch_size{first}, or step by metric"
