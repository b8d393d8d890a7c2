"""Suggests a map for a folder of logs, based on the names of files, folders, tags and config entries.

You can review and edit every line of the suggested map before importing anything.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from results import durable
from results.aliases import Fields
from results.bad_input import BadInput
from results.durable import Folder
from results.importers import untrusted
from results.importers.recording import may_be_column
from results.importers.runs import layout as layouts, line_patterns, logs, places, run_map as run_maps, runs, vocabulary
from results.importers.runs.layout import Layout
from results.importers.runs.log import Log
from results.importers.runs.places import Place
from results.importers.runs.run_map import (
    CHART,
    EPOCHS,
    MLFLOW,
    TENSORBOARD,
    TEXT,
    TIMES,
    TRAINER,
    UNSTATED,
    Counter,
    RunMap,
)
from results.importers.runs.series import Series
from results.importers.untrusted import Unusable

LOOKED_AT = 3  # runs that are read for tags and columns
TUNED = ("learning_rate", "weight_decay", "momentum")
ORDER = [f"{split}_{kind}" for split in vocabulary.SPLIT_NAMES for kind in ("loss", "error")]


@dataclasses.dataclass
class Found:
    """The contents of some runs.

    Attributes:
      layout: where the logs are.
      logs: the logs of some runs. There are none if the step is not known.
      columns: names of columns.
      entries: entries of a config file, or values that the logs hold.
      lines: patterns of the lines of a text log.
    """

    layout: Layout
    logs: Sequence[Log]
    columns: Sequence[str]
    entries: Fields
    lines: Sequence[str]


def suggest(path: Folder, out: Path) -> list[str]:
    """Writes a map for the logs under ``path`` to the new file ``out``, and returns its lines.

    Raises:
      BadInput: there are no logs in a known format, or ``out`` exists.
    """
    if not path.exists():
        raise BadInput(f"no folder or file at {path}. Name the logs of your runs.")
    if out.exists():
        raise BadInput(f"--map {out} exists. Name a new file, or edit this one.")
    found = _look(path.resolve())
    lines = as_yaml(found)
    lines += _targets(lines, found.layout)
    durable.create(out, "".join(f"{line}\n" for line in lines).encode())
    return lines


def _look(path: Folder) -> Found:
    layout = layouts.find(path)
    format = layout.format
    columns: dict[str, None] = {}
    lines: list[str] = []
    tables = format not in (TENSORBOARD, TRAINER, MLFLOW)
    for place in layout.places[:LOOKED_AT] if tables else ():
        if format == TEXT:
            data = untrusted.read_bytes(place.folder / place.name, layout.root, logs.MOST_BYTES)
            lines = lines or line_patterns.suggest(data)
            columns |= dict.fromkeys(re.findall(r"\{(\w+)\}", "".join(lines)))
        else:
            names = logs.column_names(place, format, layout.root)
            names = [name.rpartition(" - ")[2] if format == CHART else name for name in names]
            columns |= dict.fromkeys(name for name in names if not name.startswith("config/"))  # Ray's params.json
    run_map = RunMap(format, layout.pattern, "", "", "", (), (), config=layout.config, line=tuple(lines))
    step = vocabulary.first((*vocabulary.STEPS, *EPOCHS), columns)
    run_map = run_map._replace(step={"": Counter(step)} if step else {})
    most = 5 * LOOKED_AT if format == MLFLOW else LOOKED_AT  # some of MLflow's folders hold no run
    read = [
        log
        for members in _runs(layout)[:most]
        for log in logs.read(members, run_map, layout.root)
        if isinstance(log, Log)
    ]
    entries = {**(vocabulary.flat(read[0].config) if read else {}), **layout.entries}
    if format == TRAINER and layout.entries:
        entries.pop("train_batch_size", None)  # of trainer_state.json: it is per device
    return Found(layout, read[:LOOKED_AT], list(columns), entries, lines)


def _runs(layout: Layout) -> list[list[Place]]:
    """Returns the files of each run."""
    groups: dict[str, list[Place]] = {}
    for place in layout.places:
        run = places.run_folder(place, layout.pattern) if layout.format == TENSORBOARD else place.path
        groups.setdefault(run, []).append(place)
    return list(groups.values())


def _targets(lines: Sequence[str], layout: Layout) -> list[str]:
    """Returns a line with a target that some run of each batch size reaches. Empty if a value of the map is missing."""
    try:
        text = "\n".join(lines).replace(f"optimizer: {UNSTATED}", "optimizer: unknown")
        run_map = run_maps.parse(text, "the suggested map")
    except BadInput:
        return []
    metric = run_map.metrics[0].name
    best: dict[int, float] = {}
    for log in (log for members in _runs(layout) for log in logs.read(members, run_map, layout.root)):
        try:
            run = runs.of_log(log, run_map) if isinstance(log, Log) else None
        except Unusable:
            continue
        values = run.metrics[metric].value if run and metric in run.metrics else np.zeros(0)
        if run and np.isfinite(values).any():
            best[run.batch_size] = min(best.get(run.batch_size, np.inf), np.nanmin(values))
    if not best or max(best.values()) <= 0:
        return []
    unit = 10.0 ** (np.floor(np.log10(max(best.values()))) - 1)
    value = f"{np.ceil(max(best.values()) / unit) * unit:.2g}"
    return [f"targets: {{{metric}: {value}}}  # a proposal: every batch size reaches it"]


def as_yaml(found: Found) -> list[str]:
    """Returns the lines of a map."""
    layout, entries = found.layout, found.entries
    lines = [f"format: {layout.format}", f"files: {_quoted(layout.pattern)}"]
    if layout.config:
        lines.append(f"config: {_quoted(layout.config)}")
    if found.lines:
        lines += ["line:", *(f"- {_quoted(line)}" for line in found.lines)]
    series = {tag: rows for log in found.logs for tag, rows in log.series.items()}
    metrics = _metrics(series or dict.fromkeys(found.columns))
    lines += _run_and_steps(found, metrics)
    lines += ["dataset: my_data  # change it", "model: my_model  # change it"]
    lines.append(f"optimizer: {_origin('optimizer', found) or f'{UNSTATED}  # such as adamw'}")
    lines += _batch_size(found)
    seed = _origin("seed", found)
    lines += [f"seed: {seed}"] if seed else []
    tuned = {name: _origin(name, found) for name in TUNED}
    stated = [f"{name}: {origin}" for name, origin in tuned.items() if origin and may_be_column(name)]
    lines += [f"metaparameters: {{{', '.join(stated)}}}"] if stated else []
    budget = vocabulary.count(vocabulary.BUDGETS, entries)
    lines += [f"budget: config:{budget}"] if budget else []
    devices = vocabulary.device_factors(entries)
    lines += [f"device_count: {_references(devices)}"] if devices else []
    in_words = [f"  {name}: {_quoted(metrics[name])}" for name in ORDER if name in metrics]
    return [*lines, "metrics:", *(in_words or [f"  validation_loss: {UNSTATED}  # a tag or column of the log"])]


def _run_and_steps(found: Found, metrics: Mapping[str, str]) -> list[str]:
    """Returns the lines about runs, steps and times."""
    format = found.layout.format
    if format in (TENSORBOARD, MLFLOW):
        return _epochs(found, metrics)
    if format == TRAINER:
        return []
    lines = []
    run = vocabulary.first(vocabulary.RUNS, found.columns)
    if format == CHART:
        lines += [f"run: {_quoted(found.layout.run)}"]
    elif run and format in ("csv", "jsonl", "parquet"):
        lines += [f"run: {_quoted(f'column:{run}')}"]
    step = vocabulary.first(vocabulary.STEPS, found.columns)
    examples = vocabulary.first(vocabulary.EXAMPLES_SEEN, found.columns)
    epoch = vocabulary.first(EPOCHS, found.columns)
    if step or not examples:
        hint = "  # a column with training steps"
        hint += f". {epoch} may count epochs: then add steps_per_epoch, such as 50000 / batch_size" if epoch else ""
        hint = "  # counts the calls of the logger: take a column with training steps" if step == "_step" else hint
        lines += [f"step: {_quoted(step)}{hint if step == '_step' else ''}" if step else f"step: {UNSTATED}{hint}"]
    else:
        lines += [f"examples_seen: {_quoted(examples)}"]
    seconds = vocabulary.first(vocabulary.TIMES, found.columns)
    return [*lines, f"seconds: {_quoted(seconds)}"] if seconds and seconds != TIMES.get(format) else lines


def _epochs(found: Found, metrics: Mapping[str, str]) -> list[str]:
    """Returns the lines about metrics that are logged by epoch: they end long before the others."""
    lines: list[str] = []
    most = 2.0
    for series in (log.series for log in found.logs):
        ends = {tag: int(rows.step[-1]) for tag, rows in series.items()}
        longest = max(ends, key=lambda tag: ends[tag])
        sparse = {name: tag for name, tag in _tags(metrics).items() if tag in ends and ends[tag] * 2 < ends[longest]}
        if not sparse or ends[longest] / (ends[min(sparse.values(), key=ends.__getitem__)] + 1) < most:
            continue
        name, tag = next(iter(sparse.items()))
        most = ends[longest] / (ends[tag] + 1)
        seen = f"{longest} ends at step {ends[longest]}, and {tag} at {ends[tag]}: about {most:.4g} steps each"
        starts = [f"{name}: step + 1" for name, tag in sparse.items() if series[tag].step[0] == 0]
        lines = [f"step: {{{', '.join(starts)}}}"] if starts else []
        factors = ", ".join(f"{name}: {UNSTATED}" for name in sparse)
        lines.append(f"steps_per_epoch: {{{factors}}}  # {seen}. Such as 50000 / batch_size")
    return lines


def _tags(metrics: Mapping[str, str]) -> dict[str, str]:
    return {name: tag.removeprefix("1 - ").removesuffix(" / 100") for name, tag in metrics.items()}


def _origin(name: str, found: Found) -> str:
    """Returns the origin of a value: the path, a column or the config. Empty if it is not found."""
    if name in found.layout.parts:
        return f"path:{name}"
    column = vocabulary.first(vocabulary.NAMES[name], found.columns)
    if column:
        return _quoted(f"column:{column}")
    numbers = {key: value for key, value in found.entries.items() if untrusted.numeric(value) is not None}
    key = vocabulary.key(vocabulary.NAMES[name], found.entries if name == "optimizer" else numbers)
    return f"config:{key}" if key else ""


def _batch_size(found: Found) -> list[str]:
    """Returns the lines about the global batch size, or its factors, and about its unit."""
    factors, remark = vocabulary.batch_factors(found.entries)
    origin = _origin("batch_size", found)
    value = _references(factors) if factors and (len(factors) > 1 or origin.startswith("config:")) else origin
    if value == origin and not origin.startswith("config:"):
        remark = ""
    line = f"batch_size: {value or UNSTATED}"
    remark = remark or ("" if value else "the number, path:NAME, config:NAME or column:NAME")
    lines = [f"{line}  # {remark}" if remark else line]
    sequence = vocabulary.count(vocabulary.SEQUENCES, found.entries)
    if sequence:
        unit = "tokens" if "token" in value else "sequences"
        lines += [f"unit: {unit}  # of the batch size: sequences or tokens", f"sequence_length: config:{sequence}"]
    return lines


def _references(keys: Sequence[str]) -> str:
    words = [f"config:{key}" for key in keys]
    return words[0] if len(words) == 1 else f"[{', '.join(words)}]"


def _metrics(series: Mapping[str, Series | None]) -> dict[str, str]:
    """Returns the metric names and their tags. Where several tags fit, the shortest one that counts steps is taken."""
    metrics: dict[str, str] = {}
    by_epoch = re.compile(r"(.*/)?epoch_")
    for tag in sorted(series, key=lambda tag: (by_epoch.match(tag) is not None, len(tag))):
        words = set(re.split(r"[^a-z0-9]+", tag.lower()))
        name = "" if {"hparam", "min", "max", "lr"} & words else line_patterns.metric(set(), words)
        if not name or (by_epoch.match(tag) and metrics):
            continue
        rows = series[tag]
        values = rows.value[np.isfinite(rows.value)] if rows is not None else np.zeros(0)
        percent = " / 100" if len(values) and values.max() > 1.5 and not name.endswith("loss") else ""
        complement = "1 - " if name.endswith("accuracy") else ""
        metrics.setdefault(name.replace("accuracy", "error"), f"{complement}{tag}{percent}")
    return metrics


def _quoted(text: str) -> str:
    """Returns a YAML scalar, quoted if necessary."""
    return yaml.safe_dump(text, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...").strip()
