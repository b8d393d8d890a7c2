"""The choices of each configuration group: YAML files of tasks, optimizers and launchers, and presets in tables."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

import conf
from results.aliases import Fields
from results.bad_input import BadInput, check_choice, first_line
from sweeps.quoting import Words, as_words
from sweeps.schema import StudyConfig, TaskConfig

# Files of the user's own tasks and optimizers by group and name, from folders given as ``tasks=DIR``.
own_files: dict[str, dict[str, Path]] = {"task": {}, "optimizer": {}}


def add_folder(folder: Path) -> None:
    """Adds the YAML files in a folder to the choices of groups.

    The folder contains a YAML file for each task and, optionally, an ``optimizer`` folder with a file for each
    optimizer.

    Raises:
      BadInput: the folder does not exist or contains no files, or a name is already taken.
    """
    if not folder.is_dir():
        raise BadInput(f"no folder at tasks={folder}. Give a folder with a YAML file for each task.")
    paths = sorted(folder.rglob("*.yaml"))
    if not paths:
        raise BadInput(f"tasks={folder} has no YAML files. Give a folder with one for each task.")
    for path in paths:
        name = path.relative_to(folder).with_suffix("").as_posix()
        group = "optimizer" if name.startswith("optimizer/") else "task"
        choice = name.removeprefix("optimizer/")
        if choice in _shipped(group):
            raise BadInput(f"{path}: this package already has the {group} {choice}. Rename the file.")
        try:
            OmegaConf.load(path)
        except Exception as error:  # of the YAML parser, or of the file system
            raise BadInput(f"{path} cannot be read as YAML ({first_line(error)})") from None
        own_files[group][choice] = path


def file_of(group: str, name: str) -> Path:
    """Returns the YAML file of a choice in a group."""
    return own_files.get(group, {}).get(name) or Path(conf.__path__[0]) / group / f"{name}.yaml"


def content(group: str, name: str) -> tuple[Any, bool]:
    """Returns the content of a choice's file, and whether its keys are those of the whole configuration."""
    path = file_of(group, name)
    return OmegaConf.load(path), path.read_text().startswith("# @package _global_")


def task(name: str) -> Fields:
    """Returns the keys of a task that trains a network, as plain data. Raises BadInput for any other name."""
    check_choice("step.task", name, options("task"))
    fields, is_whole = content("task", name)
    if is_whole:
        raise BadInput(f"step.task={name}: this task does not train a network. Use one such as digits_cnn.")
    plain = OmegaConf.to_container(OmegaConf.structured(TaskConfig)), OmegaConf.to_container(fields)
    assert isinstance(plain[0], dict) and isinstance(plain[1], dict)
    return {str(key): value for key, value in (plain[0] | plain[1]).items()}


def tasks(kind: str) -> list[str]:
    """Returns the names of the tasks for studies of a given kind."""
    kinds = {name: content("task", name)[0].get("kind", StudyConfig.kind) for name in options("task")}
    return [name for name in kinds if kinds[name] == kind]


def launcher_keys(name: str) -> list[str]:
    """Returns the keys in a launcher's file in conf/launcher, such as `name` and `workers`."""
    return [str(key) for key in content("launcher", name)[0]]


def _shipped(group: str) -> set[str]:
    root = Path(conf.__path__[0]) / group
    return {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml")}


def options(group: str) -> list[str]:
    """Returns the names in a configuration group: its YAML files as `folder/name`, and presets listed in tables."""
    return sorted(presets() if group == "experiment" else _shipped(group) | own_files.get(group, {}).keys())


class Preset(NamedTuple):
    """A preset: its overrides, or the names of the presets that it combines.

    Attributes:
      words: overrides. Those of a preset with its own file are ``+experiment=NAME``.
      parts: names of presets.
      table: file that lists the preset, if there is one, and its key in this file.
    """

    words: Words = ()
    parts: Words = ()
    table: tuple[Path, str] | None = None


@functools.cache
def presets() -> dict[str, Preset]:
    """Returns all presets by name.

    A table is a file with a ``presets`` mapping from names to overrides or to lists of presets. Unless its name is
    ``presets.yaml``, the table itself is a preset that combines all of its entries.

    Raises:
      BadInput: an entry of a table is not a preset.
    """
    root = Path(conf.__path__[0]) / "experiment"
    known_presets = {}
    for path in sorted(root.rglob("*.yaml")):
        name = path.relative_to(root).with_suffix("").as_posix()
        file: Any = OmegaConf.to_object(OmegaConf.load(path))
        table = file.get("presets")
        if not isinstance(table, dict):
            known_presets[name] = Preset(parts=tuple(table)) if table else Preset((f"+experiment={name}",))
            continue
        names = {key: (Path(name).parent / key).as_posix() for key in table}
        for key, entry in table.items():
            is_list = isinstance(entry, list)
            words = () if is_list else _words_in(path, key, entry)
            known_presets[names[key]] = Preset(words, tuple(entry) if is_list else (), (path, key))
        if Path(name).name != "presets":
            known_presets[name] = Preset(parts=tuple(names.values()))
    return known_presets


def _words_in(path: Path, key: str, entry: Any) -> Words:
    try:
        if not isinstance(entry, Mapping):
            raise BadInput(f"{entry!r} is neither a mapping of keys to values nor a list of presets")
        return as_words(entry)
    except BadInput as error:
        raise BadInput(f"{path}: {key}: {error}") from None


def united(name: str) -> list[str]:
    """Returns the presets that a preset combines, recursively, or the preset itself."""
    preset = presets()[name]
    return [member for part in preset.parts for member in united(part)] if preset.parts else [name]
