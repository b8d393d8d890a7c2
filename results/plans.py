"""Plans of every kind: what a study may be, and the way back from plain data."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from results.bad_input import BadInput
from results.factorization import Factorization
from results.recorded import Recorded
from results.study import COMPARABLE, Study

AnyStudy: TypeAlias = Study | Factorization | Recorded


def from_plan(plan: Mapping[str, Any], trials: int) -> AnyStudy:
    """The study a plan describes, of whichever kind; BadInput if another version of this software wrote it."""
    kinds: dict[Any, Any] = {"batch": Study, "cores": Factorization, "recorded": Recorded}
    try:
        return kinds.get(plan.get("kind"), Study).from_plan(plan, trials)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(f"a plan is not one of scaling-limits {COMPARABLE}: {str(error)[:80]}") from None
