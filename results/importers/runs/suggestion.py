"""Suggests a map for a folder of logs, based on the names of files, folders, tags and config entries.

You can review and edit every line of the suggested map before importing anything.
"""

import dataclasses
import itertools
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
from results.importers.runs import (
    importer,
    layout as layouts,
    line_patterns,
    logs,
    members,
    run_map as run_maps,
    vocabulary,
)
from results.importers.runs.layout import Layout
from results.importers.runs.log import Log
from results.importers.runs.run_map import (
    CHART,
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
from results.importers.untrusted import ImportWarnings

TABLES = ("csv", "jsonl", "parquet")
WITHOUT_COLUMNS = (TENSORBOARD, TRAINER, MLFLOW)
MANY_SEQUENCES = 64  # a batch size of at least this many sequence lengths probably counts tokens
LOOKED_AT = 3  # runs that are read for tags and columns
BY_EPOCH = re.compile(r"(1 - )?(.*/)?epoch_")  # tags of Keras
IGNORED = re.compile(r"(?<![a-z])(?:hparam|min|max|best|lr)(?![a-z])")  # tags that are not a metric of a step
TUNED = ("learning_rate", "weight_decay", "momentum")
ORDER = [f"{split}_{kind}" for split in vocabulary.SPLIT_NAMES for kind in ("loss", "error")]


@dataclasses.dataclass
class Found:
    """The contents of some runs.

    Attributes:
      layout: where the logs are.
      logs: the logs of some runs. Empty if no column is named like a step.
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
    lines = as_yaml(_look(path.resolve()))
    lines += _targets(lines, path.resolve())
    durable.create(out, "".join(f"{line}\n" for line in lines).encode())
    return lines


def _look(path: Folder) -> Found:
    root = path.parent if path.is_file() else path
    layout = layouts.find(path, root)
    format = layout.format
    columns, lines = list[str](), list[str]()
    for place in layout.places[:LOOKED_AT]:
        if format == TEXT:
            lines = lines or line_patterns.suggest(place.read(root))
            columns = re.findall(r"\{(\w+)\}", "".join(lines))
        elif format not in WITHOUT_COLUMNS:
            columns += [name.rpartition(" - ")[2] for name in logs.column_names(place, format, root)]
    columns = [name for name in columns if not name.startswith("config/")]  # Ray's copy of params.json
    step = vocabulary.first(f"{vocabulary.STEPS} {vocabulary.EPOCHS}", columns)
    run_map = RunMap(format, layout.pattern, "", "", "", (), (), (layout.run,), layout.config, line=tuple(lines))
    if step:
        run_map = run_map._replace(step={"": Counter(step)})
    read = list(itertools.islice(members.logs_of_runs(path, run_map, ImportWarnings()), LOOKED_AT))
    entries = vocabulary.flat(read[0].config) if read else {}
    if format == TRAINER and layout.config:
        entries.pop("train_batch_size", None)  # of trainer_state.json: it is per device
    return Found(layout, read, columns, {**entries, **layout.entries}, lines)


def _targets(lines: Sequence[str], path: Folder) -> list[str]:
    """Returns a line with a target that some run of each batch size reaches. Empty if a value of the map is missing."""
    try:
        run_map = run_maps.parse("\n".join(lines).replace(f"optimizer: {UNSTATED}", "optimizer: unknown"), "the map")
        runs = importer.read(path, run_map, ImportWarnings(), raw=False)
    except BadInput:
        return []
    metric = run_map.metrics[0].name
    best: dict[int, float] = {}
    for run in runs:
        values = run.metrics[metric].value if metric in run.metrics else np.zeros(0)
        best[run.batch_size] = min([best.get(run.batch_size, np.inf), *values[np.isfinite(values)]])
    value = max(best.values(), default=np.inf)
    if not 0 < value < np.inf:
        return []
    unit = 10 ** (np.floor(np.log10(value)) - 1)
    return [f"targets: {{{metric}: {np.ceil(value / unit) * unit:.2g}}}  # a proposal: every batch size reaches it"]


def as_yaml(found: Found) -> list[str]:
    """Returns the lines of a map."""
    layout = found.layout
    series = {tag: rows for log in found.logs for tag, rows in log.series.items()}
    metrics = _metrics(series or dict.fromkeys(found.columns))
    tuned = {name: _origin(name, found) for name in TUNED if may_be_column(name)}
    keys = {
        "format": layout.format,
        "files": _quoted(layout.pattern),
        "config": layout.config and _quoted(layout.config),
        "line": found.lines and _quoted(found.lines),
        **(_epochs(found, metrics) if layout.format in (TENSORBOARD, MLFLOW) else _columns(found)),
        "dataset": "my_data  # change it",
        "model": "my_model  # change it",
        "optimizer": _origin("optimizer", found) or f"{UNSTATED}  # such as adamw",
        **_batch_size(found),
        "seed": _origin("seed", found),
        "metaparameters": ", ".join(f"{name}: {origin}" for name, origin in tuned.items() if origin),
        "budget": _references([vocabulary.count(vocabulary.BUDGETS, found.entries)]),
        "device_count": _references(vocabulary.device_factors(found.entries)),
    }
    if keys["metaparameters"]:
        keys["metaparameters"] = f"{{{keys['metaparameters']}}}"
    in_words = [f"  {name}: {_quoted(metrics[name])}" for name in ORDER if name in metrics]
    in_words = in_words or [f"  validation_loss: {UNSTATED}  # a tag or column of the log"]
    text = "\n".join(f"{key}: {value}" for key, value in keys.items() if value)
    return [*text.splitlines(), "metrics:", *in_words]


def _columns(found: Found) -> dict[str, str]:
    """Returns the keys about the columns of runs, steps and times."""
    format = found.layout.format
    if format == TRAINER:
        return {}
    run = vocabulary.first(vocabulary.RUNS, found.columns)
    step = vocabulary.first(vocabulary.STEPS, found.columns)
    examples = vocabulary.first(vocabulary.EXAMPLES_SEEN, found.columns)
    epoch = vocabulary.first(vocabulary.EPOCHS, found.columns)
    seconds = vocabulary.first(vocabulary.TIMES, found.columns)
    keys = {"run": "", "step": _quoted(step)}
    if format == CHART:
        keys["run"] = _quoted(found.layout.run)
    elif run and format in TABLES:
        keys["run"] = _quoted(f"column:{run}")
    elif len(found.layout.places) == 1 and format in TABLES:
        origins = [_origin(name, found) for name in ("batch_size", "seed", *TUNED)]
        keys["run"] = f"[{', '.join(origin for origin in origins if 'column:' in origin)}]"
        keys["run"] = keys["run"].replace("[]", "")
    if step == "_step":
        keys["step"] = f"{step}  # counts the calls of the logger: take a column with training steps"
    elif examples and not step:
        keys["examples_seen"] = _quoted(examples)
        keys["step"] = ""
    elif not step:
        keys["step"] = f"{UNSTATED}  # a column with training steps"
        if epoch:
            keys["step"] += f". {epoch} may count epochs: then add steps_per_epoch, such as 50000 / batch_size"
    if seconds and seconds != TIMES.get(format):
        keys["seconds"] = _quoted(seconds)
    return keys


def _epochs(found: Found, metrics: Mapping[str, str]) -> dict[str, str]:
    """Returns the keys about metrics that are logged by epoch: they end long before the others."""
    ends = [{tag: int(rows.step[-1]) for tag, rows in log.series.items()} for log in found.logs]
    longest = max(ends, key=lambda steps: max(steps.values()), default={})
    tags = {name: tag.removeprefix("1 - ").removesuffix(" / 100") for name, tag in metrics.items()}
    last = max(longest, key=lambda tag: longest[tag], default="")
    keras = {name: tag for name, tag in tags.items() if BY_EPOCH.match(tag) and found.layout.format == TENSORBOARD}
    sparse = keras or {name: tag for name, tag in tags.items() if longest.get(tag, np.inf) * 2 < longest[last]}
    if not sparse:
        return {}
    series = found.logs[ends.index(longest)].series
    starts = [f"{name}: step + 1" for name, tag in sparse.items() if series[tag].step[0] == 0]
    tag = next(iter(sparse.values()))
    ratio = longest[last] / max(longest[tag] + len(starts) / len(sparse), 1)
    hint = f"{last} ends at step {longest[last]}, and {tag} at {longest[tag]}: about {ratio:.4g} steps each"
    if keras:
        hint = "Keras counts epochs"
    factors = "".join(f"\n  {name}: {UNSTATED}" for name in sparse)
    return {
        "step": f"{{{', '.join(starts)}}}" if starts else "",
        "steps_per_epoch": f" # {hint}. Such as 50000 / batch_size{factors}",
    }


def _origin(name: str, found: Found) -> str:
    """Returns the origin of a value: the path, a column or the config. Empty if it is not found."""
    if name in found.layout.parts:
        return f"path:{name}"
    column = vocabulary.first(vocabulary.NAMES[name], found.columns)
    if column:
        return _quoted(f"column:{column}")
    numbers = {key: value for key, value in found.entries.items() if untrusted.numeric(value) is not None}
    key = vocabulary.key(vocabulary.NAMES[name], found.entries if name == "optimizer" else numbers)
    return _reference(key)


def _batch_size(found: Found) -> dict[str, str]:
    """Returns the keys about the global batch size, or its factors, and about its unit."""
    factors, remark = vocabulary.batch_factors(found.entries)
    value = _origin("batch_size", found)
    if len(factors) > 1 or value in ("", *map(_reference, found.entries)):
        value = _references(factors) or UNSTATED
    else:
        remark = ""  # a path or a column
    if value == UNSTATED:
        remark = remark or "the number, path:NAME, config:NAME or column:NAME"
    keys = {"batch_size": f"{value}  # {remark}" if remark else value}
    length = vocabulary.count(vocabulary.SEQUENCES, found.entries)
    if length:
        size = untrusted.numeric(found.entries.get(value.removeprefix("config:"))) or 0
        whole, rest = divmod(size, untrusted.numeric(found.entries[length]) or 1)
        unit = "tokens" if "token" in value or (not rest and whole >= MANY_SEQUENCES) else "sequences"
        keys |= {"unit": f"{unit}  # of the batch size: sequences or tokens", "sequence_length": _reference(length)}
    return keys


def _reference(key: str) -> str:
    return f"config:{key}" if key else ""


def _references(keys: Sequence[str]) -> str:
    words = [_reference(key) for key in keys]
    return f"[{', '.join(words)}]" if len(words) > 1 else "".join(words)


def _metrics(series: Mapping[str, Series | None]) -> dict[str, str]:
    """Returns the metric names and their tags. Where several tags fit, the shortest one that counts steps is taken."""
    metrics: dict[str, str] = {}
    for tag in sorted(series, key=lambda tag: (BY_EPOCH.match(tag) is not None, len(tag))):
        name = line_patterns.metric(tag)
        counted = any(not BY_EPOCH.match(other) for other in metrics.values())
        if not name or IGNORED.search(tag.lower()) or (counted and BY_EPOCH.match(tag)):
            continue
        rows = series[tag]
        values = rows.value[np.isfinite(rows.value)] if rows is not None else np.zeros(0)
        percent = " / 100" if len(values) and values.max() > 1.5 and not name.endswith("loss") else ""
        complement = "1 - " if name.endswith("accuracy") else ""
        metrics.setdefault(name.replace("accuracy", "error"), f"{complement}{tag}{percent}")
    return metrics


def _quoted(text: str | Sequence[str]) -> str:
    """Returns a YAML scalar or list, quoted if necessary."""
    return yaml.safe_dump(text, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...").strip()
