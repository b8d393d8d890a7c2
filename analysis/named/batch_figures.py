"""Figures of studies of batch sizes: steps to target."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from analysis.cores.factorizations import KIND
from analysis.drawing import draw
from analysis.drawing.draw import Style
from analysis.drawing.picture import CHARACTERS_ACROSS, Picture, Skipped, axes
from analysis.fitting import curves, fits
from analysis.fitting.curves import Curve, Points
from analysis.fitting.fits import Judged
from analysis.searches import confirmations, steps
from analysis.searches.confirmations import Confirmed
from results import store
from results.commits import Commit
from results.durable import Folder
from results.study import digest

CLEAR = 0.75  # of the width of the axes: what a legend left of it needs
WITHIN_AXES = 4  # more curves have their legend beside the axes


class Fitted(NamedTuple):
    """A curve of the store with what its fit says, and its studies."""

    curve: Curve
    judged: Judged
    commits: tuple[Commit, ...] = ()


def of_store(folder: Folder, asked: tuple[str, float] | None = None) -> list[Fitted]:
    """The curves of a store with their fits; ``asked``: metric and value of a target other than the studies' own."""
    held, target = steps.load(folder, asked)
    studies: dict[str, list[Commit]] = {}
    for commit in store.catalogue(folder):
        if commit.plan.get("kind") != KIND:
            studies.setdefault(digest(curves.shared_plan(commit.study)), []).append(commit)
    return [Fitted(curve, fits.of_curve(curve), tuple(studies[curve.key])) for curve in curves.curves(held, target)]


def steps_to_target(found: Sequence[Fitted]) -> Iterator[Picture | Skipped]:
    """One picture per curve: its points, fit, band, regimes and critical batch size."""
    for curve, judged, commits in found:
        points, style = judged.points, draw.STYLES[0]
        if not len(points.batch_size):
            yield Skipped(f"steps_to_target of {_workload(curve)}, {_sought(curve)}", _why_nothing(points))
            continue
        figure, ax = axes(
            _workload(curve),
            _goal(curve, [points.trials], [curve.pruned], [curve.distinction]),
            strip=judged.fit is not None,
        )
        again = confirmations.of(commits, curve.target)
        draw_curve(ax, curve, judged, again, style)
        legend(ax, **_beside(ax, again))
        yield Picture((curve.dataset, curve.model, curve.optimizer, *_target(curve)), figure)


def draw_curve(ax: Axes, curve: Curve, judged: Judged, again: Sequence[Confirmed], style: Style) -> None:
    """Draws a curve of steps to target with fit, band, regimes, critical batch size, and best trials run again."""
    points = judged.points
    missed, budgets = curves.unreached(curve, points)
    heights = [*points.low.clip(0.5), *points.high, *budgets, *confirmations.heights(again)]
    draw.batch_size_axes(ax, [*points.batch_size, *missed], heights)
    draw.measured(ax, points, style, "measured")
    draw.confirmed(ax, again, style)
    if missed:
        draw.not_reached(ax, missed, budgets, style)
    if judged.fit:
        draw.band(ax, judged.fit, style)
        draw.fitted(ax, judged.fit, style, "fit")
        draw.regime_spans(ax, judged.fit)
        draw.perfect_scaling(ax, judged.fit.e_min)
    else:
        draw.perfect_scaling(ax, float(points.batch_size[0] * (points.low[0] + points.high[0]) / 2))
    draw.critical_batch_size(ax, judged)


def optimizers(found: Sequence[Fitted]) -> Iterator[Picture | Skipped]:
    """One picture per data set, model and target: the curves of its optimizers with their fits."""
    groups: dict[tuple[str, ...], list[Fitted]] = {}
    for one in found:
        groups.setdefault((one.curve.dataset, one.curve.model, *_target(one.curve)), []).append(one)
    for names, group in groups.items():
        workload = f"{group[0].curve.dataset} · {group[0].curve.model}"
        what = f"optimizers of {workload}, {_sought(group[0].curve)}"
        drawn = [one for one in group if len(one.judged.points.batch_size)]
        if len({one.curve.optimizer for one in drawn}) < 2:
            yield Skipped(what, "fewer than two optimizers have a curve")
            continue
        for curve, judged, _ in (one for one in group if not len(one.judged.points.batch_size)):
            yield Skipped(f"{curve.optimizer} among {what}", _why_nothing(judged.points))
        all_points = [one.judged.points for one in drawn]
        goal = _goal(drawn[0].curve, [p.trials for p in all_points], [one.curve.pruned for one in drawn], [])
        crowded = len(drawn) > WITHIN_AXES
        figure, ax = axes(workload, goal, strip=False, beside=crowded)
        draw.batch_size_axes(
            ax,
            [size for points in all_points for size in points.batch_size],
            [s for points in all_points for s in (*points.low.clip(0.5), *points.high)],
        )
        legend = []
        for (curve, judged, _), style in zip(drawn, draw.styles(), strict=False):
            name = curve.optimizer + (f" ({curve.distinction})" if curve.distinction else "")
            legend.append(draw.entry(style, f"{name}: {draw.critical_in_words(judged)}"))
            draw.measured(ax, judged.points, style, None)
            if judged.fit:
                draw.fitted(ax, judged.fit, style, None)
                draw.knee(ax, judged, style)
        options: dict[str, Any] = {"frameon": True, "framealpha": 0.8, "edgecolor": "none", "alignment": "left"}
        options |= {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if crowded else {"loc": "best"}
        ax.legend(handles=legend, title="critical batch size (ring) [90 % interval]", **options)
        yield Picture(names, figure)


def legend(ax: Axes, **options: Any) -> None:
    """Measurements first, then what was made of them, then whatever had no room for its name."""
    order = ["measured", draw.AGAIN, draw.NEVER_AGAIN, "fit", "90 % region", "perfect scaling"]
    entries = sorted(zip(*ax.get_legend_handles_labels(), strict=True), key=lambda e: (*order, e[1]).index(e[1]))
    framed = {"frameon": True, "framealpha": 0.8, "edgecolor": "none", "loc": "upper right"}
    ax.legend(*zip(*entries, strict=True), **framed | options).set_zorder(6)


def _beside(ax: Axes, again: Sequence[Confirmed]) -> dict[str, Any]:
    """Where a legend at the upper right keeps clear of bars that leave the axes at large batch sizes."""
    left, right = np.log(ax.get_xlim())
    shares = [(np.log(one.batch_size) - left) / (right - left) for one in again if np.isinf(one.most[1])]
    first = min((share for share in shares if share > CLEAR), default=1.0)
    return {"bbox_to_anchor": (first - 0.01, 1.0)} if first < 1 else {}


def _workload(curve: Curve) -> str:
    return f"{curve.dataset} · {curve.model} · {curve.optimizer}"


def _why_nothing(points: Points) -> str:
    return points.refusal or "no trial reached the target at any batch size"


def _sought(curve: Curve) -> str:
    return f"{curve.target.metric} ≤ {curve.target.value:g}"


def _target(curve: Curve) -> tuple[str, str]:
    return curve.target.metric, f"{curve.target.value:g}"


def _goal(curve: Curve, trials: Sequence[int | None], pruned: Sequence[bool], more: Sequence[str]) -> str:
    """What the points are: the target, best of how many trials, pruned or not."""
    counts = sorted({count for count in trials if count})
    best = f"best of {'–'.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} trial{'s' * (counts[-1] > 1)}"
    cut = "pruned" if all(pruned) else "some pruned" if any(pruned) else "not pruned"
    told = " · ".join([_sought(curve), best, cut, *filter(None, more)])
    return textwrap.shorten(told, CHARACTERS_ACROSS * 4 // 3, placeholder=" …")
