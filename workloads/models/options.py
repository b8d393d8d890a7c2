"""Checks for model options, and the named models of Shallue et al. 2018 (arXiv 1811.03600)."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_TABLE = tomllib.loads(Path(__file__).with_name("sizes.toml").read_text())
SIZES: Mapping[str, tuple[str, Mapping[str, Any]]] = {name: (row.pop("model"), row) for name, row in _TABLE.items()}

# Read-outs of language models: the embedding, a matrix of their own, or a matrix and a bias.
READ_OUTS = ("tied", "untied", "untied_bias")


def check_whole(**options: object) -> None:
    """Raises ValueError unless all options are integers of at least 1."""
    _check(options, lambda value: is_whole_list([value]), "an integer of at least 1")


def check_count(**options: object) -> None:
    """Raises ValueError unless all options are integers of at least 0."""
    _check(options, lambda value: type(value) is int and value >= 0, "an integer of at least 0")


def check_bool(**options: object) -> None:
    """Raises ValueError unless all options are true or false."""
    _check(options, lambda value: isinstance(value, bool), "true or false")


def check_read_out(read_out: object) -> None:
    """Raises ValueError unless the option is one of READ_OUTS."""
    if read_out not in READ_OUTS:
        raise ValueError(f"read_out must be {', '.join(READ_OUTS[:-1])} or {READ_OUTS[-1]}, not {read_out!r}")


def check_share(**options: object) -> None:
    """Raises ValueError unless all options are numbers in [0, 1)."""
    _check(options, lambda value: type(value) in (int, float) and 0 <= value < 1, "at least 0 and below 1")


def _check(options: Mapping[str, object], is_valid: Callable[[Any], bool], what: str) -> None:
    for name, value in options.items():
        if not is_valid(value):
            raise ValueError(f"{name} must be {what}, not {value!r}")


def check_heads(d_model: int, heads: int) -> None:
    """Raises ValueError unless attention heads divide the width evenly."""
    if d_model % heads:
        raise ValueError(f"heads={heads} does not divide d_model={d_model}")


def check_list(name: str, value: object, example: str, *, may_be_empty: bool = False) -> None:
    """Raises ValueError unless an option is a list of integers of at least 1.

    Args:
      name: name of the option, for the message.
      value: value of the option.
      example: valid list, for the message.
      may_be_empty: whether an empty list is valid.
    """
    if not is_whole_list(value) and not (may_be_empty and isinstance(value, Sequence) and not value):
        raise ValueError(f"{name} must be a list of integers of at least 1, such as {example}, not {value!r}")


def is_whole_list(value: object) -> bool:
    """Returns whether a value is a non-empty list of positive integers."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in value)
