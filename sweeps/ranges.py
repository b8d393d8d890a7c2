"""Ranges of metaparameters as a configuration gives them: their fields, or a lone number, which fixes one."""

from collections.abc import Mapping
from typing import Any

from results.bad_input import BadInput, nearest

FIELDS = ("scale", "low", "high", "values")


def plan(space: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of each range that are set, for ``results.plans.search_space.SearchSpace.from_plan``."""
    ranges = {}
    for name, given in space.items():
        if isinstance(given, int | float) and not isinstance(given, bool):
            given = {"scale": "DISCRETE", "values": [given]}
        if not isinstance(given, Mapping):
            raise BadInput(
                f"search space of {name}: {given!r} is not a range; write {{scale: LOG, low: 1e-3, high: 1}}"
            )
        for field in given:
            if field not in FIELDS:
                raise BadInput(f"search space of {name}: unknown field {field!r}; {nearest(field, FIELDS)}")
        if "scale" not in given:
            raise BadInput(f"search space of {name}: scale is missing; write {{scale: LOG, low: 1e-3, high: 1}}")
        ranges[name] = {field: value for field, value in given.items() if value is not None}
    return ranges
