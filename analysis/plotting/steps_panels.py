"""Panels of steps to target against batch size, with one or more lines."""

import functools
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis import text
from analysis.fitting import confirmations, curve_fits, fits
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting import draw, verdict_marks
from analysis.plotting.draw import INK, Look, Style, symbol
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
    factors = [curve.steps_at(relative_to, evaluated=evaluated) if relative_to else 1.0 for curve in members]

    def onto(ax: Axes) -> None:
        _axes(ax, members, factors, relative_to)
        for member, style, factor in zip(members, styles, factors, strict=True):
            _draw(ax, member, style, factor, relative_to, alone=alone, evaluated=evaluated)
            if perfect in (EACH, member.label):
                draw.perfect_scaling(ax, examples(member) / factor)
        if alone:
            labelled = verdict_marks.label_fits(members[0].selected, members[0].confirmed)
            verdict_marks.answers(ax, labelled, small=True)

    alone = len(members) == 1
    entries = []
    for curve, style in zip(members, styles, strict=True):
        words = fits.both_in_words(curve.selected, None if relative_to else curve.confirmed)
        entries.append(draw.legend_entry(style, f"{curve.label}: {words}"))
    heading = f"{named_by}: pays up to [90 % interval]" if named_by else ""
    return Panel(title, onto, () if alone else entries, goal, heading)


def symbols(members: Sequence[CurveFits], *, alone: bool, perfect: bool) -> list[Artist]:
    """Returns the shared legend of all panels. Set ``alone`` if every panel has only one line."""
    origin = "imported" if all(curve.curve.workload.recorded for curve in members) else "measured"
    style = draw.STYLES[0] if alone else Style(INK, "o", (0, ()))
    has_confirmed = any(curve.confirmed for curve in members)
    entries: list[Artist] = [draw.legend_entry(style, f"{'selected' if has_confirmed else origin}, with fit")]
    if has_confirmed:
        entries.append(draw.legend_entry(_again(style, alone), "confirmed: median, range, and fit", hollow=not alone))
    if any(curve.selected.fit for curve in members):
        entries.append(Patch(color=style.color, alpha=0.25, linewidth=0, label="90 % region of the fit"))
        entries += _answers(members, style, alone=alone)
    if perfect:
        entries.append(symbol(label="perfect scaling", **draw.PERFECT))
    if any(len(published_steps(curve)[0]) for curve in members):
        entries.append(symbol(color=style.color, label="published", **PUBLISHED))
    if any(curve.missed for curve in members):
        entries.append(symbol(color=style.color, markersize=6, **draw.MISSED))
    return entries


def _answers(members: Sequence[CurveFits], style: Style, *, alone: bool) -> list[Artist]:
    """Returns the legend for *pays up to* and, in panels with only one line, for critical batch sizes."""
    fitted = [answer for curve in members for _, answer in curve_fits.answers(curve)]
    extents_in_doubt = any(points_fit.search_doubts for points_fit in fitted)
    words = "pays up to [90 % interval]" + (", dashed if in doubt" if extents_in_doubt else "")
    if not alone:
        ring: Look = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.2}
        return [symbol(label=words, markeredgecolor=style.color, linestyle="none", **ring)]
    entries: list[Artist] = [symbol(label=words, color=style.color, linewidth=2, marker="|", markersize=6)]
    identified = [points_fit for points_fit in fitted if points_fit.verdict == "identified"]
    for in_doubt in sorted({bool(points_fit.doubts) for points_fit in identified}):
        label = text.with_doubt(verdict_marks.KNEE, "identified", in_doubt=in_doubt)
        entries.append(symbol(linestyle="none", label=label, **draw.diamond(style.color, in_doubt=in_doubt)))
    return entries


def _axes(ax: Axes, members: Sequence[CurveFits], factors: Sequence[float], relative_to: int | None) -> None:
    sizes, heights = list[float](), list[float]()
    for curve, factor in zip(members, factors, strict=True):
        points, (beside, beside_steps) = curve.selected.points, _published(curve, relative_to)
        sizes += [*points.batch_size, *curve.missed, *beside]
        heights += [*(v / factor for v in (*draw.heights(points), *curve.missed.values())), *beside_steps]
        if relative_to is None:
            heights += confirmations.heights(curve.confirmations)
    draw.batch_size_axes(ax, sizes, heights, members[0].curve.unit, compact=True)
    if relative_to:
        ax.set_ylabel(f"steps relative to batch size {relative_to:,}")


def _draw(
    ax: Axes, curve: CurveFits, style: Style, factor: float, relative_to: int | None, *, alone: bool, evaluated: bool
) -> None:
    points_fit = curve.selected
    ax.plot(*_published(curve, relative_to), color=style.color, zorder=3.5, **PUBLISHED)
    draw.measurements(ax, points_fit.points, style, factor=factor, size=4.2, evaluated=evaluated)
    if curve.missed:
        draw.missed_budgets(ax, list(curve.missed), [v / factor for v in curve.missed.values()], style)
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
    if relative_to is None and curve.confirmed is not None:
        confirmed_style = _again(style, alone)
        draw.repeated_medians(ax, curve.confirmations, confirmed_style, size=4.2, hollow=not alone)
        if curve.confirmed.fit:
            if alone:
                draw.band(ax, curve.confirmed.fit, confirmed_style, alpha=0.2)
            draw.fit_line(ax, curve.confirmed.fit, confirmed_style)
            if not alone:
                draw.ring(ax, curve.confirmed, confirmed_style)


def _again(style: Style, alone: bool) -> Style:
    """Returns the style of confirmed answers that matches the ``style`` of selected ones."""
    return draw.CONFIRMED if alone else style._replace(line=draw.DASHES)


def _published(curve: CurveFits, relative_to: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns published batch sizes and steps, relative to ``relative_to``. Empty if this size was not published."""
    sizes, steps = published_steps(curve)
    if relative_to is None:
        return sizes, steps
    unit = steps[sizes == relative_to]
    return (sizes, steps / unit[0]) if len(unit) else (np.empty(0), np.empty(0))


def examples(curve: CurveFits) -> float:
    """Returns batch size times steps under perfect scaling: from the fit, or else from the smallest batch size."""
    if curve.selected.fit:
        return curve.selected.fit.e_min
    points = curve.selected.points
    return float(points.batch_size[0] * (points.low[0] + points.high[0]) / 2)


def published_steps(line: CurveFits) -> tuple[np.ndarray, np.ndarray]:
    """Returns batch sizes and steps that a paper published for this workload and target, or empty arrays."""
    table, curve = _points_of_papers(), line.curve
    is_same = np.all([table[name] == getattr(curve, name) for name in ("dataset", "model", "optimizer")], axis=0)
    is_same &= not curve.split
    is_same &= (table["metric"] == curve.target.metric) & np.isclose(table["target_value"], curve.target.value)
    rows = table[is_same].sort_values("batch_size")
    return rows["batch_size"].to_numpy(), rows["steps"].to_numpy()


@functools.cache
def _points_of_papers() -> pd.DataFrame:
    table = published_numbers.points()
    rows = table[table["steps"].notna()].astype({"batch_size": float, "steps": float, "target_value": float})
    return rows.reset_index(drop=True)
