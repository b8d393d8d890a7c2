"""The layouts section: charts of step time against bytes sent, and a table."""

import math
from collections.abc import Sequence

from analysis import kind_views, measured_layouts
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
        rows = [_point(one, float(own), how) for one, own in zip(members, seconds, strict=True) if math.isfinite(own)]
        if rows:
            own = charts.assign_marks(name for _, _, name in layout_figures.SPLITS)
            least = min((row["x"] for row in rows if row["x"] > 0), default=1.0)
            chart = {"spec": charts.costs(own, f"{how}, ms", least), "always": {"points": rows}}
            made.append(LegendChart(title, f"{how} against bytes sent, by redundancy", own, chart, members))
    return made


def _point(one: MeasuredLayout, seconds: float, how: str) -> Json:
    sent = one.number("wire_bytes") / 1e6
    lines = [
        one.study.mesh,
        one.study.layout_label,
        f"{how}: {seconds * 1e3:.4g} ms",
        f"sent: {sent:,.4g} MB",
        f"redundancy: {one.number('redundancy'):.3g}",
        f"held at most: {one.number('peak_bytes') / 1e6:,.4g} MB",
        f"study: {one.study.name}",
    ]
    point = {"x": float(f"{sent:.5g}"), "y": float(f"{seconds * 1e3:.5g}")}
    return point | {"series": layout_figures.split_of(one), "label": "\n".join(lines)}


def words(studies: Sequence[MeasuredLayout]) -> list[str]:
    """Returns the search terms for layouts."""
    found: dict[str, None] = {}
    for one in studies:
        own = one.study
        found |= dict.fromkeys((own.kind, *kind_views.labels(own), own.engine, own.mesh, own.layout))
    return list(found)


def section(studies: Sequence[tuple[int, MeasuredLayout]], charts_before: int) -> tuple[Html, Sequence[LegendChart]]:
    """Returns the section on layouts and its charts. ``charts_before`` is the number of preceding charts."""
    measured = [one for _, one in studies]
    drawn = layout_charts(measured)
    notes = [f"{note[0].upper()}{note[1:]}." for note in measured_layouts.notes(measured)]
    own = table("Layouts", LAYOUTS, [_row(group_number, one) for group_number, one in studies])
    return chart_section("layouts", TITLE, studies, charts_before, drawn, notes, own, OF_LAYOUTS), drawn


def _row(group_number: int, one: MeasuredLayout) -> Html:
    fits = ""
    if one.row.get("predicted_fits") is not None:
        fits = "yes" if one.row["predicted_fits"] else "no"
    explanation = one.row.get("explanation")
    refused = one.row["refusal"].replace("_", " ") if one.refused else ""
    cells = [
        one.study.labels.model,
        one.study.engine,
        one.study.mesh,
        one.study.layout_label,
        _number(one.number("redundancy"), ".2f"),
        _number(one.number("wire_bytes") / 1e6, ",.2f"),
        _number(one.number("peak_bytes") / 1e6, ",.1f"),
        _number(one.number("predicted_step_seconds") * 1e3, ",.3f"),
        fits,
        _number(one.number("step_seconds") * 1e3, ",.3f"),
        _number(float(one.losses[-1]) if len(one.losses) else math.nan, ".5f"),
        Cell(tag("span", refused, tag("small", explanation)), refused) if explanation else refused,
    ]
    return row(cells, data_groups=str(group_number))


def _number(value: float, form: str) -> Cell:
    return number(None) if math.isnan(value) else number(value, f"{value:{form}}")
