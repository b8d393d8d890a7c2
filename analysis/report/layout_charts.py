"""Charts of layouts: seconds of a step against bytes sent, split by redundancy."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from analysis.figures import layout_figures
from analysis.measured_layouts import MeasuredLayout
from analysis.report import charts, marks
from analysis.report.marks import Mark


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
            own = marks.assign_marks(name for _, _, name in layout_figures.SPLITS)
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
