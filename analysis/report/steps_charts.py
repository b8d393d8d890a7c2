"""Charts of steps to target, one per combination of data set, model and target."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from analysis.figures import pages
from analysis.fitting import curve_fits, regimes
from analysis.fitting.confirmations import middle
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.fits import PointsFit
from analysis.plotting import ticks, verdict_marks
from analysis.plotting.ticks import Ends
from analysis.report import charts, workload_rows
from analysis.report.charts import Json, Mark
from analysis.report.workload_rows import WorkloadRow

ACROSS = 41  # number of points on a fitted curve
MANY = 240  # number of axis sections that are assigned to regimes
TOP = 2**0.3  # ratio of the axis limit to the marker of a median that never reached the target
DIAGONAL = 4.0  # ratio between lines of perfect scaling
NO_PANEL = -1

ChartRows = list[Json]
Member = tuple[int, WorkloadRow]  # filter group number, and a workload


class StepsChart(NamedTuple):
    """A chart of selected answers and, if there are confirmed answers, a second chart of these.

    Attributes:
      members: workloads with a curve, each with the number of its filter group.
      marks: marks of the members.
      charts: data drawn by charts.js, by chart name: ``spec`` and rows. Rows in ``always`` are always shown. Rows in
        ``several`` are shown while no workload is selected, and rows in ``focused`` only for the selected workload.
        ``w`` is the number of a row's filter group.
      without: workloads without a curve.
    """

    members: Sequence[Member]
    marks: Sequence[Mark]
    charts: Mapping[str, Json]
    without: Sequence[Member]

    @property
    def title(self) -> str:
        first = self.members[0][1].workload
        return f"{first.dataset} · {first.model}"

    @property
    def goal(self) -> str:
        """Subtitle with the target, the number of trials per point, and whether trials were pruned."""
        lines = [goal.fitted for _, goal in self.members if goal.fitted and goal.fitted.drawable]
        first = self.members[0][1]
        return f"{first.target_text} · {pages.trial_counts(lines)}" if lines else first.target_text


def steps_charts(goals: Sequence[Member]) -> list[StepsChart]:
    """Returns the charts of all workloads with a target and at least one point."""
    mark_of = charts.assign_marks(sorted({goal.series for _, goal in goals}))
    groups: dict[tuple[object, ...], list[Member]] = {}
    for group_number, goal in goals:
        if goal.fitted:
            key = (goal.workload.dataset, goal.workload.model, goal.workload.unit, goal.fitted.curve.target)
            groups.setdefault(key, []).append((group_number, goal))
    steps_charts, height = [], charts.TALL if len(groups) == 1 else charts.HEIGHT
    for group in groups.values():
        members = [(group_number, goal) for group_number, goal in group if _has_points(goal)]
        if any(goal.fitted and goal.fitted.drawable for _, goal in members):
            marks = [mark_of[goal.series] for _, goal in members]
            pointless = [(group_number, goal) for group_number, goal in group if not _has_points(goal)]
            steps_charts.append(StepsChart(members, marks, _charts(members, marks, height), pointless))
    return steps_charts


def _has_points(goal: WorkloadRow) -> bool:
    return goal.fitted is not None and (goal.fitted.drawable or bool(goal.fitted.missed))


def _charts(members: Sequence[Member], own_marks: Sequence[Mark], height: int) -> dict[str, Json]:
    """Returns one chart for each kind of answer. The charts share their axes, so they can be compared."""
    lines = [goal.fitted for _, goal in members if goal.fitted]
    across = ticks.limits([size for line in lines for size in _sizes(line)], 0.6, 0.6)
    up = ticks.limits([steps for line in lines for steps in _heights(line)], 0.9, 0.6)
    unit = lines[0].curve.unit
    series = {goal.series: mark for (_, goal), mark in zip(members, own_marks, strict=True)}
    names = [
        name for name in curve_fits.ANSWERS if any(name in dict(workload_rows.answers(goal)) for _, goal in members)
    ]
    return {name: _chart(members, name, (across, up), charts.steps(series, across, up, unit, height)) for name in names}


def _chart(members: Sequence[Member], name: str, ends: tuple[Ends, Ends], spec: Json) -> Json:
    across, up = ends
    always: dict[str, ChartRows] = {"points": [], "fits": []}
    several = {"rings": [], "diagonals": list(_diagonals(across, up))}
    focused: dict[str, ChartRows] = {name: [] for name in ("bands", "regimes", "perfect", "knees", "pays")}
    for group_number, goal in members:
        points_fit = dict(workload_rows.answers(goal)).get(name)
        if points_fit is None:
            continue
        identity = {"w": group_number, "series": goal.series}
        points = _points(goal) if name == curve_fits.SELECTED else _confirmed(goal, up)
        always["points"] += [identity | row for row in points]
        focused["perfect"] += [identity | row for row in _perfect(points_fit, across)]
        if points_fit.fit:
            _fitted(points_fit, points_fit.fit, identity, across, always, several, focused)
    return {
        "spec": spec,
        "groups": [group_number for group_number, _ in members],
        "always": _round(always),
        "several": _round(several),
        "focused": _round(focused),
    }


def _fitted(
    points_fit: PointsFit,
    fit: regimes.Fit,
    identity: Json,
    across: Ends,
    always: dict[str, ChartRows],
    several: dict[str, ChartRows],
    focused: dict[str, ChartRows],
) -> None:
    """Appends the rows of a fit."""
    x = np.geomspace(fit.batch_size[0], fit.batch_size[-1], ACROSS)
    y = regimes.curve(fit, x)
    always["fits"] += [identity | {"x": a, "y": b} for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    if len(fit.allowed[0]):  # otherwise, the region is as narrow as the line
        ends = zip(x.tolist(), *(end.tolist() for end in regimes.band(fit, x)), strict=True)
        focused["bands"] += [identity | {"x": a, "y": b, "y2": c} for a, b, c in ends]
    focused["regimes"] += [identity | row for row in _regimes(fit, across)]
    pays = points_fit.pays
    dashes = {"doubt": 1} if points_fit.search_doubts else {}
    if pays.verdict == "identified":
        several["rings"].append(
            identity | {"x": pays.best, "y": float(regimes.curve(fit, np.array(pays.best)))} | dashes
        )
    if points_fit.verdict == "identified":
        knee = {"x": fit.critical_batch_size, "y": float(regimes.curve(fit, np.array(fit.critical_batch_size)))}
        focused["knees"].append(identity | knee | ({"open": 1} if points_fit.doubts else {}))
    if pays.verdict != "not_identified":
        low, high = np.nan_to_num(pays.low, nan=across[0]), np.nan_to_num(pays.high, nan=across[1])
        first, last = (float(np.clip(end, *across)) for end in (low, high))
        focused["pays"].append(identity | {"x": first, "x2": last} | dashes)


def _points(goal: WorkloadRow) -> Iterator[Json]:
    """Yields the selected answers. If no trial reached the target, an open point is drawn at the budget."""
    assert goal.fitted is not None
    points = goal.fitted.selected.points
    heading = f"{goal.workload.title} · {goal.target_text}"
    for size, low, high in zip(points.batch_size.tolist(), points.low.tolist(), points.high.tolist(), strict=True):
        lower_end = low if low > 0 else min(0.5, high)
        point = {"x": size, "y": (lower_end + high) / 2, "low": lower_end, "high": high, "arrow": ""}
        point |= {"y": high, "low": high, "open": 1, "arrow": "↓"} if low <= 0 and high > 1 else {}
        yield point | {"label": _lines(heading, workload_rows.describe_selected(goal, int(size)))}
    for size, budget in goal.fitted.missed.items():
        point = {"x": size, "y": budget, "low": budget, "high": budget, "open": 1, "arrow": "↑"}
        yield point | {"label": _lines(heading, workload_rows.describe_selected(goal, int(size)))}


def _lines(heading: str, pairs: Sequence[tuple[str, str]]) -> str:
    return "\n".join([heading, *(f"{name}: {value}" for name, value in pairs)])


def _confirmed(goal: WorkloadRow, up: Ends) -> Iterator[Json]:
    """Yields medians and ranges of reruns. If the median missed the target, an open point is drawn at the top."""
    assert goal.fitted is not None
    heading = f"{goal.workload.title} · {goal.target_text}"
    for confirmation in goal.fitted.confirmations:
        upper_end, median = min(confirmation.most[1], up[1]), middle(confirmation.median)
        point: Json = {
            "x": float(confirmation.batch_size),
            "y": median,
            "low": max(confirmation.least[0], 0.5),
            "high": upper_end,
        }
        point |= {"arrow": ""}
        if not math.isfinite(median):
            top = up[1] / TOP
            point |= {"y": top, "low": min(point["low"], top), "high": top, "open": 1, "arrow": "↑"}
        yield point | {"label": _lines(heading, workload_rows.describe_confirmed(goal, confirmation))}


def _perfect(points_fit: PointsFit, across: Ends) -> Iterator[Json]:
    points = points_fit.points
    if len(points.batch_size):
        first = float(points.batch_size[0] * (max(points.low[0], 0.5) + points.high[0]) / 2)
        examples = points_fit.fit.e_min if points_fit.fit else first
        yield charts.constant_product(examples, across)


def _diagonals(across: Ends, up: Ends) -> Iterator[Json]:
    """Yields lines of perfect scaling, along which doubling the batch size halves the steps."""
    examples = DIAGONAL ** math.ceil(math.log(across[0] * up[0], DIAGONAL))
    while examples < across[1] * up[1]:
        ends = max(across[0], examples / up[1]), min(across[1], examples / up[0])
        yield {"w": NO_PANEL} | charts.constant_product(examples, ends)
        examples *= DIAGONAL


def _regimes(fit: regimes.Fit, across: Ends) -> Iterator[Json]:
    edges = np.geomspace(*across, MANY + 1)
    names = regimes.names(fit, np.sqrt(edges[1:] * edges[:-1]))
    for first, last in verdict_marks.runs(names):
        regime = workload_rows.regime_index(str(names[first]))
        yield {"x": edges[first], "x2": edges[last], "fill": f"var(--regime-{regime})"}


def _sizes(line: CurveFits) -> list[float]:
    return [*line.selected.points.batch_size.tolist(), *line.missed]


def _heights(line: CurveFits) -> list[float]:
    points = line.selected.points
    low = np.where(points.low > 0, points.low, points.high)  # points without a lower bound are drawn without a bar
    heights = [*low.tolist(), *points.high.tolist(), *line.missed.values()]
    heights += [
        middle(confirmation.median) for confirmation in line.confirmations if math.isfinite(confirmation.median[1])
    ]
    return [max(steps, 0.5) for steps in heights]


def _round(rows: dict[str, ChartRows]) -> dict[str, ChartRows]:
    """Rounds numbers to five digits, which keeps the page small without visible differences."""
    return {
        name: [{key: float(f"{v:.5g}") if isinstance(v, float) else v for key, v in row.items()} for row in chart_rows]
        for name, chart_rows in rows.items()
    }
