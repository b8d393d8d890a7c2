"""Neighbours: studies of a store whose plans differ in little, and in what: each of them is a study of its own."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from results import store as stores

_MOST = 200  # studies of one slug that are compared, pair by pair
_SHOWN = 60  # characters of a value


def differences(folder: Path, names: Sequence[str]) -> list[str]:
    """A line for each study that shares its slug with others: which it is nearest to, and how the two differ.

    Args:
      folder: of the store.
      names: of its studies.
    """
    by_slug: dict[str, list[str]] = {}
    for name in names:
        by_slug.setdefault(name.rpartition("-")[0], []).append(name)
    return [line for own in by_slug.values() if 1 < len(own) <= _MOST for line in _lines(folder, own)]


def _lines(folder: Path, names: Sequence[str]) -> Iterator[str]:
    plans = {name: _fields(planned.plan()) for name in names if (planned := stores.stored_plan(folder, name))}
    told: set[frozenset[str]] = set()
    for name, own in plans.items():
        others = [(len(different(own, fields)), other) for other, fields in plans.items() if other != name]
        nearest = min(others)[1] if others else None
        if nearest is None or frozenset((name, nearest)) in told:
            continue
        told.add(frozenset((name, nearest)))
        changes = different(plans[nearest], own)
        words = ", ".join(f"{key} {_text(before)} → {_text(now)}" for key, (before, now) in changes.items())
        yield f"{name} is not {nearest}: {words}"


def different(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields in which two plans differ, with the value of each; None where a plan has none."""
    keys = list(dict.fromkeys(itertools.chain(one, other)))
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}


def _fields(plan: Any, prefix: str = "") -> dict[str, Any]:
    """The lone values of a plan, by their keys with dots; lists of lone values are values."""
    if isinstance(plan, Mapping):
        items: Any = plan.items()
    elif isinstance(plan, list) and any(isinstance(each, Mapping | list) for each in plan):
        items = enumerate(plan)
    else:
        return {prefix.removesuffix("."): plan}
    return {key: value for name, part in items for key, value in _fields(part, f"{prefix}{name}.").items()}


def _text(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
