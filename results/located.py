"""Decorators for functions that take a folder. They let these functions also accept its path or URL as a string."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from results.durable import Folder, Location, location, system

P = ParamSpec("P")
R = TypeVar("R")


def located(function: Callable[Concatenate[Folder, P], R]) -> Callable[Concatenate[Location, P], R]:
    """Lets a function that takes a folder also accept a string, which is parsed by ``location``."""

    @functools.wraps(function)
    def wrapper(folder: Location, *args: P.args, **named: P.kwargs) -> R:
        return function(location(folder), *args, **named)

    return wrapper


def in_snapshot(function: Callable[Concatenate[Folder, P], R]) -> Callable[Concatenate[Location, P], R]:
    """Like ``located``, but for a function that reads many studies. During each call, a bucket is listed only once."""

    @functools.wraps(function)
    def wrapper(folder: Location, *args: P.args, **named: P.kwargs) -> R:
        place = location(folder)
        with system(place).snapshot(place):
            return function(place, *args, **named)

    return wrapper
