"""Steps to target against batch size, one line or several in a panel."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.fitting import confirmations, fits, regimes
from analysis.fitting import line as lines
from analysis.fitting.line import Line
from analysis.plotting import draw, verdicts
from analysis.plotting.draw import INK, Style
from analysis.plotting.grid import Panel
from analysis.plotting.verdicts import Told

EACH = "each"  # a line of perfect scaling of its own for every line
PUBLISHED: dict[str, Any] = {"linestyle": "none", "marker": "D", "markerfacecolor": "none", "markersize": 6.5}
PUBLISHED |= {"markeredgewidth": 0.8}


def panel(
    title: str,
    members: Sequence[Line],
    *,
    perfect: str = EACH,
    relative_to: int | None = None,
    ordered: bool = False,
) -> Panel:
    """Steps with their fits, as selected and, where repeats report, as confirmed: dashed and hollow.

    A line that is alone has a colour for each. Of steps relative to those at a batch size, only the selected are shown.

    Args:
      title: of the panel.
      members: lines that have points, and, if ``relative_to`` is given, one at that batch size.
      perfect: the label of the line whose perfect scaling is drawn, ``each``, or nothing.
      relative_to: divides all steps by those at this batch size.
      ordered: colours go from dark to light, as what tells the lines apart is a number.
    """
    looks = draw.ordered_styles(len(members)) if ordered else [s for s, _ in zip(draw.styles(), members, strict=False)]
    factors = [one.steps_at(relative_to) if relative_to else 1.0 for one in members]

    def onto(ax: Axes) -> None:
        _axes(ax, members, factors, relative_to)
        for one, style, factor in zip(members, looks, factors, strict=True):
            _draw(ax, one, style, factor, relative_to, alone=alone)
            if perfect in (EACH, one.label):
                draw.perfect_scaling(ax, _examples(one) / factor)
        if alone:
            _critical(ax, members[0])

    alone = len(members) == 1
    entries = [
        draw.entry(style, f"{one.label}: {fits.both_in_words(one.judged, None if relative_to else one.confirmed)}")
        for one, style in zip(members, looks, strict=True)
    ]
    return Panel(title, onto, () if alone else entries)


def symbols(members: Sequence[Line], *, alone: bool, perfect: bool) -> list[Artist]:
    """The legend of all panels that these lines are in; ``alone``: one line to a panel."""
    style = draw.STYLES[0] if alone else Style(INK, "o", (0, ()))
    again = any(one.confirmed for one in members)
    found: list[Artist] = [draw.entry(style, "selected, and fit" if again else "measured, and fit")]
    if again:
        found.append(draw.entry(_again(style, alone), "confirmed: median, range, and fit", hollow=not alone))
    if any(one.judged.fit for one in members):
        found.append(Patch(color=style.color, alpha=0.25, linewidth=0, label="90 % region of the fit"))
        ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": style.color, "markeredgewidth": 1.2}
        found.append(
            Line2D(
                [], [], linestyle="none", marker="o", markersize=10, label="critical batch size [90 % interval]", **ring
            )
        )
    if perfect:
        found.append(Line2D([], [], color=INK, linestyle=(0, (4, 3)), linewidth=1, label="perfect scaling"))
    if any(len(lines.published(one)[0]) for one in members):
        found.append(Line2D([], [], color=style.color, label="published", **PUBLISHED))
    if any(one.missed for one in members):
        missed: dict[str, Any] = {"marker": "^", "markerfacecolor": "white", "markersize": 6, "linestyle": "none"}
        found.append(Line2D([], [], color=style.color, label="not reached within so many steps", **missed))
    return found


def _axes(ax: Axes, members: Sequence[Line], factors: Sequence[float], relative_to: int | None) -> None:
    sizes: list[float] = []
    heights: list[float] = []
    for one, factor in zip(members, factors, strict=True):
        points, (beside, beside_steps) = one.judged.points, _published(one, relative_to)
        sizes += [*points.batch_size, *one.missed, *beside]
        heights += [v / factor for v in (*draw.heights(points), *one.missed.values())]
        heights += list(beside_steps)
        heights += confirmations.heights(one.again) if relative_to is None else []
    draw.batch_size_axes(ax, sizes, heights, compact=True)
    if relative_to:
        ax.set_ylabel(f"steps / those at batch size {relative_to:,}")


def _draw(ax: Axes, one: Line, style: Style, factor: float, relative_to: int | None, *, alone: bool) -> None:
    judged = one.judged
    ax.plot(*_published(one, relative_to), color=style.color, zorder=3.5, **PUBLISHED)
    draw.measured(ax, judged.points, style, None, factor=factor, size=4.2)
    if one.missed:
        draw.not_reached(ax, list(one.missed), [v / factor for v in one.missed.values()], style)
    if judged.fit:
        draw.band(ax, judged.fit, style, factor=factor, alpha=0.25 if alone else 0.14)
        draw.fitted(ax, judged.fit, style, None, factor=factor)
        draw.knee(ax, judged, style, factor=factor)
    else:
        middle = (regimes.from_zero(judged.points.low) + judged.points.high) / 2 / factor
        ax.plot(judged.points.batch_size, middle, color=style.color, linestyle=style.line, linewidth=0.8, alpha=0.6)
    if relative_to is None and one.confirmed is not None:
        own = _again(style, alone)
        draw.confirmed(ax, one.again, own, size=4.2, hollow=not alone)
        if one.confirmed.fit:
            if alone:
                draw.band(ax, one.confirmed.fit, own, alpha=0.2)
            draw.fitted(ax, one.confirmed.fit, own, None)
            draw.knee(ax, one.confirmed, own)


def _again(style: Style, alone: bool) -> Style:
    """How what was confirmed is drawn beside what was selected in ``style``."""
    return draw.CONFIRMED if alone else style._replace(line=draw.DASHES)


def _published(one: Line, relative_to: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Batch sizes and steps, over those at the batch size ``relative_to``; nothing if that was not published."""
    sizes, steps = lines.published(one)
    if relative_to is None:
        return sizes, steps
    unit = steps[sizes == relative_to]
    return (sizes, steps / unit[0]) if len(unit) else (np.empty(0), np.empty(0))


def _examples(one: Line) -> float:
    """Batch size times steps where scaling is perfect: as fitted, or of the smallest batch size."""
    if one.judged.fit:
        return one.judged.fit.e_min
    points = one.judged.points
    return float(points.batch_size[0] * (points.low[0] + points.high[0]) / 2)


def _critical(ax: Axes, one: Line) -> None:
    """The critical batch sizes in words, and their intervals along the bottom."""
    told = [Told("critical batch size\n", INK, one.judged)]
    if one.confirmed is not None:
        told = [Told("selected ", draw.SELECTED.color, one.judged)]
        told += [Told("confirmed ", draw.CONFIRMED.color, one.confirmed)]
    words: dict[str, Any] = {
        "transform": ax.transAxes,
        "fontsize": 7.8,
        "va": "bottom",
        "linespacing": 1.15,
        "zorder": 6,
    }
    words["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    for row, each in enumerate(reversed(told)):
        verdicts.interval(ax, each, 0.035 + 0.045 * row, 6)
        up = 0.035 + 0.045 * len(told) + 0.075 * row
        ax.text(0.03, up, f"{each.label}{fits.critical_in_words(each.judged)}", color=each.color, **words)
