"""Verdicts on axes: regimes in strips above the axes, critical batch sizes along the bottom and in words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from analysis.fitting import fits, regimes
from analysis.fitting.fits import PointsFit
from analysis.plotting import draw
from analysis.plotting.draw import INK, Look
from analysis.plotting.ticks import Ends

REGIME_COLORS = dict(zip((*regimes.REGIMES, "?"), ("#D3E7F5", "#F9E6C4", "#CFE9DF", "#EFEFEF"), strict=True))
STRIP = 0.085  # height of a strip of regimes, as a share of the height of the axes
APART = 0.065  # distance of critical batch sizes along the bottom, as a share of the height of the axes
WORDS = 0.42  # width of the critical batch size in words, as a share of the width of the axes
CHARACTERS_ACROSS = 88  # number of characters of a regime's name that fill the width of the axes


class LabelledFit(NamedTuple):
    """A fit with its label and colour."""

    label: str
    color: str
    points_fit: PointsFit


def label_fits(selected: PointsFit, confirmed: PointsFit | None) -> list[LabelledFit]:
    """Returns the labelled fits of a curve: one, or a selected and a confirmed one."""
    if confirmed is None:
        return [LabelledFit("critical batch size", INK, selected)]
    return [
        LabelledFit("selected", draw.SELECTED.color, selected),
        LabelledFit("confirmed", draw.CONFIRMED.color, confirmed),
    ]


def regime_spans(ax: Axes, labelled: Sequence[LabelledFit]) -> None:
    """Draws the regimes of fits in strips above the axes, with ``?`` if their probabilities are too small.

    The axes are shaded over batch sizes on which all fits agree. If there are several, each strip is labelled.
    """
    edges = np.geomspace(*ax.get_xlim(), 241)
    middles = np.sqrt(edges[1:] * edges[:-1])
    strips = [(one, regimes.names(one.points_fit.fit, middles)) for one in labelled if one.points_fit.fit]
    if not strips:
        return
    first_names = strips[0][1]
    same = np.all([names == first_names for _, names in strips], axis=0)
    for first, last in runs(np.where(same, first_names, "")):
        if same[first] and (first_names[first] != "?" or len(labelled) == 1):
            color = REGIME_COLORS[str(first_names[first])]
            ax.axvspan(edges[first], edges[last], color=color, alpha=0.45, linewidth=0, zorder=0)
    named = set[str]()
    for row, (one, names) in enumerate(strips, 1):
        bottom = 1.0 + (len(strips) - row) * STRIP
        for first, last in runs(names):
            _strip(ax, str(names[first]), (edges[first], edges[last]), bottom, (last - first) / len(names), named)
        if len(labelled) > 1:
            ax.text(
                -0.008,
                bottom + STRIP / 2,
                one.label,
                transform=ax.transAxes,
                ha="right",
                va="center",
                fontsize=7.5,
                color=one.color,
            )


def runs(names: np.ndarray) -> list[tuple[int, int]]:
    """Returns the first and the last index of every run of equal names."""
    starts = np.flatnonzero(np.append(True, names[1:] != names[:-1])).tolist()
    return list(zip(starts, [*starts[1:], len(names)], strict=True))


def _strip(ax: Axes, name: str, ends: Ends, bottom: float, share: float, named: set[str]) -> None:
    """Draws one regime in a strip. If there is no room for its name, it is added to the legend once."""
    left, right = ends
    strip = Rectangle((left, bottom), right - left, STRIP, transform=ax.get_xaxis_transform(), clip_on=False)
    strip.set(facecolor=REGIME_COLORS[name], edgecolor="white", linewidth=1.0)
    ax.add_patch(strip)
    shown = _fitting(name, share)
    if not shown and name != "?" and name not in named:
        strip.set_label(name)  # for the legend
    named.add(name)
    ax.text(
        math.sqrt(left * right),
        bottom + STRIP / 2,
        shown,
        transform=ax.get_xaxis_transform(),
        ha="center",
        va="center",
        fontsize=7.5,
        linespacing=1.0,
        color=INK,
    )


def critical_batch_sizes(ax: Axes, labelled: Sequence[LabelledFit], *, small: bool = False) -> None:
    """Draws critical batch sizes with their intervals along the bottom and in words, the first one on top.

    Arrows mark ends outside the axes. On ``small`` axes, the text is in a corner.
    """
    if small:
        _in_a_corner(ax, labelled)
        return
    height, colon = 0.05, ":" if len(labelled) > 1 else ""
    for one in reversed(labelled):
        words = f"{one.label}{colon} {fits.critical_in_words(one.points_fit)}"
        height += APART * _critical(ax, one, height, words)


def _in_a_corner(ax: Axes, labelled: Sequence[LabelledFit]) -> None:
    look: Look = {"fontsize": 7.8, "va": "bottom", "linespacing": 1.15, "zorder": 6}
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    space = " " if len(labelled) > 1 else "\n"
    for row, one in enumerate(reversed(labelled)):
        interval(ax, one, 0.035 + 0.045 * row, 6)
        words = f"{one.label}{space}{fits.critical_in_words(one.points_fit)}"
        up = 0.035 + 0.045 * len(labelled) + 0.075 * row
        ax.text(0.03, up, words, transform=ax.transAxes, color=one.color, **look)


def interval(ax: Axes, one: LabelledFit, height: float, size: float = 7.0) -> Ends | None:
    """Draws the interval of a critical batch size as a bar and returns its ends. None if it is not identified."""
    _, color, points_fit = one
    fit = points_fit.fit
    if fit is None or points_fit.verdict == "not_identified":
        return None
    low, high = _within(points_fit, fit, ax.get_xlim())
    at: Look = {"transform": ax.get_xaxis_transform(), "color": color, "zorder": 5}
    ax.plot([low.place, high.place], [height] * 2, linewidth=2, solid_capstyle="butt", **at)
    for end, arrow in ((low, "<"), (high, ">")):
        ax.plot([end.place], [height], marker="|" if end.stated else arrow, markersize=size, clip_on=False, **at)
    return low.place, high.place


class _End(NamedTuple):
    """End of an interval on an axis. It has an arrow if it is not ``stated``."""

    place: float
    stated: bool


def _within(points_fit: PointsFit, fit: regimes.Fit, limits: Ends) -> tuple[_End, _End]:
    """Returns the interval of a critical batch size, cut at the limits. Ends that are not stated are at the limits."""
    low, high = limits
    has_low = not math.isnan(fit.low) and points_fit.verdict != "at_most"
    has_high = not math.isnan(fit.high) and points_fit.verdict != "at_least"
    return _End(max(fit.low, low) if has_low else low, has_low), _End(
        min(fit.high, high) if has_high else high, has_high
    )


def upright(ax: Axes, across: float, one: LabelledFit, marker: str) -> None:
    """Draws a critical batch size as a marker with a vertical interval. Open ends extend to the edge of the axes."""
    _, color, points_fit = one
    fit = points_fit.fit
    if fit is None or points_fit.verdict == "not_identified":
        return
    bottom, top = ax.get_ylim()
    low, high = _within(points_fit, fit, (bottom, top))
    ax.plot([across] * 2, [low.place, high.place], color=color, linewidth=1.4, solid_capstyle="butt", zorder=3)
    for end, arrow in ((low, "v"), (high, "^")):
        look: Look = {"marker": "_" if end.stated else arrow, "markersize": 4.5}
        ax.plot([across], [end.place], color=color, zorder=3, clip_on=False, **look)
    if points_fit.verdict == "identified":
        look = {"markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.6}
        ax.plot([across], [fit.critical_batch_size], marker=marker, color=color, zorder=4, **look)


def _critical(ax: Axes, one: LabelledFit, height: float, words: str) -> int:
    """Draws one critical batch size and returns the number of rows it takes: two if the text is above the interval."""
    _, color, points_fit = one
    ends, fit = interval(ax, one, height), points_fit.fit
    if ends is None or fit is None:
        ax.text(0.02, height, words, transform=ax.transAxes, fontsize=8.5, color=color, va="center")
        return 1
    (left, right), (low, high) = ax.get_xlim(), ends
    at_bottom = ax.get_xaxis_transform()
    if left < fit.critical_batch_size < right and points_fit.verdict == "identified":
        foot_and_knee = [ax.get_ylim()[0], float(regimes.curve(fit, np.array(fit.critical_batch_size)))]
        ax.plot([fit.critical_batch_size] * 2, foot_and_knee, color=color, linewidth=0.9, linestyle=":", zorder=1.5)
        ax.plot(
            [fit.critical_batch_size], [height], transform=at_bottom, marker="D", color=color, markersize=5, zorder=6
        )
    before, after = (math.log(end / left) / math.log(right / left) for end in (low, high))
    if before > WORDS:  # there the text does not cover the line of perfect scaling
        anchor, side, shift = low, "right", (-8, 0)
    elif after < 1 - WORDS:
        anchor, side, shift = high, "left", (8, 0)
    else:
        anchor, side, shift = math.sqrt(left * right), "center", (0, 14)
    ax.annotate(
        words,
        (anchor, height),
        xycoords=at_bottom,
        xytext=shift,
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=8.5,
        color=color,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
        zorder=5,
    )
    return 2 if side == "center" else 1


def _fitting(name: str, share: float) -> str:
    """Returns a regime's name on one or two lines. Empty if it does not fit into its share of the width."""
    room = share * CHARACTERS_ACROSS
    words = name.split(" ")
    splits = ["\n".join([" ".join(words[:i]), " ".join(words[i:])]) for i in range(1, len(words))]
    wrapped = min(splits, key=lambda lines: max(map(len, lines.split("\n"))), default=name)
    for lines in (name, wrapped):
        if max(map(len, lines.split("\n"))) + 1 <= room:
            return lines
    return ""
