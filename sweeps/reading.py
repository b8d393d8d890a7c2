"""Read: what comes of reading the configuration of one study, of whatever kind."""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from results.plans.plan import Plan

P = TypeVar("P", bound=Plan)


class Read(NamedTuple, Generic[P]):
    """A study, and what its data are built from where its plan does not say that: plain data for its runner."""

    study: P
    source: Mapping[str, Any] | None = None
