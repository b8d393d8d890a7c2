"""The section on layouts, as HTML: charts of seconds of a step against bytes sent, and their table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from analysis import measured_layouts
from analysis.figures import layout_figures
from analysis.measured_layouts import MeasuredLayout
from analysis.report import charts
from analysis.report.charts import Mark, swatch
from analysis.report.markup import Cell, Html, chart_name, number, row, section, table, tag

TITLE = "Layouts on meshes"
LAYOUTS = (
    "model",
    "engine",
    "mesh",
    "layout",
    "redundancy#",
    "MB sent#",
    "MB held#",
    "predicted ms#",
    "fits",
    "measured ms#",
    "loss#",
    "refused",
)
OF_LAYOUTS = (
    "One step of training of a decoder Transformer, its tensors' axes split over axes of a mesh of devices. A layout "
    "changes what a step costs, never what it computes. Redundancy, bytes sent and bytes held are counted in the "
    "compiled step, of each device; predicted milliseconds are of a cost model in which nothing overlaps; emulated "
    "devices are never timed. A layout that was refused has a row with the reason."
)


class LayoutChart(NamedTuple):
    """A chart of layouts.

    Attributes:
      title: model, batch, devices and engine.
      goal: which seconds are drawn, measured or predicted.
      marks: by their name in the legend.
      chart: the data that page.js draws, ``spec`` and the rows of ``always``.
      members: the layouts in it.
    """

    title: str
    goal: str
    marks: dict[str, Mark]
    chart: dict[str, Any]
    members: Sequence[MeasuredLayout]


def layout_charts(layouts: Sequence[MeasuredLayout]) -> list[LayoutChart]:
    """A chart for each model, engine and number of devices; emulated devices have no seconds but predicted ones."""
    made = []
    for title, _, members in layout_figures.groups(layouts):
        seconds, how = layout_figures.seconds_of(members)
        rows = [_point(one, float(own), how) for one, own in zip(members, seconds, strict=True) if math.isfinite(own)]
        if rows:
            own = charts.assign_marks(name for _, _, name in layout_figures.SPLITS)
            least = min((row["x"] for row in rows if row["x"] > 0), default=1.0)
            chart = {"spec": charts.costs(own, f"{how}, ms", least), "always": {"points": rows}}
            made.append(LayoutChart(title, f"{how} against bytes sent, by redundancy", own, chart, members))
    return made


def _point(one: MeasuredLayout, seconds: float, how: str) -> dict[str, Any]:
    sent = one.number("wire_bytes") / 1e6
    lines = [
        one.study.mesh,
        one.study.layout or "replicated",
        f"{how}: {seconds * 1e3:.4g} ms",
        f"sent: {sent:,.4g} MB",
        f"redundancy: {one.number('redundancy'):.3g}",
        f"held at most: {one.number('peak_bytes') / 1e6:,.4g} MB",
        f"study: {one.study.name}",
    ]
    point = {"x": float(f"{sent:.5g}"), "y": float(f"{seconds * 1e3:.5g}")}
    return point | {"series": layout_figures.split_of(one), "told": "\n".join(lines)}


def layouts(studies: Sequence[tuple[int, MeasuredLayout]], charts_before: int, drawn: Sequence[LayoutChart]) -> Html:
    """Charts and the table of layouts; ``charts_before`` are on the page already."""
    if not studies:
        return Html("")
    group_numbers = {one.study.name: group_number for group_number, one in studies}
    panels = [_panel(charts_before + i, chart, group_numbers) for i, chart in enumerate(drawn)]
    notes = [
        tag("p", f"{note[0].upper()}{note[1:]}.", class_="note")
        for note in measured_layouts.notes([s for _, s in studies])
    ]
    rows = [_row(group_number, one) for group_number, one in studies]
    content = [tag("div", *panels, class_="panels"), *notes, table("Layouts", LAYOUTS, rows)]
    return section("layouts", TITLE, *content, about=OF_LAYOUTS, groups=group_numbers.values())


def _panel(i: int, chart: LayoutChart, group_numbers: Mapping[str, int]) -> Html:
    keys = [tag("span", swatch(mark), tag("span", name), class_="key") for name, mark in chart.marks.items()]
    name = chart_name(chart.title, chart.goal)
    return tag(
        "article",
        tag("h3", chart.title),
        tag("p", chart.goal, class_="goal"),
        tag("div", class_="chart small", data_chart=str(i), role="group", aria_label=name),
        tag("div", *keys, class_="chips"),
        class_="panel",
        data_groups=" ".join(dict.fromkeys(str(group_numbers[one.study.name]) for one in chart.members)),
    )


def _row(group_number: int, one: MeasuredLayout) -> Html:
    fits = one.row.get("predicted_fits")
    explanation = one.row.get("explanation")
    refused = one.row["refusal"].replace("_", " ") if one.refused else ""
    cells: list[Cell | str] = [
        one.study.model_label,
        one.study.engine,
        one.study.mesh,
        one.study.layout or "replicated",
        _number(one.number("redundancy"), ".2f"),
        _number(one.number("wire_bytes") / 1e6, ",.2f"),
        _number(one.number("peak_bytes") / 1e6, ",.1f"),
        _number(one.number("predicted_step_seconds") * 1e3, ",.3f"),
        "" if fits is None else "yes" if fits else "no",
        _number(one.number("step_seconds") * 1e3, ",.3f"),
        _number(float(one.losses[-1]) if len(one.losses) else math.nan, ".5f"),
        Cell(tag("span", refused, tag("small", explanation)), refused) if explanation else refused,
    ]
    return row(cells, data_groups=str(group_number))


def _number(value: float, form: str) -> Cell:
    return number(None) if math.isnan(value) else number(value, f"{value:{form}}")
