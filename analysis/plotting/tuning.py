"""Tuning: the best trial's metaparameters against batch size, and all trials in a plane of two metaparameters."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis import text
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import draw, ticks, verdict_marks
from analysis.plotting.draw import INK, Look, symbol
from analysis.plotting.grid import Panel
from analysis.plotting.ticks import Ends
from analysis.trials import trials
from analysis.trials.metaparameters import Quantity

NEARLY = 1.25  # maximum ratio to the fewest steps for trials that are nearly as good
POWERS = {"linear rule": 1.0, "square-root rule": 0.5}  # power of the batch size in rules of thumb
DASHES: Look = {"linear rule": (0, (5, 2)), "square-root rule": (0, (1.5, 1.5))}
CRITICAL: Look = {"color": "#8A8A8A", "linewidth": 0.9, "linestyle": (0, (8, 2, 1, 2))}
STYLE = draw.STYLES[0]
LOOKS: dict[str, Look] = {
    "infeasible": {"marker": "x", "color": "#D55E00", "markersize": 3.4, "markeredgewidth": 0.9, "zorder": 2},
    "goal not reached": {
        "marker": "o",
        "markerfacecolor": "none",
        "markeredgecolor": "#8A8A8A",
        "markersize": 3.4,
        "markeredgewidth": 0.7,
        "zorder": 3,
    },
    "goal reached": {
        "marker": "o",
        "color": "#0072B2",
        "markersize": 4.2,
        "markeredgecolor": "white",
        "markeredgewidth": 0.3,
        "zorder": 4,
    },
    "fewest steps": {
        "marker": "*",
        "color": "#000000",
        "markersize": 10,
        "markeredgecolor": "white",
        "markeredgewidth": 0.7,
        "zorder": 5,
    },
}
CONTOUR: Look = {"color": "#B5B5B5", "linewidth": 0.7, "linestyle": (0, (4, 3)), "zorder": 1}


def panel(title: str, curve: CurveFits, quantity: Quantity) -> Panel:
    """Returns the panel for a quantity of the best trial, with its range over trials that are nearly as good."""

    def onto(ax: Axes) -> None:
        best = curve.best
        sizes = np.array(sorted(best), np.float64)
        value = np.array([quantity.values(best[int(size)].to_frame().T)[0] for size in sizes])
        values = [quantity.values(nearly_best(curve, int(size))) for size in sizes]
        low, high = (np.array([nan_end(rates) for rates in values]) for nan_end in (np.nanmin, np.nanmax))
        draw.batch_size_axis(ax, sizes, unit=curve.curve.unit)
        ax.vlines(sizes, low, high, color=STYLE.color, alpha=0.35, linewidth=3.2, zorder=2)
        ax.plot(sizes, value, color=STYLE.color, marker=STYLE.marker, markersize=4.6, linewidth=1.0, zorder=3)
        if quantity.log:
            ticks.in_decades(ax.yaxis, (np.nanmin(low) / 2, np.nanmax(high) * 2))
        if quantity.is_rate:
            for name, power in POWERS.items():
                scaled = value[0] * (sizes / sizes[0]) ** power
                ax.plot(sizes, scaled, color=INK, linestyle=DASHES[name], linewidth=1.0)
        fit = curve.selected.fit
        if fit is not None and curve.selected.verdict == "identified":
            ax.axvline(fit.critical_batch_size, zorder=1, **_critical(in_doubt=bool(curve.selected.doubts)))
        ax.set_ylabel(quantity.label)

    return Panel(title, onto)


def _critical(*, in_doubt: bool) -> Look:
    """Returns the style of the line at a critical batch size, which is dotted if uncertain."""
    return CRITICAL | ({"linestyle": (0, (1, 2)), "linewidth": 1.2} if in_doubt else {})


def symbols(lines: Sequence[CurveFits], *, rates: bool) -> list[Artist]:
    """Returns the shared legend of all metaparameter panels of ``lines``."""
    entries: list[Artist] = [
        symbol(
            color=STYLE.color,
            label="trial with the fewest steps",
            marker=STYLE.marker,
            markersize=5,
            linewidth=1,
        ),
        symbol(color=STYLE.color, linewidth=4, alpha=0.35, label=f"range of trials within {NEARLY:g}× of it"),
    ]
    if rates:
        looks = DASHES.items()
        entries += [symbol(color=INK, linestyle=dashes, linewidth=1, label=name) for name, dashes in looks]
    identified = [points_fit.selected for points_fit in lines if points_fit.selected.verdict == "identified"]
    for in_doubt in sorted({bool(points_fit.doubts) for points_fit in identified}):
        label = text.with_doubt(verdict_marks.KNEE, "identified", in_doubt=in_doubt)
        entries.append(symbol(label=label, **_critical(in_doubt=in_doubt)))
    return entries


def nearly_best(curve: CurveFits, batch_size: int) -> pd.DataFrame:
    """Returns the rows of the trials that needed at most ``NEARLY`` times the fewest steps at a batch size."""
    rows = curve.trials[batch_size]
    steps = (rows["steps_low"].clip(lower=0.5) + rows["steps_high"]) / 2
    reached = rows["outcome"] == "reached"
    return rows[reached & (steps <= NEARLY * steps[reached].min())]


def shared_quantities(curve: CurveFits, quantities: Sequence[Quantity]) -> list[Quantity]:
    """Returns the ``quantities`` that are known for every best trial."""
    best = list(curve.best.values())
    return [q for q in quantities if best and all(np.isfinite(q.values(row.to_frame().T)[0]) for row in best)]


class TrialPoints(NamedTuple):
    """Trials of one study in a plane of two metaparameters, and their outcomes within a step budget.

    Attributes:
      x, y: float64[n], positions.
      kind: [n], keys of ``LOOKS``. At most one trial is marked as having the fewest steps.
    """

    x: np.ndarray
    y: np.ndarray
    kind: np.ndarray


def place_trials(rows: pd.DataFrame, across: Quantity, up: Quantity, budget: float) -> TrialPoints:
    """Places the trials that are COMPLETE or INFEASIBLE, or that reached the target.

    Args:
      rows: rows from ``analysis.trials.trials``.
      across, up: quantities on the axes. Trials that lack either are omitted.
      budget: maximum number of steps.
    """
    reached = ((rows["outcome"] == trials.REACHED) & (rows["steps_high"] <= budget)).to_numpy()
    infeasible = (rows["status"] == "INFEASIBLE").to_numpy()
    over = infeasible | reached | (rows["status"] == "COMPLETE").to_numpy()
    kind = np.where(infeasible, "infeasible", np.where(reached, "goal reached", "goal not reached")).astype(object)
    # Only one star is drawn, even if several trials tie for the fewest steps.
    candidates = np.flatnonzero(reached & ~infeasible)
    if len(candidates):
        kind[candidates[np.argmin(rows["steps_high"].to_numpy()[candidates])]] = "fewest steps"
    x, y = across.values(rows), up.values(rows)
    shown = over & np.isfinite(x) & np.isfinite(y)
    return TrialPoints(x[shown], y[shown], kind[shown])


def plane_panel(
    title: str,
    points: TrialPoints,
    across: Quantity,
    up: Quantity,
    limits: Sequence[Ends],
    contours: bool,
) -> Panel:
    """Returns a panel of trials within the ``limits`` of both axes, with contours of the effective learning rate."""

    def onto(ax: Axes) -> None:
        for axis, quantity, ends in ((ax.xaxis, across, limits[0]), (ax.yaxis, up, limits[1])):
            axis.set_label_text(quantity.label)
            if quantity.log:
                ticks.in_decades(axis, ends)
            else:
                ax.set(**{f"{axis.axis_name}lim": ends})
        if contours:
            _plane_contours(ax)
        for kind, look in LOOKS.items():
            rows = points.kind == kind
            ax.plot(points.x[rows], points.y[rows], linestyle="none", **look)

    return Panel(title, onto)


def plane_symbols(contours: bool) -> list[Artist]:
    """Returns the legend shared by all panels of trials."""
    entries: list[Artist] = [symbol(linestyle="none", label=kind, **look) for kind, look in LOOKS.items()]
    if contours:
        entries.append(symbol(label="equal effective learning rate", **CONTOUR))
    return entries


def plane_limits(several: Sequence[TrialPoints], across: Quantity, up: Quantity) -> list[Ends]:
    """Returns limits for both axes that include all trials, with a margin."""
    ends = []
    for quantity, values in ((across, [points.x for points in several]), (up, [points.y for points in several])):
        low, high = float(np.min(np.concatenate(values))), float(np.max(np.concatenate(values)))
        if quantity.log:
            room = (high / low) ** 0.06 * 1.15
            ends.append((low / room, high * room))
        else:
            room = 0.06 * (high - low) or 0.5
            ends.append((low - room, high + room))
    return ends


def _plane_contours(ax: Axes) -> None:
    """Draws lines x / y = 10^k. Their labels are inside the axes, at the upper or right ends."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    for power in np.arange(np.ceil(np.log10(left / top)), np.floor(np.log10(right / bottom)) + 1):
        rate = 10.0**power
        # Horizontal positions at which the line enters and leaves the axes.
        ends = np.array([max(left, bottom * rate), min(right, top * rate)])
        ax.plot(ends, ends / rate, **CONTOUR)
        at_top = ends[1] < right
        if ends[1] / ends[0] < 1.6:
            continue  # a corner has no room for a label
        ax.annotate(
            f"{rate:g}" if 1e-3 <= rate <= 1e3 else f"10{ticks.raised(power)}",
            (ends[1], ends[1] / rate),
            xytext=(-3, -2) if at_top else (-2, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=6.5,
            color="#777777",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.4},
            zorder=1.5,
        )
