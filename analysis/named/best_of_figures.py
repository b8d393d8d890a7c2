"""Figures of what searches find: the median best of k trials with its band, for several k, beside the best of all."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes

from analysis.drawing import draw
from analysis.drawing.draw import INK, Style
from analysis.drawing.picture import Picture, Skipped, axes
from analysis.fitting import regimes
from analysis.fitting.pairs import Fitted
from analysis.searches import best_of, medians, trials

MINIMUM = Style(INK, "o", (0, ()))


def searches(found: Sequence[Fitted], sizes: Sequence[int]) -> Iterator[Picture | Skipped]:
    """One picture per curve.

    Args:
      found: curves with their fits.
      sizes: of searches, how many trials each has; a line for every one that has a band.
    """
    for one in found:
        curve, points = one.curve, one.judged.points
        title = f"{curve.dataset} · {curve.model} · {curve.optimizer}"
        goal = f"{curve.target.metric} ≤ {curve.target.value:g}"
        if curve.pruned or not len(points.batch_size):
            why = "losing trials were cut short; run it with pruning=off" if curve.pruned else "no trial reached it"
            yield Skipped(f"searches of {title}, {goal}", why)
            continue
        of_study = [each for each in trials.of_commits(one.commits, curve.target).values() if each.study.batch_size]
        studies = sorted(of_study, key=lambda each: each.study.batch_size or 0)
        count = medians.equal_counts(studies)
        batch_size = np.array([each.study.batch_size for each in studies], np.float64)
        figure, ax = axes(title, f"{goal} · of {count} trials at every batch size")
        asked = [k for k in sizes if k <= best_of.largest_with_band(count)]
        bands = {k: [medians.summarize(each, count, k).median for each in studies] for k in asked}
        ends = np.array([m for own in bands.values() for m in own]).reshape(-1)
        heights = [*points.low.clip(0.5), *points.high, *np.maximum(ends[np.isfinite(ends)], 0.5)]
        draw.batch_size_axes(ax, batch_size.tolist(), heights)
        for (k, own), style in zip(bands.items(), draw.ordered_styles(len(bands)), strict=True):
            _band(ax, batch_size, own, style, f"median best of {k}, with its 90 % band")
        draw.measured(ax, points, MINIMUM, f"best of all {points.trials}")
        ax.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none").set_zorder(6)
        yield Picture((curve.dataset, curve.model, curve.optimizer, "searches"), figure)


def _band(ax: Axes, batch_size: np.ndarray, own: Sequence[best_of.Median], style: Style, label: str) -> None:
    """A median over batch sizes with its band; where an end is open the band goes as far as the axes do."""
    low, high, band_low, band_high = np.array(own).T
    middle = (regimes.from_zero(low) + high) / 2
    bottom, top = ax.get_ylim()
    ends = (np.nan_to_num(np.maximum(band_low, bottom), nan=bottom), np.nan_to_num(band_high, nan=top, posinf=top))
    middle[~np.isfinite(middle)] = np.nan  # which interrupts a line
    there = np.isfinite(middle).tolist()
    ax.fill_between(batch_size, *ends, where=there, color=style.color, alpha=0.16, linewidth=0, zorder=1)
    ax.plot(batch_size, middle, color=style.color, marker=style.marker, markersize=4, label=label, zorder=3)
