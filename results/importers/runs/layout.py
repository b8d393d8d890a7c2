"""Layout: the format of the logs in a folder, the pattern of their files, and their config file."""

import contextlib
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from results.aliases import Fields
from results.bad_input import BadInput
from results.durable import Folder
from results.importers import untrusted
from results.importers.runs import logs, places, vocabulary
from results.importers.runs.log import Log
from results.importers.runs.places import Place
from results.importers.runs.run_map import CHART, MLFLOW, RAY, TENSORBOARD, TEXT, TRAINER, WANDB
from results.importers.untrusted import ImportWarnings, Unusable

CONFIG_BYTES = 256 << 10  # larger files are tokenizers and the like
MOST_CONFIGS = 50  # files of a folder that are read
_TELLING = re.compile("arg|conf|param|setting|option|hyper")
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_VALUES = {
    name: re.compile(rf"(?<![A-Za-z0-9])(?:{names.replace(' ', '|')})[=_-]?(?P<value>{_NUMBER})(?![A-Za-z0-9])")
    for name, names in vocabulary.NAMES.items()
}
_VALUES["optimizer"] = re.compile(rf"(?<![A-Za-z])(?P<value>{vocabulary.OPTIMIZERS})(?![A-Za-z])")
_EVENTS = "*tfevents*"
# Patterns of the files of each format. The first format with a file is taken.
_FILES = {
    RAY: "**/progress.csv",
    MLFLOW: "**/meta.yaml **/mlflow.db",
    TRAINER: "**/trainer_state.json",
    TENSORBOARD: f"**/{_EVENTS}",
    "jsonl": "**/*.jsonl",
    "csv": "**/*.csv",
    "parquet": "**/*.parquet",
    TEXT: "**/*.log **/*.txt **/*.out",
}


class Layout(NamedTuple):
    """The logs in a folder.

    Attributes:
      format: format of the logs.
      pattern: pattern of their files.
      run: pattern of the names of runs in a chart of W&B.
      config: name of the config file, or an empty string.
      entries: entries of the first run's config, with dotted names.
      places: files that match the pattern.
      logs: the logs of some runs. Empty if no column is named like a step.
      columns: names of columns.
      lines: patterns of the lines of a text log.
    """

    format: str
    pattern: str
    run: str
    config: str
    entries: Fields
    places: Sequence[Place]
    logs: Sequence[Log] = ()
    columns: Sequence[str] = ()
    lines: Sequence[str] = ()


def find(path: Folder, root: Folder) -> Layout:
    """Returns the layout of the logs under a folder, or of one file. ``root`` is the folder, or that of the file.

    Raises:
      BadInput: there are no logs in a supported format.
    """
    format, paths, columns = _format(path, root)
    if format == TENSORBOARD:
        pattern = _events_pattern(paths)
    elif format == MLFLOW:
        pattern = paths[0] if len(paths) == 1 else "**/meta.yaml"
    else:
        pattern = _pattern(paths)
    run = _named(vocabulary.chart_runs(columns)) if format == CHART else ""
    matching = places.find(path, pattern, ImportWarnings())
    config, entries = ("", {}) if format == MLFLOW else _config(matching[0], root)
    return Layout(format, pattern, run, config, entries, matching)


def _format(path: Folder, root: Folder) -> tuple[str, list[str], Sequence[str]]:
    """Returns the format of the logs, the paths of their files, and the columns of the first file."""
    for format, patterns in _FILES.items():
        files = [place for pattern in patterns.split() for place in places.find(path, pattern, ImportWarnings())]
        if format == RAY:
            files = [place for place in files if (place.folder / "params.json").is_file()]
        elif format == MLFLOW:
            files = [place for place in files if place.name == "mlflow.db" or (place.folder / "metrics").is_dir()]
        elif format == TRAINER:
            files = _without_checkpoints(files)
        if not files:
            continue
        columns = logs.column_names(files[0], format, root) if format in ("jsonl", "csv") else []
        if vocabulary.chart_runs(columns):
            format = CHART
        elif "_step" in columns:
            format = WANDB
        return format, [place.path for place in files], columns
    raise BadInput(
        f"{path} has no TensorBoard event files, trainer_state.json, JSONL, CSV, Parquet or text, and no folders of "
        "Ray or MLflow. docs/own-runs.md shows how to convert other logs."
    )


def _without_checkpoints(states: Sequence[Place]) -> list[Place]:
    """Returns the logs of whole runs. Checkpoints hold the first part of a log, and are used if there is no other."""
    final = [place for place in states if not re.fullmatch(r"checkpoint-\d+", place.folder.name)]
    runs = {place.folder for place in final}
    return final + [place for place in states if not {place.folder, place.folder.parent} & runs]


def _events_pattern(paths: Sequence[str]) -> str:
    """Returns a pattern for event files. Folders of splits and of hyperparameters belong to the run above them."""
    folders = {path.rpartition("/")[0] for path in paths}
    runs = set()
    for folder in folders:
        parent, _, name = folder.rpartition("/")
        runs.add(parent if parent and name.lower() in vocabulary.SPLITS else folder)
    outer = [run for run in sorted(runs) if not runs & set(itertools.accumulate(run.split("/")[:-1], "{}/{}".format))]
    pattern = _pattern([f"{run}/{_EVENTS}".strip("/") for run in outer])
    if folders != set(outer) and not pattern.startswith("**/"):
        pattern = pattern.replace(_EVENTS, f"**/{_EVENTS}")
    return pattern


def _pattern(paths: Sequence[str]) -> str:
    """Returns a pattern that matches all paths, with the names of their values."""
    split = [path.split("/") for path in paths]
    if len({len(parts) for parts in split}) > 1:
        return f"**/{_wildcard([parts[-1] for parts in split])}"
    pattern = list[str]()
    for texts in zip(*split, strict=True):
        pattern.append(_named(texts, "".join(pattern)))
    return "/".join(pattern)


def _wildcard(texts: Sequence[str]) -> str:
    """Returns a text, or a pattern that matches all texts: their start, up to a digit, and their suffix."""
    if len(set(texts)) == 1:
        return texts[0]
    start = re.split(r"[\d.]", texts[0])[0]
    suffix = texts[0].rpartition(".")[2]
    start = start if all(text.startswith(start) for text in texts) else ""
    return f"{start}*.{suffix}" if all(text.endswith(f".{suffix}") for text in texts) else f"{start}*"


def _named(texts: Sequence[str], before: str = "") -> str:
    """Returns a pattern for one part of all paths, with names for values that are not in ``before``, or a wildcard."""
    if len(set(texts)) == 1 and len(texts) > 1:
        return texts[0]
    part = texts[0]
    for name, expression in _VALUES.items():
        match = expression.search(part)
        if match and f"{{{name}}}" not in before:
            part = f"{part[: match.start('value')]}{{{name}}}{part[match.end('value') :]}"
    if part != texts[0] and all(places.compile_pattern(part).fullmatch(text) for text in texts):
        return part
    return _wildcard(texts)


def _config(place: Place, root: Folder) -> tuple[str, Fields]:
    """Returns the name and the entries of the most telling config file in the run's folder, or in the next above it."""
    best, entries = "", dict[str, Any]()
    for folder in place.folders(root):
        for name in _config_names(folder, root):
            with contextlib.suppress(Unusable):
                content = vocabulary.entries_of(
                    logs.parse_config(untrusted.read_bytes(folder / name, root, CONFIG_BYTES))
                )
                if name != place.name and vocabulary.known(content) > vocabulary.known(entries):
                    best, entries = name, content
        if best:
            break
    return best, entries


def _config_names(folder: Folder, root: Folder) -> list[str]:
    with contextlib.suppress(Unusable), untrusted.open_folder(folder, root) as opened:
        names = sorted(entry.name for entry in opened.entries() if entry.name.endswith((".json", ".yaml", ".yml")))
        names.sort(key=lambda name: not _TELLING.search(name.lower()))
        return [".hydra/config.yaml", *names[:MOST_CONFIGS]]
    return []
