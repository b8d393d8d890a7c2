"""The command line in Hydra's grammar: flags and overrides, checked word by word."""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf

import conf
from results.bad_input import BadInput, check_choice
from results.cli import OUTPUT_FLAGS, as_pairs
from sweeps.schema import StudyConfig

GROUPS = ("task", "optimizer", "launcher", "experiment")

# Keys whose values are texts of any letters: files, meshes and layouts.
_TEXTS = ("notify", "ratings.path", "ratings.heldout", "ratings.history", "table.path", "mesh", "layout")
_OF_AXES = ("mesh", "layout")  # those of which pairs have commas or semicolons between them
_PLAIN = re.compile(r"(?!(?:null|true|false|inf|nan)$)[a-z_][a-z0-9_]*")  # texts that need no quotes
# Keys of earlier versions, and the words that replace them.
RENAMED = {"part_seconds": "flush_seconds=SECONDS", "refused": "on_invalid=record"}
MANY = 12  # names of a group that are not listed in a line
DRY_RUN = "--dry-run"
FLAGS = ("-m", "--multirun", "-h", "--help", DRY_RUN, *OUTPUT_FLAGS)


class CommandLine(NamedTuple):
    """The words after `python -m sweeps`: overrides in Hydra's grammar, whether to sweep, and the store, if named.

    ``dry_run`` is whether to say what would be run, and to run nothing.

    The store is no override: any letters may be in the name of a folder, and Hydra's grammar gives many a meaning.
    """

    overrides: tuple[str, ...]
    multirun: bool
    store: str | None = None
    dry_run: bool = False


def options(group: str) -> list[str]:
    """Names in a configuration group, such as the tasks: its YAML files, as `folder/name` where they are in folders.

    Presets are those as well that a table holds, by names below its own folder.
    """
    root = Path(conf.__path__[0]) / group
    files = {path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml")}
    if group != "experiment":
        return sorted(files)
    return sorted({name for name in files if not _is_only_table(name)} | _presets().places.keys())


class _Presets(NamedTuple):
    """Presets by name: what they unite, the words they stand for, and the table and the key that they are in."""

    united: dict[str, tuple[str, ...]]
    words: dict[str, tuple[str, ...]]
    places: dict[str, tuple[Path, str]]


@functools.cache
def _presets() -> _Presets:
    """Presets that unite others, and presets of tables: a file's mapping ``presets``, of words or of names, by name.

    A table unites all that it holds, unless it is called ``presets.yaml``, which is no preset.

    Raises:
      BadInput: something in a table is no preset.
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


def _words_in(path: Path, key: str, content: Any) -> tuple[str, ...]:
    try:
        if not isinstance(content, Mapping):
            raise BadInput(f"{content!r} is neither keys with values nor a list of presets")
        return as_words(content)
    except BadInput as error:
        raise BadInput(f"{path}: {key}: {error}") from None


def tasks(kind: str) -> list[str]:
    """Names of the tasks whose studies are of a kind."""
    root = Path(conf.__path__[0]) / "task"
    kinds = {
        name: OmegaConf.select(OmegaConf.load(root / f"{name}.yaml"), "kind", default=StudyConfig.kind)
        for name in options("task")
    }
    return [name for name, own in kinds.items() if own == kind]


def united(preset: str) -> list[str]:
    """Names of the presets that a preset unites, and those of these; itself if it unites none."""
    listed = _presets().united.get(preset)
    return [preset] if listed is None else [each for name in listed for each in united(name)]


def words_of(preset: str) -> tuple[str, ...]:
    """The words that a preset stands for: those that a table holds of it, or that its file is to be read."""
    return _presets().words.get(preset, (f"+experiment={preset}",))


def place_in_table(preset: str) -> tuple[Path, str] | None:
    """The file that holds a preset among others, and its key there; None if it has a file of its own."""
    return _presets().places.get(preset)


def command_line(argv: Sequence[str]) -> CommandLine:
    """Splits flags and the store from overrides; unknown flags are BadInput."""
    words = as_pairs(argv, FLAGS)
    flags = [word for word in words if word.startswith("-")]
    for flag in flags:
        check_choice("option", flag, FLAGS)
    check_once([word for word in words if word.startswith("store=")])
    stores = [word.partition("=")[2] for word in words if word.startswith("store=")]
    store = _unquoted(stores[0]) if stores else None
    others = tuple(word for word in words if not word.startswith(("-", "store=")))
    return CommandLine(others, bool({*flags} - {*OUTPUT_FLAGS, DRY_RUN}), store, DRY_RUN in flags)


def check_once(words: Iterable[str]) -> None:
    """Raises BadInput if two words are of one key: one of them would count, and the other would not."""
    first: dict[str, str] = {}
    for word in words:
        if (key := key_of(word)) in first:
            raise BadInput(f"{key} is given twice: {first[key]} and {word}; leave one out")
        first[key] = word


def _unquoted(text: str) -> str:
    """A text without the quotes around it, as Hydra's grammar has them."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def as_text(text: str) -> str:
    """A text of any letters as Hydra's grammar has it: in quotes."""
    escaped = text.replace("${", r"\${")
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (r"\'" if found[2] else ""), escaped) + "'"


def as_words(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Words of a command line from values by key, as of ``sweeps.sweep``: a list or tuple is an axis.

    Raises:
      BadInput: an axis without values, or a value that no word can say.
    """
    axes = {key: value if isinstance(value, list | tuple) else [value] for key, value in values.items()}
    for key, axis in axes.items():
        if not axis:
            raise BadInput(f"{key}=[]: an axis needs a value")
    return tuple(_word(key, ",".join(_literal(key, value) for value in axis)) for key, axis in axes.items())


def key_of(word: str) -> str:
    """The key of a word that is an override, without the signs that add it."""
    return word.partition("=")[0].lstrip("+")


def _word(key: str, text: str) -> str:
    return f"+{key}={text}" if key == "experiment" else f"{key}={text}"


def _literal(key: str, value: Any) -> str:
    """A value in Hydra's grammar."""
    if key in GROUPS:  # names of files
        return str(value)
    if value is None:
        return "null"
    if hasattr(value, "item"):  # of NumPy
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
    raise BadInput(f"{key}: {value!r} is neither a number, a text, a list nor a dict")


def parse(overrides: Sequence[str]) -> list[Override]:
    """Reads overrides; BadInput for other words. Names of files, commands, meshes and layouts need no quotes."""
    parsed = []
    for text in overrides:
        try:
            parsed += OverridesParser.create().parse_overrides([text])
        except (OverrideParseException, HydraException):
            key, _, value = text.partition("=")
            if key in _OF_AXES and "," in value and ";" in value:  # one text, or several with commas between them?
                each = ",".join(f"'{part}'" for part in value.split(","))
                raise BadInput(
                    f'{text} has commas and semicolons; put each {key} in quotes, such as {key}="{each}"'
                ) from None
            if key in _TEXTS:
                parsed += OverridesParser.create().parse_overrides([f"{key}={as_text(value)}"])
                continue
            raise BadInput(f"cannot read {text!r}; write key=value, such as batch_size=64") from None
    return parsed


def check(override: Override) -> None:
    """Raises BadInput for words that Hydra would accept silently, or refuse in a page of text."""
    key, text = override.key_or_group, str(override.input_line)
    if not key or override.is_delete() or key == "hydra" or key.startswith(("hydra.", "hydra/")):
        raise BadInput(f"cannot take {text!r}; keys are those of `python -m sweeps --help`, and none can be removed")
    if key in RENAMED:
        raise BadInput(f"{key} is now {RENAMED[key].split('=')[0]}. Use {RENAMED[key]}")
    if "???" in text:  # which stands for a value that is still to come
        raise BadInput(f"{text}: a value is needed")
    if key == "experiment" and not override.is_add():
        raise BadInput(f"a preset is added with a plus sign: +{text}")
    if key in GROUPS:
        for choice in values(override):
            what = "preset" if key == "experiment" else key
            _check_named(what, choice.split("=", 1)[1], options(key))


def _check_named(what: str, word: str, known: Sequence[str]) -> None:
    """Raises BadInput for the name of no file, with the few that are nearest to it where there are many."""
    if word not in known and len(known) > MANY and not difflib.get_close_matches(word, known, 1, 0.5):
        few = ", ".join(difflib.get_close_matches(word, known, 3, 0.0))
        raise BadInput(f"unknown {what} {word!r}; the nearest are {few}, and `python -m sweeps --help` lists all")
    check_choice(what, word, known)


def values(override: Override) -> Iterator[str]:
    """Every ``key=value`` an override stands for."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        yield f"{key}={override.get_value_element_as_str()}"
    elif isinstance(value := override.value(), Glob):
        yield from (f"{key}={name}" for name in value.filter(options(override.key_or_group)))
    else:
        yield from (f"{key}={text}" for text in override.sweep_string_iterator())
