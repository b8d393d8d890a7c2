"""The forest plot of Shallue et al. 2018: its numbers against plain code, and its drawing against its numbers."""

import csv
import math
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Annotation
from scipy import optimize

from analysis.figures import forest_figures, registry
from analysis.payoff import answers, subjects
from analysis.plotting import picture

from ..conftest import Ran, plan, publish

POINTS = Path(__file__).parents[3] / "results" / "papers" / "points.csv"
GAIN = 1.2
WITHIN = 1.1  # factor between estimates: the plain fit below has one shape of knee


@pytest.fixture(scope="module")
def rows():
    return forest_figures.rows(answers.answers(subjects.of_paper("shallue2018")))


@pytest.fixture(scope="module")
def figure():
    with matplotlib.rc_context(picture.SETTINGS):
        (one,) = forest_figures.of_paper()
    assert one.names == ("shallue2018",)
    one.figure.canvas.draw()
    return one.figure


def published():
    """Batch sizes and steps of each workload, read without our code."""
    found = defaultdict(list)
    with POINTS.open() as file:
        for row in csv.DictReader(file):
            if row["source"] == "shallue2018" and row["steps"] and row["batch_size"]:
                found[row["panel"]].append((float(row["batch_size"]), float(row["steps"])))
    return found


def last_doubling(points):
    """The larger batch size of the last doubling that gains 20 %, by least squares on three parameters.

    As in the product, the curve is straight between the batch sizes that were tried.
    """

    def ln_steps(ln_batch, ln_least, ln_critical, ln_sharpness):
        sharpness = math.exp(ln_sharpness)
        return ln_least + np.logaddexp(0, sharpness * (ln_critical - ln_batch)) / sharpness

    batch, steps = np.log(np.array(sorted(points)).T)
    start = [steps.min(), np.median(batch), 0.0]
    fitted, _ = optimize.curve_fit(ln_steps, batch, steps, p0=start, maxfev=20_000)

    at_points = ln_steps(batch, *fitted)

    def excess(ln_batch):
        gain = np.interp(ln_batch, batch, at_points) - np.interp(ln_batch + math.log(2), batch, at_points)
        return gain - math.log(GAIN)

    end = batch[-1] - math.log(2)
    return math.inf if excess(end) > 0 else 2 * math.exp(optimize.brentq(excess, batch[0], end))


def test_intervals_hold_the_numbers_of_a_plain_fit(rows):
    plain = {label: last_doubling(points) for label, points in published().items()}
    assert {row.label for row in rows} == set(plain) and len(plain) == 9
    for row in rows:
        if row.answer.verdict == "identified":
            assert 1 / WITHIN < row.answer.best / plain[row.label] < WITHIN
            assert row.answer.low < plain[row.label] < row.answer.high
        else:
            assert row.answer.verdict == "at_least"
            assert row.answer.low < plain[row.label]
    assert sum(row.answer.verdict == "at_least" for row in rows) == 3


def test_rows_rise_and_end_at_the_largest_published_batch_size(rows):
    places = [row.answer.best if row.answer.verdict == "identified" else row.answer.low for row in rows]
    assert places == sorted(places)
    assert {row.label: row.largest for row in rows} == {
        label: max(batch for batch, _ in points) for label, points in published().items()
    }


def test_bars_and_arrows_are_at_their_numbers(figure, rows):
    (ax,) = figure.axes
    lines = [line for line in ax.get_lines() if len(line.get_xdata())]
    bars = {line.get_ydata()[0]: list(line.get_xdata()) for line in lines if len(line.get_xdata()) == 2}
    dots = {line.get_ydata()[0]: line.get_xdata()[0] for line in lines if line.get_marker() == "o"}
    arrows = {each.xyann[1]: each.xyann[0] for each in ax.texts if isinstance(each, Annotation) and each.arrow_patch}
    for y, row in enumerate(rows):
        if row.answer.verdict == "identified":
            assert (bars[y], dots[y]) == ([row.answer.low, row.answer.high], row.answer.best)
        else:
            assert arrows[y] == row.answer.low
    assert len(bars) + len(arrows) == len(dots) + len(arrows) == len(rows)


def test_words_lie_inside_the_picture_and_do_not_overlap(figure):
    (ax,) = figure.axes
    words = [each for each in (*figure.texts, *ax.texts, *figure.legends[0].get_texts()) if each.get_text()]
    ticks = [label for label in ax.get_xticklabels() if label.get_text()]
    boxes = [each.get_window_extent() for each in (*words, *ticks, ax.xaxis.label)]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0 for box in boxes)
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
    powers = [math.log2(float(label.get_text().replace(",", ""))) for label in ticks]
    assert powers == [float(power) for power in range(8, 17)]


def test_an_answer_in_doubt_is_hollow_and_dashed_and_says_so(rows):
    doubted = [row._replace(in_doubt=True) for row in rows]
    drawn = forest_figures._picture(doubted, 0.2)
    (ax,) = drawn.axes
    dots = [line for line in ax.get_lines() if line.get_marker() == "o" and len(line.get_xdata())]
    bars = [line for line in ax.get_lines() if len(line.get_xdata()) == 2]
    assert len(dots) == len(bars) == sum(row.answer.verdict == "identified" for row in rows)
    assert all(dot.get_markerfacecolor() == "white" for dot in dots)
    assert all(bar.is_dashed() for bar in bars)
    assert sum(each.get_text().endswith(", in doubt") for each in ax.texts) == len(rows)
    assert [each.get_text() for each in drawn.legends[0].get_texts()][-1] == "in doubt"
    assert not any(row.in_doubt for row in rows), "published points have no trials, so no search is in doubt"


def test_it_is_drawn_by_its_name_whatever_the_store_holds(tmp_path, cli, folder):
    publish(folder, plan(), {0: Ran([(1, 0.5)])})
    code, out, err = cli("figures", "--store", folder, "--out", tmp_path, "--name", "payoff_paper")
    assert (code, err) == (0, "")
    assert [Path(line).name for line in out.splitlines()] == [
        f"payoff_paper-shallue2018.{kind}" for kind in ("png", "svg")
    ]
    assert registry.FIGURES["payoff_paper"].source == registry.PUBLISHED
