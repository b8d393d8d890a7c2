"""Marks, which tell series apart on the page by colour and shape; colours are names of page.css."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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
