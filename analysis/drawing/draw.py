"""Drawing on axes: batch size across, steps to target up, both in powers of two. Effects stay on the axes given."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from analysis import text
from analysis.drawing import ticks
from analysis.fitting import regimes
from analysis.fitting.curves import Points
from analysis.fitting.fits import Judged
from analysis.searches.confirmations import Confirmed


class Style(NamedTuple):
    """How one curve is told from another, by colour and in grey print."""

    color: str
    marker: str
    line: tuple[float, tuple[float, ...]]


# Okabe and Ito's colours, which stay apart for colour-blind readers; brown and grey stand in for yellow, too pale here.
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
GRID: dict[str, Any] = {"visible": True, "which": "major", "color": "#DDDDDD", "linewidth": 0.5, "zorder": 0.5}
REGIME_COLORS = dict(zip((*regimes.REGIMES, "?"), ("#D3E7F5", "#F9E6C4", "#CFE9DF", "#EFEFEF"), strict=True))
AGAIN, NEVER_AGAIN = "best run again: median, range", "best run again: median never reached"
OPEN: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 4.6, "markerfacecolor": "white"}
STRIP = 0.085  # height of the strip of names above the axes, of the height of the axes
WORDS = 0.42  # what the critical batch size in words takes of the width of the axes
CHARACTERS_ACROSS = 88  # of the size of the names, in the width of the axes


def styles() -> Iterator[Style]:
    """One style after the other; once all are used, their colours return with other markers."""
    for round_number in itertools.count():
        for i, style in enumerate(STYLES):
            yield style._replace(marker=STYLES[(i + round_number) % len(STYLES)].marker)


def ordered_styles(count: int) -> list[Style]:
    """Styles of things that come in an order, from dark to light along viridis, without its palest end."""
    colors = colormaps["viridis"](np.linspace(0, 0.82, max(count, 2)))
    return [Style(to_hex(colors[i]), STYLES[i % len(STYLES)].marker, (0, ())) for i in range(count)]


def batch_size_axes(ax: Axes, batch_sizes: Sequence[float], steps: Sequence[float], *, compact: bool = False) -> None:
    """Scales and labels both axes to hold the given batch sizes (examples) and steps; ``compact`` in small panels."""
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xlim(min(batch_sizes) / 2**0.6, max(batch_sizes) * 2**0.6)
    low, high = math.log2(min(steps)) - 0.9, math.log2(max(steps)) + 0.6
    lack = max(0.0, 3 - (high - low)) / 2  # a flat curve should look flat
    ax.set_ylim(2 ** (low - lack), 2 ** (high + lack))
    ticks.in_powers_of_two(ax.xaxis, ax.get_xlim(), compact=compact)
    ticks.in_powers_of_two(ax.yaxis, ax.get_ylim(), compact=compact)
    ax.set_xlabel("batch size (examples)")
    ax.set_ylabel("steps to target")
    ax.grid(**GRID)


def measured(
    ax: Axes, points: Points, style: Style, label: str | None, *, factor: float = 1.0, size: float = 5.0
) -> None:
    """Steps to target, over ``factor``, with bars over the evaluation intervals they lie in."""
    low, high = regimes.from_zero(points.low) / factor, points.high / factor
    middle = (low + high) / 2
    ax.errorbar(
        points.batch_size,
        middle,
        yerr=[middle - low, high - middle],
        fmt=style.marker,
        color=style.color,
        markersize=size,
        markeredgecolor="white",
        markeredgewidth=0.6,
        elinewidth=1.6,
        capsize=0,
        label=label,
        zorder=4,
    )


def confirmed(ax: Axes, found: Sequence[Confirmed], style: Style) -> None:
    """Open markers at the median steps of best trials that were run again, with bars over their range.

    They stand a little to the right of what they confirm. A bar that leaves the axes is of trials some of which never
    reached; with a triangle up there, half of them or more.
    """
    rows = [
        (one.batch_size * 2**0.16, max(one.least[0], 0.5), (max(one.median[0], 0.5) + one.median[1]) / 2, one.most[1])
        for one in found
    ]
    repeated(ax, rows, style)


def repeated(ax: Axes, rows: Sequence[tuple[float, float, float, float]], style: Style) -> None:
    """Open markers with bars, in axes whose limits are set; for a row (across, least, middle, most), +inf is above."""
    top, labels = ax.get_ylim()[1], {"o": AGAIN, "^": NEVER_AGAIN}
    for across, least, middle, most in rows:
        marker = "o" if math.isfinite(middle) else "^"
        if math.isfinite(least):
            bar = [least, min(most, top)]
            ax.plot([across] * 2, bar, color=style.color, linewidth=0.9, solid_capstyle="butt", zorder=3.6)
        up, where = ([middle], ax.transData) if marker == "o" else ([0.97], ax.get_xaxis_transform())
        look = OPEN | {"marker": marker, "markeredgecolor": style.color}
        ax.plot([across], up, transform=where, label=labels.pop(marker, None), zorder=3.8, **look)


def not_reached(ax: Axes, batch_size: Sequence[float], budget: Sequence[float], style: Style) -> None:
    """Open triangles at the budgets of batch sizes whose trials never reached the target."""
    ax.plot(
        batch_size,
        budget,
        linestyle="none",
        marker="^",
        markersize=6.5,
        markerfacecolor="white",
        markeredgecolor=style.color,
        label="not reached within this budget",
        zorder=4,
    )


def fitted(ax: Axes, fit: regimes.Fit, style: Style, label: str | None, *, factor: float = 1.0) -> None:
    """The fitted curve, over ``factor``, between the smallest and the largest batch size."""
    across = _between(fit)
    ax.plot(
        across,
        regimes.curve(fit, across) / factor,
        color=style.color,
        linestyle=style.line,
        linewidth=1.6,
        label=label,
        zorder=3,
    )


def band(ax: Axes, fit: regimes.Fit, style: Style, *, factor: float = 1.0, alpha: float = 0.25) -> None:
    """Everything between the curves of the 90 % region, over ``factor``."""
    if not (fit.profile.misfit <= fit.bound).any():
        return  # a fit so close that its region lies between the points of its grid: it is as wide as the line
    across = _between(fit)
    low, high = (end / factor for end in regimes.band(fit, across))
    ax.fill_between(across, low, high, color=style.color, alpha=alpha, linewidth=0, label="90 % region", zorder=2)


def perfect_scaling(ax: Axes, examples: float) -> None:
    """The line on which twice the batch size takes half the steps; ``examples`` is batch size times steps on it."""
    across = np.array(ax.get_xlim())
    ax.plot(
        across, examples / across, color=INK, linestyle=(0, (4, 3)), linewidth=1, label="perfect scaling", zorder=2.5
    )


def regime_spans(ax: Axes, fit: regimes.Fit) -> None:
    """Shades the regimes and names them in a strip above the axes; ``?`` where none is probable enough."""
    edges = np.geomspace(*ax.get_xlim(), 241)
    names = regimes.named(fit, np.sqrt(edges[1:] * edges[:-1]))
    starts = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    for first, last in zip(starts, np.append(starts[1:], len(names)), strict=True):
        name, left, right = str(names[first]), edges[first], edges[last]
        ax.axvspan(left, right, color=REGIME_COLORS[name], alpha=0.45, linewidth=0, zorder=0)
        strip = Rectangle((left, 1.0), right - left, STRIP, transform=ax.get_xaxis_transform(), clip_on=False)
        strip.set(facecolor=REGIME_COLORS[name], edgecolor="white", linewidth=1.0)
        ax.add_patch(strip)
        shown = _fitting(name, (last - first) / len(names))
        if not shown and name != "?":
            strip.set_label(name)  # for the legend
        ax.text(
            math.sqrt(left * right),
            1.0 + STRIP / 2,
            shown,
            transform=ax.get_xaxis_transform(),
            ha="center",
            va="center",
            fontsize=7.5,
            linespacing=1.0,
            color=INK,
        )


def critical_batch_size(ax: Axes, judged: Judged) -> None:
    """The critical batch size with its interval, along the bottom and in words; arrows where an end is out of sight."""
    fit = judged.fit
    if fit is None or judged.verdict == "not_identified":
        ax.text(0.02, 0.035, "critical batch size not identified", transform=ax.transAxes, fontsize=8.5, color=INK)
        return
    height, (left, right) = 0.05, ax.get_xlim()
    at_bottom = ax.get_xaxis_transform()
    low = left if math.isnan(fit.low) or judged.verdict == "at_most" else max(fit.low, left)
    high = right if math.isnan(fit.high) or judged.verdict == "at_least" else min(fit.high, right)
    ax.plot([low, high], [height] * 2, transform=at_bottom, color=INK, linewidth=2, solid_capstyle="butt", zorder=5)
    for end, marker in ((low, "|" if low == fit.low else "<"), (high, "|" if high == fit.high else ">")):
        ax.plot([end], [height], transform=at_bottom, marker=marker, color=INK, markersize=7, zorder=5, clip_on=False)
    if left < fit.critical_batch_size < right and judged.verdict == "identified":
        foot_and_knee = [ax.get_ylim()[0], float(regimes.curve(fit, np.array(fit.critical_batch_size)))]
        ax.plot([fit.critical_batch_size] * 2, foot_and_knee, color=INK, linewidth=0.9, linestyle=":", zorder=1.5)
        ax.plot([fit.critical_batch_size], [height], transform=at_bottom, marker="D", color=INK, markersize=5, zorder=6)
    before, after = (math.log(end / left) / math.log(right / left) for end in (low, high))
    if before > WORDS:  # where they keep clear of the line of perfect scaling
        anchor, side, shift = low, "right", (-8, 0)
    elif after < 1 - WORDS:
        anchor, side, shift = high, "left", (8, 0)
    else:
        anchor, side, shift = math.sqrt(left * right), "center", (0, 14)
    ax.annotate(
        f"critical batch size {critical_in_words(judged)}",
        (anchor, height),
        xycoords=at_bottom,
        xytext=shift,
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=8.5,
        color=INK,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
        zorder=5,
    )


def knee(ax: Axes, judged: Judged, style: Style, *, factor: float = 1.0) -> None:
    """An open ring where the fitted curve, over ``factor``, passes its critical batch size, if that is identified."""
    fit = judged.fit
    if fit is None or judged.verdict != "identified":
        return
    size = np.array([fit.critical_batch_size])
    ring: dict[str, Any] = {
        "markersize": 12,
        "markerfacecolor": "none",
        "markeredgecolor": style.color,
        "markeredgewidth": 1.4,
    }
    ax.plot(size, regimes.curve(fit, size) / factor, linestyle="none", marker="o", zorder=5, **ring)


def entry(style: Style, label: str) -> Line2D:
    """What stands for a curve in a legend: its marker on its line."""
    marker: dict[str, Any] = {
        "marker": style.marker,
        "markersize": 5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }
    return Line2D([], [], color=style.color, linestyle=style.line, linewidth=1.6, label=label, **marker)


def critical_in_words(judged: Judged) -> str:
    """Such as ``64 [58, 70]``, ``at least 9,170``, or ``not identified``."""
    fit = judged.fit
    if fit is None:
        return "not identified"
    return text.stated(judged.verdict, *map(text.number, (fit.critical_batch_size, fit.low, fit.high)))


def _between(fit: regimes.Fit) -> np.ndarray:
    return np.geomspace(fit.batch_size[0], fit.batch_size[-1], 201)


def _fitting(name: str, share: float) -> str:
    """A regime's name on one or two lines, or nothing, as fits into a share of the width of the axes."""
    room = share * CHARACTERS_ACROSS
    words = name.split(" ")
    splits = ["\n".join([" ".join(words[:i]), " ".join(words[i:])]) for i in range(1, len(words))]
    wrapped = min(splits, key=lambda lines: max(map(len, lines.split("\n"))), default=name)
    for lines in (name, wrapped):
        if max(map(len, lines.split("\n"))) + 1 <= room:
            return lines
    return ""
