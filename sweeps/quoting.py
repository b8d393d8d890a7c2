"""Writes values as overrides in Hydra's grammar."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from results.aliases import Fields
from results.bad_input import BadInput

Words = tuple[str, ...]  # words of a command line

GROUPS = ("task", "optimizer", "launcher", "experiment")
_PLAIN = re.compile(r"(?!(?:null|true|false|inf|nan)$)[a-z_][a-z0-9_]*")  # texts that do not need quotes


def as_text(text: str) -> str:
    """Quotes a text for Hydra's grammar."""
    escaped = text.replace("${", r"\${")
    return "'" + re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + (r"\'" if match[2] else ""), escaped) + "'"


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
        return "{" + ",".join(f"{name}:{_literal(key, field)}" for name, field in value.items()) + "}"
    if isinstance(value, Iterable):
        return f"[{','.join(_literal(key, member) for member in value)}]"
    raise BadInput(f"{key}: {value!r} is not a number, text, list or dict")
