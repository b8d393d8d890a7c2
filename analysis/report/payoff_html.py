"""The section on pay-off, a table: up to how many devices the next doubling still pays off, as HTML."""

import math
from collections.abc import Sequence

from analysis.cores import core_counts
from analysis.cores.factorizations import MeasuredFactorization
from analysis.payoff import answers
from analysis.payoff.answers import GAIN, Answer
from analysis.payoff.time_to_target import LastDoubling
from analysis.report.markup import Cell, Html, row, section, table, tag
from analysis.report.workload_rows import WorkloadRow

TITLE = "Pay-off"
# A phone shows the first three.
PAYOFF = (
    "estimate",
    "measured devices#",
    "predicted devices#",
    "batch size#",
    "device",
)  # a phone shows the first three
ABOUT = (
    f"How far do more devices pay off? A doubling does while it makes training faster by {GAIN:.0%} or more, of 100 % "
    "that it can; these are the numbers that the last such doubling leads to, with 90 % intervals. Batch size: devices "
    "and batch doubled together at the same seconds per step, so that no hardware is in it. Devices: by seconds per "
    "step that were measured on so many, or predicted from those of one device with its share of the batch, without "
    "communication: a best case, as no network makes training on so many devices faster. An answer on one side is all "
    "that the data hold."
)


def payoff(
    goals: Sequence[tuple[int, WorkloadRow]], factorizations: Sequence[tuple[int, MeasuredFactorization]]
) -> Html:
    """The table, a row for every fit of a curve and kind of device, and for every factorization over cores."""
    found = [(number, one) for number, goal in goals if goal.fitted for one in _of(answers.of_curves([goal.fitted]))]
    numbers = {one.study.name: number for number, one in factorizations}
    for curve in core_counts.curves([one for _, one in factorizations]):
        found += [(numbers[curve.representative.study.name], one) for one in _of(answers.of_core_curves([curve]))]
    if not found:
        return Html("")
    rows = [_row(number, one) for number, one in found]
    return section("payoff", TITLE, table(TITLE, PAYOFF, rows), about=ABOUT, groups=[number for number, _ in found])


def _of(subjects: Sequence[answers.Subject]) -> list[Answer]:
    return answers.answers(subjects)


def _row(group_number: int, one: Answer) -> Html:
    title = one.subject.title
    cells: list[Cell | str] = [
        Cell(tag("span", title), title),
        *(_last(pay_off.last if pay_off else None) for pay_off in (one.measured, one.predicted)),
        _last(one.batch if one.subject.names.get("estimate") else None),
        one.device_kind,
    ]
    return row(cells, data_groups=str(group_number))


def _last(last: LastDoubling | None) -> Cell:
    """The answer in words, sorted by what it states."""
    if last is None:
        return Cell("", "", "number")
    stated = [value for value in (last.best, last.low, last.high) if not math.isnan(value)]
    return Cell(last.in_words(), stated[0] if stated else "", "number")
