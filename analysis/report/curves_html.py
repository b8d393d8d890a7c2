"""Sections: curves of steps to target and workloads with their verdicts, as HTML."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from analysis.fitting import assumptions, curve_fits, fits, regimes
from analysis.fitting.fits import PointsFit
from analysis.fitting.shapes import Check, CheckOutcome
from analysis.report import workload_rows
from analysis.report.charts import swatch
from analysis.report.markup import Cell, Html, chart_name, join, number, row, section, table, tag
from analysis.report.steps_charts import StepsChart
from analysis.report.workload_rows import WorkloadRow

OUTCOMES: dict[CheckOutcome, tuple[str, str]] = {
    "pass": ("✓", "borne out"),
    "doubt": ("✗", "in doubt"),
    "cannot tell": ("?", "cannot be told"),
}
# Of ``assumptions.ASSUMPTIONS``: what is in doubt, and what was seen.
DOUBTS = {
    "slope": ("slope at small batch sizes", "twice the batch does not take half the steps there"),
    "plateau": ("plateau at large batch sizes", "steps do not become level there"),
    "knee": ("shape of the bend", "it is sharper on one side than on the other"),
    "residuals": ("scatter about the curve", "neighbouring points err alike, more than luck explains"),
    "batch sizes": (
        "range of batch sizes",
        f"fewer than {assumptions.FEWEST} batch sizes, or under {assumptions.ROOM:g} doublings on a side of the bend",
    ),
    "perfect scaling": (
        "line of perfect scaling",
        "no batch size is small enough to lie on it, with a probability of "
        f"{regimes.SHOWN:.0%} or more; smaller ones would show it",
    ),
    "trials": ("number of trials", "some batch size had more than twice as many as another"),
    "points": ("independence of the searches", "batch sizes tried the same metaparameters, and share their luck"),
    "search": (
        "difficulty of the search",
        "good metaparameters are not as easily found at every batch size, which moves the critical batch size",
    ),
    "space": (
        "edge of the search space",
        "the best trials crowd at an end of a range that was searched; better ones may lie beyond it",
    ),
    "evaluations": (
        "spacing of evaluations",
        f"at the largest batch size they are more than a factor {assumptions.FINE:g} apart",
    ),
}
WORKLOADS = (
    "workload",
    "batch sizes#",
    "trials each#",
    "critical batch size, selected#",
    "critical batch size, confirmed#",
    "regimes by batch size, and what was not reached",
)
HINT = "critical batch size [90 % interval]; choose one to look at it"
TITLE = "Steps to target against batch size"
READING = (
    "A selected answer is the best of all trials at a batch size, tuned for it; the bar is the interval between two "
    "evaluations that holds the truth. Open markers are bounds: ↑ not reached within so many steps, ↓ reached before "
    "the first known evaluation. A confirmed answer, on the same axes, is the median of runs on fresh seeds, by "
    "which nothing was selected, with their range; ↑ half of them or more never reached. A ring is a "
    "critical batch size that the data identify. On grey diagonals twice the batch takes half the steps. Choose a "
    "workload to see its fits with their 90 % regions, its lines of perfect scaling (dashed), and its regimes."
)
OF_WORKLOADS = (
    "The critical batch size is where the line of perfect scaling meets the plateau, with its 90 % interval; the "
    "verdict says what the data prove of it. "
) + " ".join(fits.LIMITS.split("\n")).replace("`fit --checks`", "the checks of each fit")


def curves(charts: Sequence[StepsChart]) -> Html:
    """Charts of steps to target; their places are filled by page.js."""
    nothing = tag("p", "No study over batch sizes has a target that any trial reached.", class_="none")
    before = itertools.accumulate((len(one.charts) for one in charts), initial=0)
    panels = [_panel(i, one) for i, one in zip(before, charts, strict=False)]
    content = tag("div", *panels, class_="panels") if panels else nothing
    members = [group_number for one in charts for group_number, _ in one.members]
    return section("curves", TITLE, content, about=READING if panels else None, groups=members if panels else None)


def _panel(i: int, one: StepsChart) -> Html:
    """A panel; its charts are the i-th of the page, and the next."""
    several = len(one.charts) > 1
    figures = [_figure(at, one, name if several else None) for at, name in enumerate(one.charts, i)]
    chips = [
        tag(
            "button",
            swatch(mark),
            tag("span", goal.series),
            tag("small", workload_rows.critical(goal)),
            type="button",
            class_="chip",
            aria_pressed="false",
            data_group=str(group_number),
        )
        for (group_number, goal), mark in zip(one.members, one.marks, strict=True)
    ]
    notes = [
        tag("p", f"{goal.series}: no curve, {goal.fitted.why_nothing}.", data_groups=str(group_number), class_="note")
        for group_number, goal in one.without
        if goal.fitted
    ]
    details = [_detail(group_number, goal) for group_number, goal in one.members]
    return tag(
        "article",
        tag("h3", one.title),
        tag("p", one.goal, class_="goal"),
        tag("div", *figures, class_="both" if several else None),
        tag("p", HINT, class_="hint") if len(chips) > 1 else "",
        tag("div", *chips, class_="chips"),
        *details,
        *notes,
        class_="panel wide" if several else "panel",
        data_groups=" ".join(dict.fromkeys(str(group_number) for group_number, _ in [*one.members, *one.without])),
    )


def _figure(at: int, one: StepsChart, name: str | None) -> Html:
    """A chart, with a caption where its panel has several."""
    of = f", {name} answers" if name else ""
    label = chart_name(f"{TITLE.lower()}, {one.title}{of}", one.goal)
    chart = tag("div", class_="chart", data_chart=str(at), role="group", aria_label=label)
    return tag("figure", tag("figcaption", name), chart) if name else chart


def _detail(group_number: int, goal: WorkloadRow) -> Html:
    """Details of a workload that is looked at."""
    answers = workload_rows.answers(goal)
    paragraphs = [tag("p", f"{words[0].upper()}{words[1:]}.") for words in workload_rows.shortcomings(goal)]
    for name, points_fit in answers:
        identified = ": identified" if points_fit.verdict == "identified" else ""
        of = f", {name}," if len(answers) > 1 else ""
        paragraphs += [
            tag("p", f"Critical batch size{of} {fits.critical_in_words(points_fit)}{identified}."),
            _regimes(points_fit),
            *_checks(points_fit.checks),
            tag("p", f"Of the points: {workload_rows.reason(goal, points_fit)}.", class_="note"),
        ]
    return tag("div", tag("h4", goal.series), *paragraphs, class_="detail", data_detail=str(group_number), hidden="")


def _regimes(points_fit: PointsFit, name: str = "") -> Html:
    """The regimes of a fit in their colours, after the name of its answers."""
    runs = [
        tag("span", words, class_=f"regime r{group_number}")
        for group_number, words in workload_rows.regimes_in_words(points_fit)
    ]
    return tag("div", *([tag("b", name)] if name else []), *runs, class_="regimes") if runs else Html("")


def _checks(checks: Sequence[Check]) -> list[Html]:
    if not checks:
        return []
    counts = Counter(check.outcome for check in checks)
    sums = ", ".join(f"{counts[outcome]} {words}" for outcome, (_, words) in OUTCOMES.items() if counts[outcome])
    items = [tag("li", *_check(check)) for check in checks]
    return [tag("details", tag("summary", f"What the fit assumes: {sums}"), tag("ul", *items, class_="checks"))]


def _check(check: Check) -> list[str]:
    """An assumption in words, and what was seen of it."""
    sign, words = OUTCOMES[check.outcome]
    assumed = f"{check.assumption}: {assumptions.ASSUMPTIONS[check.assumption]}"
    return [
        tag("span", sign, aria_hidden="true"),
        tag("b", f" {words} "),
        f"{assumed} ({check.seen.replace('_', ' ')})",
    ]


def workloads(goals: Sequence[tuple[int, WorkloadRow]]) -> Html:
    """The table of workloads with their verdicts."""
    sizes = [size for _, goal in goals for size in goal.sizes]
    ends = (min(sizes), max(sizes)) if len(set(sizes)) > 1 else (1, 2)
    rows = [_workload(group_number, goal, ends) for group_number, goal in goals]
    if not rows:
        return section("workloads", "Workloads", tag("p", "No study over batch sizes.", class_="none"))
    return section(
        "workloads",
        "Workloads and verdicts",
        _legend([points_fit for _, goal in goals for _, points_fit in workload_rows.answers(goal)]),
        table("Workloads", WORKLOADS, rows, look="workloads"),
        about=OF_WORKLOADS,
        groups=[p for p, _ in goals],
    )


def _legend(fitted: Sequence[PointsFit]) -> Html:
    """The meaning of every doubt in the table."""
    found = {name for points_fit in fitted for name in fits.doubts(points_fit)}
    pairs = [(words, meaning) for name, (words, meaning) in DOUBTS.items() if name in found]
    if not pairs:
        return Html("")
    listed = tag(
        "dl", *(tag("div", tag("dt", words), tag("dd", meaning)) for words, meaning in pairs), class_="meanings"
    )
    about = "“In doubt” beside a number names an assumption of its fit that the data do not bear out:"
    return Html(tag("p", about, class_="note") + listed)


def _workload(group_number: int, goal: WorkloadRow, ends: tuple[float, float]) -> Html:
    points_fit = goal.fitted.selected if goal.fitted else None
    one = goal.workload
    title = tag(
        "span",
        tag("button", one.optimizer, type="button", class_="show", title="show its curve"),
        tag("span", f"{one.dataset} · {one.model}"),
        *([tag("span", one.distinction)] if one.distinction else []),
        tag("span", goal.target_text),
        class_="name",
    )
    sizes = goal.sizes
    notes = [*workload_rows.shortcomings(goal), workload_rows.best_in_words(goal)]
    notes += [workload_rows.reason(goal, points_fit)] if points_fit and not points_fit.fit else []
    fits_of = dict(workload_rows.answers(goal))
    runs = [_regimes(each, name if len(fits_of) > 1 else "") for name, each in fits_of.items()]
    cells: list[Cell | str] = [
        Cell(title, f"{one.dataset} {one.model} {one.optimizer} {one.distinction}", "title"),
        number(len(sizes), f"{sizes[0]:,} … {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}"),
        number(_trials(goal)),
        *(_critical(fits_of.get(name), ends) for name in curve_fits.ANSWERS),
        Cell(join([*runs, *(tag("p", words) for words in notes if words)]), "", "words"),
    ]
    return row(cells, data_groups=str(group_number), data_look=str(group_number))


def _critical(points_fit: PointsFit | None, ends: tuple[float, float]) -> Cell:
    """A critical batch size with its interval, as a bar too, its verdict, and what is in doubt."""
    if points_fit is None or not len(points_fit.points.batch_size):
        return Cell("", "", "number")
    fit, verdict = points_fit.fit, points_fit.verdict.replace("_", " ")
    middle = fit.critical_batch_size if fit and math.isfinite(fit.critical_batch_size) else None
    words = fits.critical_in_words(points_fit) if points_fit.verdict != "not_identified" else ""
    doubts = [DOUBTS[name][0] for name in fits.doubts(points_fit)]
    parts = [tag("span", words), _extent(points_fit, ends), tag("b", verdict, class_=f"verdict {points_fit.verdict}")]
    parts += [tag("small", f"in doubt: {', '.join(doubts)}")] if doubts else []
    return Cell(join(parts), middle or "", "number")


def _extent(points_fit: PointsFit, ends: tuple[float, float]) -> Html:
    """The interval of the critical batch size as a bar between the smallest and the largest batch size on the page."""
    extent = workload_rows.extent(points_fit, ends)
    if not extent:
        return Html("")
    low, middle, high = extent
    bar = [tag("i", style=f"left:{low:.2%};width:{high - low:.2%}")]
    bar += [tag("b", style=f"left:{middle:.2%}")] if middle is not None else []
    return tag(
        "div",
        *bar,
        class_="extent",
        aria_hidden="true",
        title=f"between batch sizes {ends[0]:,} and {ends[1]:,}, in octaves",
    )


def _trials(goal: WorkloadRow) -> int:
    if goal.fitted and goal.fitted.selected.points.trials:
        return goal.fitted.selected.points.trials
    return max(commit.trials for commit in goal.workload.commits)
