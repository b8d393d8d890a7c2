"""Parses command lines in Hydra's grammar: separates flags from overrides, and checks each word."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, OverrideParseException

from results.bad_input import BadInput, check_choice
from results.cli import OUTPUT_FLAGS, as_pairs
from sweeps import choices
from sweeps.quoting import GROUPS, Words, as_text, key_of

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


def read_own(words: Sequence[str]) -> Words:
    """Adds the tasks in ``tasks=DIR`` to the choices. Returns the words with the folder's absolute path."""
    folders = [word for word in words if word.startswith("tasks=")]
    check_once(folders)
    if not folders:
        return tuple(words)
    folder = Path(_unquoted(folders[0].partition("=")[2])).expanduser().absolute()
    choices.add_folder(folder)
    return tuple(f"tasks={folder}" if word == folders[0] else word for word in words)


def command_line(argv: Sequence[str]) -> CommandLine:
    """Separates flags and the store from overrides. Raises BadInput for unknown flags."""
    words = as_pairs(argv, FLAGS)
    flags = [word for word in words if word.startswith("-")]
    for flag in flags:
        check_choice("option", flag, FLAGS)
    stores = [word for word in words if word.startswith("store=")]
    check_once(stores)
    store = _unquoted(stores[0].partition("=")[2]) if stores else None
    words_of_sweep = read_own([word for word in words if not word.startswith(("-", "store="))])
    return CommandLine(words_of_sweep, bool({*flags} - {*OUTPUT_FLAGS, DRY_RUN}), store, DRY_RUN in flags)


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
    command_words = [word for word in words if word.partition("=")[0] in keys or re.split("[.=]", word)[0] in maps]
    check_once(command_words)
    given = {}
    for word in command_words:
        key, _, given[key] = word.partition("=")
        if not given[key]:
            raise BadInput(f"{key}= is empty. Set a value, or leave it out.")
    return given, [word for word in words if word not in command_words]


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


def parse(words: Sequence[str]) -> list[Override]:
    """Parses and checks overrides. Values of the keys in ``_TEXTS`` do not need quotes.

    Raises:
      BadInput: a word is not an override, or would be accepted silently or rejected with a long message by Hydra.
    """
    parsed: list[Override] = []
    for text in words:
        try:
            parsed += OverridesParser.create().parse_overrides([text])
        except (OverrideParseException, HydraException):
            key, _, value = text.partition("=")
            if key in OF_PAIRS and "," in value and ";" in value:  # ambiguous: a single text, or a sweep over several
                quoted = ",".join(f"'{part}'" for part in value.split(","))
                raise BadInput(
                    f'{text} has both commas and semicolons. Put each {key} in quotes, as in {key}="{quoted}".'
                ) from None
            if key not in _TEXTS:
                raise BadInput(f"cannot parse {text!r}. Write KEY=VALUE, such as batch_size=64.") from None
            parsed += OverridesParser.create().parse_overrides([f"{key}={as_text(value)}"])
    for override in parsed:
        _check(override)
    return parsed


def _check(override: Override) -> None:
    key = override.key_or_group
    text = str(override.input_line)
    if override.is_interval_sweep():
        raise BadInput(f"{text}: an interval has no list of values. Use a list, such as {key}=1,2,4, or range(1,4).")
    is_package = override.package is not None
    if not key or is_package or override.is_delete() or key == "hydra" or key.startswith(("hydra.", "hydra/")):
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
        for text in values(override):
            check_choice("preset" if key == "experiment" else key, text.split("=", 1)[1], choices.options(key))


def values(override: Override) -> Iterator[str]:
    """Yields each ``key=value`` that an override expands to."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        yield f"{key}={override.get_value_element_as_str()}"
    elif isinstance(value := override.value(), Glob):
        names = value.filter(choices.options(override.key_or_group))
        if not names:
            raise BadInput(f"{override.input_line}: this does not match a name of {key}")
        yield from (f"{key}={name}" for name in names)
    else:
        yield from (f"{key}={text}" for text in override.sweep_string_iterator())
