"""The section on factorizations, their charts and their table, as HTML."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import text
from analysis.cores import factorizations as of_cores
from analysis.cores.factorizations import MeasuredFactorization
from analysis.plotting import labels
from analysis.report import core_charts
from analysis.report.charts import swatch
from analysis.report.core_charts import CoreChart
from analysis.report.markup import Cell, Html, chart_name, number, row, section, table, tag

TITLE = "Factorizations over cores"
FACTORIZATIONS = (
    "data",
    "d#",
    "solver",
    "formats",
    "cores#",
    "s per epoch#",
    "Recall@20#",
    "Recall@50#",
    "α, λ",
    "trials#",
    "device",
)
OF_CORES = (
    "Implicit ALS over cores. Seconds are medians over epochs of a process that runs alone, without compiling. Times "
    "of emulated cores say nothing about speed, and are on no curve. Two numbers of cores show a gain and no law; a "
    "law takes three. Recall is that of test rows; the best of several trials is chosen by validation rows."
)


def factorizations(
    studies: Sequence[tuple[int, MeasuredFactorization]], charts_before: int, charts: Sequence[CoreChart]
) -> Html:
    """Charts and the table of factorizations; ``charts_before`` are on the page already."""
    if not studies:
        return Html("")
    group_numbers = {one.study.name: group_number for group_number, one in studies}
    panels = [_panel(charts_before + i, chart, group_numbers) for i, chart in enumerate(charts)]
    measured = [one for _, one in studies]
    values = of_cores.table(measured).to_dict("records")
    rows = [_row(group_number, one, own) for (group_number, one), own in zip(studies, values, strict=True)]
    notes = [tag("p", words, class_="note") for words in core_charts.notes(measured)]
    content = [tag("div", *panels, class_="panels"), *notes, table("Factorizations", FACTORIZATIONS, rows)]
    return section("factorizations", TITLE, *content, about=OF_CORES, groups=group_numbers.values())


def _panel(i: int, chart: CoreChart, group_numbers: Mapping[str, int]) -> Html:
    keys = [tag("span", swatch(mark), tag("span", name), class_="key") for name, mark in chart.marks.items()]
    return tag(
        "article",
        tag("h3", chart.title),
        tag("p", chart.goal, class_="goal"),
        tag(
            "div", class_="chart small", data_chart=str(i), role="group", aria_label=chart_name(chart.title, chart.goal)
        ),
        tag("div", *keys, class_="chips"),
        tag("ul", *(tag("li", words) for words in chart.conclusions), class_="said"),
        class_="panel",
        data_groups=" ".join(dict.fromkeys(str(group_numbers[one.study.name]) for one in chart.members)),
    )


def _row(group_number: int, one: MeasuredFactorization, values: Mapping[Hashable, Any]) -> Html:
    """The row of a factorization with its values in the table of ``analysis.cores.factorizations``."""

    def value(name: str) -> float | None:
        return None if pd.isna(values[name]) else float(values[name])

    recalls = [value("recall_20"), value("recall_50")]
    metaparameters = [value("unobserved_weight"), value("norm_penalty")]
    diverged = one.chosen is None and one.ledger.infeasible
    size = labels.size(one)
    cells: list[Cell | str] = [
        Cell(tag("span", one.study.dataset, tag("small", size)), f"{one.study.dataset} {size}"),
        number(one.study.dim),
        labels.solver(one),
        labels.formats(one),
        number(one.study.cores),
        Cell("emulated", "", "number") if values["emulated"] is True else _seconds(value),
        *(number(recall, None if recall is None else f"{recall:.4f}") for recall in recalls),
        "diverged" if diverged else ", ".join(f"{each:.2g}" for each in metaparameters if each is not None),
        number(one.ledger.complete + one.ledger.infeasible),
        str(values["device_kind"] or ""),
    ]
    return row(cells, data_groups=str(group_number))


def _seconds(value: Callable[[str], float | None]) -> Cell:
    """The median over epochs, and their middle half."""
    middle, low, high = (value(name) for name in ("seconds_per_epoch", "seconds_low", "seconds_high"))
    if middle is None or low is None or high is None:
        return number(middle)
    spread = tag("small", f"{text.number(low)} … {text.number(high)}")
    return Cell(tag("span", text.number(middle), spread), middle, "number")
