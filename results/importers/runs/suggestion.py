"""Suggests a map for a folder of logs, based on the names of files, folders, tags and config entries.

You can review and edit every line of the suggested map before importing anything.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from results import durable
from results.bad_input import BadInput
from results.durable import Folder
from results.importers import untrusted
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
from results.importers.runs.run_map import (
    KERAS,
    TAGGED,
    TENSORBOARD,
    TEXT,
    TIMES,
    TRAINER,
    UNSTATED,
    Counter,
    Metric,
    RunMap,
)
from results.importers.runs.series import Series
from results.importers.untrusted import ImportWarnings

TABLES = ("csv", "jsonl", "parquet")
WITHOUT_COLUMNS = (*TAGGED, TRAINER)
MANY_SEQUENCES = 64  # a batch size of at least this many sequence lengths probably counts tokens
LOOKED_AT = 3  # runs that are read for tags and columns
IGNORED = re.compile(r"(?<![a-z])(?:hparam|min|max|best|lr)(?![a-z])")  # tags that are not a metric of a step
TUNED = ("learning_rate", "weight_decay", "momentum")
ORDER = [f"{split}_{kind}" for split in vocabulary.SPLIT_NAMES for kind in ("loss", "error")]


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


def _look(path: Folder) -> Layout:
    root = path.parent if path.is_file() else path
    layout = layouts.find(path, root)
    columns, lines = [], list[str]()
    for place in layout.places[:LOOKED_AT]:
        if layout.format == TEXT:
            lines = lines or line_patterns.suggest(place.read(root))
            columns = re.findall(r"\{(\w+)\}", "".join(lines))
        elif layout.format not in WITHOUT_COLUMNS:
            columns += [name.rpartition(" - ")[2] for name in logs.column_names(place, layout.format, root)]
    columns = [name for name in columns if not name.startswith("config/")]  # Ray's copy of params.json
    step = vocabulary.first(f"{vocabulary.STEPS} {vocabulary.EPOCHS}", columns)
    run_map = RunMap(layout.format, layout.pattern, "", "", "", (), (), (layout.run,), layout.config, line=tuple(lines))
    if step:
        run_map = run_map._replace(step={"": Counter(step)})
    read = list(itertools.islice(members.logs_of_runs(path, run_map, ImportWarnings()), LOOKED_AT))
    entries = vocabulary.entries_of(read[0].config) if read else {}
    if layout.format == TRAINER and layout.config:
        entries.pop("train_batch_size", None)  # of trainer_state.json: it is per device
    return layout._replace(logs=read, columns=columns, entries={**entries, **layout.entries}, lines=lines)


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


def as_yaml(layout: Layout) -> list[str]:
    """Returns the lines of a map."""
    series = {tag: rows for log in layout.logs for tag, rows in log.series.items()}
    metrics = _metrics(series or dict.fromkeys(layout.columns))
    origins = {name: _origin(name, layout) for name in TUNED}
    tuned = ", ".join(f"{name}: {origin}" for name, origin in origins.items() if origin)
    keys = {
        "format": layout.format,
        "files": _quoted(layout.pattern),
        "config": layout.config and _quoted(layout.config),
        "line": layout.lines and _quoted(layout.lines),
        **(_epochs(layout, metrics) if layout.format in TAGGED else _columns(layout)),
        "dataset": "my_data  # change it",
        "model": "my_model  # change it",
        "optimizer": _origin("optimizer", layout) or f"{UNSTATED}  # such as adamw",
        **_batch_size(layout),
        "seed": _origin("seed", layout),
        "metaparameters": tuned and f"{{{tuned}}}",
        "budget": _references(vocabulary.count(vocabulary.BUDGETS, layout.entries)),
        "device_count": _references(*vocabulary.device_factors(layout.entries)),
    }
    in_words = [f"  {name}: {_quoted(str(metrics[name]))}" for name in ORDER if name in metrics]
    in_words = in_words or [f"  validation_loss: {UNSTATED}  # a tag or column of the log"]
    text = "\n".join(f"{key}: {value}" for key, value in keys.items() if value)
    return [*text.splitlines(), "metrics:", *in_words]


def _columns(layout: Layout) -> dict[str, str]:
    """Returns the keys about the columns of runs, steps and times."""
    if layout.format == TRAINER:
        return {}
    kinds = (vocabulary.RUNS, vocabulary.STEPS, vocabulary.EXAMPLES_SEEN, vocabulary.EPOCHS, vocabulary.TIMES)
    run, step, examples, epoch, seconds = (vocabulary.first(words, layout.columns) for words in kinds)
    keys = {"run": layout.run and _quoted(layout.run), "step": _quoted(step)}
    if run and layout.format in TABLES:
        keys["run"] = _quoted(f"column:{run}")
    elif len(layout.places) == 1 and layout.format in TABLES:
        origins = [_origin(name, layout) for name in ("batch_size", "seed", *TUNED)]
        keys["run"] = f"[{', '.join(origin for origin in origins if 'column:' in origin)}]".replace("[]", "")
    if step == "_step":
        keys["step"] = f"{step}  # counts the calls of the logger: take a column with training steps"
    elif examples and not step:
        keys |= {"examples_seen": _quoted(examples), "step": ""}
    elif not step:
        hint = f". {epoch} may count epochs: then add steps_per_epoch, such as 50000 / batch_size" if epoch else ""
        keys["step"] = f"{UNSTATED}  # a column with training steps{hint}"
    if seconds and seconds != TIMES.get(layout.format):
        keys["seconds"] = _quoted(seconds)
    return keys


def _epochs(layout: Layout, metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Returns the keys about metrics that are logged by epoch: they end long before the others."""
    log = max(layout.logs, key=lambda log: max(rows.step[-1] for rows in log.series.values()), default=None)
    if log is None:
        return {}
    ends = {tag: int(rows.step[-1]) for tag, rows in log.series.items()}
    last = max(ends, key=lambda tag: ends[tag])
    tags = {name: metric.tag for name, metric in metrics.items()}
    keras = {name: tag for name, tag in tags.items() if KERAS.match(tag) and layout.format == TENSORBOARD}
    sparse = keras or {name: tag for name, tag in tags.items() if ends.get(tag, np.inf) * 2 < ends[last]}
    if not sparse:
        return {}
    starts = [f"{name}: step + 1" for name, tag in sparse.items() if log.series[tag].step[0] == 0]
    tag = next(iter(sparse.values()))
    ratio = ends[last] / max(ends[tag] + len(starts) / len(sparse), 1)
    hint = f"{last} ends at step {ends[last]}, and {tag} at {ends[tag]}: about {ratio:.4g} steps each"
    factors = "".join(f"\n  {name}: {UNSTATED}" for name in sparse)
    return {
        "step": f"{{{', '.join(starts)}}}" if starts else "",
        "steps_per_epoch": f" # {'Keras counts epochs' if keras else hint}. Such as 50000 / batch_size{factors}",
    }


def _origin(name: str, layout: Layout) -> str:
    """Returns the origin of a value: the path, a column or the config. Empty if it is not found."""
    if f"{{{name}}}" in layout.pattern + layout.run:
        return f"path:{name}"
    column = vocabulary.first(vocabulary.NAMES[name], layout.columns)
    if column:
        return _quoted(f"column:{column}")
    numbers = {key: value for key, value in layout.entries.items() if untrusted.numeric(value) is not None}
    key = vocabulary.key(vocabulary.NAMES[name], layout.entries if name == "optimizer" else numbers)
    return _references(key)


def _batch_size(layout: Layout) -> dict[str, str]:
    """Returns the keys about the global batch size, or its factors, and about its unit."""
    factors, remark = vocabulary.batch_factors(layout.entries)
    value = _origin("batch_size", layout)
    if len(factors) > 1 or value in ("", *map(_references, layout.entries)):
        value = _references(*factors) or UNSTATED
    else:
        remark = ""  # a path or a column
    if value == UNSTATED:
        remark = remark or "the number, path:NAME, config:NAME or column:NAME"
    keys = {"batch_size": f"{value}  # {remark}" if remark else value}
    length = vocabulary.count(vocabulary.SEQUENCES, layout.entries)
    if length:
        size = untrusted.numeric(layout.entries.get(value.removeprefix("config:"))) or 0
        sequences, remainder = divmod(size, untrusted.numeric(layout.entries[length]) or 1)
        unit = "tokens" if "token" in value or (not remainder and sequences >= MANY_SEQUENCES) else "sequences"
        keys |= {"unit": f"{unit}  # of the batch size: sequences or tokens", "sequence_length": _references(length)}
    return keys


def _references(*keys: str) -> str:
    """Returns references to the entries of a config that are not empty, as a list if there are several."""
    words = [f"config:{key}" for key in keys if key]
    return f"[{', '.join(words)}]" if len(words) > 1 else "".join(words)


def _metrics(series: Mapping[str, Series | None]) -> dict[str, Metric]:
    """Returns the metrics by name. Where several tags fit, the shortest one that counts steps is taken."""
    metrics: dict[str, Metric] = {}
    for tag in sorted(series, key=lambda tag: (KERAS.match(tag) is not None, len(tag))):
        name, rows = line_patterns.metric(tag), series[tag]
        counted = any(not KERAS.match(metric.tag) for metric in metrics.values())
        if not name or IGNORED.search(tag.lower()) or (counted and KERAS.match(tag)):
            continue
        values = rows.value[np.isfinite(rows.value)] if rows is not None else np.zeros(0)
        percent = bool(len(values)) and values.max() > 1.5 and not name.endswith("loss")
        error = name.replace("accuracy", "error")
        metrics.setdefault(error, Metric(error, tag, complement=error != name, percent=percent))
    return metrics


def _quoted(text: str | Sequence[str]) -> str:
    """Returns a YAML scalar or list, quoted if necessary."""
    return yaml.safe_dump(text, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...").strip()
