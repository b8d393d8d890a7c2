"""The section on layouts, their charts and their table, as HTML."""

import math
from collections.abc import Mapping, Sequence

from analysis import measured_layouts
from analysis.measured_layouts import MeasuredLayout
from analysis.report import marks
from analysis.report.layout_charts import LayoutChart
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


def layouts(studies: Sequence[tuple[int, MeasuredLayout]], charts_before: int, charts: Sequence[LayoutChart]) -> Html:
    """Charts and the table of layouts; ``charts_before`` are on the page already."""
    if not studies:
        return Html("")
    group_numbers = {one.study.name: group_number for group_number, one in studies}
    panels = [_panel(charts_before + i, chart, group_numbers) for i, chart in enumerate(charts)]
    notes = [
        tag("p", f"{note[0].upper()}{note[1:]}.", class_="note")
        for note in measured_layouts.notes([s for _, s in studies])
    ]
    rows = [_row(group_number, one) for group_number, one in studies]
    content = [tag("div", *panels, class_="panels"), *notes, table("Layouts", LAYOUTS, rows)]
    return section("layouts", TITLE, *content, about=OF_LAYOUTS, groups=group_numbers.values())


def _panel(i: int, chart: LayoutChart, group_numbers: Mapping[str, int]) -> Html:
    keys = [tag("span", marks.swatch(mark), tag("span", name), class_="key") for name, mark in chart.marks.items()]
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
