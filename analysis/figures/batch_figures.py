"""Figures of batch-size studies: selected and confirmed steps to target."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import text
from analysis.figures import pages
from analysis.fitting import confirmations, curve_fits, fits
from analysis.fitting.curve_fits import ANSWERS, SELECTED, CurveFits
from analysis.fitting.curves import Curve
from analysis.fitting.fits import PointsFit
from analysis.plotting import draw, labels, steps_panels, verdict_marks
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
    for line in curves:
        curve = line.curve
        if not line.drawable:
            yield Skipped(f"steps_to_target of {workload_title(curve)}, {goal(curve)}", line.why_nothing)
            continue
        subtitle = f"{_headline(line)}\n{_subtitle([line], [curve.distinction])}"
        both = line.confirmed is not None
        strips = sum(
            label_fit.points_fit.fit is not None
            for label_fit in verdict_marks.label_fits(line.selected, line.confirmed)
        )
        figure, ax = axes(workload_title(curve), subtitle, strips=strips, below=ROOM if both else 0)
        draw_curve(ax, line)
        options = {}
        if both:
            beneath = (-0.1, -BENEATH / (ax.get_position().height * figure.get_figheight()))
            options = {"loc": "upper left", "bbox_to_anchor": beneath, "ncols": 3}
        draw_legend(ax, **options)
        names = file_names(curve)
        yield Picture((*names, curve.distinction) if curve.distinction else names, figure)


def draw_curve(ax: Axes, curve: CurveFits) -> None:
    """Draws selected and confirmed steps to target, with the fit, band, regimes and answers."""
    points = curve.selected.points
    missed, budgets = list(curve.missed), list(curve.missed.values())
    heights = [*draw.heights(points), *budgets, *confirmations.heights(curve.confirmations)]
    rows = 1 if curve.confirmed is None else 2
    draw.batch_size_axes(ax, [*points.batch_size, *missed], heights, curve.curve.unit, rows=rows)
    draw.measurements(ax, points, draw.SELECTED)
    if missed:
        draw.missed_budgets(ax, missed, budgets, draw.SELECTED)
    both = curve.confirmed is not None
    label = "selected, and fit" if both else "measured, and fit"
    _fit(ax, curve.selected, draw.SELECTED, steps_panels.examples(curve), label, both=both)
    if curve.confirmed is not None:
        draw.repeated_medians(ax, curve.confirmations, draw.CONFIRMED)
        confirmed_fit = curve.confirmed.fit
        label = "confirmed: median, range, and fit"
        _fit(ax, curve.confirmed, draw.CONFIRMED, confirmed_fit.e_min if confirmed_fit else None, label, both=True)
    labelled = verdict_marks.label_fits(curve.selected, curve.confirmed)
    verdict_marks.regime_spans(ax, labelled)
    verdict_marks.answers(ax, labelled)


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
        lines = [curve for curve in group if curve.drawable]
        if len({line.curve.optimizer for line in lines}) < 2:
            yield Skipped(what, "fewer than two optimizers have a curve")
            continue
        for curve in group:
            if not curve.drawable:
                yield Skipped(f"{curve.curve.optimizer} among {what}", curve.why_nothing)
        draw_all = _side_by_side if any(line.confirmed for line in lines) else _alone
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
    anchor = (box.x0 - 0.045, box.y0 - (BENEATH + 0.05) / figure.get_figheight())
    title = f"{RING}; open triangle: the median of the reruns never reached the target"
    keep_inside(figure.legend(handles=entries, title=title, bbox_to_anchor=anchor, borderaxespad=0, **options))
    return figure


def _limits(ax: Axes, lines: Sequence[CurveFits]) -> None:
    all_points = [line.selected.points for line in lines]
    heights = [steps for points in all_points for steps in draw.heights(points)]
    heights += [
        steps
        for line in lines
        for confirmation in line.confirmations
        for steps in confirmation.median
        if 0 < steps < np.inf
    ]
    draw.batch_size_axes(
        ax, [size for points in all_points for size in points.batch_size], heights, lines[0].curve.unit
    )


def _all(ax: Axes, lines: Sequence[CurveFits], name: str) -> None:
    """Draws either the selected or the confirmed answers of all optimizers."""
    for line, style in zip(lines, draw.styles(), strict=False):
        points_fit = line.selected if name == SELECTED else line.confirmed
        if points_fit is None:
            continue
        if name == SELECTED:
            draw.measurements(ax, points_fit.points, style)
        else:
            draw.repeated_medians(ax, line.confirmations, style, bars=False)
        if points_fit.fit:
            draw.fit_line(ax, points_fit.fit, style)
            draw.ring(ax, points_fit, style)


def _entries(lines: Sequence[CurveFits], title_words: str = "") -> list[Line2D]:
    """Returns legend entries with *pays up to*. Distinctions already in ``title_words`` are omitted."""
    entries = []
    for line, style in zip(lines, draw.styles(), strict=False):
        distinctions = [
            words for words in line.curve.distinction.split(", ") if words and words not in title_words.split(", ")
        ]
        name = line.curve.optimizer + (f" ({', '.join(distinctions)})" if distinctions else "")
        entries.append(draw.legend_entry(style, f"{name}: {fits.both_in_words(line.selected, line.confirmed)}"))
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


def _headline(curve: CurveFits) -> str:
    """Describes how far doubling pays off and stays efficient, by the selected and the confirmed answers."""
    pays, efficient = curve.selected.extents_in_words
    if curve.confirmed is None:
        return f"pays up to {pays}\nefficient up to {efficient}"
    confirmed_words = curve.confirmed.extents_in_words
    both = fits.join_answers(pays, confirmed_words[0]), fits.join_answers(efficient, confirmed_words[1])
    return "pays up to: {}\nefficient up to: {}".format(*both)


def _subtitle(lines: Sequence[CurveFits], further_words: Sequence[str]) -> str:
    """Returns the subtitle: the target, the number of trials per point, and whether trials were pruned."""
    counts = [line.selected.points.trials for line in lines if line.selected.points.trials]
    best = f"best of {labels.span(counts, 'trial')}"
    cut = pages.pruning_words([line.curve.pruned for line in lines])
    shown = text.joined(goal(lines[0].curve), best, cut, *further_words)
    return textwrap.shorten(shown, CHARACTERS_ACROSS * 4 // 3, placeholder=" …")
