"""Converts logged runs to trials of recorded studies, as specified by a map."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from results.aliases import Fields, Json, Row, Strings
from results.bad_input import BadInput, number_of
from results.grouping import grouped
from results.importers import recording, untrusted
from results.importers.recording import Content
from results.importers.runs import counters, series as logged
from results.importers.runs.log import Log, integer, look_up, number, product, word
from results.importers.runs.run_map import Metric, RunMap
from results.importers.runs.series import NO_ROWS, Curves, Series
from results.importers.untrusted import Unusable
from results.plans.recorded import RUNS, Recorded
from results.plans.search_space import SearchSpace
from results.plans.study import SHARES
from results.plans.trial_request import TrialRequest

Key: TypeAlias = tuple[tuple[str, float], ...]  # names and values
RISE = 2  # ratio of the steps at the largest batch size to those at the smallest, above which they may be epochs
DETAILS_RAW = "raw"  # key in details: metrics were not averaged


class Run(NamedTuple):
    """A run, as described by its log and the map.

    Attributes:
      name: name for display.
      study: its study, without trials.
      seed: seed of the run, if given.
      metaparameters: values that were tuned, by name.
      steps: the last logged step.
      metrics: rows of each metric, as errors.
      logged: all logged rows of each metric, before restarts are removed and rows are averaged.
      left_out: number of rows left out, by reason.
      status, reason: how the run ended.
      seconds: seconds per step, if known.
      device_kind, device_count: devices of the run, if given.
      notes: notes for the user.
    """

    name: str
    study: Recorded
    seed: int | None
    metaparameters: Mapping[str, float]
    steps: int
    metrics: Curves
    logged: Curves
    left_out: Counter[str]
    status: str
    reason: str | None
    seconds: float | None
    device_kind: str | None
    device_count: int | None
    notes: Strings

    @property
    def rows(self) -> int:
        """The number of logged rows of all metrics."""
        return sum(len(curve.step) for curve in self.logged.values())

    @property
    def batch_size(self) -> int:
        """The global batch size."""
        return self.study.batch_size

    @property
    def ending(self) -> str:
        """The status and the reason, for display."""
        return f"{self.status}({self.reason})" if self.reason else self.status

    @property
    def key(self) -> Key:
        """The values that identify a trial if runs are imported again."""
        return key_of({**self.metaparameters, "seed": self.seed})


def key_of(values: Mapping[str, float | None]) -> Key:
    """Returns a seed and metaparameters, sorted by name. Those that are not stated are left out."""
    return tuple(sorted((name, value) for name, value in values.items() if value is not None))


def of_log(log: Log, run_map: RunMap, *, raw: bool = False) -> Run:
    """Returns the run described by a log. Raises Unusable if a value is missing or wrong.

    Args:
      log: the log.
      run_map: the map.
      raw: whether to keep all logged rows of a metric. By default, dense metrics are averaged.
    """
    counters.check(log, run_map)
    series = dict(logged.oldest_first({**log.series, "": log.rows})) if log.series else {"": log.rows}
    log = log._replace(rows=series.pop(""), series=series)
    errors = {metric.name: _as_error(series[metric.tag], metric) for metric in run_map.metrics if metric.tag in series}
    if not errors:
        raise Unusable(f"has no {' or '.join(run_map.names_by_tag())}. It has {log.first_names or 'no columns'}")
    metrics, left_out, smooth = {}, Counter[str](), []
    for name, rows in errors.items():
        metrics[name], dropped = logged.without_restarts(rows)
        left_out.update(dropped)
        if not raw:
            metrics[name], was_averaged = logged.averaged(metrics[name])
            if was_averaged:
                smooth.append(name)
    notes = [
        *log.notes,
        *(f"{number_of(count, 'row')} {reason} left out" for reason, count in left_out.items() if count),
    ]
    if smooth:
        notes.append(f"{' and '.join(smooth)} averaged over windows")
    rows = log.rows if len(log.rows.step) else max(metrics.values(), key=lambda curve: len(curve.step))
    steps = int(max(logged.without_restarts(curve)[0].step[-1] for curve in (rows, *metrics.values())))
    status, reason = _ending(log, run_map, metrics, rows, steps)
    if reason == "lost":
        notes.append(f"ended before step {integer('budget', run_map.budget, log, 1)}")
    seconds, includes_evaluations = _seconds(log, run_map, rows)
    if includes_evaluations:
        notes.append("seconds per step include evaluations")
    return Run(
        log.name,
        _study(log, run_map, raw=raw),
        integer("seed", run_map.seed, log, 0, 2**32 - 1),
        {name: number(name, field, log) for name, field in run_map.metaparameters.items()},
        steps,
        metrics,
        errors,
        left_out,
        status,
        reason,
        seconds,
        None if run_map.device_kind is None else untrusted.text(str(look_up(run_map.device_kind, log))),
        product("device_count", run_map.device_count, log) if run_map.device_count else None,
        tuple(notes),
    )


def _as_error(rows: Series, metric: Metric) -> Series:
    """Converts logged values to an error. Raises Unusable for impossible values."""
    errors = rows.value / 100 if metric.percent else rows.value
    errors = recording.complement(errors) if metric.complement else errors
    is_share = metric.name.partition("_")[2] in SHARES
    wrong = np.isfinite(errors) & ((errors < 0) | (is_share & (errors > 1)))
    if wrong.any():
        i = int(np.argmax(wrong))
        limits = "from 0 to 1" if is_share else "0 or more"
        hint = f" If it is a percentage, write {metric} / 100." if is_share and not metric.percent else ""
        raise Unusable(
            f"has {metric.name} {errors[i]:g} at step {rows.step[i]:,}, but it must be {limits}: the map has "
            f"{metric}.{hint}"
        )
    return rows._replace(value=errors)


def _ending(log: Log, run_map: RunMap, metrics: Curves, rows: Series, steps: int) -> tuple[str, str | None]:
    """Returns the status and the reason. Complete runs may end up to one logging interval before their budget."""
    if any(not np.isfinite(rows.value[-1]) for rows in metrics.values()):
        return "INFEASIBLE", None
    stated = [target for target in run_map.targets if target.metric in metrics]
    if stated and all(target.reached(metrics[target.metric].value).any() for target in stated):
        return "COMPLETE", None
    budget, gaps = integer("budget", run_map.budget, log, 1), np.diff(np.unique(rows.step))
    if budget is None or steps + max(np.median(gaps) if len(gaps) else 0, 1) >= budget:
        return "COMPLETE", None
    return "INCOMPLETE", "lost"


def _seconds(log: Log, run_map: RunMap, rows: Series) -> tuple[float | None, bool]:
    """Returns the seconds per step, and whether they include evaluations because every row is an evaluation."""
    evaluated = [metric.tag for metric in run_map.metrics if not metric.name.startswith("train_")]
    steps = [log.series[tag].step for tag in evaluated if tag in log.series]
    sparse = [step for step in steps if len(step) < len(rows.step) / 2 or len(steps) == len(run_map.metrics)]
    evaluations = np.unique(np.concatenate([NO_ROWS.step, *sparse]))
    all_evaluated = len(rows.step) > 0 and bool(np.isin(rows.step, evaluations).all())
    seconds = logged.seconds_per_step(rows, NO_ROWS.step if all_evaluated else evaluations)
    return seconds, all_evaluated and seconds is not None


def _study(log: Log, run_map: RunMap, *, raw: bool) -> Recorded:
    """Returns the study of a run. Raises BadInput for tokens that are not a multiple of the sequence length."""
    batch_size = product("batch_size", run_map.batch_size, log)
    length = integer("sequence_length", run_map.sequence_length, log, 1)
    if run_map.unit == "tokens" and length and batch_size % length:
        factors = ", ".join(map(str, (*run_map.batch_size, length)))
        raise BadInput(
            f"{log.name}: unit: tokens needs a batch_size in tokens, but {batch_size:,} is not a multiple of "
            f"sequence_length {length:,}. If it counts sequences, state batch_size: [{factors}]."
        )
    details = {DETAILS_RAW: raw, "licence": run_map.licence, "citation": run_map.citation}
    return Recorded(
        RUNS,
        word(run_map.dataset, log),
        word(run_map.model, log),
        word(run_map.optimizer, log),
        batch_size,
        SearchSpace({}),
        {name: value for name, value in details.items() if value},
        0,
        unit=run_map.unit,
        sequence_length=length,
        targets=run_map.targets,
    )


def studies(runs: Sequence[Run]) -> list[tuple[Recorded, list[Run]]]:
    """Groups runs into studies. The runs of a study differ only in their seeds and metaparameters."""
    groups = grouped(runs, lambda run: run.study.name).values()
    ordered = sorted(groups, key=lambda members: (members[0].study.slug.rpartition("-")[0], members[0].batch_size))
    return [(members[0].study.with_request(TrialRequest(len(members))), members) for members in ordered]


def rising(runs: Sequence[Run]) -> list[str]:
    """Returns a line for each metric that takes more steps at larger batch sizes, as if its steps were epochs."""
    curves = grouped(
        [(run, name) for run in runs for name in run.metrics], lambda curve: (curve[0].study.labels, curve[1])
    )
    lines = []
    for (_, metric), group in curves.items():
        sizes = sorted({run.batch_size for run, _ in group})
        ends = [[run.metrics[metric] for run, _ in group if run.batch_size == size] for size in (sizes[0], sizes[-1])]
        target = max(min(np.fmin.reduce(rows.value, initial=math.inf) for rows in end) for end in ends)
        first_step, last_step = (
            min(min(rows.step[rows.value <= target], default=math.inf) for rows in end) for end in ends
        )
        if len(sizes) > 1 and last_step > RISE * max(first_step, 1) and math.isfinite(last_step):
            lines.append(
                f"{metric} {target:.4g} takes {last_step:,.0f} steps at a batch size of {sizes[-1]:,}, but "
                f"{first_step:,.0f} at {sizes[0]:,}. If these are epochs, state steps_per_epoch"
            )
    return lines


def content(study: Recorded, numbered: Mapping[int, Run]) -> Content:
    """Returns the tables of a study, given its runs by trial number."""
    trials, rows = list[Row](), dict[tuple[int, int], Row]()
    for trial, run in numbered.items():
        description = {"trial": trial, "seed": run.seed, "status": run.status, "reason": run.reason, "steps": run.steps}
        trials.append({**description, **run.metaparameters})
        for name, curve in run.metrics.items():
            for step, error in zip(curve.step.tolist(), curve.value.tolist(), strict=True):
                rows.setdefault((trial, step), {"trial": trial, "step": step})[name] = error
    names = ["trial", "step", *dict.fromkeys(name for run in numbered.values() for name in run.metrics)]
    measurements = {name: [row.get(name) for row in rows.values()] for name in names}
    return Content(study, recording.as_columns(trials), measurements, _about(list(numbered.values())))


def _about(runs: Sequence[Run]) -> Fields:
    """Returns the columns about the machine: the devices of most runs, and the times of the runs on these devices."""
    devices = [(run.device_kind, run.device_count) for run in runs]
    device = Counter(devices).most_common(1)[0][0]
    times = [run.seconds for run, device in zip(runs, devices, strict=True) if device == device and run.seconds]
    about: Json = {"device_kind": device[0], "device_count": device[1]}
    if times and device[1]:
        steps, seconds = sum(run.steps for run in runs), float(np.median(times))
        about |= {"emulated": False, "lanes": 1, "lane_strategy": "map", "shards": device[1], "trial_steps": steps}
        about |= {"train_seconds": seconds * steps, "seconds_per_step": seconds}
    return about
