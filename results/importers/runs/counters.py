"""Counters: converts the counters of a log, such as epochs or examples, to training steps, and compares them."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from results.bad_input import BadInput
from results.importers.runs.log import Log, integer, product
from results.importers.runs.run_map import EPOCHS, PER_BATCH, STEPS, WANDB, Field, Metric, RunMap
from results.importers.untrusted import Unusable

LAST_STEP = 2**31 - 1
MOST_APART = 2.0  # ratio of two counters of steps, above which one of them counts something else
UNIX_TIME = 10**9  # seconds since 1970; larger steps may be times
KINDS = {
    "step steps global_step iteration iterations iter iters update updates num_updates train_step": "iterations",
    " ".join(EPOCHS): "epochs",
    "samples examples consumed_samples samples_seen examples_seen num_samples consumed_train_samples": "examples",
    "tokens consumed_tokens tokens_seen num_tokens total_tokens num_input_tokens_seen": "tokens",
    "time seconds wall_time timestamp elapsed elapsed_time runtime time_total_s time_this_iter_s": "times",
}
_EXAMPLES = re.compile("sample|token|example")
_KIND_OF = {name: kind for names, kind in KINDS.items() for name in names.split()}


class Track(NamedTuple):
    """A counter in a log.

    Attributes:
      name: its tag, its column or another name for display.
      step: int64[n] or float64[n], values.
      order: float64[n], places of the values in the log, sorted.
    """

    name: str
    step: np.ndarray
    order: np.ndarray

    def at(self, moment: float) -> tuple[float, float]:
        """Returns the range of the counter at a place between its first and its last row."""
        before, after = np.searchsorted(self.order, moment, "right") - 1, np.searchsorted(self.order, moment, "left")
        values = float(self.step[before]), float(self.step[after])
        return min(values), max(values)


class Disagreement(NamedTuple):
    """Two counters that cannot both be training steps.

    Attributes:
      metric: name of the metric.
      tag, end: the metric's tag, and its step at the last place that both have.
      other, other_end: name and value of the other counter.
      ratio: steps per count of the metric's counter, if the other counter is right.
      key: text of the map that settles it.
    """

    metric: str
    tag: str
    end: float
    other: str
    other_end: float
    ratio: float
    key: str

    def __str__(self) -> str:
        return f"{self.tag} ends at step {self.end:,.0f}, {self.other} at {self.other_end:,.0f}: state {self.key}"


def _track(name: str, step: np.ndarray, order: np.ndarray) -> Track:
    chosen = np.argsort(order, kind="stable")
    return Track(name, step[chosen], order[chosen])


def _together(first: Track, second: Track) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the ranges of two counters at the last place in the log that both have.

    If a log has one counter before the other, and does not continue it, it is not in the order of training. Then the
    ends are returned.
    """
    moment = min(first.order[-1], second.order[-1])
    if moment >= max(first.order[0], second.order[0]) and first.order[0] < first.order[-1]:
        return first.at(moment), second.at(moment)
    before, after = sorted((first, second), key=lambda track: track.order[-1])
    if before.step[-1] <= after.step[0] and before.order[-1] < after.order[0]:
        return (0.0, math.inf), (0.0, math.inf)
    (end, other_end) = float(first.step[-1]), float(second.step[-1])
    return (end, end), (other_end, other_end)


def kind(name: str) -> str:
    """Returns the kind of counter that a column is by its name, one of the values of ``KINDS``, or an empty string."""
    return _KIND_OF.get(name.rpartition("/")[2].lower().strip("_ ").replace(" ", "_"), "")


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
    if np.any((taken < 0) | (taken > LAST_STEP) | (taken != np.floor(taken))):
        raise Unusable(f"has a {counter.column} that is not an integer from 0 to {LAST_STEP}")
    return taken.astype(np.int64)


def _epoch_length(factors: Sequence[Field], log: Log, run_map: RunMap) -> int:
    """Returns the steps per epoch. Examples per epoch are divided by the batch size."""
    if factors[-1] == PER_BATCH:
        examples = product("steps_per_epoch", factors[:-1], log)
        return math.ceil(examples / product("batch_size", run_map.batch_size, log))
    return product("steps_per_epoch", factors, log)


def check(log: Log, run_map: RunMap) -> None:
    """Raises BadInput if the counters of a log disagree about the steps of a metric by more than a factor of two."""
    disagreement = find_disagreement(log, run_map)
    if disagreement is not None:
        raise BadInput(f"{log.name}: {disagreement}")


def find_disagreement(log: Log, run_map: RunMap) -> Disagreement | None:
    """Returns the first metric whose steps disagree with those of another metric, tag or counter, or None.

    Steps are compared at the last place in the log that both have, so a metric that was logged for a short time agrees.
    """
    for metric in run_map.metrics:
        if metric.tag not in log.series:
            continue
        rows = log.series[metric.tag]
        track = _track(metric.tag, rows.step, log.order[metric.tag])
        last, time = float(rows.step[-1]), float(rows.seconds[-1])
        if last > UNIX_TIME and abs(last - time) < 0.01 * time:
            return Disagreement(metric.name, metric.tag, last, "the time", time, 1.0, "step: COLUMN with the step")
        for other, key in _others(metric, track, log, run_map):
            (low, high), (other_low, other_high) = _together(track, other)
            if other_low > MOST_APART * max(high, 1.0):
                end, other_end = high, other_low
            elif key and low > MOST_APART * max(other_high, 1.0):
                end, other_end = low, other_high
            else:
                continue
            from_zero = int(track.step.min() == 0)
            ratio = float(f"{other_end / max(end + from_zero, 1.0):.4g}")
            key = key or _steps_per_epoch(metric.name, ratio, from_zero, run_map)
            return Disagreement(metric.name, metric.tag, end, other.name, other_end, ratio, key)
        if _equals_epochs(metric, track, log, run_map):
            key = f"steps_per_epoch: {{{metric.name}: N}}, with 1 if an epoch is one step"
            return Disagreement(metric.name, metric.tag, last, "its epoch", last, math.nan, key)
    return None


def _others(metric: Metric, track: Track, log: Log, run_map: RunMap) -> Iterator[tuple[Track, str]]:
    """Yields the counters to compare with a metric, and the text of the map that settles it if it is not per epoch.

    The metric may be ahead of a counter without such a text, which may count something else.
    """
    imported = {other.tag for other in run_map.metrics}
    for tag in imported & log.series.keys() - {metric.tag}:
        yield _track(tag, log.series[tag].step, log.order[tag]), ""
    if metric.name in run_map.step:
        return
    batch_size = product("batch_size", run_map.batch_size, log)
    apart = ~np.isin(log.order.get("", np.zeros(0)), track.order)
    if apart.any():
        yield _track("other rows", log.rows.step[apart], log.order[""][apart]), ""
    for tag in log.series.keys() - imported:
        rows = log.series[tag]
        counted = _track(tag, rows.value, log.order[tag])
        grows = rows.value[0] < rows.value[-1] == rows.value.max()
        if kind(tag) in ("examples", "tokens"):
            per_step = _per_step(kind(tag), batch_size, log, run_map)
            if per_step and grows and not run_map.examples_seen:
                yield counted._replace(step=rows.value / per_step), f"examples_seen: {tag}, or the global batch_size"
        elif kind(tag) == "iterations":
            if grows and _is_telling(tag, run_map):
                yield counted, f"step: {tag}" if tag.endswith("global_step") else ""
        elif not kind(tag) and "" not in log.order and len(rows.step) > 1 and not _EXAMPLES.search(tag.lower()):
            ahead = rows.step[-1] / max(track.step[-1], 1)
            if abs(ahead / batch_size - 1) > 0.01:
                yield counted._replace(step=rows.step), ""


def _is_telling(tag: str, run_map: RunMap) -> bool:
    """Returns whether a counter of iterations says something about the step that the map states."""
    if tag == STEPS[WANDB] or run_map.counter().column.endswith("global_step"):
        return False
    return tag.endswith("global_step") or not ("" in run_map.step or run_map.examples_seen)


def _per_step(unit: str, batch_size: int, log: Log, run_map: RunMap) -> float:
    """Returns the examples or tokens per step, or 0 if the map does not determine them."""
    length = integer("sequence_length", run_map.sequence_length, log, 1)
    if run_map.unit == "tokens":
        return batch_size if unit == "tokens" else batch_size / (length or 1)
    return batch_size if unit == "examples" else batch_size * (length or 0)


def _equals_epochs(metric: Metric, track: Track, log: Log, run_map: RunMap) -> bool:
    """Returns whether a metric ends at about the same step as an epoch."""
    if metric.name in run_map.step or run_map.factors(metric.name) or run_map.examples_seen:
        return False
    for tag in log.series:
        if kind(tag) == "epochs":
            epochs = _track(tag, log.series[tag].value, log.order[tag])
            (_, step), (epoch, _) = _together(track, epochs)
            if epoch >= 3 and step <= epoch + 1:
                return True
    return False


def _steps_per_epoch(metric: str, ratio: float, from_zero: int, run_map: RunMap) -> str:
    if run_map.factors(metric):
        return f"a value of steps_per_epoch for {metric} that is {ratio:g} times as large"
    first = (
        f" and step: {{{metric}: {run_map.counter(metric).column} + 1}}, because it starts at 0" if from_zero else ""
    )
    return f"steps_per_epoch: {{{metric}: {ratio:g}}} or EXAMPLES / batch_size{first}, or step by metric"
