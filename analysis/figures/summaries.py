"""Summary pages. Each page shows the curve, the fit and the trials for one workload and target."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis import text
from analysis.figures import batch_figures
from analysis.fitting import curve_fits
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.fits import PointsFit
from analysis.plotting import evidence, tuning
from analysis.plotting.draw import INK
from analysis.plotting.evidence import CurveTrials
from analysis.plotting.grid import Panel
from analysis.plotting.picture import Picture, Pictures, Skipped, keep_inside
from analysis.trials import trials
from results.plans.kinds import along

# Inches.
WIDTH, LEFT, RIGHT, GAP = 9.4, 0.72, 0.12, 0.72
HEAD, MAIN, ROW, BETWEEN, FOOT = 0.62, 4.2, 1.75, 0.92, 0.56
UNDER = 1.05  # label and legend under the axes of the curve
WORDS = 2.72  # width of the text next to the curve
COLUMNS = {1: 2, 2: 2, 4: 2}  # by the number of panels; 3 for other numbers
CHARACTERS = 46  # per line of the text
SMALL = 7.6  # points
LINE = 0.147  # height of a line of text, inches
MARKS = {"pass": "✓", "doubt": "✗", "cannot tell": "?"}


def summary(curves: Sequence[CurveFits]) -> Pictures:
    """Yields one page per curve that has any points."""
    for line in curves:
        curve = line.curve
        title, goal = batch_figures.workload_title(curve), batch_figures.goal(curve)
        if not line.drawable:
            yield Skipped(f"summary of {title}, {goal}", line.why_nothing)
            continue
        of_study = trials.of_commits(curve.workload.commits, curve.target)
        studies = sorted(of_study.values(), key=lambda study: (along(study.study), study.study.name))
        yield Picture(batch_figures.file_names(curve), _page(title, goal, CurveTrials(line, studies)))


def _page(title: str, goal: str, curve_trials: CurveTrials) -> Figure:
    tuning_panels = evidence.tuning_panels(curve_trials)
    panels = tuning_panels + [draw(curve_trials) for draw in evidence.PANELS]
    words = _words(curve_trials)
    columns = COLUMNS.get(len(panels), 3)
    rows = -(-len(panels) // columns)
    first = max(MAIN, (len(words.splitlines()) + 2) * LINE)
    down = HEAD + first + rows * (ROW + BETWEEN) + FOOT
    figure = Figure(figsize=(WIDTH, down))
    FigureCanvasAgg(figure)
    subtitle = text.joined(goal, _counts(curve_trials), curve_trials.one.curve.distinction)
    figure.text(LEFT / WIDTH, 1 - 0.26 / down, title, fontsize=12, fontweight="bold", color=INK)
    figure.text(LEFT / WIDTH, 1 - 0.44 / down, textwrap.shorten(subtitle, 130, placeholder=" …"), fontsize=9, color=INK)
    across = WIDTH - LEFT - WORDS - RIGHT
    strips = 0.28 if curve_trials.one.confirmed is None else 0.56
    height = first - UNDER - 0.14 - strips
    main = figure.add_axes((LEFT / WIDTH, 1 - (HEAD + strips + height) / down, across / WIDTH, height / down))
    _curve(main, curve_trials, down)
    beside = (LEFT + across + 0.22) / WIDTH
    figure.text(beside, 1 - HEAD / down, words, fontsize=SMALL, va="top", color=INK, linespacing=1.35)
    width = (WIDTH - LEFT - RIGHT - (columns - 1) * GAP) / columns
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        bottom = down - HEAD - first - (row + 1) * (ROW + BETWEEN) + BETWEEN - 0.32
        box = (LEFT + column * (width + GAP), bottom, width, ROW)
        _fill(figure.add_axes((box[0] / WIDTH, box[1] / down, box[2] / WIDTH, box[3] / down)), panel)
    if tuning_panels:
        _symbols(figure, curve_trials)
    return figure


def _symbols(figure: Figure, curve_trials: CurveTrials) -> None:
    """Draws the legend for the metaparameter panels at the bottom of the page."""
    symbols = tuning.symbols([curve_trials.one], rates=True)
    anchor = (LEFT / WIDTH, 0.4 / figure.get_figheight())
    figure.legend(
        handles=symbols,
        loc="upper left",
        bbox_to_anchor=anchor,
        ncols=3,
        fontsize=SMALL - 0.4,
        borderaxespad=0,
        columnspacing=1.4,
    )


def _fill(ax: Axes, panel: Panel) -> None:
    ax.set_title(panel.title, fontsize=8.6, fontweight="bold", color=INK, loc="left", pad=5)
    ax.tick_params(labelsize=SMALL)
    panel.draw(ax)
    ax.xaxis.label.set_fontsize(SMALL)
    ax.yaxis.label.set_fontsize(SMALL)
    if panel.legend:
        legend = ax.legend(
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
        keep_inside(legend)


def _curve(ax: Axes, curve_trials: CurveTrials, down: float) -> None:
    """Draws selected and confirmed steps to target, with fits. ``down`` is the page height in inches."""
    batch_figures.draw_curve(ax, curve_trials.one)
    beneath = (-0.01, -0.44 / (ax.get_position().height * down))
    batch_figures.draw_legend(
        ax, fontsize=SMALL - 0.4, loc="upper left", bbox_to_anchor=beneath, ncols=3, borderaxespad=0, columnspacing=1.4
    )


def _words(curve_trials: CurveTrials) -> str:
    """Describes the verdicts of the fits, with the reasons and assumptions."""
    several = curve_trials.one.confirmed is not None
    paragraphs: list[str] = []
    for name, points_fit in curve_fits.answers(curve_trials.one):
        if paragraphs:
            paragraphs.append("")
        if several:
            paragraphs.append(name)
        paragraphs += [*_fit_lines(points_fit), ""]
        if points_fit.reason:
            paragraphs.append(points_fit.reason)
        if points_fit.checks:
            paragraphs += ["", *_assumptions(points_fit, brief=several)]
    wrapped = (textwrap.wrap(line, CHARACTERS, subsequent_indent="   ") or [""] for line in paragraphs)
    return "\n".join(line for lines in wrapped for line in lines)


def _fit_lines(points_fit: PointsFit) -> list[str]:
    pays, efficient = points_fit.extents_in_words
    lines = [
        f"pays up to: {pays}",
        f"efficient up to: {efficient}",
        f"if a hyperbola, critical batch size: {points_fit.critical_in_words}",
        f"verdict: {points_fit.verdict_in_words}",
    ]
    fit = points_fit.fit
    if fit:
        plateau = "not seen" if np.isnan(fit.s_min) else f"{fit.s_min:,.0f}"
        lines.append(f"plateau: {plateau} steps; sharpness {fit.sharpness:.2g}")
    return lines


def _assumptions(points_fit: PointsFit, *, brief: bool) -> list[str]:
    """Describes a fit's assumptions, with the observed values. With ``brief``, describes only uncertain ones."""
    shown = [check for check in points_fit.checks if not brief or check.outcome == "doubt"]
    passed = sum(check.outcome == "pass" for check in points_fit.checks)
    head = f"assumptions: {passed} of {len(points_fit.checks)} supported, {len(shown)} in doubt"
    lines = [f"{MARKS[check.outcome]} {check.assumption}: {check.seen}" for check in shown]
    return [head if brief else "assumptions:", *lines]


def _counts(curve_trials: CurveTrials) -> str:
    points = curve_trials.one.selected.points
    count = f"best of {points.trials} trials" if points.trials else ""
    return f"{count} · {'pruned' if curve_trials.one.curve.pruned else 'not pruned'}"
