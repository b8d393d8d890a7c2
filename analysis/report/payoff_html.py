"""The pay-off section: a table of the largest device counts and batch sizes at which doubling still paid off."""

import math
from collections.abc import Sequence

from analysis.cores import core_counts
from analysis.cores.measured_factorizations import MeasuredFactorization
from analysis.fitting import fits
from analysis.fitting.extents import GAIN, Extent
from analysis.payoff import answers, subjects
from analysis.payoff.answers import Answer
from analysis.payoff.step_times import MEASURED, PREDICTED
from analysis.payoff.time_to_target import PayOff
from analysis.report.markup import Cell, Html, number, row, section, table, tag
from analysis.report.workload_rows import WorkloadRow
from results import definitions, progress
from results.printing import Report

TITLE = "Pay-off"
# A phone shows only the first three.
PAYOFF = ("curve", "measured devices#", "predicted devices#", "pays up to#", "device")
ABOUT = (
    f"Up to how many devices does adding more pay off? A doubling pays off if it makes training at least {GAIN:.0%} "
    "faster, where 100 % would be perfect. Intervals are of 90 %. Pays up to: "
    f"{definitions.PAYS_UP_TO.format(gain=f'{100 * GAIN:g}')}. It depends neither on hardware nor on the shape of the "
    "curve. Devices: the number that the last such doubling leads to. Measured "
    "devices: seconds per step were measured on each number of devices. Predicted devices: seconds per step are those "
    "of one device with its share of the batch, without communication. This is a best case, because a real network "
    "only slows training down. One-sided answers are all that the data support."
)


def payoff(
    goals: Sequence[tuple[int, WorkloadRow]],
    factorizations: Sequence[tuple[int, MeasuredFactorization]],
    report: Report | None = None,
) -> Html:
    """Returns the table. It has one row per curve fit and device kind, and one row per factorization over cores.

    ``report`` is called with progress lines.
    """
    numbered = [(group, subjects.of_curves([goal.fitted])) for group, goal in goals if goal.fitted]
    numbers = {factorization.study.name: group for group, factorization in factorizations}
    for curve in core_counts.curves([factorization for _, factorization in factorizations]):
        numbered.append((numbers[curve.representative.study.name], subjects.of_core_curves([curve])))
    tracked = progress.track(numbered, "report: payoff", " curves", report)
    computed = [(group, answer) for group, members in tracked for answer in answers.answers(members)]
    if not computed:
        return Html("")
    rows = [_row(group, answer) for group, answer in computed]
    return section("payoff", TITLE, table(TITLE, PAYOFF, rows), about=ABOUT, groups=[group for group, _ in computed])


def _row(group_number: int, answer: Answer) -> Html:
    title = answer.subject.title
    cells: list[Cell | str] = [
        Cell(tag("span", title), title),
        *(_last(answer.pay_offs.get(basis)) for basis in (MEASURED, PREDICTED)),
        _extent(answer),
        answer.device_kind,
    ]
    return row(cells, data_groups=str(group_number))


def _last(pay_off: PayOff | None) -> Cell:
    """Returns a cell with the answer as text. It is sorted by the best value or, if that is missing, by the bound."""
    return number(None) if pay_off is None else _stated(pay_off.last, pay_off.last_in_words)


def _extent(answer: Answer) -> Cell:
    """Returns a cell with *pays up to* as text, with the same sort order as ``_last``. Empty for a factorization."""
    curve = answer.subject.curve
    if curve is None:
        return number(None)
    return _stated(answer.pays, fits.extent_in_words(answer.pays, in_doubt=bool(curve.search_doubts)))


def _stated(extent: Extent, words: str) -> Cell:
    stated = [end for end in extent[:3] if not math.isnan(end)]
    return Cell(words, stated[0] if stated else "", "number")
