"""Read: the result of reading the configuration of one study, of any kind."""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from results.plans.plan import Plan

P = TypeVar("P", bound=Plan)


class ConfiguredStudy(NamedTuple, Generic[P]):
    """A study, and the source of its data if the plan does not state it: plain data for its runner."""

    study: P
    source: Mapping[str, Any] | None = None
