"""Metaparameters of the best trial against batch size, beside rules of thumb."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.growth import NEARLY, POWERS
from analysis.plotting import draw, ticks
from analysis.plotting.draw import INK
from analysis.plotting.grid import Panel
from analysis.trials.metaparameters import Quantity

DASHES: dict[str, Any] = {"linear rule": (0, (5, 2)), "square-root rule": (0, (1.5, 1.5))}
CRITICAL: dict[str, Any] = {"color": "#8A8A8A", "linewidth": 0.9, "linestyle": (0, (8, 2, 1, 2))}
STYLE = draw.STYLES[0]


def panel(title: str, one: CurveFits, quantity: Quantity) -> Panel:
    """A quantity of the best trial of every batch size, and its range over trials that were nearly as good."""

    def onto(ax: Axes) -> None:
        best = one.best
        sizes = np.array(sorted(best), np.float64)
        value = np.array([quantity.values(best[int(size)].to_frame().T)[0] for size in sizes])
        low, high = np.array([_nearly(one, int(size), quantity) for size in sizes]).T
        ax.set_xscale("log", base=2)
        ax.set_xlim(sizes.min() / 2**0.6, sizes.max() * 2**0.6)
        ticks.in_powers_of_two(ax.xaxis, ax.get_xlim(), compact=True)
        ax.vlines(sizes, low, high, color=STYLE.color, alpha=0.35, linewidth=3.2, zorder=2)
        ax.plot(sizes, value, color=STYLE.color, marker=STYLE.marker, markersize=4.6, linewidth=1.0, zorder=3)
        if quantity.log:
            ax.set_yscale("log")
            ax.set_ylim(np.nanmin(low) / 2, np.nanmax(high) * 2)
            ticks.in_decades(ax.yaxis, ax.get_ylim())
        if quantity.is_rate:
            for name, power in POWERS.items():
                scaled = value[0] * (sizes / sizes[0]) ** power
                ax.plot(sizes, scaled, color=INK, linestyle=DASHES[name], linewidth=1.0)
        fit = one.selected.fit
        if fit is not None and one.selected.verdict == "identified":
            ax.axvline(fit.critical_batch_size, zorder=1, **CRITICAL)
        ax.set_xlabel("batch size (examples)")
        ax.set_ylabel(quantity.label)
        ax.grid(**draw.GRID)

    return Panel(title, onto)


def symbols(*, rates: bool, critical: bool) -> list[Artist]:
    """The legend of all panels."""
    style: dict[str, Any] = {"color": STYLE.color}
    entries: list[Artist] = [
        Line2D(
            [], [], marker=STYLE.marker, markersize=5, linewidth=1, label="of the trial with the fewest steps", **style
        ),
        Line2D([], [], linewidth=4, alpha=0.35, label=f"range with up to {NEARLY:g} times as many", **style),
    ]
    if rates:
        entries += [
            Line2D([], [], color=INK, linestyle=dashes, linewidth=1, label=name) for name, dashes in DASHES.items()
        ]
    if critical:
        entries.append(Line2D([], [], label="critical batch size", **CRITICAL))
    return entries


def _nearly(one: CurveFits, batch_size: int, quantity: Quantity) -> tuple[float, float]:
    rows = one.trials[batch_size]
    steps = (rows["steps_low"].clip(lower=0.5) + rows["steps_high"]) / 2
    values = quantity.values(
        rows[(rows["outcome"] == "reached") & (steps <= NEARLY * steps[rows["outcome"] == "reached"].min())]
    )
    return float(np.nanmin(values)), float(np.nanmax(values))


def shared_quantities(one: CurveFits, quantities: Sequence[Quantity]) -> list[Quantity]:
    """The ``quantities`` that every best trial has."""
    best = list(one.best.values())
    return [q for q in quantities if best and all(np.isfinite(q.values(row.to_frame().T)[0]) for row in best)]
