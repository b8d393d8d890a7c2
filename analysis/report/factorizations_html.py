"""Factorized: the section on factorizations, their charts and their table, as HTML."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import text
from analysis.cores import epochs
from analysis.cores.factorizations import Measured
from analysis.plotting import labels
from analysis.report import cores, marks
from analysis.report.cores import Figure
from analysis.report.markup import Cell, Html, number, row, section, table, tag

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


def factorizations(held: Sequence[tuple[int, Measured]], charts_before: int, figures: Sequence[Figure]) -> Html:
    """Charts and the table of factorizations; ``charts_before`` are on the page already."""
    if not held:
        return Html("")
    places = {one.study.name: place for place, one in held}
    made = [_figure(charts_before + i, figure, places) for i, figure in enumerate(figures)]
    frame = epochs.table([one for _, one in held]).to_dict("records")
    rows = [_row(place, one, known) for (place, one), known in zip(held, frame, strict=True)]
    told = [tag("p", words, class_="note") for words in cores.notes([one for _, one in held])]
    content = [tag("div", *made, class_="panels"), *told, table(FACTORIZATIONS, rows)]
    return section("factorizations", TITLE, *content, said=OF_CORES, groups=places.values())


def _figure(i: int, figure: Figure, places: Mapping[str, int]) -> Html:
    keys = [tag("span", marks.swatch(mark), tag("span", name), class_="key") for name, mark in figure.looks.items()]
    return tag(
        "article",
        tag("h3", figure.title),
        tag("p", figure.goal, class_="goal"),
        tag("div", class_="chart small", data_chart=str(i), role="group", aria_label=figure.title),
        tag("div", *keys, class_="chips"),
        tag("ul", *(tag("li", words) for words in figure.said), class_="said"),
        class_="panel",
        data_groups=" ".join(dict.fromkeys(str(places[one.study.name]) for one in figure.members)),
    )


def _row(place: int, one: Measured, known: Mapping[Hashable, Any]) -> Html:
    """A factorization as ``analysis.cores.epochs`` knows it."""

    def value(name: str) -> float | None:
        return None if pd.isna(known[name]) else float(known[name])

    recalls = [value("recall_20"), value("recall_50")]
    drawn = [value("unobserved_weight"), value("norm_penalty")]
    diverged = one.chosen is None and one.ledger.infeasible
    size = labels.size(one)
    cells: list[Cell | str] = [
        Cell(tag("span", one.study.dataset, tag("small", size)), f"{one.study.dataset} {size}"),
        number(one.study.dim),
        labels.solver(one),
        labels.formats(one),
        number(one.study.cores),
        Cell("emulated", "", "number") if known["emulated"] is True else _seconds(value),
        *(number(recall, None if recall is None else f"{recall:.4f}") for recall in recalls),
        "diverged" if diverged else ", ".join(f"{each:.2g}" for each in drawn if each is not None),
        number(one.ledger.complete + one.ledger.infeasible),
        str(known["device_kind"] or ""),
    ]
    return row(cells, FACTORIZATIONS, data_groups=str(place))


def _seconds(value: Callable[[str], float | None]) -> Cell:
    """The median over epochs, and their middle half."""
    middle, low, high = (value(name) for name in ("seconds_per_epoch", "seconds_low", "seconds_high"))
    if middle is None or low is None or high is None:
        return number(middle)
    spread = tag("small", f"{text.number(low)} … {text.number(high)}")
    return Cell(tag("span", text.number(middle), spread), middle, "number")
