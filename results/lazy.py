"""Lazy functions: functions of modules that are imported at the first call, so that a table of them loads fast."""

import importlib
from collections.abc import Callable
from typing import Any


def lazy(module: str, name: str) -> Callable[..., Any]:
    """Returns a function that imports its module on the first call."""

    def function(*arguments: Any, **named: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **named)

    return function
