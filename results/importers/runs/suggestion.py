"""Suggests a map for a folder of logs, based on the names of files, folders, tags and config entries.

You can review and edit every line of the suggested map before importing anything.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from results import durable
from results.aliases import Fields, Json
from results.bad_input import BadInput
from results.durable import Folder
from results.importers import untrusted
from results.importers.recording import may_be_column
from results.importers.runs import logs, places
from results.importers.runs.log import Log
from results.importers.runs.places import Place
from results.importers.runs.run_map import STEPS, TENSORBOARD, TIMES, TRAINER, UNSTATED, WANDB, Counter, RunMap
from results.importers.runs.series import Series
from results.importers.untrusted import ImportWarnings, Unusable

LOOKED_AT = 3  # runs that are read for tags and columns
CONFIGS = ("config.yaml", "config.json", "hparams.yaml", "args.json", "params.json", ".hydra/config.yaml")
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
# Names of values in paths, columns and configs, the most telling one first.
_NAMES = {
    "batch_size": ("global_batch_size", "train_batch_size", "batch_size", "batchsize", "batch", "bs", "b"),
    "learning_rate": ("learning_rate", "lr"),
    "seed": ("seed", "s"),
    "weight_decay": ("weight_decay", "wd"),
    "momentum": ("momentum", "mom"),
    "optimizer": ("optimizer", "optimizer_name", "optim", "opt"),
}
_TUNED = ("learning_rate", "weight_decay", "momentum")
_OPTIMIZERS = "adamw|adam|adafactor|adagrad|lamb|lars|lion|momentum|muon|nesterov|rmsprop|sgd|shampoo|sophia"
_PER_DEVICE = ("per_device_train_batch_size", "per_device_batch_size", "per_gpu_batch_size", "micro_batch_size")
_DEVICES = ("world_size", "num_devices", "n_gpus", "num_gpus", "devices", "gpus")
_ACCUMULATION = ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum")
_STEPS = ("step", "global_step", "_step", "iteration", "iter", "steps", "num_steps")
_TIMES = ("wall_time", "timestamp", "_timestamp", "time", "seconds", "elapsed", "_runtime")
_RUNS = ("run", "run_id", "run_name", "trial", "trial_id")
_BUDGETS = ("max_steps", "total_steps", "num_steps", "train_steps", "max_iters")
_SPLITS = (("validation", "val|valid|validation|eval|dev"), ("test", "test"), ("train", "train|training"))


@dataclasses.dataclass
class Found:
    """The contents of some runs."""

    format: str
    pattern: str
    parts: Sequence[str]
    logs: Sequence[Log]
    columns: Sequence[str]
    config: str


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
    durable.create(out, "".join(f"{line}\n" for line in lines).encode())
    return lines


def _look(root: Folder) -> Found:
    format, found = _format(root)
    relative = [place.path for place in found]
    pattern, parts = _pattern(relative, format)
    matching = places.find(root, pattern, ImportWarnings())
    config = _config(matching, root) if matching else ""
    base = RunMap(format, pattern, "", "", "", (), (), config=config)
    base = base._replace(seconds=TIMES.get(format, ""))
    base_root = root.parent if root.is_file() else root
    columns: dict[str, None] = {}
    read: list[Log] = []
    for place in matching[:LOOKED_AT]:
        own = base
        if format not in STEPS:
            columns |= dict.fromkeys(logs.column_names(place, format, base_root))
            own = base._replace(
                step={"": Counter(_first(_STEPS, columns) or "step")}, seconds=_first(_TIMES, columns) or ""
            )
        same = [each for each in matching if each.folder == place.folder] if format == TENSORBOARD else [place]
        read += [log for log in logs.read(same, own, base_root) if isinstance(log, Log)]
    return Found(format, pattern, parts, read, list(columns), config)


def _format(root: Folder) -> tuple[str, list[Place]]:
    """Returns the format of the logs, and their files."""
    kinds = {
        TENSORBOARD: "**/*tfevents*",
        TRAINER: "**/trainer_state.json",
        "jsonl": "**/*.jsonl",
        "csv": "**/*.csv",
        "parquet": "**/*.parquet",
    }
    for format, pattern in kinds.items():
        found = places.find(root, pattern, ImportWarnings())
        if found:
            if format == TRAINER:  # checkpoints hold the first part of the same log
                depth = min(place.path.count("/") for place in found)
                found = [place for place in found if place.path.count("/") == depth]
            if format in ("jsonl", "csv"):
                names = logs.column_names(found[0], format, root.parent if root.is_file() else root)
                format = WANDB if "_step" in names else format
            return format, found
    raise BadInput(
        f"{root} has no TensorBoard event files, trainer_state.json, JSONL, CSV or Parquet. "
        "docs/own-runs.md shows how to convert other logs."
    )


def _pattern(paths: Sequence[str], format: str) -> tuple[str, list[str]]:
    """Returns a pattern that matches all paths, and the names of its parts."""
    split = [path.split("/") for path in paths]
    if len({len(parts) for parts in split}) > 1:
        return f"**/{_file_name(paths, format)}", []
    pattern, names = [], list[str]()
    for texts in zip(*split, strict=True):
        if len(set(texts)) == 1 and len(paths) > 1:
            pattern.append(texts[0])
            continue
        part, own = _named(texts, names)
        pattern.append(part)
        names += own
    if format == TENSORBOARD:
        pattern[-1] = "*tfevents*"
    return "/".join(pattern), names


def _file_name(paths: Sequence[str], format: str) -> str:
    if format == TENSORBOARD:
        return "*tfevents*"
    names = {path.rpartition("/")[2] for path in paths}
    return names.pop() if len(names) == 1 else f"*.{paths[0].rpartition('.')[2]}"


def _named(texts: Sequence[str], taken: Iterable[str]) -> tuple[str, list[str]]:
    """Returns a pattern for one part of all paths, with the names of its values, or ``*`` if they have no names."""
    expression = "|".join(
        f"(?P<{name}>{'|'.join(words)})" for name, words in _NAMES.items() if name != "optimizer" and name not in taken
    )
    found: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = next(each for each, text in match.groupdict().items() if text and each != "value")
        if name in found:
            return match[0]
        found.append(name)
        return f"{match[0][: match.start('value') - match.start()]}{{{name}}}"

    example = texts[0]
    part = re.sub(rf"(?<![A-Za-z0-9])(?:{expression})[=_-]?(?P<value>{_NUMBER})(?![A-Za-z0-9])", value, example)
    if "optimizer" not in taken:
        named = re.sub(rf"(?<![A-Za-z])(?:{_OPTIMIZERS})(?![A-Za-z])", "{optimizer}", part, count=1)
        found += ["optimizer"] if named != part else []
        part = named
    suffix = part.rpartition(".")[2]
    if found and all(places.compile_pattern(part).fullmatch(text) for text in texts):
        return part, found
    return (f"*.{suffix}" if suffix in ("csv", "jsonl", "parquet") else "*"), []


def _config(found: Sequence[Place], root: Folder) -> str:
    """Returns the name of the config file in the first run's folder or above it, or an empty string."""
    folder = found[0].folder
    while True:
        for name in CONFIGS:
            try:
                logs.parse_config(untrusted.read_bytes(folder / name, root, untrusted.JSON_BYTES))
            except (Unusable, ValueError):
                continue
            return name
        if folder in (root, folder.parent) or root.is_file():
            return ""
        folder = folder.parent


def as_yaml(found: Found) -> list[str]:
    """Returns the lines of a map."""
    entries = _entries(found.logs[0].config if found.logs else {})
    lines = [f"format: {found.format}", f"files: {_quoted(found.pattern)}"]
    if found.config:
        lines.append(f"config: {_quoted(found.config)}")
    run = _first(_RUNS, found.columns)
    if run and found.format not in STEPS:
        lines.append(f"run: column:{run}")
    if found.format not in STEPS:
        lines.append(f"step: {_quoted(_first(_STEPS, found.columns) or UNSTATED)}")
        seconds = _first(_TIMES, found.columns)
        lines += [f"seconds: {_quoted(seconds)}"] if seconds else []
    lines += ["dataset: my_data  # change it", "model: my_model  # change it"]
    lines.append(f"optimizer: {_origin('optimizer', found, entries) or f'{UNSTATED}  # such as adamw'}")
    lines.append(f"batch_size: {_batch_size(found, entries)}")
    seed = _origin("seed", found, entries)
    lines += [f"seed: {seed}"] if seed else []
    tuned = {name: _origin(name, found, entries) for name in _TUNED}
    stated = [f"{name}: {origin}" for name, origin in tuned.items() if origin and may_be_column(name)]
    lines += [f"metaparameters: {{{', '.join(stated)}}}"] if stated else []
    budget = next((name for name in _BUDGETS if name in entries), "")
    lines += [f"budget: config:{budget}"] if budget else []
    series = {tag: rows for log in found.logs for tag, rows in log.series.items()}
    lines += ["metrics:", *(_metrics(series) or [f"  validation_loss: {UNSTATED}  # a tag or column of the log"])]
    return lines


def _origin(name: str, found: Found, entries: Fields) -> str:
    """Returns the origin of a value: the path, a column or the config. Empty if it is not found."""
    if name in found.parts:
        return f"path:{name}"
    column = _first(_NAMES[name], found.columns)
    if column:
        return f"column:{column}"
    key = _key(name, entries)
    return f"config:{key}" if key else ""


def _batch_size(found: Found, entries: Fields) -> str:
    """Returns the global batch size, or its factors."""
    per_device = next((key for key in _PER_DEVICE for key in _ending(key, entries)), "")
    if per_device and "batch_size" not in found.parts:
        factors = [per_device]
        factors += [next(iter(_ending(word, entries))) for word in _DEVICES if _ending(word, entries)][:1]
        factors += [next(iter(_ending(word, entries))) for word in _ACCUMULATION if _ending(word, entries)][:1]
        devices = "" if any(_ending(word, entries) for word in _DEVICES) else "  # times the number of devices"
        return f"[{', '.join(f'config:{each}' for each in factors)}]{devices}"
    origin = _origin("batch_size", found, entries)
    if found.format == TRAINER and origin.startswith("config:"):
        return f"[{origin}]  # per device: add the number of devices and of accumulated batches"
    return origin or f"{UNSTATED}  # the number, path:NAME, config:NAME or column:NAME"


def _key(name: str, entries: Fields) -> str:
    found = [key for word in _NAMES[name] if len(word) > 1 for key in _ending(word, entries)]
    found += [key for word in _NAMES[name] for key in entries if key.lower() in (f"{word}.name", f"{word}.type")]
    return next(iter(found), "")


def _ending(word: str, entries: Fields) -> list[str]:
    """Returns the config entries whose last part equals one of the words, shortest first."""
    return sorted((key for key in entries if key.rpartition(".")[2].lower() == word), key=len)


def _entries(config: Fields, within: str = "") -> Json:
    """Returns the entries of a config, with dotted names."""
    found: Json = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _entries(value, f"{within}{name}.")
        elif isinstance(value, str | int | float):
            found[f"{within}{name}"] = value
    return found


def _first(words: Sequence[str], names: Iterable[str]) -> str:
    """Returns the first name that equals one of the words, ignoring case, or an empty string."""
    known = {name.lower(): name for name in names}
    return next((known[word] for word in words if word in known), "")


def _metrics(series: Mapping[str, Series]) -> list[str]:
    """Returns one line for each tag that may contain a metric, with at most one line per metric name."""
    found: dict[str, str] = {}
    for tag in sorted(series, key=len):
        words = re.split(r"[^a-z0-9]+", tag.lower())
        split = next((ours for ours, theirs in _SPLITS if set(theirs.split("|")) & set(words)), "train")
        finite = series[tag].value[np.isfinite(series[tag].value)]
        percent = " / 100" if len(finite) and finite.max() > 1.5 else ""
        if "loss" in words:
            found.setdefault(f"{split}_loss", tag)
        elif {"accuracy", "acc", "top1"} & set(words):
            found.setdefault(f"{split}_error", f"1 - {tag}{percent}")
        elif {"error", "err"} & set(words):
            found.setdefault(f"{split}_error", f"{tag}{percent}")
    order = {f"{split}_{kind}": i for i, split in enumerate(each[0] for each in _SPLITS) for kind in ("loss", "error")}
    return [f"  {name}: {_quoted(found[name])}" for name in sorted(found, key=lambda name: (order[name], name))]


def _quoted(text: str) -> str:
    """Returns a YAML scalar, quoted if necessary."""
    return yaml.safe_dump(text, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...").strip()
