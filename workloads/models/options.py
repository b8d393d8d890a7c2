"""Checks of a model's options."""

from collections.abc import Sequence


def check_whole(**options: object) -> None:
    """Raises ValueError unless all options are whole numbers of at least 1."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def check_share(**options: object) -> None:
    """Raises ValueError unless all options are numbers of at least 0 and below 1."""
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, not {value!r}")


def whole_list(value: object, *, may_be_empty: bool = False) -> bool:
    """Whether it is a list of whole numbers of at least 1."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not (value or may_be_empty):
        return False
    return all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in value)
