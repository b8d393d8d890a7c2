"""Draws verdicts on axes: regimes in strips above, *pays up to* at the bottom, and critical batch sizes on curves."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from analysis.fitting import regimes
from analysis.fitting.extents import Extent
from analysis.fitting.fits import PointsFit
from analysis.plotting import draw
from analysis.plotting.draw import INK, Look
from analysis.plotting.ticks import Ends

REGIME_COLORS = dict(zip((*regimes.REGIMES, "?"), ("#D3E7F5", "#F9E6C4", "#CFE9DF", "#EFEFEF"), strict=True))
STRIP = 0.085  # height of a strip of regimes, as a fraction of the axes' height
APART = 0.065  # distance between answers along the bottom, as a fraction of the axes' height
CHARACTER = 0.0122  # width of a character of an answer, as a fraction of the axes' width
KNEE = "critical batch size, if a hyperbola"
CHARACTERS_ACROSS = 88  # number of characters of a regime name that fill the width of the axes


class LabelledFit(NamedTuple):
    """A fit with its label and colour."""

    label: str
    color: str
    points_fit: PointsFit

    @property
    def pays(self) -> Extent:
        """The extent up to which doubling pays off."""
        return self.points_fit.pays

    @property
    def in_doubt(self) -> bool:
        """Whether the data contradict an assumption about the search that this answer depends on."""
        return bool(self.points_fit.search_doubts)


def label_fits(selected: PointsFit, confirmed: PointsFit | None) -> list[LabelledFit]:
    """Returns the labelled fits of a curve: one fit, or a selected and a confirmed one."""
    if confirmed is None:
        return [LabelledFit("", INK, selected)]
    return [
        LabelledFit("selected", draw.SELECTED.color, selected),
        LabelledFit("confirmed", draw.CONFIRMED.color, confirmed),
    ]


def regime_spans(ax: Axes, labelled: Sequence[LabelledFit]) -> None:
    """Draws the regimes of fits in strips above the axes, with ``?`` if no regime is probable enough.

    The axes are shaded at batch sizes for which all fits agree. If there are several fits, each strip is labelled.
    """
    edges = np.geomspace(*ax.get_xlim(), 241)
    middles = np.sqrt(edges[1:] * edges[:-1])
    strips = [
        (label_fit, regimes.names(label_fit.points_fit.fit, middles))
        for label_fit in labelled
        if label_fit.points_fit.fit
    ]
    if not strips:
        return
    first_names = strips[0][1]
    agrees = np.all([names == first_names for _, names in strips], axis=0)
    for first, last in runs(np.where(agrees, first_names, "")):
        if agrees[first] and (first_names[first] != "?" or len(labelled) == 1):
            color = REGIME_COLORS[str(first_names[first])]
            ax.axvspan(edges[first], edges[last], color=color, alpha=0.45, linewidth=0, zorder=0)
    named = set[str]()
    for row, (label_fit, names) in enumerate(strips, 1):
        bottom = 1.0 + (len(strips) - row) * STRIP
        for first, last in runs(names):
            _strip(ax, str(names[first]), (edges[first], edges[last]), bottom, (last - first) / len(names), named)
        if len(labelled) > 1:
            ax.text(
                -0.008,
                bottom + STRIP / 2,
                label_fit.label,
                transform=ax.transAxes,
                ha="right",
                va="center",
                fontsize=7.5,
                color=label_fit.color,
            )


def runs(names: np.ndarray) -> list[tuple[int, int]]:
    """Returns the first and last index of every run of equal names."""
    starts = np.flatnonzero(np.append(True, names[1:] != names[:-1])).tolist()
    return list(zip(starts, [*starts[1:], len(names)], strict=True))


def _strip(ax: Axes, name: str, ends: Ends, bottom: float, share: float, named: set[str]) -> None:
    """Draws one regime in a strip. If its name does not fit, the name is added to the legend once."""
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


def answers(ax: Axes, labelled: Sequence[LabelledFit], *, small: bool = False) -> None:
    """Draws *pays up to* along the bottom, as intervals and text, with the first one on top. Also marks the knees.

    Arrows mark ends outside the axes. Uncertain answers are dashed and hollow. On ``small`` axes, the text is placed in
    a corner.
    """
    for label_fit in labelled:
        _knee(ax, label_fit, 4.0 if small else 5.0)
    if small:
        _in_a_corner(ax, labelled)
        return
    height = 0.05
    for label_fit in reversed(labelled):
        words = f"pays up to {label_fit.points_fit.pays_in_words}"
        height += APART * _answer(ax, label_fit, height, f"{label_fit.label}: {words}" if label_fit.label else words)


def _knee(ax: Axes, label_fit: LabelledFit, size: float) -> None:
    """Marks an identified critical batch size with a diamond on the curve and a dotted line below it.

    A bound is shown only in the legend, as an arrowhead.
    """
    fit, verdict = label_fit.points_fit.fit, label_fit.points_fit.verdict
    if fit is None or verdict == "not_identified":
        return
    label = f"{KNEE}:\n{label_fit.label} {label_fit.points_fit.hyperbola_in_words}".replace("\n ", "\n")
    look: Look = draw.diamond(label_fit.color, in_doubt=bool(label_fit.points_fit.doubts)) | {"markersize": size}
    look |= {"linestyle": "none", "label": label, "zorder": 5}
    if verdict != "identified":
        ax.plot([], [], **look | {"marker": ">" if verdict == "at_least" else "<"})
        return
    knee = float(regimes.curve(fit, np.array(fit.critical_batch_size)))
    drop_line: Look = {"color": label_fit.color, "linewidth": 0.9, "linestyle": ":", "zorder": 1.5}
    ax.plot([fit.critical_batch_size] * 2, [ax.get_ylim()[0], knee], **drop_line)
    ax.plot([fit.critical_batch_size], [knee], **look)


def _in_a_corner(ax: Axes, labelled: Sequence[LabelledFit]) -> None:
    look: Look = {"fontsize": 7.8, "va": "bottom", "linespacing": 1.15, "zorder": 6}
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    for row, label_fit in enumerate(reversed(labelled)):
        interval(ax, label_fit, 0.035 + 0.045 * row, 6)
        pays = label_fit.points_fit.pays_in_words
        words = f"{label_fit.label} {pays}" if len(labelled) > 1 else f"pays up to\n{pays}"
        up = 0.035 + 0.045 * len(labelled) + 0.075 * row
        ax.text(0.03, up, words, transform=ax.transAxes, color=label_fit.color, **look)
    if len(labelled) > 1:
        up = 0.035 + (0.045 + 0.075) * len(labelled)
        ax.text(0.03, up, "pays up to", transform=ax.transAxes, color=INK, **look)


def interval(ax: Axes, label_fit: LabelledFit, height: float, size: float = 7.0) -> Ends | None:
    """Draws the interval of *pays up to* as a bar and returns its ends, or None if it is unknown."""
    if label_fit.pays.verdict == "not_identified":
        return None
    low, high = _within(label_fit.pays, ax.get_xlim())
    place: Look = {"transform": ax.get_xaxis_transform(), "color": label_fit.color, "zorder": 5}
    line = draw.IN_DOUBT if label_fit.in_doubt else "-"
    ax.plot([low.place, high.place], [height] * 2, linewidth=2, linestyle=line, solid_capstyle="butt", **place)
    for end, arrow in ((low, "<"), (high, ">")):
        ax.plot([end.place], [height], marker="|" if end.stated else arrow, markersize=size, clip_on=False, **place)
    if ax.get_xlim()[0] < label_fit.pays.best < ax.get_xlim()[1]:
        ax.plot([label_fit.pays.best], [height], **place, **_disc(label_fit, size))
    return low.place, high.place


def _disc(label_fit: LabelledFit, size: float) -> Look:
    """Returns the marker of the best estimate, which is hollow if uncertain."""
    face = "white" if label_fit.in_doubt else label_fit.color
    look: Look = {"marker": "o", "markersize": 0.8 * size, "markerfacecolor": face, "markeredgecolor": label_fit.color}
    return look | {"markeredgewidth": 1.1}


class _End(NamedTuple):
    """An end of an interval on an axis. It is drawn with an arrow unless it is ``stated``."""

    place: float
    stated: bool


def _within(extent: Extent, limits: Ends) -> tuple[_End, _End]:
    """Returns an interval clipped to the limits. Ends that are not reported are placed at the limits."""
    low, high = float(np.fmax(extent.low, limits[0])), float(np.fmin(extent.high, limits[1]))
    return _End(low, not math.isnan(extent.low)), _End(high, not math.isnan(extent.high))


def _answer(ax: Axes, label_fit: LabelledFit, height: float, words: str) -> int:
    """Draws one answer and returns its number of rows: two if the text is above the interval."""
    ends = interval(ax, label_fit, height)
    if ends is None:
        ax.text(0.02, height, words, transform=ax.transAxes, fontsize=8.5, color=label_fit.color, va="center")
        return 1
    (left, right), (low, high) = ax.get_xlim(), ends
    room = len(words) * CHARACTER
    before, after = (math.log(end / left) / math.log(right / left) for end in (low, high))
    if before > room:  # here, the text does not cover the perfect-scaling line
        anchor, side, shift = low, "right", (-8, 0)
    elif after < 1 - room:
        anchor, side, shift = high, "left", (8, 0)
    else:
        anchor, side, shift = math.sqrt(left * right), "center", (0, 14)
    ax.annotate(
        words,
        (anchor, height),
        xycoords=ax.get_xaxis_transform(),
        xytext=shift,
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=8.5,
        color=label_fit.color,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
        zorder=5,
    )
    return 2 if side == "center" else 1


def _fitting(name: str, share: float) -> str:
    """Returns a regime's name on one or two lines, or an empty string if it does not fit its share of the width."""
    room = share * CHARACTERS_ACROSS
    words = name.split(" ")
    splits = ["\n".join([" ".join(words[:i]), " ".join(words[i:])]) for i in range(1, len(words))]
    wrapped = min(splits, key=lambda lines: max(map(len, lines.split("\n"))), default=name)
    for lines in (name, wrapped):
        if max(map(len, lines.split("\n"))) + 1 <= room:
            return lines
    return ""
