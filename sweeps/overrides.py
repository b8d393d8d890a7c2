"""The command line in Hydra's grammar: flags and overrides, checked word by word."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf

import conf
from results.bad_input import BadInput, check_choice
from sweeps.schema import StudyConfig

GROUPS = ("task", "optimizer", "launcher", "experiment")


class CommandLine(NamedTuple):
    """The words after `python -m sweeps`: overrides in Hydra's grammar, and whether to sweep."""

    overrides: tuple[str, ...]
    multirun: bool


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


def command_line(argv: Sequence[str]) -> CommandLine:
    """Splits flags from overrides; unknown flags are BadInput."""
    flags = [arg for arg in argv if arg.startswith("-")]
    for flag in flags:
        check_choice("option", flag, ("-m", "--multirun", "-h", "--help"))
    return CommandLine(tuple(arg for arg in argv if not arg.startswith("-")), bool(flags))


def parse(overrides: Sequence[str]) -> list[Override]:
    """Reads overrides; BadInput for words that are not overrides."""
    parsed = []
    for text in overrides:
        try:
            parsed += OverridesParser.create().parse_overrides([text])
        except (OverrideParseException, HydraException):
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
