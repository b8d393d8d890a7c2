"""The command line in Hydra's grammar: its sweep axes expanded, its configurations composed, its errors in one line."""

import dataclasses
import itertools
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import conf
from results.bad_input import BadInput, check_choice, nearest
from sweeps import schema
from sweeps.schema import Config

GROUPS = ("task", "optimizer", "launcher", "experiment")
_KINDS = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "String": "a word"}


class CommandLine(NamedTuple):
    """What follows `python -m sweeps`: overrides in Hydra's grammar, and whether to sweep."""

    overrides: tuple[str, ...]
    multirun: bool


def options(group: str) -> list[str]:
    """Names in a configuration group, such as the tasks: its YAML files, as `folder/name` where they are in folders."""
    root = Path(conf.__path__[0]) / group
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def command_line(argv: Sequence[str]) -> CommandLine:
    """Splits flags from overrides; unknown flags are BadInput."""
    flags = [arg for arg in argv if arg.startswith("-")]
    for flag in flags:
        check_choice("option", flag, ("-m", "--multirun", "-h", "--help"))
    return CommandLine(tuple(arg for arg in argv if not arg.startswith("-")), bool(flags))


def compose_all(line: CommandLine) -> list[dict[str, Any]]:
    """Composes the configuration of every study that a command line asks for.

    Returns:
      Plain data in the shape of ``sweeps.schema.Config``, one per point of the sweep.

    Raises:
      BadInput: for anything wrong with it, before any study is returned.
    """
    given = _parse(line.overrides)
    for override in given:
        _check(override)
    swept = [o for o in given if o.is_sweep_override()]
    fixed = [str(o.input_line) for o in given if not o.is_sweep_override()]
    if swept and not line.multirun:
        raise BadInput(f"{swept[0].input_line} is a sweep; add -m to run all of it")
    ConfigStore.instance().store("schema", Config)
    with initialize_config_module("conf", version_base="1.3"):
        whole = _compose(fixed, with_hydra=True)
        spoken_for = {o.key_or_group for o in given}
        axes = {k: v for k, v in (whole.hydra.sweeper.params or {}).items() if k not in spoken_for}
        if axes and not line.multirun:
            command = " ".join(line.overrides)
            raise BadInput(f"this preset is a sweep over {', '.join(axes)}; run `python -m sweeps {command} -m`")
        preset = _parse([f"{key}={value}" for key, value in axes.items()])
        for override in preset:
            _check(override)
        points = itertools.product(*(list(_values(o)) for o in (*preset, *swept)))
        return [_plain(_compose([*fixed, *point])) for point in points]


def _parse(overrides: Sequence[str]) -> list[Override]:
    parsed = []
    for text in overrides:
        try:
            parsed += OverridesParser.create().parse_overrides([text])
        except (OverrideParseException, HydraException):
            raise BadInput(f"cannot read {text!r}; write key=value, such as batch_size=64") from None
    return parsed


def _check(override: Override) -> None:
    """What Hydra would accept in silence, or refuse at length."""
    key, text = override.key_or_group, str(override.input_line)
    if not key or override.is_delete() or key == "hydra" or key.startswith(("hydra.", "hydra/")):
        raise BadInput(f"cannot take {text!r}; keys are those of `python -m sweeps --help`, and none can be removed")
    if key == "experiment" and not override.is_add():
        raise BadInput(f"a preset is added with a plus sign: +{text}")
    if key in GROUPS:
        for choice in _values(override):
            what = "preset" if key == "experiment" else key
            check_choice(what, choice.split("=", 1)[1], options(key))


def _values(override: Override) -> Iterator[str]:
    """Every ``key=value`` an override stands for."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        yield f"{key}={override.get_value_element_as_str()}"
    elif isinstance(value := override.value(), Glob):
        yield from (f"{key}={name}" for name in value.filter(options(override.key_or_group)))
    else:
        yield from (f"{key}={text}" for text in override.sweep_string_iterator())


def _compose(overrides: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    try:
        return compose("config", list(overrides), return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException, ValueError, AttributeError) as error:
        raise BadInput(_reworded(error, overrides)) from None


def _reworded(error: Exception, overrides: Sequence[str]) -> str:
    """Hydra's page of text as one line that names the offending word."""
    text = f"{error}\n{error.__cause__ or ''}"
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown and unknown[1] not in _keys():
        return f"unknown key {unknown[1]!r}; {nearest(unknown[1], _keys())}"
    field = re.search(r"Key '([^']+)' not in '(\w+)'", text)
    if field:
        return f"unknown key {field[1]!r}; {nearest(field[1], typing.get_type_hints(getattr(schema, field[2])))}"
    added = re.search(r"Key '([^']+)' is not in struct", text)
    if added:
        return f"{added[1]!r} is not there yet; add it with a plus sign: +task.space.{added[1]}=… or the like"
    merging = re.search(r"Error merging override (\S+)", text)
    where = merging[1] if merging else " ".join(overrides)
    kind = re.search(r"Value (.*) of type .* could not be converted to (\w+)", text)
    if kind:
        return f"{where}: {kind[1]} is not {_KINDS.get(kind[2], kind[2])}"
    if "is not Optional" in text:
        return f"{where}: a value is needed"
    return f"{where}: {str(error.__cause__ or error).splitlines()[0]}"


def _plain(config: DictConfig) -> dict[str, Any]:
    _check_keys(config, Config, "")
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise BadInput(str(error).splitlines()[0]) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _check_keys(config: DictConfig, shape: Any, prefix: str) -> None:
    """Raises BadInput for a key that the schema does not have: Hydra takes any that is added with a plus sign."""
    fields = typing.get_type_hints(shape)
    for key in map(str, config):
        if key not in fields:
            raise BadInput(f"unknown key {f'{prefix}{key}'!r}; {nearest(f'{prefix}{key}', _keys())}")
        if dataclasses.is_dataclass(fields[key]):
            _check_keys(config[key], fields[key], f"{prefix}{key}.")


def _keys(shape: Any = Config, prefix: str = "") -> list[str]:
    """Every key an override may name, dotted, and `experiment`."""
    keys = ["experiment"] if not prefix else []
    for key, kind in typing.get_type_hints(shape).items():
        keys += _keys(kind, f"{prefix}{key}.") if dataclasses.is_dataclass(kind) else [f"{prefix}{key}"]
        keys += [key] if key in GROUPS else []
    return keys
