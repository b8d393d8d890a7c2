"""Log: the log of one run, and the values that a map takes from it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from results.aliases import Strings
from results.importers import untrusted
from results.importers.runs.places import Place
from results.importers.runs.run_map import Field, Reference
from results.importers.runs.series import NO_ROWS, Series
from results.importers.untrusted import Unusable, brief
from results.plans.study import MOST_STEPS


class Log(NamedTuple):
    """The log of one run.

    Attributes:
      name: name of the run for display.
      place: first file of the run.
      columns: columns that are constant within the run, by name.
      config: content of the run's config file.
      names: names of all tags or columns.
      series: logged numbers by tag or column, in the order of the log.
      rows: steps and times of all rows of a table, or of the densest tag of an event file. Values are ignored.
      notes: notes for the user.
      fault: reason if a file or a run cannot be used. Then the log has no content.
    """

    name: str
    place: Place
    columns: Mapping[str, Any] = {}
    config: Mapping[str, Any] = {}
    names: Strings = ()
    series: Mapping[str, Series] = {}
    rows: Series = NO_ROWS
    notes: Strings = ()
    fault: str = ""

    @property
    def first_names(self) -> str:
        """The first names, for display."""
        return ", ".join(brief(name)[1:-1] for name in self.names[:8])


def look_up(field: Field, log: Log) -> Any:
    """Looks up a field. Raises Unusable if the run does not have this field."""
    if not isinstance(field, Reference):
        return field
    if field.origin == "path":
        return log.place.parts[field.name]
    content, kind = (log.columns, "column") if field.origin == "column" else (log.config, "entry of its config")
    leaf = content.get(field.name)
    if leaf is None:
        leaf = content
        for part in field.name.split("."):
            leaf = leaf.get(part) if isinstance(leaf, dict) else None
    if leaf is None or isinstance(leaf, dict | list):
        raise Unusable(f"has no {kind} {brief(field.name)[1:-1]}")
    return leaf


def name(field: Field, log: Log) -> str:
    """Looks up a name, as it is in the log. Raises Unusable if the run does not have it."""
    value = look_up(field, log)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def word(field: Field, log: Log) -> str:
    """Looks up a name, in the form that is allowed in studies."""
    return untrusted.word(name(field, log), "unstated")


def number(key: str, field: Field, log: Log) -> float:
    """Looks up a number. Raises Unusable if the value is not a number."""
    value = untrusted.numeric(look_up(field, log))
    if value is None:
        raise Unusable(f"has {key} {brief(look_up(field, log))}, which is not a number")
    return value


def integer(key: str, field: Field | None, log: Log, low: int, high: int = MOST_STEPS) -> int | None:
    """Looks up an optional integer. Raises Unusable if the value is not an integer in this range."""
    if field is None:
        return None
    value = untrusted.int_or_none(number(key, field, log), low, high)
    if value is None:
        raise Unusable(f"has {key} {brief(look_up(field, log))}, which is not an integer from {low} to {high}")
    return value


def product(key: str, factors: Sequence[Field], log: Log) -> int:
    """Returns the product of integers. Raises Unusable if it is too large."""
    total = math.prod(integer(key, factor, log, 1) or 1 for factor in factors)
    if total > MOST_STEPS:
        raise Unusable(f"has {key} {brief(total)}, but the limit is {MOST_STEPS}")
    return total
