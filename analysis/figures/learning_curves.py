"""Learning curves: all trials of one study, the best value so far, and the interval in which it reaches the target."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis import text
from analysis.figures import requests
from analysis.figures.requests import FigureRequest
from analysis.plotting import draw, ticks
from analysis.plotting.draw import INK, Look, symbol
from analysis.plotting.picture import Picture, Pictures, Skipped, axes
from analysis.workload_studies import WorkloadStudies
from results.plans.kinds import along
from results.plans.study import Target
from results.rules import answers
from results.rules.confirmation import CONFIRM, SEARCH
from results.store import Commit, read_table

BEST, AGAIN, CROSSING = draw.STYLES[0].color, draw.STYLES[1].color, "#F9E6C4"
TRIAL: Look = {"color": "#8A8A8A", "linewidth": 0.5, "alpha": 0.6, "zorder": 2}
REPEAT: Look = {"color": AGAIN, "linewidth": 0.9, "alpha": 0.9, "zorder": 3}
LOST: Look = {"marker": "x", "linestyle": "none", "color": "#000000", "markersize": 4.5, "zorder": 4}
HIGHEST = 2.0  # upper axis limit, as a multiple of the median first evaluation


def learning_curves(selection: Sequence[WorkloadStudies], request: FigureRequest) -> Pictures:
    """Yields one picture per study and target."""
    for workload, target in requests.each(selection, request):
        for commit in workload.commits:
            for item in draw_study(commit, target):
                yield item if isinstance(item, Skipped) else item._replace(names=(request.kind, *item.names))


def draw_study(commit: Commit, target: Target) -> Pictures:
    """Yields one picture: the metric of ``target`` against steps.

    Args:
      commit: a visible batch-size study.
      target: metric and its value.
    """
    study = commit.study
    title = " · ".join((*study.labels, f"batch size {along(study):,}"))
    if target.metric not in commit.metrics:
        yield Skipped(f"learning curves of {title}", f"it did not measure {target.metric}")
        return
    measurements = read_table(commit, "measurements").select(["study", "trial", "step", target.metric])
    rows = measurements.to_pandas()
    ends = read_table(commit, "trials").select(["trial", "role", "status"]).to_pandas()
    rows = rows.merge(ends, on="trial")
    search, repeats = (rows[rows["role"] == role] for role in (SEARCH, CONFIRM))
    if not np.isfinite(search.loc[search["step"] > 0, target.metric]).any():
        yield Skipped(f"learning curves of {title}", "there are no finite measurements")
        return
    goal = f"{target.metric.replace('_', ' ')} of {search['trial'].nunique()} trials at every evaluation"
    figure, ax = axes(title, goal, beside=True)
    _axes(ax, rows, target)
    for some, look in ((search, TRIAL), (repeats, REPEAT)):
        for _, trial_rows in some.groupby("trial"):
            ax.plot(trial_rows["step"], trial_rows[target.metric], **look)
    lost = _lost(search, target.metric)
    ax.plot(lost["step"], lost[target.metric].clip(upper=0.98 * ax.get_ylim()[1]), **LOST)
    best = best_so_far(search, target.metric)
    ax.step(best["step"], best[target.metric], where="post", color=BEST, linewidth=1.8, zorder=3.5)
    ax.axhline(target.value, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2.5)
    handles = _legend(len(lost), repeats["trial"].nunique(), target)
    first = answers.of_table(measurements, target).of(search["trial"].unique()).answer()
    if first:
        if first.steps_high:
            ax.axvspan(max(first.steps_low, 0.5), first.steps_high, color=CROSSING, linewidth=0, zorder=0.6)
        words = f"trial {first.trial} reached it first: {text.interval(first.steps_low, first.steps_high)}"
        handles.append(Patch(facecolor=CROSSING, label=words))
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    yield Picture((*study.labels, f"b{along(study)}", target.metric), figure)


def best_so_far(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Returns the lowest value over all trials up to each step: columns step and the metric, sorted by step."""
    return rows.groupby("step")[metric].min().cummin().dropna().reset_index()


def _lost(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Returns the last finite value of each diverged trial."""
    numbers = rows[(rows["status"] == "INFEASIBLE") & np.isfinite(rows[metric])]
    return numbers.drop_duplicates("trial", keep="last")


def _axes(ax: Axes, rows: pd.DataFrame, target: Target) -> None:
    values = rows[target.metric][np.isfinite(rows[target.metric])]
    first = rows.drop_duplicates("trial")[target.metric]
    low = min(float(values.min()), target.value)
    high = min(float(values.max()), HIGHEST * float(first[np.isfinite(first)].median()))
    after = rows.loc[rows["step"] > 0, "step"]  # a logarithmic axis has no step 0; curves enter on the left
    ticks.in_powers_of_two(ax.xaxis, (float(after.min()) / 1.25, float(after.max()) * 1.25))
    if low > 0:
        ticks.in_decades(ax.yaxis, (low / 1.25, max(high, low * 2) * 1.25))
    else:
        room = 0.05 * (high - low) or 0.5
        ax.set_ylim(low - room, high + room)
    ax.set(xlabel="steps", ylabel=target.metric.replace("_", " "))
    ax.grid(**draw.GRID)


def _legend(lost: int, repeats: int, target: Target) -> list[Any]:
    handles: list[Any] = [
        symbol(label="trial of the search", **TRIAL),
        symbol(color=BEST, linewidth=1.8, label="best so far"),
    ]
    if repeats:
        handles.append(symbol(label=f"best trial rerun with {repeats} fresh seeds", **REPEAT))
    if lost:
        handles.append(symbol(label=f"diverged afterwards ({lost})", **LOST))
    return [*handles, symbol(color=INK, label=f"target {target.value:g}", linewidth=0.9, linestyle=(0, (4, 3)))]
