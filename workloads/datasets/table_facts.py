"""Metadata of a table, default targets, and notes for the user."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from workloads.base import number_of
from workloads.workload import Names

FRACTIONS = (0.75, 0.5, 0.25)  # default targets relative to the error of a constant prediction


class Facts(NamedTuple):
    """Metadata derived from a table's content.

    Attributes:
      version: hash of all column names and values.
      label: name of the label column.
      task: one of TASKS.
      rows: number of rows by split.
      columns: number of numeric columns and number of text columns, excluding the label.
      inputs: size of an input vector, D.
      classes: classes of the label as texts, or empty for a regression.
      deviation: standard deviation of a regression label in the training split, in the label's original unit. 1 for
        classes.
      constant: the target metric, and the validation error of a constant prediction.
    """

    version: str
    label: str
    task: str
    rows: Mapping[str, int]
    columns: tuple[int, int]
    inputs: int
    classes: Names
    deviation: float
    constant: tuple[str, float]


def targets(facts: Facts) -> tuple[tuple[str, float], ...]:
    """Returns targets: fractions of the error of a constant prediction, rounded up to two digits."""
    metric, error = facts.constant
    values = []
    for fraction in FRACTIONS:
        digits = 1 - math.floor(math.log10(fraction * error))
        values.append(round(math.ceil(round(fraction * error * 10**digits, 6)) / 10**digits, digits))
    return tuple((metric, value) for value in dict.fromkeys(values))


def lines(file: Path, facts: Facts) -> Names:
    """Returns notes for the user about a table."""
    numbers, texts = facts.columns
    kinds = (("numbers", numbers), ("texts", texts))
    inputs = " and ".join(f"{number_of(count, 'column')} of {kind}" for kind, count in kinds if count)
    what = f"{len(facts.classes)} classes" if facts.classes else "a number"
    rows = ", ".join(f"{count:,} {split}" for split, count in facts.rows.items())
    metric, error = facts.constant
    return (
        f"{file}: {facts.label} ({what}) from {inputs}, {number_of(facts.inputs, 'input')}; rows: {rows}",
        f"a constant prediction has {metric} {error:.4g}",
    )


def targets_line(facts: Facts) -> str:
    """Returns a note for the user about the default targets."""
    values = ", ".join(f"{value:g}" for _, value in targets(facts))
    fractions = ", ".join(f"{fraction:g}" for fraction in FRACTIONS)
    return f"default targets are {fractions} of it: {values}. Set others with task.targets."
