"""A study of any kind, read from a configuration, and its search ranges."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from harness.run import Settings
from results.aliases import Fields
from results.bad_input import BadInput, nearest
from results.plans.plan import Plan

Config = Fields  # a configuration, or a section of one, as plain data
Say = Callable[[str], None]  # called with lines for the user
Studies = Sequence[Plan]

ABSENT = "absent"  # key of requirements that plans do not have: DATA or DEVICES
DATA = "data"
DEVICES = "devices"
# Keys that are not part of a study.
OF_RUNS = (
    "store",
    "launcher",
    "limits",
    "mixed_backends",
    "yes",
    "ask_above_device_hours",
    *(field.name for field in dataclasses.fields(Settings)),
)
P = TypeVar("P", bound=Plan)
RANGE_FIELDS = ("scale", "low", "high", "values", "denominator")
_EXAMPLE = "Write a range, such as {scale: LOG, low: 1e-3, high: 1}."


class ConfiguredStudy(NamedTuple, Generic[P]):
    """A study, and its data source (plain data for its runner) if the plan does not contain it."""

    study: P
    source: Config | None = None


def ranges(space: Config) -> Mapping[str, Fields]:
    """Returns those fields of each range that are set, for ``results.plans.search_space.SearchSpace.from_plan``.

    Args:
      space: ranges of metaparameters in a configuration. Each is given as the fields of a range or as a fixed number.
    """
    fields_by_name = {}
    for name, value in space.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = {"scale": "DISCRETE", "values": [value]}
        if not isinstance(value, Mapping):
            raise BadInput(f"search space of {name}: {value!r} is not a range. {_EXAMPLE}")
        for field in value:
            if field not in RANGE_FIELDS:
                raise BadInput(f"search space of {name}: unknown field {field!r}; {nearest(field, RANGE_FIELDS)}")
        if "scale" not in value:
            raise BadInput(f"search space of {name}: scale is missing. {_EXAMPLE}")
        fields_by_name[name] = {field: set_to for field, set_to in value.items() if set_to is not None}
    return fields_by_name
