"""HTML sections: curves of steps to target, and workloads with their verdicts."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from analysis import text
from analysis.fitting import assumptions, curve_fits, fit_tables
from analysis.fitting.extents import GAIN
from analysis.fitting.fits import PointsFit
from analysis.fitting.shapes import Check, CheckOutcome
from analysis.plotting.ticks import Ends
from analysis.report import workload_rows
from analysis.report.charts import swatch
from analysis.report.markup import Cell, Html, chart_name, definitions, join, number, row, section, table, tag
from analysis.report.steps_charts import StepsChart
from analysis.report.workload_rows import WorkloadRow

OUTCOMES: dict[CheckOutcome, tuple[str, str]] = {
    "pass": ("✓", "supported"),
    "doubt": ("✗", "in doubt"),
    "cannot tell": ("?", "undecided"),
}
# For each of ``assumptions.ASSUMPTIONS``, the doubtful property.
DOUBTS = {
    "slope": "slope at small batch sizes",
    "plateau": "plateau at large batch sizes",
    "knee": "shape of the bend",
    "residuals": "scatter about the curve",
    "batch sizes": "range of batch sizes",
    "perfect scaling": "line of perfect scaling",
    "trials": "number of trials",
    "points": "independence of the searches",
    "search": "difficulty of the search",
    "space": "edge of the search space",
    "evaluations": "spacing of evaluations",
}
WORKLOADS = (
    "workload",
    "batch sizes#",
    "trials each#",
    "pays up to, selected#",
    "pays up to, confirmed#",
    "regimes by batch size, and missed targets",
)
HINT = "Batch size up to which doubling pays off [90 % interval]. Select a workload to highlight it."
TITLE = "Steps to target against batch size"
READING = (
    "Selected: the fewest steps of any trial at each batch size, tuned separately for that batch size. The bar "
    "spans the two evaluations between which the target was reached. Open markers are bounds: ↑ not reached within "
    "this many steps, ↓ reached before the first known evaluation. Confirmed: the median and range of reruns with "
    "fresh seeds that took no part in the selection, on the same axes. Here ↑ means that at least half of the reruns "
    "never reached the target. A ring marks the batch size up to which doubling pays off, if the data identify it, and "
    "is dashed if that is in doubt. Along the grey diagonals, doubling the batch size halves the steps. Select a "
    "workload to see its interval as a bar, its fit with the 90 % region, its line of perfect scaling (dashed), its "
    "regimes, and the critical batch size, if the curve is a hyperbola, as a diamond (hollow if in doubt)."
)
OF_WORKLOADS = " ".join(
    "\n".join(
        [fit_tables.MEANING.format(gain=f"{100 * GAIN:g}", shape=fit_tables.SHAPE[False]), fit_tables.LIMITS]
    ).split("\n")
).replace("`fit --checks`", "the checks of each fit")


def curves(charts: Sequence[StepsChart]) -> Html:
    """Returns the section with the panels of steps to target, into which page.js draws the charts."""
    if not charts:
        missing = tag("p", "No trial reached its target in any study over batch sizes.", class_="none")
        return section("curves", TITLE, missing)
    before = itertools.accumulate((len(chart.charts) for chart in charts), initial=0)
    panels = [_panel(i, chart) for i, chart in zip(before, charts, strict=False)]
    members = [group_number for chart in charts for group_number, _ in chart.members]
    return section("curves", TITLE, tag("div", *panels, class_="panels"), about=READING, groups=members)


def _panel(i: int, chart: StepsChart) -> Html:
    """Returns a panel whose first chart has index ``i`` on the page."""
    several = len(chart.charts) > 1
    figures = [_figure(place, chart, name if several else None) for place, name in enumerate(chart.charts, i)]
    chips = [
        tag(
            "button",
            swatch(mark),
            tag("span", goal.series),
            tag("small", workload_rows.pays(goal)),
            type="button",
            class_="chip",
            aria_pressed="false",
            data_group=str(group_number),
        )
        for (group_number, goal), mark in zip(chart.members, chart.marks, strict=True)
    ]
    notes = [
        tag("p", f"{goal.series}: no curve ({goal.fitted.why_nothing}).", data_groups=str(group_number), class_="note")
        for group_number, goal in chart.without
        if goal.fitted
    ]
    details = [_detail(group_number, goal) for group_number, goal in chart.members]
    return tag(
        "article",
        tag("h3", chart.title),
        tag("p", chart.goal, class_="goal"),
        tag("div", *figures, class_="both" if several else None),
        tag("p", HINT, class_="hint") if len(chips) > 1 else "",
        tag("div", *chips, class_="chips"),
        *details,
        *notes,
        class_="panel wide" if several else "panel",
        data_groups=" ".join(dict.fromkeys(str(group_number) for group_number, _ in [*chart.members, *chart.without])),
    )


def _figure(place: int, steps_chart: StepsChart, name: str | None) -> Html:
    """Returns a chart. It has a caption if its panel has several charts."""
    kind = f", {name} answers" if name else ""
    label = chart_name(f"{TITLE.lower()}, {steps_chart.title}{kind}", steps_chart.goal)
    chart = tag("div", class_="chart", data_chart=str(place), role="group", aria_label=label)
    return tag("figure", tag("figcaption", name), chart) if name else chart


def _detail(group_number: int, goal: WorkloadRow) -> Html:
    """Returns the details shown for the selected workload."""
    answers = workload_rows.answers(goal)
    paragraphs = [tag("p", text.sentence(words)) for words in workload_rows.shortcomings(goal)]
    for name, points_fit in answers:
        kind = f", {name}" if len(answers) > 1 else ""
        pays, efficient = points_fit.extents_in_words
        paragraphs += [
            tag("p", f"Pays up to{kind}: {pays}. Efficient up to: {efficient}."),
            tag("p", _hyperbola(points_fit, kind)),
            _regimes(points_fit),
            *_checks(points_fit.checks),
            tag("p", f"Points: {workload_rows.reason(goal, points_fit)}.", class_="note"),
        ]
    return tag("div", tag("h4", goal.series), *paragraphs, class_="detail", data_detail=str(group_number), hidden="")


def _hyperbola(points_fit: PointsFit, kind: str) -> str:
    """Returns a sentence on the critical batch size, with its verdict."""
    words = points_fit.critical_in_words
    return f"If a hyperbola, critical batch size{kind}: {words} ({points_fit.verdict_in_words})."


def _regimes(points_fit: PointsFit, name: str = "") -> Html:
    """Returns the coloured regimes of a fit. If ``name`` is given, it is used as a heading."""
    runs = [
        tag("span", words, class_=f"regime r{regime}") for regime, words in workload_rows.regimes_in_words(points_fit)
    ]
    heading = tag("b", name) if name else ""
    return tag("div", heading, *runs, class_="regimes") if runs else Html("")


def _checks(checks: Sequence[Check]) -> list[Html]:
    if not checks:
        return []
    counts = Counter(check.outcome for check in checks)
    sums = ", ".join(f"{counts[outcome]} {words}" for outcome, (_, words) in OUTCOMES.items() if counts[outcome])
    items = [tag("li", *_check(check)) for check in checks]
    return [tag("details", tag("summary", f"Assumptions of the fit: {sums}"), tag("ul", *items, class_="checks"))]


def _check(check: Check) -> list[str]:
    """Describes an assumption and the observed value."""
    sign, words = OUTCOMES[check.outcome]
    assumed = f"{check.assumption}: {assumptions.ASSUMPTIONS[check.assumption]}"
    return [
        tag("span", sign, aria_hidden="true"),
        tag("b", f" {words} "),
        f"{assumed} ({check.seen.replace('_', ' ')})",
    ]


def workloads(goals: Sequence[tuple[int, WorkloadRow]]) -> Html:
    """Returns the section with the table of workloads and their verdicts."""
    if not goals:
        return section("workloads", "Workloads", tag("p", "There are no studies over batch sizes.", class_="none"))
    sizes = [size for _, goal in goals for size in goal.sizes]
    ends = (min(sizes), max(sizes)) if len(set(sizes)) > 1 else (1, 2)
    rows = [_workload(group_number, goal, ends) for group_number, goal in goals]
    return section(
        "workloads",
        "Workloads and verdicts",
        _legend([points_fit for _, goal in goals for _, points_fit in workload_rows.answers(goal)]),
        table("Workloads", WORKLOADS, rows, look="workloads"),
        about=OF_WORKLOADS,
        groups=[p for p, _ in goals],
    )


def _legend(fitted: Sequence[PointsFit]) -> Html:
    """Returns explanations of all doubts that occur in the table."""
    doubtful = {name for points_fit in fitted for name in points_fit.doubts}
    pairs = [(words, assumptions.FINDINGS[name]) for name, words in DOUBTS.items() if name in doubtful]
    if not pairs:
        return Html("")
    about = (
        "“In doubt” marks an answer of which the data contradict an assumption. Doubts about the search concern every "
        "answer, and others only the critical batch size:"
    )
    return Html(tag("p", about, class_="note") + definitions(pairs, "meanings"))


def _workload(group_number: int, goal: WorkloadRow, ends: Ends) -> Html:
    points_fit = goal.fitted.selected if goal.fitted else None
    workload = goal.workload
    title = tag(
        "span",
        tag("button", workload.optimizer, type="button", class_="show", title="show the curve"),
        tag("span", f"{workload.dataset} · {workload.model}"),
        tag("span", workload.distinction) if workload.distinction else "",
        tag("span", goal.target_text),
        class_="name",
    )
    sizes = goal.sizes
    notes = [*workload_rows.shortcomings(goal), workload_rows.best_in_words(goal)]
    notes += [workload_rows.reason(goal, points_fit)] if points_fit and not points_fit.fit else []
    fits_of = dict(workload_rows.answers(goal))
    runs = [_regimes(fit_of_curve, name if len(fits_of) > 1 else "") for name, fit_of_curve in fits_of.items()]
    cells = [
        Cell(title, f"{workload.dataset} {workload.model} {workload.optimizer} {workload.distinction}", "title"),
        number(
            len(sizes), f"{' … '.join(f'{size:,}' for size in dict.fromkeys((sizes[0], sizes[-1])))} {workload.unit}"
        ),
        number(_trials(goal)),
        *(_answer(fits_of.get(name), ends) for name in curve_fits.ANSWERS),
        Cell(join([*runs, *(tag("p", words) for words in notes if words)]), "", "words"),
    ]
    return row(cells, data_groups=str(group_number), data_look=str(group_number))


def _answer(points_fit: PointsFit | None, ends: Ends) -> Cell:
    """Returns a cell with *pays up to* (as text and as a bar), *efficient up to* and the critical batch size."""
    if points_fit is None or not len(points_fit.points.batch_size):
        return number(None)
    pays, efficient = points_fit.extents_in_words
    verdict = points_fit.pays.verdict
    look = f"{verdict} in_doubt" if points_fit.search_doubts and verdict != "not_identified" else verdict
    parts = [tag("b", pays, class_=f"verdict {look}"), _extent(points_fit, ends)]
    parts += [tag("small", f"efficient up to {efficient}")] if points_fit.extents else []
    doubts = [DOUBTS[name] for name in points_fit.doubts]
    if points_fit.verdict != "not_identified":
        critical = f"if a hyperbola, critical batch size {points_fit.critical_in_words}"
        parts += [tag("small", f"{critical} ({points_fit.verdict_in_words})", class_="in_doubt" if doubts else "")]
    parts += [tag("small", f"in doubt: {', '.join(doubts)}")] if doubts else []
    return Cell(join(parts), _place(points_fit), "number")


def _place(points_fit: PointsFit) -> float | str:
    """Returns the number by which cells are sorted: the best value of *pays up to*, or else its bound."""
    return next((number for number in points_fit.pays[:3] if math.isfinite(number)), "")


def _extent(points_fit: PointsFit, ends: Ends) -> Html:
    """Returns the interval of *pays up to* as a bar on an axis that spans all batch sizes on the page."""
    extent = workload_rows.extent(points_fit, ends)
    if not extent:
        return Html("")
    low, middle, high = extent
    bar = [tag("i", style=f"left:{low:.2%};width:{high - low:.2%}")]
    bar += [tag("b", style=f"left:{middle:.2%}")] if middle is not None else []
    return tag(
        "div",
        *bar,
        class_="extent in_doubt" if points_fit.search_doubts else "extent",
        aria_hidden="true",
        title=f"logarithmic axis from batch size {ends[0]:,} to {ends[1]:,}",
    )


def _trials(goal: WorkloadRow) -> int:
    if goal.fitted and goal.fitted.selected.points.trials:
        return goal.fitted.selected.points.trials
    return max(commit.trials for commit in goal.workload.commits)
