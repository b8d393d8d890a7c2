"""Vega-Lite specifications of the charts on the page, as plain data, and the marks of their series.

Colours are CSS variables of page.css.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from analysis.plotting import ticks
from analysis.plotting.ticks import Ends
from analysis.report.markup import Html, chart_name, section, tag
from results.aliases import Fields, Json

# Paths in the square from -1 to 1, in the order of ``analysis.plotting.draw.STYLES``.
SHAPES = (
    "M0,-1A1,1,0,1,1,0,1A1,1,0,1,1,0,-1Z",
    "M-0.85,-0.85L0.85,-0.85L0.85,0.85L-0.85,0.85Z",
    "M0,-1L1,0.8L-1,0.8Z",
    "M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    "M0,1L1,-0.8L-1,-0.8Z",
    "M-0.36,-1L0.36,-1L0.36,-0.36L1,-0.36L1,0.36L0.36,0.36L0.36,1L-0.36,1L-0.36,0.36L-1,0.36L-1,-0.36L-0.36,-0.36Z",
    "M-1,-0.55L-0.55,-1L0,-0.45L0.55,-1L1,-0.55L0.45,0L1,0.55L0.55,1L0,0.45L-0.55,1L-1,0.55L-0.45,0Z",
    "M-1,0L0.8,-1L0.8,1Z",
    "M1,0L-0.8,-1L-0.8,1Z",
)
INK, MUTED, PAPER = "var(--ink)", "var(--muted)", "var(--panel)"
HEIGHT, TALL = 340, 460  # pixels. TALL is used if the page has only one chart of steps.
SMALL = 280
POINTS = "points"  # in every chart, the name of the marks that can be hovered and focused, and of their data
LINES = {"field": "label", "type": "nominal"}  # text alternative for a point
MOST_TICKS = 12
DIMMED = {"condition": {"test": "datum.dim", "value": 0.16}, "value": 1}
DASHED = {"condition": {"test": "datum.doubt", "value": [3, 3]}, "value": [1, 0]}  # answers in doubt
MARK = {"type": "point", "size": 70, "strokeWidth": 1.5, "opacity": 1}


class Mark(NamedTuple):
    """The CSS colour and SVG path of a series."""

    color: str
    shape: str


class LegendChart(NamedTuple):
    """A chart of studies, with a legend.

    Attributes:
      title: title of the panel.
      goal: subtitle, such as the data set, or how seconds were obtained.
      marks: marks, by name in the legend.
      chart: data drawn by charts.js: ``spec``, and the rows ``always``.
      members: studies shown in the chart.
      conclusions: sentences below the chart.
    """

    title: str
    goal: str
    marks: Mapping[str, Mark]
    chart: Json
    members: Sequence[Any]
    conclusions: Sequence[str] = ()


def assign_marks(names: Iterable[str]) -> dict[str, Mark]:
    """Returns a mark for each name. Once all colours are used, colours repeat with other shapes."""
    places = (divmod(i, len(SHAPES)) for i in itertools.count())
    marks = (Mark(f"var(--series-{i})", SHAPES[(i + turn) % len(SHAPES)]) for turn, i in places)
    return dict(zip(dict.fromkeys(names), marks, strict=False))


def swatch(mark: Mark) -> Html:
    """Returns the legend symbol of a series."""
    path = tag("path", d=mark.shape, style=f"fill:{mark.color}")
    return tag("svg", path, class_="swatch", viewBox="-1.3 -1.3 2.6 2.6", aria_hidden="true")


def legend_panel(i: int, chart: LegendChart, group_numbers: Mapping[str, int]) -> Html:
    """Returns the panel of a chart, with its legend and conclusions.

    Args:
      i: index of the chart on the page.
      chart: chart to show.
      group_numbers: number of each study's filter group, by study name.
    """
    keys = [tag("span", swatch(mark), tag("span", name), class_="key") for name, mark in chart.marks.items()]
    items = [tag("li", words) for words in chart.conclusions]
    return tag(
        "article",
        tag("h3", chart.title),
        tag("p", chart.goal, class_="goal"),
        tag(
            "div", class_="chart small", data_chart=str(i), role="group", aria_label=chart_name(chart.title, chart.goal)
        ),
        tag("div", *keys, class_="chips"),
        tag("ul", *items, class_="said") if items else "",
        class_="panel",
        data_groups=" ".join(dict.fromkeys(str(group_numbers[member.study.name]) for member in chart.members)),
    )


def chart_section(
    name: str,
    title: str,
    studies: Sequence[tuple[int, Any]],
    charts_before: int,
    charts: Sequence[LegendChart],
    notes: Sequence[str],
    studies_table: Html,
    about: str,
) -> Html:
    """Returns a section with charts, notes and a table.

    Args:
      name, title, about: name, title and introductory paragraph of the section.
      studies: studies, each with the number of its filter group.
      charts_before: number of preceding charts on the page.
      charts: charts to show.
      notes: notes below the charts.
      studies_table: table of the studies.
    """
    group_numbers = {study.study.name: group_number for group_number, study in studies}
    panels = [legend_panel(charts_before + i, chart, group_numbers) for i, chart in enumerate(charts)]
    content = [tag("div", *panels, class_="panels"), *(tag("p", note, class_="note") for note in notes), studies_table]
    return section(name, title, *content, about=about, groups=group_numbers.values())


def config() -> Json:
    """Returns the Vega-Lite configuration of all charts."""
    font = "system-ui, sans-serif"
    axis = {
        "labelColor": MUTED,
        "titleColor": INK,
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFont": font,
        "titleFont": font,
        "labelFontSize": 12,
        "titleFontSize": 12.5,
        "titleFontWeight": 500,
        "labelOverlap": "greedy",
        "labelSeparation": 4,
        "titlePadding": 8,
    }
    return {
        "background": "transparent",
        "view": {"stroke": None},
        "axis": axis,
        "axisY": {"titleAlign": "left", "titleAnchor": "end", "titleAngle": 0, "titleY": -12, "titleX": -36},
        "legend": {"labelColor": MUTED, "titleColor": INK, "labelFont": font, "titleFont": font, "labelFontSize": 12},
        "text": {"font": font, "fontSize": 12, "color": MUTED},
        "rule": {"color": INK},
        "line": {"color": INK},
    }


class Channels(NamedTuple):
    """Encodings shared by most marks in a chart: the positions, and the colours and shapes of the series."""

    x: Json
    y: Json
    tone: Json
    form: Json

    @property
    def at(self) -> Json:
        return {"x": self.x, "y": self.y}

    @property
    def between(self) -> Json:
        """Encodings for both ends of a rule."""
        return self.at | {"x2": {"field": "x2"}, "y2": {"field": "y2"}}

    @property
    def bar(self) -> Json:
        """Encodings for a bar from ``low`` to ``high``."""
        return self.at | {"y": self.y | {"field": "low"}, "y2": {"field": "high"}, "color": self.tone}


def steps(series: Mapping[str, Mark], across: Ends, up: Ends, unit: str, height: int = HEIGHT) -> Json:
    """Returns the chart of steps to target against batch size. Each layer draws the data with the same name.

    Args:
      series: mark for each series.
      across, up: limits of the axes, in ``unit`` and in steps.
      unit: unit of the batch sizes.
      height: height of the axes in pixels.
    """
    enc = channels(series, quantity("x", f"batch size ({unit})", across), quantity("y", "steps to target", up))
    return sizing(height) | {"layer": [*_behind(enc), *_measured(enc)]}


def _behind(enc: Channels) -> list[Json]:
    """Returns layers for the regimes, perfect scaling, fits with regions, *pays up to* and critical batch sizes."""
    rule, clipped = {"type": "rule", "clip": True}, {"clip": True}
    pays = {"type": "rule", "strokeWidth": 3}
    ring = {"type": "point", "shape": "circle", "size": 260, "strokeWidth": 1.4}
    diamond = {"type": "point", "shape": "diamond", "size": 90, "strokeWidth": 1.4, "opacity": 1}
    hollow = {"condition": {"test": "datum.open", "value": PAPER}, "value": INK}
    fill = {"field": "fill", "type": "nominal", "scale": None}
    return [
        layer("regimes", {"type": "rect", "opacity": 0.5}, x=enc.x, x2={"field": "x2"}, fill=fill),
        layer("diagonals", rule | {"color": "var(--diagonal)"}, **enc.between),
        layer("bands", clipped | {"type": "area", "opacity": 0.22}, **enc.at, y2={"field": "y2"}, color=enc.tone),
        layer("perfect", rule | {"strokeDash": [6, 4], "strokeWidth": 1.3}, **enc.between),
        layer("knees", rule | {"strokeDash": [2, 3]}, **enc.at, y2={"value": {"expr": "height"}}),
        layer("fits", clipped | {"type": "line", "strokeWidth": 1.8}, **enc.at, color=enc.tone, opacity=DIMMED),
        layer("pays", pays, x=enc.x, x2={"field": "x2"}, y={"value": {"expr": "height - 7"}}, strokeDash=DASHED),
        layer("knees", diamond, **enc.at, fill=hollow, stroke={"value": INK}) | {"name": "diamonds"},
        layer("rings", ring | {"filled": False}, **enc.at, stroke=enc.tone, opacity=DIMMED, strokeDash=DASHED),
    ]


def _measured(enc: Channels) -> list[Json]:
    """Returns the layers for answers and their intervals."""
    arrow = {"field": "arrow", "type": "nominal"}
    fill = {"condition": {"test": "datum.open", "value": PAPER}, **enc.tone}
    return [
        layer(POINTS, {"type": "rule", "strokeWidth": 2, "clip": True}, **enc.bar, opacity=DIMMED)
        | {"name": "intervals"},
        layer(POINTS, {"type": "text", "dy": -13, "fontSize": 14}, **enc.at, text=arrow, opacity=DIMMED)
        | {"name": "arrows"},
        dots(enc, fill, enc.tone, opacity=DIMMED),
    ]


def cores(series: Mapping[str, Mark], across: Ends, up: Ends) -> Json:
    """Returns the chart of seconds per epoch against cores, with quartiles, fitted laws and perfect scaling."""
    enc = channels(series, quantity("x", "cores", across), quantity("y", "seconds per epoch", up))
    ideal = {"type": "rule", "strokeDash": [6, 4], "color": MUTED, "clip": True}
    layers = [
        layer("perfect", ideal, **enc.between),
        layer("fits", {"type": "line", "strokeWidth": 1.8}, **enc.at, color=enc.tone),
        layer(POINTS, {"type": "rule", "strokeWidth": 2}, **enc.bar) | {"name": "bars"},
        dots(enc, enc.tone, enc.tone),
    ]
    return sizing(SMALL) | {"layer": layers}


def courses(series: Mapping[str, Mark], title: str, log: bool) -> Json:
    """Returns the chart of recall against epochs or seconds. Marks are unfilled because curves overlap."""
    scale = {"type": "log", "nice": False} if log else {"type": "linear", "zero": True, "nice": False}
    bottom = {"title": title, "grid": False, "tickCount": 6, "format": ".2~g"}
    recall = {"title": "Recall@20 of held-out links, test rows", "tickCount": 6}
    x = {"field": "x", "type": "quantitative", "scale": scale, "axis": bottom}
    y = {"field": "y", "type": "quantitative", "scale": {"zero": True}, "axis": recall}
    enc, clear = channels(series, x, y), {"value": "transparent"}
    layers = [
        layer(POINTS, {"type": "line", "strokeWidth": 1.4}, **enc.at, color=enc.tone) | {"name": "lines"},
        layer(POINTS, MARK, **enc.at, shape=enc.form, stroke=enc.tone, fill=clear, description=LINES),
    ]
    return sizing(SMALL) | {"layer": layers}


def costs(series: Mapping[str, Mark], seconds: str, smallest: float) -> Json:
    """Returns the chart of milliseconds per step against megabytes sent per device.

    Args:
      series: mark for each series.
      seconds: title of the vertical axis.
      smallest: smallest nonzero number of megabytes. Below it, the axis is linear.
    """
    sent = {"title": "counted MB sent per device and step", "tickCount": 6, "format": "~g"}
    took = {"title": seconds, "tickCount": 6, "format": "~g"}
    x = {"field": "x", "type": "quantitative", "scale": {"type": "symlog", "constant": smallest}, "axis": sent}
    y = {"field": "y", "type": "quantitative", "scale": {"type": "log", "padding": 12, "nice": False}, "axis": took}
    enc = channels(series, x, y)
    return sizing(SMALL) | {"layer": [dots(enc, enc.tone, {"value": PAPER})]}


def plane(across: str, up: str, log: tuple[bool, bool], colour: str) -> Json:
    """Returns the chart of trials in the plane of two metaparameters.

    Args:
      across, up: titles of the axes.
      log: whether each axis is logarithmic.
      colour: title of the colour scale, which shows recall. Diverged trials are drawn as crosses.
    """
    open_ = {"nice": False, "padding": 12}
    x, y = (
        {
            "field": name,
            "type": "quantitative",
            "scale": {"type": "log", **open_} if logarithmic else {"type": "linear", "zero": False, **open_},
            "axis": {"title": title, "format": "~g", "tickCount": 5},
        }
        for name, title, logarithmic in (("x", across, log[0]), ("y", up, log[1]))
    )
    recall = {
        "field": "recall",
        "type": "quantitative",
        "scale": {"scheme": "viridis"},
        "legend": {"title": colour, "gradientLength": 170, "tickCount": 5, "format": ".2f"},
    }
    cross = {"condition": {"test": "datum.diverged", "value": SHAPES[6]}, "value": "circle"}
    point = {"type": "point", "filled": True, "opacity": 1, "strokeWidth": 1}
    size = {"condition": {"test": "datum.best", "value": 190}, "value": 70}
    stroke = {"condition": {"test": "datum.best", "value": INK}, "value": MUTED}
    gone = {"condition": {"test": "datum.diverged", "value": "var(--bad)"}, **recall}
    return sizing(SMALL) | {
        "layer": [layer(POINTS, point, x=x, y=y, fill=gone, shape=cross, size=size, stroke=stroke, description=LINES)]
    }


def channels(series: Mapping[str, Mark], x: Json, y: Json) -> Channels:
    """Returns the enc of positions, and of the colour and shape of each series."""
    tone, form = (
        {
            "field": "series",
            "type": "nominal",
            "scale": {"domain": list(series), "range": [mark[i] for mark in series.values()]},
            "legend": None,
        }
        for i in range(2)  # colour and shape
    )
    return Channels(x, y, tone, form)


def quantity(field: str, title: str, ends: Ends) -> Json:
    """Returns a field on a logarithmic axis with the given limits."""
    scale = {"type": "log", "base": 2, "domain": list(ends), "nice": False}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis(title, ends)}


def constant_product(product: float, ends: Ends) -> Json:
    """Returns a line between two positions along which x · y is constant."""
    return {"x": ends[0], "y": product / ends[0], "x2": ends[1], "y2": product / ends[1]}


def layer(data: str, mark: Fields, **encoding: Any) -> Json:
    """Returns a layer that draws the data ``name``. Only marks with a description are exposed to screen readers."""
    aria = "description" in encoding
    return {"name": data, "data": {"name": data}, "mark": {**mark, "aria": aria}, "encoding": encoding}


def dots(enc: Channels, fill: Json, stroke: Json, **encoding: Any) -> Json:
    """Returns the layer of the marks that can be hovered and focused."""
    return layer(POINTS, MARK, **enc.at, shape=enc.form, fill=fill, stroke=stroke, **encoding, description=LINES)


def sizing(height: int) -> Json:
    """Returns the settings for a chart that fills the width of its container."""
    return {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}


def axis(title: str, ends: Ends) -> Json:
    """Returns an axis with ticks at powers of two."""
    values = ticks.powers_of_two(ends, MOST_TICKS)
    form = ",d"
    if values and values[-1] >= 100_000:
        form = ".3~s"
    elif values and values[0] < 1:
        form = ",.3~r"
    return {"title": title, "values": values, "format": form}
