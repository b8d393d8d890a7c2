"""The layouts section: charts of step time against bytes sent, and a table."""

import math
from collections.abc import Sequence

from analysis import kind_views, measured_layouts, text
from analysis.figures import layout_figures
from analysis.measured_layouts import MeasuredLayout
from analysis.report import charts
from analysis.report.charts import Json, LegendChart, chart_section
from analysis.report.markup import Cell, Html, number, row, table, tag

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
    "rejected",
)
OF_LAYOUTS = (
    "One training step of a decoder Transformer whose tensor axes are split over the axes of a device mesh. The layout "
    "changes the cost of a step but not its result. Redundancy, bytes sent and bytes held are per device and counted "
    "in the compiled step. Predicted milliseconds come from a cost model without overlap. Emulated devices are never "
    "timed. Rejected layouts are listed with the reason."
)


def layout_charts(layouts: Sequence[MeasuredLayout]) -> list[LegendChart]:
    """Returns one chart per model, engine and device count. For emulated devices, only predicted seconds are shown."""
    made = []
    for title, _, members in layout_figures.groups(layouts):
        seconds, how = layout_figures.seconds_of(members)
        rows = [
            _point(member, float(step_seconds), how)
            for member, step_seconds in zip(members, seconds, strict=True)
            if math.isfinite(step_seconds)
        ]
        if rows:
            marks = charts.assign_marks(name for _, _, name in layout_figures.SPLITS)
            smallest = min((row["x"] for row in rows if row["x"] > 0), default=1.0)
            chart = {"spec": charts.costs(marks, f"{how}, ms", smallest), "always": {"points": rows}}
            made.append(LegendChart(title, f"{how} against bytes sent, by redundancy", marks, chart, members))
    return made


def _point(layout: MeasuredLayout, seconds: float, how: str) -> Json:
    sent = layout.number("wire_bytes") / 1e6
    lines = [
        layout.study.mesh,
        layout.study.layout_label,
        f"{how}: {seconds * 1e3:.4g} ms",
        f"sent: {sent:,.4g} MB",
        f"redundancy: {layout.number('redundancy'):.3g}",
        f"held at most: {layout.number('peak_bytes') / 1e6:,.4g} MB",
        f"study: {layout.study.name}",
    ]
    point = {"x": float(f"{sent:.5g}"), "y": float(f"{seconds * 1e3:.5g}")}
    return point | {"series": layout_figures.split_of(layout), "label": "\n".join(lines)}


def words(studies: Sequence[MeasuredLayout]) -> list[str]:
    """Returns the search terms for layouts."""
    terms: dict[str, None] = {}
    for study in studies:
        plan = study.study
        terms |= dict.fromkeys((plan.kind, *kind_views.labels(plan), plan.engine, plan.mesh, plan.layout))
    return list(terms)


def section(studies: Sequence[tuple[int, MeasuredLayout]], charts_before: int) -> tuple[Html, Sequence[LegendChart]]:
    """Returns the section on layouts and its charts. ``charts_before`` is the number of preceding charts."""
    measured = [study for _, study in studies]
    drawn = layout_charts(measured)
    notes = list(map(text.sentence, measured_layouts.notes(measured)))
    layout_table = table("Layouts", LAYOUTS, [_row(group_number, study) for group_number, study in studies])
    return chart_section("layouts", TITLE, studies, charts_before, drawn, notes, layout_table, OF_LAYOUTS), drawn


def _row(group_number: int, layout: MeasuredLayout) -> Html:
    fits = ""
    if layout.row.get("predicted_fits") is not None:
        fits = "yes" if layout.row["predicted_fits"] else "no"
    explanation = layout.row.get("explanation")
    refused = layout.row["refusal"].replace("_", " ") if layout.refused else ""
    counted = [_number(*number) for number in measured_layouts.shown_numbers(layout).values()]
    cells = [
        layout.study.labels.model,
        layout.study.engine,
        layout.study.mesh,
        layout.study.layout_label,
        *counted[:4],
        fits,
        *counted[4:],
        Cell(tag("span", refused, tag("small", explanation)), refused) if explanation else refused,
    ]
    return row(cells, data_groups=str(group_number))


def _number(value: float, form: str) -> Cell:
    return number(None) if math.isnan(value) else number(value, f"{value:{form}}")
