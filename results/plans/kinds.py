"""Kinds of study: the table of them, and the way back from plain data to a plan of any kind."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from results.bad_input import BadInput, TooOld
from results.plans import layout, schema
from results.plans.batch_study import BatchStudy
from results.plans.factorization import Factorization
from results.plans.layout import LayoutStudy
from results.plans.plan import Plan
from results.plans.recorded import Recorded
from results.plans.schema import Column
from results.plans.study import DIGITS, REASONS, unreadable
from results.plans.trial_request import NO_REPEATS, Repeats, TrialRequest

OF_ANY = frozenset({("COMPLETE", None), ("INFEASIBLE", None), *(("INCOMPLETE", reason) for reason in REASONS)})
OF_OURS = OF_ANY - {("INCOMPLETE", "unstated")}


class Kind(NamedTuple):
    """Properties of every study of a kind.

    Attributes:
      plan: the dataclass of its plans.
      along: the column of a plan that its curves run along.
      unit: what a step is, such as step or epoch.
      columns: of its measurements, beside metrics.
      endings: pairs of status and reason that its trials may end with.
      recorded: whether others measured it; then nothing runs it.
      alone: whether a study must have the machine to itself, as its times are the result.
    """

    plan: type[Plan]
    along: str
    unit: str = "step"
    columns: tuple[Column, ...] = ()
    endings: frozenset[tuple[str, str | None]] = OF_OURS
    recorded: bool = False
    alone: bool = False


KINDS: dict[str, Kind] = {
    "batch": Kind(BatchStudy, along="batch_size"),
    "cores": Kind(Factorization, along="cores", unit="epoch", columns=schema.COSTS, alone=True),
    "layout": Kind(LayoutStudy, along="device_count", columns=layout.COLUMNS, alone=True),
    "recorded": Kind(Recorded, along="batch_size", endings=OF_ANY, recorded=True),
}


class HasKind(Protocol):
    """Any object with the kind of a study."""

    @property
    def kind(self) -> str: ...


K = TypeVar("K", bound=HasKind)
P = TypeVar("P", bound=Plan)


def kind_of(plan: Mapping[str, Any]) -> str:
    """The kind that a plan, plain data, is of; BadInput if there is none like it."""
    kind = plan.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadInput(unreadable(plan, f"kind={kind}"))
    return kind


def from_plan(plan: Mapping[str, Any], trials: int, repeats: Repeats = NO_REPEATS, name: str | None = None) -> Plan:
    """The study a plan describes, of whichever kind; BadInput if another version of this software wrote it.

    Args:
      plan: the identity, plain data.
      trials: how many are asked for.
      repeats: how the best of them are to be run again.
      name: which the study has in a store, if it is this plan's, with as many digits of its hash; None: today's name.
    """
    if plan.get("comparable") == "0.1":
        raise TooOld(name or "the plan", "is a study of scaling-limits 0.1")
    ending = len((name or "").rpartition("-")[2])
    digits = ending if ending in DIGITS else DIGITS[-1]
    try:
        return KINDS[kind_of(plan)].plan.from_plan(plan, TrialRequest(trials, repeats), digits)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(unreadable(plan, f"content, {str(error)[:80]}")) from None


def of_kind(each: Iterable[K], *kinds: str) -> list[K]:
    """Those of ``each`` (plans, commits, …) that are of any of these kinds."""
    return [one for one in each if one.kind in kinds]


def of_type(studies: Iterable[Plan], plan: type[P]) -> list[P]:
    """The studies of the one kind whose plans are a ``plan``."""
    return [cast(P, study) for study in studies if study.kind == plan.kind]


def reserved() -> frozenset[str]:
    """Names of columns, which no metaparameter may have."""
    return schema.RESERVED.union(*({column.name for column in kind.columns} for kind in KINDS.values()))
