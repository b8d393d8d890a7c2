"""Configured study: what reading the configuration of one gives, of any kind, and the ranges that it is given."""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from results.bad_input import BadInput, nearest
from results.plans.plan import Plan

ABSENT = "absent"  # a key for what need not be there, as nothing is to be run: of DATA and DEVICES
DATA, DEVICES = "data", "devices"
P = TypeVar("P", bound=Plan)
RANGE_FIELDS = ("scale", "low", "high", "values")


class ConfiguredStudy(NamedTuple, Generic[P]):
    """A study, and the source of its data if the plan does not state it: plain data for its runner."""

    study: P
    source: Mapping[str, Any] | None = None


def ranges(space: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of each range that are set, for ``results.plans.search_space.SearchSpace.from_plan``.

    Args:
      space: ranges of metaparameters as a configuration gives them: their fields, or a lone number, which fixes one.
    """
    found = {}
    for name, value in space.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = {"scale": "DISCRETE", "values": [value]}
        if not isinstance(value, Mapping):
            raise BadInput(
                f"search space of {name}: {value!r} is not a range; write {{scale: LOG, low: 1e-3, high: 1}}"
            )
        for field in value:
            if field not in RANGE_FIELDS:
                raise BadInput(f"search space of {name}: unknown field {field!r}; {nearest(field, RANGE_FIELDS)}")
        if "scale" not in value:
            raise BadInput(f"search space of {name}: scale is missing; write {{scale: LOG, low: 1e-3, high: 1}}")
        found[name] = {field: set_to for field, set_to in value.items() if set_to is not None}
    return found
