"""Parses command lines in Hydra's grammar: separates flags from overrides, and checks each word."""

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf

import conf
from results.aliases import Fields
from results.bad_input import BadInput, check_choice, first_line
from results.cli import OUTPUT_FLAGS, as_pairs
from sweeps.schema import StudyConfig, TaskConfig

Words = tuple[str, ...]  # words of a command line

GROUPS = ("task", "optimizer", "launcher", "experiment")

OF_PAIRS = ("mesh", "layout")  # keys whose values are pairs separated by commas or semicolons
# Keys whose values may contain arbitrary characters.
_TEXTS = (
    "tasks",
    "ratings.path",
    "ratings.heldout",
    "ratings.history",
    "table.path",
    "archive.store",
    "hardware",
    *OF_PAIRS,
)
_PLAIN = re.compile(r"(?!(?:null|true|false|inf|nan)$)[a-z_][a-z0-9_]*")  # texts that do not need quotes
# Keys of earlier versions and their replacements.
RENAMED = {"part_seconds": "flush_seconds=SECONDS", "refused": "on_invalid=record"}
REMOVED = {"notify": "Run your command after the sweep, and test the exit code of the sweep there."}
DRY_RUN, HELP_KEYS = "--dry-run", "--help-keys"
FLAGS = ("-m", "--multirun", "-h", "--help", HELP_KEYS, DRY_RUN, *OUTPUT_FLAGS)


class CommandLine(NamedTuple):
    """The parsed arguments of `python -m sweeps`.

    Attributes:
      overrides: overrides in Hydra's grammar.
      multirun: whether the command line is a sweep.
      store: folder of the results, if given. It is not an override, because Hydra's grammar does not allow all
        characters in a path.
      dry_run: whether to list the studies without running them.
    """

    overrides: Words
    multirun: bool
    store: str | None = None
    dry_run: bool = False


# Files of the user's own tasks and optimizers by group and name, from folders given as ``tasks=DIR``.
own_files: dict[str, dict[str, Path]] = {"task": {}, "optimizer": {}}


def read_own(words: Sequence[str]) -> Words:
    """Adds the YAML files in ``tasks=DIR`` to the choices of groups. Returns the words with the folder's absolute path.

    The folder contains a YAML file for each task and, optionally, an ``optimizer`` folder with a file for each
    optimizer.

    Raises:
      BadInput: the folder does not exist or contains no files, or a name is already taken.
    """
    found = [word for word in words if word.startswith("tasks=")]
    check_once(found)
    if not found:
        return tuple(words)
    folder = Path(_unquoted(found[0].partition("=")[2])).expanduser().absolute()
    if not folder.is_dir():
        raise BadInput(f"no folder at tasks={folder}. Give a folder with a YAML file for each task.")
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        group = "optimizer" if name.startswith("optimizer/") else "task"
        own = name.removeprefix("optimizer/")
        if own in _shipped(group):
            raise BadInput(f"{path}: this package already has the {group} {own}. Rename the file.")
        try:
            OmegaConf.load(path)
        except Exception as error:  # of the YAML parser, or of the file system
            raise BadInput(f"{path} cannot be read as YAML ({first_line(error)})") from None
        own_files[group][own] = path
    if not any(folder in path.parents for files in own_files.values() for path in files.values()):
        raise BadInput(f"tasks={folder} has no YAML files. Give a folder with one for each task.")
    return tuple(f"tasks={folder}" if word == found[0] else word for word in words)


def file_of(group: str, name: str) -> Path:
    """Returns the YAML file of a choice in a group."""
    return own_files.get(group, {}).get(name) or Path(conf.__path__[0]) / group / f"{name}.yaml"


def task(name: str) -> Fields:
    """Returns the keys of a task that trains a network, as plain data. Raises BadInput for any other name."""
    check_choice("step.task", name, options("task"))
    path = file_of("task", name)
    if path.read_text().startswith("# @package _global_"):
        raise BadInput(f"step.task={name}: this task does not train a network. Use one such as digits_cnn.")
    defaults = OmegaConf.to_container(OmegaConf.structured(TaskConfig))
    found = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(defaults, dict) and isinstance(found, dict)
    return {str(key): value for key, value in (defaults | found).items()}


def _shipped(group: str) -> set[str]:
    root = Path(conf.__path__[0]) / group
    return {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml")}


def options(group: str) -> list[str]:
    """Returns the names in a configuration group: its YAML files as `folder/name`, and presets listed in tables."""
    files = _shipped(group) | own_files.get(group, {}).keys()
    if group != "experiment":
        return sorted(files)
    return sorted({name for name in files if not _is_only_table(name)} | _presets().places.keys())


class _Presets(NamedTuple):
    """Presets by name.

    Attributes:
      united: the presets that each preset combines.
      words: the overrides that each preset expands to.
      places: the file that lists each preset, and the preset's key in that file.
    """

    united: dict[str, Words]
    words: dict[str, Words]
    places: dict[str, tuple[Path, str]]


@functools.cache
def _presets() -> _Presets:
    """Reads presets that combine other presets, and presets that are listed in tables.

    A table is a file with a ``presets`` mapping from names to overrides or to lists of presets. Unless its name is
    ``presets.yaml``, the table itself is a preset that combines all of its entries.

    Raises:
      BadInput: an entry of a table is not a preset.
    """
    root = Path(conf.__path__[0]) / "experiment"
    presets = _Presets({}, {}, {})
    for path in sorted(root.rglob("*.yaml")):
        name = path.relative_to(root).with_suffix("").as_posix()
        listed: Any = OmegaConf.to_object(OmegaConf.load(path))
        listed = listed.get("presets")
        if isinstance(listed, dict):
            own = {key: (Path(name).parent / key).as_posix() for key in listed}
            for key, each in own.items():
                presets.places[each] = path, key
                if isinstance(listed[key], list):
                    presets.united[each] = tuple(listed[key])
                else:
                    presets.words[each] = _words_in(path, key, listed[key])
            if not _is_only_table(name):
                presets.united[name] = tuple(own.values())
        elif listed is not None:
            presets.united[name] = tuple(listed)
    return presets


def _is_only_table(name: str) -> bool:
    return Path(name).name == "presets"


def _words_in(path: Path, key: str, content: Any) -> Words:
    try:
        if not isinstance(content, Mapping):
            raise BadInput(f"{content!r} is neither a mapping of keys to values nor a list of presets")
        return as_words(content)
    except BadInput as error:
        raise BadInput(f"{path}: {key}: {error}") from None


def tasks(kind: str) -> list[str]:
    """Returns the names of the tasks for studies of a given kind."""
    return [
        name
        for name in options("task")
        if OmegaConf.select(OmegaConf.load(file_of("task", name)), "kind", default=StudyConfig.kind) == kind
    ]


def launcher_keys(name: str) -> list[str]:
    """Returns the keys in a launcher's file in conf/launcher, such as `name` and `workers`."""
    return [str(key) for key in OmegaConf.load(Path(conf.__path__[0]) / "launcher" / f"{name}.yaml")]


def united(preset: str) -> list[str]:
    """Returns the presets that a preset combines, recursively, or the preset itself."""
    listed = _presets().united.get(preset)
    return [preset] if listed is None else [each for name in listed for each in united(name)]


def words_of(preset: str) -> Words:
    """Returns the overrides that a preset expands to: those given in its table, or ``+experiment=NAME``."""
    return _presets().words.get(preset, (f"+experiment={preset}",))


def place_in_table(preset: str) -> tuple[Path, str] | None:
    """Returns the table that lists a preset, and the preset's key in it, or None if the preset has its own file."""
    return _presets().places.get(preset)


def command_line(argv: Sequence[str]) -> CommandLine:
    """Separates flags and the store from overrides. Raises BadInput for unknown flags."""
    words = as_pairs(argv, FLAGS)
    flags = [word for word in words if word.startswith("-")]
    for flag in flags:
        check_choice("option", flag, FLAGS)
    stores = [word for word in words if word.startswith("store=")]
    check_once(stores)
    store = _unquoted(stores[0].partition("=")[2]) if stores else None
    others = read_own([word for word in words if not word.startswith(("-", "store="))])
    return CommandLine(others, bool({*flags} - {*OUTPUT_FLAGS, DRY_RUN}), store, DRY_RUN in flags)


def split(
    argv: Sequence[str], keys: Collection[str], maps: Collection[str] = (), flags: Words = ()
) -> tuple[dict[str, str], list[str]]:
    """Splits a command line into the values of a command's own keys and all other words.

    Args:
      argv: words of the command line.
      keys: the command's own keys.
      maps: own keys that are followed by a dot and a name, such as ``env`` in env.NAME=VALUE.
      flags: the command's own flags, which are among the other words.

    Raises:
      BadInput: a key is given twice, or has no value.
    """
    words = as_pairs(argv, (*FLAGS, *flags))
    own = [word for word in words if word.partition("=")[0] in keys or re.split("[.=]", word)[0] in maps]
    check_once(own)
    given = {}
    for word in own:
        key, _, given[key] = word.partition("=")
        if not given[key]:
            raise BadInput(f"{key}= is empty. Set a value, or leave it out.")
    return given, [word for word in words if word not in own]


def check_once(words: Iterable[str]) -> None:
    """Raises BadInput if two words set the same key."""
    first: dict[str, str] = {}
    for word in words:
        if (key := key_of(word)) in first:
            raise BadInput(f"{key} is given twice: {first[key]} and {word}. Keep one of them.")
        first[key] = word


def _unquoted(text: str) -> str:
    """Returns a text without surrounding quotes."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def as_text(text: str) -> str:
    """Quotes a text for Hydra's grammar."""
    escaped = text.replace("${", r"\${")
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (r"\'" if found[2] else ""), escaped) + "'"


def as_words(values: Fields) -> Words:
    """Returns overrides for the keyword arguments of ``sweeps.sweep``. A list or tuple is an axis.

    Raises:
      BadInput: an axis is empty, or a value cannot be written in Hydra's grammar.
    """
    axes = {key: value if isinstance(value, list | tuple) else [value] for key, value in values.items()}
    for key, axis in axes.items():
        if not axis:
            raise BadInput(f"{key}=[]: an axis needs at least one value")
    return tuple(
        f"{'+' if key == 'experiment' else ''}{key}={','.join(_literal(key, value) for value in axis)}"
        for key, axis in axes.items()
    )


def key_of(word: str) -> str:
    """Returns the key of an override, without leading plus signs."""
    return word.partition("=")[0].lstrip("+")


def _literal(key: str, value: Any) -> str:
    """Writes a value in Hydra's grammar."""
    if key in GROUPS:  # names of files
        return str(value)
    if value is None:
        return "null"
    if hasattr(value, "item"):  # NumPy scalars
        value = value.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return str(value) if _PLAIN.fullmatch(str(value)) else as_text(str(value))
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_literal(key, each)}" for name, each in value.items()) + "}"
    if isinstance(value, Iterable):
        return f"[{','.join(_literal(key, each) for each in value)}]"
    raise BadInput(f"{key}: {value!r} is not a number, text, list or dict")


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parses overrides. Values of the keys in ``_TEXTS`` do not need quotes.

    Raises:
      BadInput: a word is not an override.
    """
    parsed = []
    for text in overrides:
        try:
            parsed += OverridesParser.create().parse_overrides([text])
        except (OverrideParseException, HydraException):
            key, _, value = text.partition("=")
            if key in OF_PAIRS and "," in value and ";" in value:  # ambiguous: a single text, or a sweep over several
                each = ",".join(f"'{part}'" for part in value.split(","))
                raise BadInput(
                    f'{text} has both commas and semicolons. Put each {key} in quotes, as in {key}="{each}".'
                ) from None
            if key not in _TEXTS:
                raise BadInput(f"cannot parse {text!r}. Write KEY=VALUE, such as batch_size=64.") from None
            parsed += OverridesParser.create().parse_overrides([f"{key}={as_text(value)}"])
    return parsed


def check(override: Override) -> None:
    """Raises BadInput for words that Hydra would accept silently or reject with a long message."""
    key = override.key_or_group
    text = str(override.input_line)
    if override.is_interval_sweep():
        raise BadInput(f"{text}: an interval has no list of values. Use a list, such as {key}=1,2,4, or range(1,4).")
    if not key or override.is_delete() or key == "hydra" or key.startswith(("hydra.", "hydra/")):
        raise BadInput(
            f"cannot use {text!r}. `python -m sweeps --help-keys` lists the keys, and keys cannot be removed."
        )
    if key in RENAMED:
        raise BadInput(f"{key} is now {RENAMED[key].split('=')[0]}. Use {RENAMED[key]}.")
    if key in REMOVED:
        raise BadInput(f"{key} was removed. {REMOVED[key]}")
    if "???" in text:  # OmegaConf's marker of a missing value
        raise BadInput(f"{text}: a value is needed")
    if key == "experiment" and not override.is_add():
        raise BadInput(f"{text}: presets need a plus sign. Use +{text}.")
    if key in GROUPS:
        for choice in values(override):
            check_choice("preset" if key == "experiment" else key, choice.split("=", 1)[1], options(key))


def values(override: Override) -> Iterator[str]:
    """Yields each ``key=value`` that an override expands to."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        yield f"{key}={override.get_value_element_as_str()}"
    elif isinstance(value := override.value(), Glob):
        names = value.filter(options(override.key_or_group))
        if not names:
            raise BadInput(f"{override.input_line}: this does not match a name of {key}")
        yield from (f"{key}={name}" for name in names)
    else:
        yield from (f"{key}={text}" for text in override.sweep_string_iterator())
