"""Read: the result of reading the configuration of one study, of any kind."""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from results.plans.plan import Plan

ABSENT = "absent"  # a key for what need not be there, as nothing is to be run: of DATA and DEVICES
DATA, DEVICES = "data", "devices"
P = TypeVar("P", bound=Plan)


class ConfiguredStudy(NamedTuple, Generic[P]):
    """A study, and the source of its data if the plan does not state it: plain data for its runner."""

    study: P
    source: Mapping[str, Any] | None = None
