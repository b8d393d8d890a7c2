"""Layout: the format of the logs in a folder, the pattern of their files, and their config file."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from results import bounds
from results.aliases import Fields
from results.bad_input import BadInput
from results.durable import Folder
from results.importers import untrusted
from results.importers.runs import logs, places, vocabulary
from results.importers.runs.places import Place
from results.importers.runs.run_map import CHART, MLFLOW, RAY, TENSORBOARD, TEXT, TRAINER, WANDB
from results.importers.untrusted import ImportWarnings, Unusable

CONFIG_BYTES = 256 << 10  # larger files are tokenizers and the like
_CONFIG = re.compile(r".*(arg|conf|hparam|param|setting|option|hyper).*\.(json|ya?ml)", re.IGNORECASE)
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_EVENTS = "*tfevents*"
# Patterns of the files of each format. The first format with a file is taken.
_FILES = {
    RAY: ("**/progress.csv",),
    MLFLOW: ("**/meta.yaml", "**/mlflow.db"),
    TRAINER: ("**/trainer_state.json",),
    TENSORBOARD: (f"**/{_EVENTS}",),
    "jsonl": ("**/*.jsonl",),
    "csv": ("**/*.csv",),
    "parquet": ("**/*.parquet",),
    TEXT: ("**/*.log", "**/*.txt", "**/*.out"),
}


class Layout(NamedTuple):
    """The logs in a folder.

    Attributes:
      format: format of the logs.
      pattern: pattern of their files.
      parts: names in the pattern.
      config: name of the config file, or an empty string.
      run: pattern of the names of runs in a chart of W&B.
      entries: entries of the first run's config file, with dotted names.
      places: files that match the pattern.
      root: the folder, or the folder of a single file.
    """

    format: str
    pattern: str
    parts: Sequence[str]
    config: str
    run: str
    entries: Fields
    places: Sequence[Place]
    root: Folder


def find(path: Folder) -> Layout:
    """Returns the layout of the logs under a folder, or of one file. Raises BadInput if there are no logs."""
    root = path.parent if path.is_file() else path
    format, found = _format(path, root)
    run = ""
    if format == MLFLOW:
        pattern, parts = found[0].name if path.is_file() else f"**/{found[-1].name}", list[str]()
    elif format == CHART:
        runs = vocabulary.chart_runs(logs.column_names(found[0], format, root))
        pattern = _pattern([place.path for place in found])[0]
        run, parts = _named(runs, [])
    elif format == TENSORBOARD:
        pattern, parts = _events_pattern([place.path for place in found])
    else:
        pattern, parts = _pattern([place.path for place in found])
    matching = places.find(path, pattern, ImportWarnings())
    config, entries = _config(matching[0], root) if format != MLFLOW else ("", {})
    return Layout(format, pattern, parts, config, run, entries, matching, root)


def _format(path: Folder, root: Folder) -> tuple[str, list[Place]]:
    """Returns the format of the logs, and their files."""
    for format, patterns in _FILES.items():
        found = [place for pattern in patterns for place in places.find(path, pattern, ImportWarnings())]
        if format == RAY:
            found = [place for place in found if (place.folder / "params.json").is_file()]
        if format == MLFLOW:
            found = [place for place in found if _is_of_mlflow(place, root)]
        if not found:
            continue
        if format == TRAINER:
            found = _without_checkpoints(found)
        if format in ("jsonl", "csv"):
            names = logs.column_names(found[0], format, root)
            format = CHART if vocabulary.chart_runs(names) else WANDB if "_step" in names else format
        return format, found
    raise BadInput(
        f"{path} has no TensorBoard event files, trainer_state.json, JSONL, CSV, Parquet or text, and no folders of Ray "
        "or MLflow. docs/own-runs.md shows how to convert other logs."
    )


def _is_of_mlflow(place: Place, root: Folder) -> bool:
    try:
        return place.name == "mlflow.db" or b"run_id" in untrusted.read_bytes(
            place.folder / place.name, root, CONFIG_BYTES
        )
    except Unusable:
        return False


def _without_checkpoints(found: Sequence[Place]) -> list[Place]:
    """Returns the logs of whole runs. Checkpoints hold the first part of the same log, and are used if there is no other."""
    whole = [place for place in found if not re.fullmatch(r"checkpoint-\d+", place.folder.name)]
    runs = {str(place.folder) for place in whole}
    return whole + [place for place in found if place not in whole and str(place.folder.parent) not in runs]


def _events_pattern(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Returns a pattern for event files. Folders of splits and of hyperparameters belong to the run above them."""
    runs = dict[str, bool]()
    for folder in sorted({path.rpartition("/")[0] for path in paths}, key=lambda folder: folder.count("/")):
        above = folder.rpartition("/")[0]
        if above and vocabulary.SPLITS & {folder.rpartition("/")[2].lower()}:
            runs[above] = True
            continue
        outer = next((run for run in runs if run and f"{folder}/".startswith(f"{run}/")), folder)
        runs[outer] = outer != folder or runs.get(outer, False)
    if "" in runs and len(runs) > 1:
        return f"**/{_EVENTS}", []
    pattern, names = _pattern([run for run in runs if run])
    below = f"**/{_EVENTS}" if any(runs.values()) and pattern != "**" else _EVENTS
    return f"{pattern}/{below}" if pattern else below, names


def _pattern(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Returns a pattern that matches all paths, and the names of its parts."""
    split = [path.split("/") for path in paths]
    if len({len(parts) for parts in split}) > 1:
        return "**" if "." not in paths[0] else f"**/{_wildcard([parts[-1] for parts in split])}", []
    pattern, names = [], list[str]()
    for texts in zip(*split, strict=True):
        part, parts = _named(texts, names)
        pattern.append(part)
        names += parts
    return "/".join(pattern), names


def _wildcard(texts: Sequence[str]) -> str:
    """Returns a text, or a pattern that matches all texts: what they start with, except for digits, and the suffix."""
    if len(set(texts)) == 1:
        return texts[0]
    suffixes = {text.rpartition(".")[2] for text in texts if "." in text}
    start = re.sub(r"[\d.]+$", "", os.path.commonprefix(list(texts)))
    return f"{start}*.{suffixes.pop()}" if len(suffixes) == 1 else f"{start}*"


def _named(texts: Sequence[str], taken: Iterable[str]) -> tuple[str, list[str]]:
    """Returns a pattern for one part of all paths, with the names of its values, or a wildcard if they have no names."""
    if len(set(texts)) == 1 and len(texts) > 1:
        return texts[0], []
    words = {name: names for name, names in vocabulary.NAMES.items() if name != "optimizer" and name not in taken}
    expression = "|".join(f"(?P<{name}>{'|'.join(names)})" for name, names in words.items())
    found: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = next(name for name, text in match.groupdict().items() if text and name != "value")
        if name in found:
            return match[0]
        found.append(name)
        return f"{match[0][: match.start('value') - match.start()]}{{{name}}}"

    part = re.sub(rf"(?<![A-Za-z0-9])(?:{expression})[=_-]?(?P<value>{_NUMBER})(?![A-Za-z0-9])", value, texts[0])
    if "optimizer" not in taken:
        named = re.sub(rf"(?<![A-Za-z])(?:{vocabulary.OPTIMIZERS})(?![A-Za-z])", "{optimizer}", part, count=1)
        found += ["optimizer"] if named != part else []
        part = named
    if found and all(places.compile_pattern(part).fullmatch(text) for text in texts):
        return part, found
    return _wildcard(texts), []


def _config(place: Place, root: Folder) -> tuple[str, Fields]:
    """Returns the name and the entries of the config file with the most known entries, in the run's folder or above it."""
    folder = place.folder
    while True:
        best: tuple[str, Fields] = ("", {})
        most = 0
        for name in _config_names(folder, root):
            try:
                content = logs.parse_config(untrusted.read_bytes(folder / name, root, CONFIG_BYTES))
            except (Unusable, bounds.TooLarge):
                continue
            entries = vocabulary.flat(content)
            score = vocabulary.known(entries)
            if name != place.name and score > most:
                best, most = (name, entries), score
        if most or folder in (root, folder.parent):
            return best
        folder = folder.parent


def _config_names(folder: Folder, root: Folder) -> list[str]:
    try:
        with untrusted.open_folder(folder, root) as opened:
            names = sorted(entry.name for entry in opened.entries() if _CONFIG.fullmatch(entry.name))
    except Unusable:
        names = []
    return [*names, ".hydra/config.yaml"]
