"""Figures of searches with k trials: medians with bands for several values of k, and *pays up to* against k."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from analysis.figures import batch_figures, requests
from analysis.figures.requests import FigureRequest
from analysis.fitting import curve_fits, fits, regimes
from analysis.fitting.curve_fits import AtK, CurveFits
from analysis.fitting.fits import PointsFit
from analysis.plotting import draw, grid, ticks, verdicts
from analysis.plotting.draw import INK, Style
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture, Pictures, Skipped, axes
from analysis.plotting.ticks import Ends
from analysis.plotting.verdicts import LabelledFit
from analysis.trials import best_of, medians
from analysis.workload_studies import WorkloadStudies
from results.grouping import grouped
from results.plans.kinds import along

BESIDE = 0.28  # octaves between selected and confirmed answers
MINIMUM = Style(INK, "o", (0, ()))


def searches(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields one picture per workload and target, for the requested trial counts or, by default, for powers of two."""
    for workload, target in requests.each(selection, request):
        one = curve_fits.of_workload(workload, target)
        powers = [2**i for i in range(1, (one.selected.points.trials or 1).bit_length())]
        yield from draw_searches([one], request.best_of or powers)


def draw_searches(curves: Sequence[CurveFits], sizes: Sequence[int]) -> Pictures:
    """Yields one picture per curve.

    Args:
      curves: curves with their fits.
      sizes: numbers of trials per search. A line is drawn for each size with a band.
    """
    for one in curves:
        curve, points = one.curve, one.selected.points
        title, goal = batch_figures.workload_title(curve), batch_figures.goal(curve)
        if curve.pruned or not len(points.batch_size):
            why = "losing trials were cut short. Run it with pruning=off." if curve.pruned else "no trial reached it"
            yield Skipped(f"searches of {title}, {goal}", why)
            continue
        studies = [each for each, _ in curve.trials_by_rule]
        count = medians.equal_counts(studies)
        batch_size = np.array([along(each.study) for each in studies], np.float64)
        figure, ax = axes(title, f"{goal} · {count} trials at every batch size")
        largest = best_of.largest_with_band(count)
        bands = {k: [medians.summarize(each, count, k).median for each in studies] for k in sizes if k <= largest}
        ends = np.array([m for own in bands.values() for m in own]).reshape(-1)
        heights = [*points.low.clip(0.5), *points.high, *np.maximum(ends[np.isfinite(ends)], 0.5)]
        draw.batch_size_axes(ax, batch_size.tolist(), heights, curve.unit)
        for (k, own), style in zip(bands.items(), draw.ordered_styles(len(bands)), strict=True):
            _band(ax, batch_size, own, style, f"median best of {k}, with its 90 % band")
        draw.measurements(ax, points, MINIMUM, f"best of all {points.trials}")
        ax.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none").set_zorder(6)
        yield Picture(("searches", *batch_figures.file_names(curve)), figure)


def pays(curves: Sequence[CurveFits]) -> Pictures:
    """Yields one picture per data set, model and target: *pays up to* against k, with one panel per optimizer.

    Pruned and unpruned studies share a panel. Pruned studies are drawn only at their full number of trials.
    """
    for key, members in curve_fits.comparable_groups(curves, "optimizer", "targets", "pruning"):
        group = grouped(members, lambda one: one.curve.optimizer)
        at_every_k = {optimizer: (own, curve_fits.refit_by_k(own)) for optimizer, own in group.items()}
        fitted = {name: pair for name, pair in at_every_k.items() if any(at.selected.extents for at in pair[1])}
        title, goal = " · ".join(key[:2]), " · ".join([" ≤ ".join(key[2:4]), *key[4:]])
        if len({at.k for _, own in fitted.values() for at in own}) < 2:
            yield Skipped(f"best_of of {title}, {goal}", "fewer than two numbers of trials have a fit")
            continue
        ends = _ends([one for pair in fitted.values() for one in _points_fits(*pair)])
        ks = [at.k for _, own in fitted.values() for at in own]
        panels = [_panel(optimizer, *pair, ks, ends) for optimizer, pair in fitted.items()]
        symbols = [draw.legend_entry(draw.SELECTED._replace(line=(0, (1, 2))), "selected: best of k, 90 % interval")]
        if any(one.confirmed for own, _ in fitted.values() for one in own):
            symbols.append(draw.legend_entry(draw.CONFIRMED, "confirmed on fresh seeds"))
        heading = f"How far doubling pays off, against the number of trials · {title}"
        if any(fits.extent_doubts(one) for pair in fitted.values() for one in _points_fits(*pair)):
            style = draw.SELECTED._replace(line=draw.IN_DOUBT)
            symbols.append(draw.legend_entry(style, "in doubt", hollow=True))
        yield Picture(key, grid.grid(heading, [goal], grid.positions(panels), symbols))


def _points_fits(own: Sequence[CurveFits], by: Sequence[AtK]) -> list[PointsFit]:
    return [*(at.selected for at in by), *(one.confirmed for one in own if one.confirmed)]


def _ends(points_fits: Sequence[PointsFit]) -> Ends:
    """Returns axis limits that include all bounds, and extend an octave beyond all best values."""
    fitted = [(one.extents.pays, one) for one in points_fits if one.extents]
    known = [pays.best for pays, _ in fitted if pays.verdict != "not_identified" and math.isfinite(pays.best)]
    sizes = known or [float(size) for _, one in fitted for size in one.points.batch_size]
    stated = [end for pays, _ in fitted for end in (pays.low, pays.high) if math.isfinite(end)]
    room = 2**0.2
    low, high = [min(sizes) / 2, *(end / room for end in stated)], [max(sizes) * 2, *(end * room for end in stated)]
    return min(low), max(high)


def _panel(name: str, own: Sequence[CurveFits], by: Sequence[AtK], ks: Sequence[int], ends: Ends) -> Panel:
    """Returns the panel of one optimizer. Confirmed values are drawn slightly to the right of their k."""

    def onto(ax: Axes) -> None:
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        ax.set(xlim=(min(ks) / 2**0.6, max(ks) * 2**0.8), ylim=ends)
        for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ends)):
            ticks.in_powers_of_two(axis, limits, compact=True)
        ax.set(xlabel="trials of the search, k", ylabel="pays up to batch size")
        ax.grid(**draw.GRID)
        for at in by:
            verdicts.upright(ax, at.k, LabelledFit("", draw.SELECTED.color, at.selected), draw.SELECTED.marker)
        known = [(at.k, at.selected.extents.pays) for at in by if at.selected.extents]
        sizes = [pays.best if pays.verdict != "not_identified" else math.nan for _, pays in known]
        ax.plot([k for k, _ in known], sizes, color=draw.SELECTED.color, linestyle=(0, (1, 2)), linewidth=1, zorder=2)
        for one in own:
            if one.confirmed and one.selected.points.trials:
                confirmed = LabelledFit("", draw.CONFIRMED.color, one.confirmed)
                verdicts.upright(ax, one.selected.points.trials * 2**BESIDE, confirmed, draw.CONFIRMED.marker)

    return Panel(name, onto)


def _band(ax: Axes, batch_size: np.ndarray, own: Sequence[best_of.Median], style: Style, label: str) -> None:
    """Draws medians against batch size with their band. Open ends of the band extend to the edge of the axes."""
    low, high, band_low, band_high = np.array(own).T
    middle = (regimes.from_zero(low) + high) / 2
    bottom, top = ax.get_ylim()
    ends = (np.nan_to_num(np.maximum(band_low, bottom), nan=bottom), np.nan_to_num(band_high, nan=top, posinf=top))
    middle[~np.isfinite(middle) | (high == 0)] = np.nan  # interrupts the line
    finite = np.isfinite(middle).tolist()
    ax.fill_between(batch_size, *ends, where=finite, color=style.color, alpha=0.16, linewidth=0, zorder=1)
    ax.plot(batch_size, middle, color=style.color, marker=style.marker, markersize=4, label=label, zorder=3)
