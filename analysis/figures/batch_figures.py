"""Figures of batch-size studies: selected and confirmed steps to target."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import pages
from analysis.fitting import confirmations, curve_fits, fits
from analysis.fitting.curve_fits import ANSWERS, SELECTED, CurveFits
from analysis.fitting.curves import Curve
from analysis.fitting.fits import PointsFit
from analysis.plotting import draw, verdicts
from analysis.plotting.draw import INK, Look, Style
from analysis.plotting.picture import CHARACTERS_ACROSS, Picture, Pictures, Skipped, axes, keep_inside, panels
from results.aliases import Strings
from results.plans.study import decimal

WITHIN_AXES = 4  # with more curves, the legend is placed next to the axes
RING = "pays up to (ring, dashed if in doubt) [90 % interval]"
# Legend below the axes, in inches: line height, distance from the axes, and room for six lines.
LINE, BENEATH, ROOM = 0.17, 0.42, 1.02


def steps_to_target(curves: Sequence[CurveFits]) -> Pictures:
    """Yields one picture per curve, with points, fits, bands, regimes, *pays up to* and critical batch sizes."""
    for one in curves:
        curve = one.curve
        if not one.drawable:
            yield Skipped(f"steps_to_target of {workload_title(curve)}, {goal(curve)}", one.why_nothing)
            continue
        subtitle = f"{_headline(one)}\n{_subtitle([one], [curve.distinction])}"
        both = one.confirmed is not None
        strips = sum(each.points_fit.fit is not None for each in verdicts.label_fits(one.selected, one.confirmed))
        figure, ax = axes(workload_title(curve), subtitle, strips=strips, below=ROOM if both else 0)
        draw_curve(ax, one)
        options = {}
        if both:
            beneath = (-0.1, -BENEATH / (ax.get_position().height * figure.get_figheight()))
            options = {"loc": "upper left", "bbox_to_anchor": beneath, "ncols": 3}
        draw_legend(ax, **options)
        names = file_names(curve)
        yield Picture((*names, curve.distinction) if curve.distinction else names, figure)


def draw_curve(ax: Axes, one: CurveFits) -> None:
    """Draws selected and confirmed steps to target, with the fit, band, regimes and answers."""
    points = one.selected.points
    missed, budgets = list(one.missed), list(one.missed.values())
    heights = [*draw.heights(points), *budgets, *confirmations.heights(one.confirmations)]
    rows = 1 if one.confirmed is None else 2
    draw.batch_size_axes(ax, [*points.batch_size, *missed], heights, one.curve.unit, rows=rows)
    draw.measurements(ax, points, draw.SELECTED)
    if missed:
        draw.missed_budgets(ax, missed, budgets, draw.SELECTED)
    both = one.confirmed is not None
    fit = one.selected.fit
    examples = fit.e_min if fit else float(points.batch_size[0] * (points.low[0] + points.high[0]) / 2)
    _fit(ax, one.selected, draw.SELECTED, examples, "selected, and fit" if both else "measured, and fit", both=both)
    if one.confirmed is not None:
        draw.repeated_medians(ax, one.confirmations, draw.CONFIRMED)
        again = one.confirmed.fit
        label = "confirmed: median, range, and fit"
        _fit(ax, one.confirmed, draw.CONFIRMED, again.e_min if again else None, label, both=True)
    labelled = verdicts.label_fits(one.selected, one.confirmed)
    verdicts.regime_spans(ax, labelled)
    verdicts.answers(ax, labelled)


def _fit(ax: Axes, points_fit: PointsFit, style: Style, examples: float | None, label: str, *, both: bool) -> None:
    """Draws a fit with its band and perfect-scaling line. If ``both`` answers are drawn, each has a separate colour."""
    ax.add_line(draw.legend_entry(style, label if points_fit.fit else label.removesuffix(", and fit")))
    first = style is draw.SELECTED
    if points_fit.fit:
        draw.band(ax, points_fit.fit, style, alpha=0.18 if both else 0.25, label="90 % region" if first else None)
        draw.fit_line(ax, points_fit.fit, style)
    if examples is not None:
        draw.perfect_scaling(ax, examples, style.color if both else INK, "perfect scaling" if first else None)


def optimizers(curves: Sequence[CurveFits]) -> Pictures:
    """Yields one picture per data set, model and target, with all optimizers.

    Selected answers are on the left, and confirmed answers are on the right.
    """
    for names, group in curve_fits.comparable_groups(curves, "optimizer", "targets"):
        workload = f"{group[0].curve.dataset} · {group[0].curve.model}"
        what = f"optimizers of {workload}, {' · '.join([goal(group[0].curve), *names[4:]])}"
        lines = [one for one in group if one.drawable]
        if len({one.curve.optimizer for one in lines}) < 2:
            yield Skipped(what, "fewer than two optimizers have a curve")
            continue
        for one in group:
            if not one.drawable:
                yield Skipped(f"{one.curve.optimizer} among {what}", one.why_nothing)
        draw_all = _side_by_side if any(one.confirmed for one in lines) else _alone
        yield Picture(names, draw_all(workload, _subtitle(lines, names[4:]), lines, _entries(lines, *names[4:])))


def _alone(workload: str, subtitle: str, lines: Sequence[CurveFits], entries: Sequence[Line2D]) -> Figure:
    """Draws all optimizers on one pair of axes."""
    crowded = len(lines) > WITHIN_AXES
    figure, ax = axes(workload, subtitle, beside=crowded)
    _limits(ax, lines)
    _all(ax, lines, SELECTED)
    options: Look = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if crowded else {"loc": "best"}
    options |= {"frameon": True, "framealpha": 0.8, "edgecolor": "none", "alignment": "left"}
    ax.legend(handles=entries, title=RING, **options)
    return figure


def _side_by_side(workload: str, subtitle: str, lines: Sequence[CurveFits], entries: Sequence[Line2D]) -> Figure:
    """Draws selected answers on the left and confirmed answers on the right, with equal limits and a shared legend."""
    rows = -(-len(lines) // 2)
    figure, both = panels(workload, subtitle, (1, 1), across=9.6, below=0.2 + (rows + 1) * LINE)
    for ax, name in zip(both, ANSWERS, strict=True):
        box = ax.get_position()
        ax.set_position((box.x0, box.y0, box.width, box.height * 0.955))  # leaves room for the title
        _limits(ax, lines)
        _all(ax, lines, name)
        ax.set_title(name, fontsize=9.5, fontweight="bold", color=INK, loc="left", pad=4)
    both[1].set_ylabel("")
    options: Look = {"ncols": 2, "loc": "upper left", "alignment": "left", "columnspacing": 2.4}
    box = both[0].get_position()
    at = (box.x0 - 0.045, box.y0 - (BENEATH + 0.05) / figure.get_figheight())
    title = f"{RING}; open triangle: the median of the reruns never reached the target"
    keep_inside(figure.legend(handles=entries, title=title, bbox_to_anchor=at, borderaxespad=0, **options))
    return figure


def _limits(ax: Axes, lines: Sequence[CurveFits]) -> None:
    every = [one.selected.points for one in lines]
    heights = [steps for points in every for steps in draw.heights(points)]
    heights += [steps for one in lines for each in one.confirmations for steps in each.median if 0 < steps < np.inf]
    draw.batch_size_axes(ax, [size for points in every for size in points.batch_size], heights, lines[0].curve.unit)


def _all(ax: Axes, lines: Sequence[CurveFits], name: str) -> None:
    """Draws either the selected or the confirmed answers of all optimizers."""
    for one, style in zip(lines, draw.styles(), strict=False):
        points_fit = one.selected if name == SELECTED else one.confirmed
        if points_fit is None:
            continue
        if name == SELECTED:
            draw.measurements(ax, points_fit.points, style)
        else:
            draw.repeated_medians(ax, one.confirmations, style, bars=False)
        if points_fit.fit:
            draw.fit_line(ax, points_fit.fit, style)
            draw.ring(ax, points_fit, style)


def _entries(lines: Sequence[CurveFits], above: str = "") -> list[Line2D]:
    """Returns legend entries with *pays up to*. Distinctions already in the title (``above``) are omitted."""
    entries = []
    for one, style in zip(lines, draw.styles(), strict=False):
        apart = [words for words in one.curve.distinction.split(", ") if words and words not in above.split(", ")]
        name = one.curve.optimizer + (f" ({', '.join(apart)})" if apart else "")
        entries.append(draw.legend_entry(style, f"{name}: {fits.both_in_words(one.selected, one.confirmed)}"))
    return entries


def draw_legend(ax: Axes, **options: Any) -> None:
    """Draws a legend of the measurements, then the fits, then the regimes whose names did not fit in the plot."""
    order = [draw.NEVER_AGAIN, "90 % region", "perfect scaling"]
    handles, labels = ax.get_legend_handles_labels()
    first = [label for label in labels if label.startswith(("measured", SELECTED, "confirmed: median, "))]
    entries = sorted(zip(handles, labels, strict=True), key=lambda e: (*first, *order, e[1]).index(e[1]))
    framed = {"frameon": True, "framealpha": 0.8, "edgecolor": "none", "loc": "upper right"}
    legend = ax.legend(*zip(*entries, strict=True), **framed | options)
    keep_inside(legend)
    legend.set_zorder(6)


def workload_title(curve: Curve) -> str:
    """Returns the data set, model and optimizer."""
    return f"{curve.dataset} · {curve.model} · {curve.optimizer}"


def goal(curve: Curve) -> str:
    """Returns the target with its value in decimal notation."""
    return f"{curve.target.metric} ≤ {decimal(curve.target.value)}"


def file_names(curve: Curve) -> Strings:
    """Returns the data set, model, optimizer, metric and value, which form the file name."""
    return curve.dataset, curve.model, curve.optimizer, curve.target.metric, decimal(curve.target.value)


def _headline(one: CurveFits) -> str:
    """Describes how far doubling pays off and stays efficient, by the selected and the confirmed answers."""
    pays, efficient = one.selected.extents_in_words
    if one.confirmed is None:
        return f"pays up to {pays}\nefficient up to {efficient}"
    again = one.confirmed.extents_in_words
    both = fits.join_answers(pays, again[0]), fits.join_answers(efficient, again[1])
    return "pays up to: {}\nefficient up to: {}".format(*both)


def _subtitle(lines: Sequence[CurveFits], more: Sequence[str]) -> str:
    """Returns the subtitle: the target, the number of trials per point, and whether trials were pruned."""
    counts = sorted({one.selected.points.trials for one in lines if one.selected.points.trials})
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
    best = f"best of {span} {'trial' if counts[-1] == 1 else 'trials'}"
    cut = pages.pruning_words([one.curve.pruned for one in lines])
    shown = " · ".join([goal(lines[0].curve), best, cut, *filter(None, more)])
    return textwrap.shorten(shown, CHARACTERS_ACROSS * 4 // 3, placeholder=" …")
