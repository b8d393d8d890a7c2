"""Plans of every kind: what a study may be, and the way back from plain data."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from results.asked import NO_REPEATS, Repeats
from results.bad_input import BadInput
from results.factorization import Factorization
from results.recorded import Recorded
from results.study import COMPARABLE, DIGITS, Study

AnyStudy: TypeAlias = Study | Factorization | Recorded


def from_plan(plan: Mapping[str, Any], trials: int, repeats: Repeats = NO_REPEATS, name: str | None = None) -> AnyStudy:
    """The study a plan describes, of whichever kind; BadInput if another version of this software wrote it.

    Args:
      plan: the identity, plain data.
      trials: how many are asked for.
      repeats: how the best of them are to be run again.
      name: which the study has in a store, if it is this plan's, with as many digits of its hash; None: today's name.
    """
    ending = len((name or "").rpartition("-")[2])
    digits = ending if ending in DIGITS else DIGITS[-1]
    kinds: dict[Any, Any] = {"batch": Study, "cores": Factorization, "recorded": Recorded}
    try:
        kind = kinds.get(plan.get("kind"), Study)
        if kind is Study:
            return Study.from_plan(plan, trials, repeats, digits)
        if repeats.confirm:
            raise BadInput(f"a study of kind {plan['kind']} has nothing to confirm")
        return kind.from_plan(plan, trials, digits)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(f"a plan is not one of scaling-limits {COMPARABLE}: {str(error)[:80]}") from None
