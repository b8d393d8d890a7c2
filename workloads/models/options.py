"""Checks for model options, and the named models of Shallue et al. 2018 (arXiv 1811.03600)."""

from collections.abc import Mapping, Sequence
from typing import Any

_BASE = {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "dropout": 0.1}
_WIDTHS = ([1024], [1024] * 2, *([width] * 3 for width in (64, 128, 256, 512, 1024, 2048)))

SIZES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{"_".join(map(str, ["fc", *widths])): ("fully_connected", {"widths": widths}) for widths in _WIDTHS},
    "simple_cnn_narrow": ("simple_cnn", {"channels": [16, 32], "width": 512}),
    "simple_cnn_base": ("simple_cnn", {"channels": [32, 64], "width": 1024}),
    "simple_cnn_wide": ("simple_cnn", {"channels": [64, 128], "width": 2048}),
    "resnet_8": ("resnet_basic", {"blocks": [1, 1, 1], "width": 16, "norm": "none"}),
    "resnet_50": ("resnet", {"blocks": [3, 4, 6, 3], "width": 64, "norm": "ghost", "group": 32}),
    "vgg_11": (
        "vgg",
        {"stages": [[64], [128], [256, 256], [512, 512], [512, 512]], "widths": [4096, 4096], "dropout": 0.5},
    ),
    "lstm_base": ("lstm_projected", {"d_model": 512, "width": 2048, "dropout": 0.0}),
    "transformer_base": ("transformer_decoder", _BASE),
    "transformer_narrow_and_shallow": (
        "transformer_decoder",
        _BASE | {"layers": 2, "d_model": 256, "heads": 4, "d_ff": 1024},
    ),
    "transformer_shallow": ("transformer_decoder", _BASE | {"layers": 2}),
    "transformer_wide": ("transformer_decoder", _BASE | {"d_model": 1024, "heads": 16, "d_ff": 4096}),
}

# Read-outs of language models: the embedding, a matrix of their own, or a matrix and a bias.
READ_OUTS = ("tied", "untied", "untied_bias")


def check_whole(**options: object) -> None:
    """Raises ValueError unless all options are integers of at least 1."""
    for name, value in options.items():
        if not is_whole_list([value]):
            raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")


def check_count(**options: object) -> None:
    """Raises ValueError unless all options are integers of at least 0."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} must be an integer of at least 0, not {value!r}")


def check_bool(**options: object) -> None:
    """Raises ValueError unless all options are true or false."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, not {value!r}")


def check_read_out(read_out: object) -> None:
    """Raises ValueError unless the option is one of READ_OUTS."""
    if read_out not in READ_OUTS:
        raise ValueError(f"read_out must be {', '.join(READ_OUTS[:-1])} or {READ_OUTS[-1]}, not {read_out!r}")


def check_share(**options: object) -> None:
    """Raises ValueError unless all options are numbers in [0, 1)."""
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, not {value!r}")


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
