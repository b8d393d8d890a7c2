"""The keys of the configuration schema, and hints for wrong keys."""

import dataclasses
import functools
import types
import typing
from typing import Any

from omegaconf import DictConfig, OmegaConf

from results.bad_input import BadInput, nearest
from sweeps import choices, kind_configs
from sweeps.kind_configs import READERS
from sweeps.quoting import GROUPS

_SHORT = {"lr": "learning_rate", "wd": "weight_decay"}  # usual names of metaparameters
_SHOWN = 5  # maximum number of tasks named in a message


@functools.cache
def fields(shape: Any) -> dict[str, Any]:
    """Returns the types of a dataclass's fields. Optional fields have the type of their values."""
    hints = typing.get_type_hints(shape)
    for name, hint in hints.items():
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        if isinstance(hint, types.UnionType) and len(parts) == 1:
            hints[name] = parts[0]
    return hints


@functools.cache
def dotted(shape: Any = None, prefix: str = "") -> tuple[str, ...]:
    """Returns all dotted keys that an override may set, including `experiment`."""
    names = [] if prefix else ["experiment"]
    for key, kind in fields(shape or kind_configs.config()).items():
        if not prefix and key in ("kind", "tasks"):  # only a task's file sets kind, and tasks is read before
            continue
        is_section = dataclasses.is_dataclass(kind)
        names += dotted(kind, f"{prefix}{key}.") if is_section else [f"{prefix}{key}"]
        names += [key] if key in GROUPS else []
    return tuple(names)


def shapes(shape: Any) -> dict[str, type]:
    """Returns a dataclass and all dataclasses nested in it, by name."""
    hints = [part for hint in fields(shape).values() for part in (hint, *typing.get_args(hint))]
    by_name = {shape.__name__: shape}
    for nested in filter(dataclasses.is_dataclass, hints):
        by_name |= shapes(nested)
    return by_name


def check(config: DictConfig, section: Any = None, shape: Any = None, prefix: str = "") -> None:
    """Raises BadInput for a key that is not in the schema. OmegaConf itself would accept any key with a plus sign.

    Args:
      config: the configuration.
      section: section to check, by default all of the configuration.
      shape: dataclass of the section.
      prefix: dotted key of the section, followed by a dot.
    """
    hints = fields(shape or kind_configs.config())
    values = config if section is None else section
    for key in map(str, values):
        if key not in hints:
            raise unknown(f"{prefix}{key}", config)
        if dataclasses.is_dataclass(hints[key]) and values[key] is not None:
            check(config, values[key], hints[key], f"{prefix}{key}.")


def unknown(key: str, config: DictConfig) -> BadInput:
    """Returns the error for an unknown key, with the nearest keys, or with those of a metaparameter's range."""
    section = key.rpartition(".")[0]
    siblings = (OmegaConf.select(config, section, throw_on_missing=False) or {}) if section else {}
    names = [*dotted(), *(f"{section}.{name}" for name in siblings if name != "name")]
    names = [name for name in names if name != key]
    return BadInput(f"unknown key {key!r}; {searched(key, config) or nearest(key, names)}")


def misplaced(key: str, task: str, kind: str, config: DictConfig) -> BadInput:
    """Returns the error for a key that studies of a task do not have."""
    for kind_of_key, reader in READERS.items():
        if kind_configs.takes(kind_of_key, key):
            tasks = [f"task={name}" for name in choices.tasks(kind_of_key)]
            examples = f"{', '.join(tasks[:_SHOWN])}{', …' if len(tasks) > _SHOWN else ''}"
            where = f"task={task}, a {READERS[kind].noun}"
            return BadInput(f"{key} does not apply to {where}. It is for a {reader.noun}: {examples}")
    return unknown(key, config)


def searched(key: str, config: DictConfig) -> str:
    """Returns the end of an error message if the key is a metaparameter that is searched, otherwise an empty string."""
    name = key.rpartition(".")[2]
    name = _SHORT.get(name, name)
    for section in ("task.space", "optimizer.space"):
        ranges = OmegaConf.select(config, section) or {}
        if name in ranges:
            ends = [f"{section}.{name}.{end}" for end in ("low", "high") if end in ranges[name]]
            return f"{name} is searched; its range is {' and '.join(ends or [f'{section}.{name}.values'])}"
    return ""
