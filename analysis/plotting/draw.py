"""Functions for drawing steps to target against batch size, with ticks at powers of two."""

import functools
import itertools
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from analysis.fitting import regimes
from analysis.fitting.confirmations import Confirmed, middle
from analysis.fitting.curves import Points
from analysis.fitting.fits import PointsFit
from analysis.plotting import ticks

Look = dict[str, Any]  # options of an artist
symbol = functools.partial(Line2D, [], [])  # a line that is only in a legend


class Style(NamedTuple):
    """The appearance of a curve.

    Curves also differ in marker and line style, so they can be distinguished in greyscale.
    """

    color: str
    marker: str
    line: tuple[float, tuple[float, ...]]

    @property
    def look(self) -> Look:
        """The options of a line with these markers."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.line}


# Okabe and Ito's colours for colour-blind readers. Brown and grey replace yellow, which is too pale for lines.
STYLES = (
    Style("#0072B2", "o", (0, ())),
    Style("#D55E00", "s", (0, (6, 2))),
    Style("#009E73", "^", (0, (1, 1.2))),
    Style("#CC79A7", "D", (0, (6, 2, 1, 2))),
    Style("#E69F00", "v", (0, (3, 1))),
    Style("#56B4E9", "P", (0, (4, 1, 1, 1, 1, 1))),
    Style("#000000", "X", (0, (8, 3))),
    Style("#8C510A", "<", (0, (2, 1))),
    Style("#7F7F7F", ">", (0, (5, 1, 1, 1))),
)
INK = "#333333"
GRID: Look = {"visible": True, "which": "major", "color": "#DDDDDD", "linewidth": 0.5, "zorder": 0.5}
PERFECT: Look = {"color": INK, "linestyle": (0, (4, 3)), "linewidth": 1}  # a line of perfect scaling
MISSED: Look = {"linestyle": "none", "marker": "^", "markerfacecolor": "white"}
MISSED["label"] = "not reached within this budget"
SELECTED, CONFIRMED = STYLES[:2]  # in pictures of one curve
DASHES = (0.0, (4.0, 1.6))  # confirmed answers in pictures of several curves
NEVER_AGAIN = "confirmed: median never reached"
IN_DOUBT = (0.0, (2.2, 1.4))  # answers in doubt are dashed, and their markers are hollow
FURTHEST = 4.0  # bars are cut at most at this factor below their middle


def write_reason(ax: Axes, why: str, across: int = 38, size: float | None = None) -> None:
    """Writes the reason in the middle of empty axes, with ``across`` characters per line."""
    words = textwrap.fill(why, across)
    ax.text(0.5, 0.5, words, fontsize=size, color="#777777", ha="center", va="center", transform=ax.transAxes)


def styles() -> Iterator[Style]:
    """Yields an unlimited sequence of styles. Once all are used, colours repeat with other markers."""
    for round_number in itertools.count():
        for i, style in enumerate(STYLES):
            yield style._replace(marker=STYLES[(i + round_number) % len(STYLES)].marker)


def styles_of(count: int, *, ordered: bool) -> list[Style]:
    """Returns ``count`` styles. Those of an ordered series run from dark to light, without the palest colours."""
    if not ordered:
        return list(itertools.islice(styles(), count))
    colors = colormaps["viridis"](np.linspace(0, 0.82, max(count, 2)))
    return [Style(to_hex(colors[i]), STYLES[i % len(STYLES)].marker, (0, ())) for i in range(count)]


def batch_size_axis(
    ax: Axes, batch_sizes: Sequence[float] | np.ndarray, *, compact: bool = True, unit: str = ""
) -> None:
    """Sets the scale, limits, ticks and label of the horizontal axis, and the grid.

    Args:
      ax: the axes.
      batch_sizes: batch sizes to include.
      compact: whether to draw only a few ticks, written as powers.
      unit: unit of the batch sizes, or empty if the lines may have different units.
    """
    ticks.in_powers_of_two(ax.xaxis, ticks.limits(batch_sizes, 0.6, 0.6, least=0), compact=compact)
    ax.set_xlabel(f"batch size ({unit})" if unit else "batch size")
    ax.grid(**GRID)


def batch_size_axes(
    ax: Axes, batch_sizes: Sequence[float], steps: Sequence[float], unit: str, *, compact: bool = False, rows: int = 0
) -> None:
    """Scales both axes to include the batch sizes (in ``unit``) and the steps, and labels them.

    Set ``compact`` for small panels. Space for ``rows`` rows of answers is left at the bottom.
    """
    batch_size_axis(ax, batch_sizes, compact=compact, unit=unit)
    share = 0.03 + 0.065 * rows  # of the height
    octaves = math.log2(max(steps) / min(steps)) + 0.6
    below = max(0.9, octaves * share / (1 - share))
    ticks.in_powers_of_two(ax.yaxis, ticks.limits(steps, below, 0.6), compact=compact)
    ax.set_ylabel("steps to target")


def heights(points: Points) -> np.ndarray:
    """Returns the steps that the axes must include to show the measurements. Long bars are cut off at the bottom."""
    low = regimes.from_zero(points.low)
    return np.concatenate([np.maximum(low, (low + points.high) / 2 / FURTHEST), points.high])


def drawn_steps(points: Points, *, evaluated: bool) -> np.ndarray:
    """Returns the steps at which markers are drawn.

    Args:
      points: steps to target, as intervals.
      evaluated: whether to draw the first evaluated step that reached the target instead of the interval's middle.
    """
    return points.high if evaluated else (regimes.from_zero(points.low) + points.high) / 2


def measurements(
    ax: Axes,
    points: Points,
    style: Style,
    *,
    factor: float = 1.0,
    size: float = 5.0,
    evaluated: bool = False,
) -> None:
    """Draws steps to target, divided by ``factor``, with bars that span the evaluation intervals."""
    low, high = regimes.from_zero(points.low) / factor, points.high / factor
    bars(ax, points.batch_size, drawn_steps(points, evaluated=evaluated) / factor, low, high, style, None, size=size)


def bars(
    ax: Axes,
    across: np.ndarray,
    middle: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    style: Style,
    label: str | None,
    *,
    size: float,
) -> None:
    """Draws markers with bars from ``low`` to ``high`` (all float64[n]). ``size`` is the marker size in points."""
    ax.errorbar(
        across,
        middle,
        yerr=[middle - low, high - middle],
        label=label,
        markersize=size,
        markeredgecolor="white",
        markeredgewidth=0.6,
        elinewidth=1.6,
        fmt=style.marker,
        color=style.color,
        capsize=0,
        zorder=4,
    )


def repeated_medians(
    ax: Axes,
    repeats: Sequence[Confirmed],
    style: Style,
    *,
    size: float = 5.0,
    hollow: bool = False,
    bars: bool = True,
) -> None:
    """Draws the median steps of reruns with new seeds, with ``bars`` that span their range.

    A bar extends to the top of the axes if some reruns never reached the target. A triangle at the top means that at
    least half of them did not reach it. Set ``hollow`` if selected answers have the same colour.
    """
    rows = [
        (repeat.batch_size, max(repeat.least[0], 0.5), middle(repeat.median), repeat.most[1] if bars else -1.0)
        for repeat in repeats
    ]
    markers_with_bars(ax, rows, style, size=size, hollow=hollow)


def markers_with_bars(
    ax: Axes,
    rows: Sequence[tuple[float, float, float, float]],
    style: Style,
    *,
    size: float = 5.0,
    hollow: bool = False,
) -> None:
    """Draws markers with bars on axes with fixed limits.

    Args:
      ax: the axes.
      rows: tuples (across, least, middle, most). Infinite values are drawn at the top. No bar is drawn if most < least.
      style: style of all markers.
      size: marker size in points.
      hollow: whether markers are filled with white.
    """
    top, never = ax.get_ylim()[1], NEVER_AGAIN
    edge = style.color if hollow else "white"
    face = "white" if hollow else style.color
    for across, smallest, median, largest in rows:
        if smallest < largest:
            bar = [smallest, min(largest, top)]
            ax.plot([across] * 2, bar, color=style.color, linewidth=0.9, solid_capstyle="butt", zorder=3.6)
        look: Look = {"markersize": size, "markerfacecolor": face, "markeredgecolor": edge, "zorder": 3.9}
        if math.isfinite(median):
            width = 0.9 if hollow else 0.6
            ax.plot([across], [median], marker=style.marker, markeredgewidth=width, **look)
            continue
        look |= {"markerfacecolor": "white", "markeredgecolor": style.color, "linestyle": "none", "label": never}
        ax.plot([across], [0.97], transform=ax.get_xaxis_transform(), marker="^", **look)
        never = "_"


def missed_budgets(ax: Axes, batch_size: Sequence[float], budget: Sequence[float], style: Style) -> None:
    """Draws open triangles at the step budgets of batch sizes at which the target was missed."""
    ax.plot(batch_size, budget, markersize=6.5, markeredgecolor=style.color, zorder=4, **MISSED)


def fit_line(ax: Axes, fit: regimes.Fit, style: Style, *, factor: float = 1.0) -> None:
    """Draws the fitted curve, divided by ``factor``, from the smallest to the largest batch size."""
    across = _between(fit)
    ax.plot(
        across,
        regimes.curve(fit, across) / factor,
        color=style.color,
        linestyle=style.line,
        linewidth=1.6,
        zorder=3,
    )


def band(
    ax: Axes,
    fit: regimes.Fit,
    style: Style,
    *,
    factor: float = 1.0,
    alpha: float = 0.25,
    label: str | None = "90 % region",
) -> None:
    """Shades the 90 % region of a fit, divided by ``factor``."""
    if not len(fit.allowed[0]):
        return  # the region is narrower than the profile's grid, and therefore as narrow as the line
    across = _between(fit)
    low, high = (end / factor for end in regimes.band(fit, across))
    ax.fill_between(across, low, high, color=style.color, alpha=alpha, linewidth=0, label=label, zorder=2)


def perfect_scaling(ax: Axes, examples: float, color: str = INK, label: str | None = "perfect scaling") -> None:
    """Draws the line along which batch size times steps equals ``examples``, so doubling the batch halves the steps."""
    across = np.array(ax.get_xlim())
    ax.plot(across, examples / across, label=label, zorder=2.5, **PERFECT | {"color": color})


def ring(ax: Axes, points_fit: PointsFit, style: Style, *, factor: float = 1.0) -> None:
    """Draws a ring on the fitted curve at an identified *pays up to*. The ring is dashed if the answer is uncertain."""
    fit, extents = points_fit.fit, points_fit.extents
    if fit is None or extents is None or extents.pays.verdict != "identified":
        return
    size = np.array([extents.pays.best])
    dashes = IN_DOUBT if points_fit.search_doubts else "solid"
    options: Look = {"s": 12**2, "facecolors": "none", "linewidths": 1.4, "linestyles": [dashes], "zorder": 5}
    ax.scatter(size, regimes.curve(fit, size) / factor, edgecolors=style.color, **options)


def diamond(color: str, *, in_doubt: bool) -> Look:
    """Returns the marker of an estimate, which is hollow if the estimate is uncertain."""
    face = "white" if in_doubt else color
    return {"marker": "D", "markersize": 5, "markerfacecolor": face, "markeredgecolor": color, "markeredgewidth": 1.1}


def legend_entry(style: Style, label: str, *, hollow: bool = False) -> Line2D:
    """Returns the legend entry for a curve."""
    look: Look = {"markeredgecolor": "white", "markeredgewidth": 0.6}
    if hollow:
        look = {"markeredgecolor": style.color, "markeredgewidth": 0.9, "markerfacecolor": "white"}
    return symbol(linewidth=1.6, markersize=5, label=label, **style.look, **look)


def legend_below(ax: Axes, handles: Sequence[Any], names: Sequence[str], *, columns: int) -> None:
    """Draws a legend below the axes of a figure, aligned with their left edge."""
    assert ax.figure is not None
    ax.figure.legend(
        handles,
        names,
        ncols=columns,
        fontsize=8.5,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(ax.get_position().x0, 0.0),
        borderaxespad=0.2,
    )


def _between(fit: regimes.Fit) -> np.ndarray:
    return np.geomspace(fit.batch_size[0], fit.batch_size[-1], 201)
