"""Summaries: all that a store says of a workload and a target, on one page."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.figures import batch_figures
from analysis.fitting import fits, pairs
from analysis.fitting.fits import Judged
from analysis.fitting.pairs import Fitted
from analysis.plotting import evidence, tuning
from analysis.plotting.draw import INK
from analysis.plotting.evidence import Evidence, Panel
from analysis.plotting.picture import Picture, Skipped
from analysis.trials import trials

# Inches.
WIDTH, LEFT, RIGHT, GAP = 9.4, 0.72, 0.12, 0.72
HEAD, MAIN, ROW, BETWEEN, FOOT = 0.62, 3.9, 1.75, 0.92, 0.56
UNDER = 0.75  # the axes of the curve: its label and its legend
WORDS = 2.72  # of the width: what is said beside the curve
COLUMNS = {1: 2, 2: 2, 4: 2}  # of so many panels; of others 3
CHARACTERS = 46  # of a line beside the curve
SMALL = 7.6  # points
LINE = 0.147  # of what is said beside the curve, inches
MARKS = {"pass": "✓", "doubt": "✗", "cannot tell": "?"}


def summary(found: Sequence[Fitted]) -> Iterator[Picture | Skipped]:
    """One page per curve that has a point."""
    for one in found:
        curve = one.curve
        title = f"{curve.dataset} · {curve.model} · {curve.optimizer}"
        goal = f"{curve.target.metric} ≤ {curve.target.value:g}"
        if not len(one.judged.points.batch_size):
            why = one.judged.points.refusal or "no trial reached the target at any batch size"
            yield Skipped(f"summary of {title}, {goal}", why)
            continue
        of_study = trials.of_commits(one.commits, curve.target)
        studies = sorted(of_study.values(), key=lambda each: (each.study.batch_size or 0, each.study.name))
        page = Evidence(one, studies)
        yield Picture((curve.dataset, curve.model, curve.optimizer, *goal.split(" ≤ ")), _page(title, goal, page))


def _page(title: str, goal: str, page: Evidence) -> Figure:
    tuned = evidence.tuned(page)
    panels = [*tuned, evidence.success(page), evidence.ledger(page), evidence.confirmed(page)]
    words = _words(page)
    columns = COLUMNS.get(len(panels), 3)
    rows = -(-len(panels) // columns)
    first = max(MAIN, (len(words.splitlines()) + 2) * LINE)
    down = HEAD + first + rows * (ROW + BETWEEN) + FOOT
    figure = Figure(figsize=(WIDTH, down))
    FigureCanvasAgg(figure)
    told = " · ".join(filter(None, [goal, _counts(page), page.one.curve.distinction]))
    figure.text(LEFT / WIDTH, 1 - 0.26 / down, title, fontsize=12, fontweight="bold", color=INK)
    figure.text(LEFT / WIDTH, 1 - 0.44 / down, textwrap.shorten(told, 130, placeholder=" …"), fontsize=9, color=INK)
    across = WIDTH - LEFT - WORDS - RIGHT
    strips = 0.28 * (1 + (page.one.confirmed is not None))
    height = first - UNDER - 0.14 - strips
    main = figure.add_axes((LEFT / WIDTH, 1 - (HEAD + strips + height) / down, across / WIDTH, height / down))
    _curve(main, page, down)
    beside = (LEFT + across + 0.22) / WIDTH
    figure.text(beside, 1 - HEAD / down, words, fontsize=SMALL, va="top", color=INK, linespacing=1.35)
    width = (WIDTH - LEFT - RIGHT - (columns - 1) * GAP) / columns
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        bottom = down - HEAD - first - (row + 1) * (ROW + BETWEEN) + BETWEEN - 0.32
        box = (LEFT + column * (width + GAP), bottom, width, ROW)
        _fill(figure.add_axes((box[0] / WIDTH, box[1] / down, box[2] / WIDTH, box[3] / down)), panel)
    if tuned:
        _symbols(figure, page)
    return figure


def _symbols(figure: Figure, page: Evidence) -> None:
    """What the panels of metaparameters show, at the foot of the page."""
    symbols = tuning.symbols(rates=True, critical=page.one.judged.verdict == "identified")
    at = (LEFT / WIDTH, 0.4 / figure.get_figheight())
    options: dict[str, Any] = {"ncols": 3, "fontsize": SMALL - 0.4, "borderaxespad": 0, "columnspacing": 1.4}
    figure.legend(handles=symbols, loc="upper left", bbox_to_anchor=at, **options)


def _fill(ax: Axes, panel: Panel) -> None:
    ax.set_title(panel.title, fontsize=8.6, fontweight="bold", color=INK, loc="left", pad=5)
    ax.tick_params(labelsize=SMALL)
    panel.draw(ax)
    ax.xaxis.label.set_fontsize(SMALL)
    ax.yaxis.label.set_fontsize(SMALL)
    if panel.legend:
        ax.legend(
            handles=list(panel.legend),
            loc="upper left",
            bbox_to_anchor=(-0.04, -0.25),
            ncols=3,
            fontsize=SMALL - 0.6,
            borderaxespad=0,
            columnspacing=1.0,
            handlelength=1.4,
            handletextpad=0.5,
        )


def _curve(ax: Axes, page: Evidence, down: float) -> None:
    """Steps to target as selected and as confirmed, with fits; the page is so many inches ``down``."""
    batch_figures.draw_curve(ax, page.one)
    beneath = (-0.01, -0.44 / (ax.get_position().height * down))
    where = {"loc": "upper left", "bbox_to_anchor": beneath, "ncols": 4, "borderaxespad": 0, "columnspacing": 1.4}
    batch_figures.legend(ax, fontsize=SMALL - 0.4, **where)


def _words(page: Evidence) -> str:
    """What the fit says, what it assumes, and what else there is to know."""
    several = page.one.confirmed is not None
    told: list[str] = []
    for name, judged in pairs.answers(page.one):
        told += ["", name] if told else [name] if several else []
        told += _of_fit(judged)
        told += ["", *([judged.reason] if judged.reason else [])]
        told += ["", *_assumed(judged, brief=several)] if judged.checks else []
    wrapped = [textwrap.wrap(line, CHARACTERS, subsequent_indent="   ") or [""] for line in told]
    return "\n".join(line for lines_ in wrapped for line in lines_)


def _of_fit(judged: Judged) -> list[str]:
    told = [f"critical batch size: {fits.critical_in_words(judged)}", f"verdict: {judged.verdict.replace('_', ' ')}"]
    fit = judged.fit
    return [*told, f"plateau: {_number(fit.s_min)} steps; sharpness {fit.sharpness:.2g}"] if fit else told


def _assumed(judged: Judged, *, brief: bool) -> list[str]:
    """What a fit assumes and what was seen of it; if ``brief``, of what is in doubt."""
    shown = [check for check in judged.checks if not brief or check.outcome == "doubt"]
    passed = sum(check.outcome == "pass" for check in judged.checks)
    head = f"assumed: {passed} of {len(judged.checks)} borne out, {len(shown)} in doubt" if brief else "assumed:"
    return [head, *(f"{MARKS[check.outcome]} {check.assumption}: {check.seen}" for check in shown)]


def _counts(page: Evidence) -> str:
    points = page.one.judged.points
    told = f"best of {points.trials} trials" if points.trials else ""
    return f"{told} · {'pruned' if page.one.curve.pruned else 'not pruned'}"


def _number(value: float) -> str:
    return "not seen" if np.isnan(value) else f"{value:,.0f}"
