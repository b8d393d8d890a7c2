"""Panels of steps to target against batch size, with one or more lines."""

import functools
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import text
from analysis.fitting import confirmations, curve_fits, fits
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import draw, verdicts
from analysis.plotting.draw import INK, Look, Style
from analysis.plotting.grid import Panel
from results.papers import published_numbers

EACH = "each"  # every line has its own perfect-scaling line
PUBLISHED: Look = {"linestyle": "none", "marker": "D", "markerfacecolor": "none", "markersize": 6.5}
PUBLISHED |= {"markeredgewidth": 0.8}


def panel(
    title: str,
    members: Sequence[CurveFits],
    *,
    perfect: str = EACH,
    relative_to: int | None = None,
    ordered: bool = False,
    goal: str = "",
    named_by: str = "",
    evaluated: bool = False,
) -> Panel:
    """Returns a panel of selected steps and, if there are reruns, confirmed steps, with their fits.

    Confirmed answers are drawn dashed and hollow or, if there is only one line, in a separate colour. Relative steps
    are drawn only for selected answers.

    Args:
      title: title of the panel.
      members: lines to draw, which must have points. With ``relative_to``, each needs a point at that batch size.
      perfect: label of the line for which perfect scaling is drawn, ``each`` for all lines, or empty.
      relative_to: batch size relative to which steps are drawn.
      ordered: whether the lines differ in a number. Colours then range from dark to light.
      goal: target shared by all lines.
      named_by: description of the labels, used as the heading of the legend.
      evaluated: see ``draw.drawn_steps``.
    """
    styles = draw.styles_of(len(members), ordered=ordered)
    factors = [one.steps_at(relative_to, evaluated=evaluated) if relative_to else 1.0 for one in members]

    def onto(ax: Axes) -> None:
        _axes(ax, members, factors, relative_to)
        for one, style, factor in zip(members, styles, factors, strict=True):
            _draw(ax, one, style, factor, relative_to, alone=alone, evaluated=evaluated)
            if perfect in (EACH, one.label):
                draw.perfect_scaling(ax, _examples(one) / factor)
        if alone:
            labelled = verdicts.label_fits(members[0].selected, members[0].confirmed)
            verdicts.answers(ax, labelled, small=True)

    alone = len(members) == 1
    entries = []
    for one, style in zip(members, styles, strict=True):
        words = fits.both_in_words(one.selected, None if relative_to else one.confirmed)
        entries.append(draw.legend_entry(style, f"{one.label}: {words}"))
    heading = f"{named_by}: pays up to [90 % interval]" if named_by else ""
    return Panel(title, onto, () if alone else entries, goal, heading)


def symbols(members: Sequence[CurveFits], *, alone: bool, perfect: bool) -> list[Artist]:
    """Returns the shared legend of all panels. Set ``alone`` if every panel has only one line."""
    origin = "imported" if all(one.curve.workload.recorded for one in members) else "measured"
    style = draw.STYLES[0] if alone else Style(INK, "o", (0, ()))
    again = any(one.confirmed for one in members)
    entries: list[Artist] = [draw.legend_entry(style, f"{'selected' if again else origin}, with fit")]
    if again:
        entries.append(draw.legend_entry(_again(style, alone), "confirmed: median, range, and fit", hollow=not alone))
    if any(one.selected.fit for one in members):
        entries.append(Patch(color=style.color, alpha=0.25, linewidth=0, label="90 % region of the fit"))
        entries += _answers(members, style, alone=alone)
    if perfect:
        entries.append(Line2D([], [], color=INK, linestyle=(0, (4, 3)), linewidth=1, label="perfect scaling"))
    if any(len(published_steps(one)[0]) for one in members):
        entries.append(Line2D([], [], color=style.color, label="published", **PUBLISHED))
    if any(one.missed for one in members):
        entries.append(
            Line2D(
                [],
                [],
                color=style.color,
                label="not reached within this budget",
                marker="^",
                markerfacecolor="white",
                markersize=6,
                linestyle="none",
            )
        )
    return entries


def _answers(members: Sequence[CurveFits], style: Style, *, alone: bool) -> list[Artist]:
    """Returns the legend for *pays up to* and, in panels with only one line, for critical batch sizes."""
    fitted = [own for one in members for _, own in curve_fits.answers(one)]
    extents_in_doubt = any(one.search_doubts for one in fitted)
    words = "pays up to [90 % interval]" + (", dashed if in doubt" if extents_in_doubt else "")
    if not alone:
        ring: Look = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.2}
        return [Line2D([], [], label=words, markeredgecolor=style.color, linestyle="none", **ring)]
    entries: list[Artist] = [Line2D([], [], label=words, color=style.color, linewidth=2, marker="|", markersize=6)]
    identified = [one for one in fitted if one.verdict == "identified"]
    for in_doubt in sorted({bool(one.doubts) for one in identified}):
        label = text.with_doubt(verdicts.KNEE, "identified", in_doubt=in_doubt)
        entries.append(Line2D([], [], linestyle="none", label=label, **draw.diamond(style.color, in_doubt=in_doubt)))
    return entries


def _axes(ax: Axes, members: Sequence[CurveFits], factors: Sequence[float], relative_to: int | None) -> None:
    sizes, heights = list[float](), list[float]()
    for one, factor in zip(members, factors, strict=True):
        points, (beside, beside_steps) = one.selected.points, _published(one, relative_to)
        sizes += [*points.batch_size, *one.missed, *beside]
        heights += [*(v / factor for v in (*draw.heights(points), *one.missed.values())), *beside_steps]
        if relative_to is None:
            heights += confirmations.heights(one.confirmations)
    draw.batch_size_axes(ax, sizes, heights, members[0].curve.unit, compact=True)
    if relative_to:
        ax.set_ylabel(f"steps relative to batch size {relative_to:,}")


def _draw(
    ax: Axes, one: CurveFits, style: Style, factor: float, relative_to: int | None, *, alone: bool, evaluated: bool
) -> None:
    points_fit = one.selected
    ax.plot(*_published(one, relative_to), color=style.color, zorder=3.5, **PUBLISHED)
    draw.measurements(ax, points_fit.points, style, factor=factor, size=4.2, evaluated=evaluated)
    if one.missed:
        draw.missed_budgets(ax, list(one.missed), [v / factor for v in one.missed.values()], style)
    if points_fit.fit:
        draw.band(ax, points_fit.fit, style, factor=factor, alpha=0.25 if alone else 0.14)
        draw.fit_line(ax, points_fit.fit, style, factor=factor)
        if not alone:
            draw.ring(ax, points_fit, style, factor=factor)
    else:
        heights = draw.drawn_steps(points_fit.points, evaluated=evaluated) / factor
        ax.plot(
            points_fit.points.batch_size, heights, color=style.color, linestyle=style.line, linewidth=0.8, alpha=0.6
        )
    if relative_to is None and one.confirmed is not None:
        own = _again(style, alone)
        draw.repeated_medians(ax, one.confirmations, own, size=4.2, hollow=not alone)
        if one.confirmed.fit:
            if alone:
                draw.band(ax, one.confirmed.fit, own, alpha=0.2)
            draw.fit_line(ax, one.confirmed.fit, own)
            if not alone:
                draw.ring(ax, one.confirmed, own)


def _again(style: Style, alone: bool) -> Style:
    """Returns the style of confirmed answers that matches the ``style`` of selected ones."""
    return draw.CONFIRMED if alone else style._replace(line=draw.DASHES)


def _published(one: CurveFits, relative_to: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns published batch sizes and steps, relative to ``relative_to``. Empty if this size was not published."""
    sizes, steps = published_steps(one)
    if relative_to is None:
        return sizes, steps
    unit = steps[sizes == relative_to]
    return (sizes, steps / unit[0]) if len(unit) else (np.empty(0), np.empty(0))


def _examples(one: CurveFits) -> float:
    """Returns batch size times steps under perfect scaling: from the fit, or else from the smallest batch size."""
    if one.selected.fit:
        return one.selected.fit.e_min
    points = one.selected.points
    return float(points.batch_size[0] * (points.low[0] + points.high[0]) / 2)


def published_steps(one: CurveFits) -> tuple[np.ndarray, np.ndarray]:
    """Returns batch sizes and steps that a paper published for this workload and target, or empty arrays."""
    table, curve = _points_of_papers(), one.curve
    same = np.all([table[name] == getattr(curve, name) for name in ("dataset", "model", "optimizer")], axis=0)
    same &= not curve.split
    same &= (table["metric"] == curve.target.metric) & np.isclose(table["target_value"], curve.target.value)
    rows = table[same].sort_values("batch_size")
    return rows["batch_size"].to_numpy(), rows["steps"].to_numpy()


@functools.cache
def _points_of_papers() -> pd.DataFrame:
    table = published_numbers.points()
    rows = table[table["steps"].notna()].astype({"batch_size": float, "steps": float, "target_value": float})
    return rows.reset_index(drop=True)
