"""Units of batch sizes: examples, sequences or tokens. Batch sizes in different units are never compared."""

from collections.abc import Iterable

from results.bad_input import BadInput
from results.plans.plan import Plan

EXAMPLES, SEQUENCES, TOKENS = "examples", "sequences", "tokens"


def in_words(study: Plan) -> str:
    """Returns the unit as text, such as ``sequences of 1,024 tokens``."""
    unit, length = study.batch_unit
    return f"{unit} of {length:,} tokens" if unit == SEQUENCES and length else unit or EXAMPLES


def check(studies: Iterable[Plan]) -> None:
    """Raises BadInput if studies with the same data set and model measure batch sizes in different units."""
    first: dict[tuple[str, ...], Plan] = {}
    for study in studies:
        other = first.setdefault(study.labels[:2], study)
        if other.batch_unit != study.batch_unit:
            raise BadInput(
                f"{' · '.join(study.labels[:2])} has batch sizes in {in_words(other)} and in {in_words(study)}, "
                f"which cannot be compared. {_conversion(other, study)} Import the runs again, with one unit."
            )


def _conversion(one: Plan, other: Plan) -> str:
    """Describes the conversion factor between two units, if it is known."""
    lengths = dict([one.batch_unit, other.batch_unit])
    length = lengths.get(SEQUENCES) or lengths.get(TOKENS)
    if SEQUENCES in lengths and TOKENS in lengths and length:
        return f"1 sequence is {length:,} tokens."
    if len(lengths) == 1:
        return f"Sequences of {one.batch_unit[1]:,} and of {other.batch_unit[1]:,} tokens are different units."
    return "An example is one sequence if each example is one: use unit: sequences for both."
