"""Ranges of metaparameters as a configuration gives them: their fields, or a lone number, which fixes one."""

from collections.abc import Mapping
from typing import Any

from results.bad_input import BadInput, nearest

FIELDS = ("scale", "low", "high", "values")


def plan(space: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of each range that are set, for ``results.plans.search_space.SearchSpace.from_plan``."""
    ranges = {}
    for name, value in space.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = {"scale": "DISCRETE", "values": [value]}
        if not isinstance(value, Mapping):
            raise BadInput(
                f"search space of {name}: {value!r} is not a range; write {{scale: LOG, low: 1e-3, high: 1}}"
            )
        for field in value:
            if field not in FIELDS:
                raise BadInput(f"search space of {name}: unknown field {field!r}; {nearest(field, FIELDS)}")
        if "scale" not in value:
            raise BadInput(f"search space of {name}: scale is missing; write {{scale: LOG, low: 1e-3, high: 1}}")
        ranges[name] = {field: set_to for field, set_to in value.items() if set_to is not None}
    return ranges
