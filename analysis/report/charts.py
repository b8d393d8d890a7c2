"""Charts of the page as specifications in Vega-Lite, which are plain data, and the marks of their series.

Colours are names of page.css.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from analysis.plotting import ticks
from analysis.report.markup import Html, tag

# Paths in a square from -1 to 1, in the order of ``analysis.plotting.draw.STYLES``.
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
HEIGHT, TALL = 340, 460  # pixels; a panel that is alone is tall
SMALL = 280
POINTS = "points"  # of every chart: marks that can be hovered and focused, and their data
LINES: dict[str, Any] = {"field": "told", "type": "nominal"}  # the description of a point, in one line
MOST_TICKS = 12
DIMMED: dict[str, Any] = {"condition": {"test": "datum.dim", "value": 0.16}, "value": 1}
MARK: dict[str, Any] = {"type": "point", "size": 70, "strokeWidth": 1.5, "opacity": 1}


class Mark(NamedTuple):
    """A colour, as CSS, and a shape, as a path."""

    color: str
    shape: str


def assign_marks(names: Iterable[str]) -> dict[str, Mark]:
    """A mark for every name; once all colours are used they return with other shapes."""
    count = len(SHAPES)
    marks = (
        Mark(f"var(--series-{i})", SHAPES[(i + again) % count]) for again in itertools.count() for i in range(count)
    )
    return dict(zip(dict.fromkeys(names), marks, strict=False))


def scales(series: Mapping[str, Mark]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The scales of colour and shape of a chart."""
    names = list(series)
    return (
        {"domain": names, "range": [mark.color for mark in series.values()]},
        {"domain": names, "range": [mark.shape for mark in series.values()]},
    )


def swatch(mark: Mark) -> Html:
    """The symbol of a series in a legend."""
    path = tag("path", d=mark.shape, style=f"fill:{mark.color}")
    return tag("svg", path, class_="swatch", viewBox="-1.3 -1.3 2.6 2.6", aria_hidden="true")


def config() -> dict[str, Any]:
    """The configuration of all charts."""
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
    """Encodings of most marks of a chart: their places, and colours and shapes of series."""

    x: dict[str, Any]
    y: dict[str, Any]
    tone: dict[str, Any]
    form: dict[str, Any]

    @property
    def at(self) -> dict[str, Any]:
        return {"x": self.x, "y": self.y}

    @property
    def between(self) -> dict[str, Any]:
        """Both ends of a rule."""
        return self.at | {"x2": {"field": "x2"}, "y2": {"field": "y2"}}

    @property
    def bar(self) -> dict[str, Any]:
        """From low to high."""
        return self.at | {"y": self.y | {"field": "low"}, "y2": {"field": "high"}, "color": self.tone}


def steps(
    series: Mapping[str, Mark], across: tuple[float, float], up: tuple[float, float], height: int = HEIGHT
) -> dict[str, Any]:
    """Steps to target against batch size; data are given by name, which are the names of the layers.

    Args:
      series: all that may be drawn.
      across, up: the ends of both axes.
      height: of the axes, pixels.
    """
    own = channels(series, quantity("x", "batch size (examples)", across), quantity("y", "steps to target", up))
    return sizing(height) | {"layer": [*_behind(own), *_measured(own)]}


def _behind(own: Channels) -> list[dict[str, Any]]:
    """Regimes, lines of perfect scaling, fits with their region, and critical batch sizes."""
    rule, clipped = {"type": "rule", "clip": True}, {"clip": True}
    ring = {"type": "point", "shape": "circle", "size": 260, "strokeWidth": 1.4}
    to_axis = {"y2": {"value": {"expr": "height"}}}
    foot = {"y": {"value": {"expr": "height - 7"}}}
    fill = {"field": "fill", "type": "nominal", "scale": None}
    return [
        layer("regimes", {"type": "rect", "opacity": 0.5}, x=own.x, x2={"field": "x2"}, fill=fill),
        layer("diagonals", rule | {"color": "var(--diagonal)"}, **own.between),
        layer("bands", clipped | {"type": "area", "opacity": 0.22}, **own.at, y2={"field": "y2"}, color=own.tone),
        layer("perfect", rule | {"strokeDash": [6, 4], "strokeWidth": 1.3}, **own.between),
        layer("knees", rule | {"strokeDash": [2, 3]}, **own.at, **to_axis),
        layer("fits", clipped | {"type": "line", "strokeWidth": 1.8}, **own.at, color=own.tone, opacity=DIMMED),
        layer("critical", {"type": "rule", "strokeWidth": 3}, x=own.x, x2={"field": "x2"}, **foot),
        layer("rings", ring | {"filled": False}, **own.at, stroke=own.tone, opacity=DIMMED),
    ]


def _measured(own: Channels) -> list[dict[str, Any]]:
    """Answers with their intervals."""
    arrow = {"field": "arrow", "type": "nominal"}
    fill = {"condition": {"test": "datum.open", "value": PAPER}, **own.tone}
    mark_channels = {"shape": own.form, "fill": fill, "stroke": own.tone}
    return [
        layer(POINTS, {"type": "rule", "strokeWidth": 2, "clip": True}, **own.bar, opacity=DIMMED)
        | {"name": "intervals"},
        layer(POINTS, {"type": "text", "dy": -13, "fontSize": 14}, **own.at, text=arrow, opacity=DIMMED)
        | {"name": "arrows"},
        layer(POINTS, MARK, **own.at, **mark_channels, opacity=DIMMED, description=LINES),
    ]


def cores(series: Mapping[str, Mark], across: tuple[float, float], up: tuple[float, float]) -> dict[str, Any]:
    """Seconds per epoch against cores: points with the middle half of their epochs, laws, and perfect scaling."""
    own = channels(series, quantity("x", "cores", across), quantity("y", "seconds per epoch", up))
    ideal = {"type": "rule", "strokeDash": [6, 4], "color": MUTED, "clip": True}
    layers = [
        layer("perfect", ideal, **own.between),
        layer("fits", {"type": "line", "strokeWidth": 1.8}, **own.at, color=own.tone),
        layer(POINTS, {"type": "rule", "strokeWidth": 2}, **own.bar) | {"name": "bars"},
        layer(POINTS, MARK, **own.at, shape=own.form, fill=own.tone, stroke=own.tone, description=LINES),
    ]
    return sizing(SMALL) | {"layer": layers}


def courses(series: Mapping[str, Mark], title: str, log: bool) -> dict[str, Any]:
    """Recall after every epoch, over epochs or over seconds; open marks, as courses lie on each other."""
    scale = {"type": "log", "nice": False} if log else {"type": "linear", "zero": True, "nice": False}
    bottom = {"title": title, "grid": False, "tickCount": 6, "format": ".2~g"}
    recall = {"title": "Recall@20 of held-out links, test rows", "tickCount": 6}
    x = {"field": "x", "type": "quantitative", "scale": scale, "axis": bottom}
    y = {"field": "y", "type": "quantitative", "scale": {"zero": True}, "axis": recall}
    own, clear = channels(series, x, y), {"value": "transparent"}
    layers = [
        layer(POINTS, {"type": "line", "strokeWidth": 1.4}, **own.at, color=own.tone) | {"name": "lines"},
        layer(POINTS, MARK, **own.at, shape=own.form, stroke=own.tone, fill=clear, description=LINES),
    ]
    return sizing(SMALL) | {"layer": layers}


def costs(series: Mapping[str, Mark], seconds: str, least: float) -> dict[str, Any]:
    """Milliseconds of a step, which ``seconds`` names, against megabytes that a device sends: none, or ``least``."""
    sent = {"title": "counted MB that a device sends in a step", "tickCount": 6, "format": "~g"}
    took = {"title": seconds, "tickCount": 6, "format": "~g"}
    x = {"field": "x", "type": "quantitative", "scale": {"type": "symlog", "constant": least}, "axis": sent}
    y = {"field": "y", "type": "quantitative", "scale": {"type": "log", "padding": 12, "nice": False}, "axis": took}
    own = channels(series, x, y)
    mark = layer(POINTS, MARK, **own.at, shape=own.form, fill=own.tone, stroke={"value": PAPER}, description=LINES)
    return sizing(SMALL) | {"layer": [mark]}


def plane(across: str, up: str, log: tuple[bool, bool], colour: str) -> dict[str, Any]:
    """Trials over two metaparameters, coloured by recall, which ``colour`` names; crosses are those that diverged."""
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


def channels(series: Mapping[str, Mark], x: dict[str, Any], y: dict[str, Any]) -> Channels:
    """Places, and colours and shapes by series."""
    color, shape = scales(series)
    tone, form = ({"field": "series", "type": "nominal", "scale": scale, "legend": None} for scale in (color, shape))
    return Channels(x, y, tone, form)


def quantity(field: str, title: str, ends: tuple[float, float]) -> dict[str, Any]:
    """A field on a logarithmic axis between two ends."""
    scale = {"type": "log", "base": 2, "domain": list(ends), "nice": False}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis(title, ends)}


def layer(data: str, mark: Mapping[str, Any], **encoding: Any) -> dict[str, Any]:
    """A layer that draws the named data; a screen reader is told of marks with a description, and of no others."""
    aria = "description" in encoding
    return {"name": data, "data": {"name": data}, "mark": {**mark, "aria": aria}, "encoding": encoding}


def sizing(height: int) -> dict[str, Any]:
    """The size of a chart: as wide as there is room."""
    return {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}


def axis(title: str, ends: tuple[float, float]) -> dict[str, Any]:
    """Ticks at powers of two."""
    values = ticks.powers_of_two(ends, MOST_TICKS)
    long = bool(values) and values[-1] >= 100_000
    form = ".3~s" if long else ",.3~r" if values and values[0] < 1 else ",d"
    return {"title": title, "values": values, "format": form}
