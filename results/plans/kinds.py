"""Kinds of studies: a table of their properties, and a function that builds plans of any kind from plain data."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar, cast

from results.aliases import Fields, Strings
from results.bad_input import BadInput, Damaged, TooOld
from results.plans import layout, schema
from results.plans.batch_study import BatchStudy
from results.plans.factorization import Factorization
from results.plans.layout import LayoutStudy
from results.plans.plan import HasKind, Plan
from results.plans.recorded import Recorded
from results.plans.schema import Column
from results.plans.study import DIGITS, REASONS, unreadable
from results.plans.trial_request import NO_REPEATS, Repeats, TrialRequest

OF_ANY = frozenset({("COMPLETE", None), ("INFEASIBLE", None), *(("INCOMPLETE", reason) for reason in REASONS)})
OF_OURS = OF_ANY - {("INCOMPLETE", "unstated")}


class Kind(NamedTuple):
    """Properties shared by all studies of a kind.

    Attributes:
      plan: dataclass of the plans.
      axes: plan fields that vary along a curve or, if there are two, over a plane.
      unit: unit of steps, such as step or epoch.
      columns: columns of the measurements other than metrics.
      endings: possible pairs of status and reason for the trials.
      recorded: whether the studies were measured by others and cannot be run.
      alone: whether a study needs exclusive use of the machine, because the measured times are results.
    """

    plan: type[Plan]
    axes: Strings
    unit: str = "step"
    columns: tuple[Column, ...] = ()
    endings: frozenset[tuple[str, str | None]] = OF_OURS
    recorded: bool = False
    alone: bool = False


KINDS = {
    "batch": Kind(BatchStudy, axes=("batch_size",)),
    "cores": Kind(Factorization, axes=("cores",), unit="epoch", columns=schema.COSTS, alone=True),
    "layout": Kind(LayoutStudy, axes=("device_count",), columns=layout.COLUMNS, alone=True),
    "recorded": Kind(Recorded, axes=("batch_size",), endings=OF_ANY, recorded=True),
}


K = TypeVar("K", bound=HasKind)
P = TypeVar("P", bound=Plan)


def kind_of(plan: Fields) -> str:
    """Returns the kind of a plan given as plain data. Raises BadInput for an unknown kind."""
    kind = plan.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadInput(unreadable(plan, f"kind={kind}"))
    return kind


def from_plan(plan: Fields, trials: int, repeats: Repeats = NO_REPEATS, name: str | None = None) -> Plan:
    """Returns the study for a plan of any kind. Raises BadInput for a plan from another version of this software.

    Args:
      plan: the identity of the study, as plain data.
      trials: number of requested trials.
      repeats: requested repeats of the best trials.
      name: name in a store, which determines the number of hash digits. None uses the current default.
    """
    if plan.get("comparable") == "0.1":
        raise TooOld(name or "the plan", "is a study of scaling-limits 0.1")
    ending = len((name or "").rpartition("-")[2])
    digits = ending if ending in DIGITS else DIGITS[-1]
    try:
        return KINDS[kind_of(plan)].plan.from_plan(plan, TrialRequest(trials, repeats), digits)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(unreadable(plan, f"content, {str(error)[:80]}")) from None


def study_of(plan: Fields, trials: int, name: str, repeats: Repeats = NO_REPEATS) -> Plan:
    """Returns the study of an untrusted plan. Raises BadInput if the plan is invalid or belongs to another study."""
    try:
        study = from_plan(plan, trials, repeats, name)
        derived = study.name
    except BadInput:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise Damaged(f"{name} holds an invalid plan") from None
    if derived != name:
        raise Damaged(f"{name} holds the plan of another study, {derived[:100]}")
    return study


def of_kind(each: Iterable[K], *kinds: str) -> list[K]:
    """Returns the members of ``each`` (plans, commits, …) whose kind is one of ``kinds``."""
    return [member for member in each if member.kind in kinds]


def of_type(studies: Iterable[Plan], plan: type[P]) -> list[P]:
    """Returns the studies whose plans are of class ``plan``."""
    return [cast(P, study) for study in studies if study.kind == plan.kind]


def place(study: Plan) -> tuple[int, ...]:
    """Returns the values of a study along the axes of its kind."""
    return tuple(getattr(study, axis) for axis in KINDS[study.kind].axes)


def along(study: Plan) -> int:
    """Returns the value of a study along the first axis of its kind, such as its batch size."""
    return place(study)[0]


def reserved() -> frozenset[str]:
    """Returns the reserved column names, which metaparameters cannot have."""
    return schema.RESERVED.union(*({column.name for column in kind.columns} for kind in KINDS.values()))
