"""The command line in Hydra's grammar: flags and overrides, checked word by word."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf

import conf
from results.bad_input import BadInput, check_choice
from results.command_line import OUTPUT_FLAGS, as_pairs
from sweeps.schema import StudyConfig

GROUPS = ("task", "optimizer", "launcher", "experiment")


# Keys whose values are texts of any letters: files, meshes and layouts.
_TEXTS = ("ratings.path", "ratings.heldout", "ratings.history", "table.path", "mesh", "layout")
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
    """Names in a configuration group, such as the tasks: its YAML files, as `folder/name` where they are in folders."""
    root = Path(conf.__path__[0]) / group
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def tasks(kind: str) -> list[str]:
    """Names of the tasks whose studies are of a kind."""
    root = Path(conf.__path__[0]) / "task"
    kinds = {
        name: OmegaConf.select(OmegaConf.load(root / f"{name}.yaml"), "kind", default=StudyConfig.kind)
        for name in options("task")
    }
    return [name for name, own in kinds.items() if own == kind]


def united(preset: str) -> list[str]:
    """Names of the presets that a preset unites, in its list ``presets``, and those of these; itself if it has none."""
    listed = OmegaConf.select(OmegaConf.load(Path(conf.__path__[0]) / "experiment" / f"{preset}.yaml"), "presets")
    return [preset] if listed is None else [each for name in listed for each in united(name)]


def command_line(argv: Sequence[str]) -> CommandLine:
    """Splits flags and the store from overrides; unknown flags are BadInput."""
    words = as_pairs(argv, FLAGS)
    flags = [word for word in words if word.startswith("-")]
    for flag in flags:
        check_choice("option", flag, FLAGS)
    stores = [word.partition("=")[2] for word in words if word.startswith("store=")]
    store = _unquoted(stores[-1]) if stores else None
    others = tuple(word for word in words if not word.startswith(("-", "store=")))
    return CommandLine(others, bool({*flags} - {*OUTPUT_FLAGS, DRY_RUN}), store, DRY_RUN in flags)


def _unquoted(text: str) -> str:
    """A text without the quotes around it, as Hydra's grammar has them."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def as_text(text: str) -> str:
    """A text of any letters as Hydra's grammar has it: in quotes."""
    escaped = text.replace("${", r"\${")
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (r"\'" if found[2] else ""), escaped) + "'"


def parse(overrides: Sequence[str]) -> list[Override]:
    """Reads overrides; BadInput for words that are not overrides. Names of files, meshes and layouts need no quotes."""
    parsed = []
    for text in overrides:
        try:
            parsed += OverridesParser.create().parse_overrides([text])
        except (OverrideParseException, HydraException):
            key, _, value = text.partition("=")
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
    if key == "experiment" and not override.is_add():
        raise BadInput(f"a preset is added with a plus sign: +{text}")
    if key in GROUPS:
        for choice in values(override):
            what = "preset" if key == "experiment" else key
            check_choice(what, choice.split("=", 1)[1], options(key))


def values(override: Override) -> Iterator[str]:
    """Every ``key=value`` an override stands for."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        yield f"{key}={override.get_value_element_as_str()}"
    elif isinstance(value := override.value(), Glob):
        yield from (f"{key}={name}" for name in value.filter(options(override.key_or_group)))
    else:
        yield from (f"{key}={text}" for text in override.sweep_string_iterator())
