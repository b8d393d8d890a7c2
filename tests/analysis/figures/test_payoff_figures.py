"""Pictures of pay-off: what can be read off them."""

import itertools

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.figures import payoff_figures
from analysis.fitting import points_file
from analysis.payoff import answers, step_times, subjects
from analysis.payoff.step_times import MEASURED, StepTimes
from analysis.plotting import picture, ticks

SIZES = 2.0 ** np.arange(11)


@pytest.fixture(autouse=True)
def in_our_look():
    with matplotlib.rc_context(picture.SETTINGS):
        yield


def drawn(unit=1.0, gain=0.2):
    """The picture of a curve whose steps were timed on one device: measured there, predicted on more."""
    points_fit = points_file.of_steps(pd.Series(SIZES), pd.Series(50 * (1 + 64 / SIZES)))
    width, one = np.full(len(SIZES), 0.05), np.ones(len(SIZES))
    seconds = unit * (0.1 + 1e-3 * SIZES)
    times = StepTimes("X", MEASURED, "", one, SIZES, seconds, width, width, np.zeros(2))
    subject = subjects.Subject({"dataset": "d"}, "d", points_fit, (), (times,))
    (one,) = payoff_figures.pictures(answers.answers([subject], gain))
    return one.figure


def labels(axis):
    axis.figure.canvas.draw()
    low, high = axis.get_view_interval()
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label.get_text() for at, label in ticks if low <= at <= high and label.get_text()]


@pytest.mark.parametrize("unit", [1e-7, 2e-6, 1e-4, 1.0, 3e5])
def test_every_axis_has_two_numbers_or_more_that_do_not_overlap(unit):
    figure = drawn(unit)
    for ax in figure.axes:
        assert len(labels(ax.xaxis)) >= 2 and len(labels(ax.yaxis)) >= 2
        ends = [label.get_window_extent() for label in ax.xaxis.get_majorticklabels() if label.get_text()]
        inside = sorted((box.x0, box.x1) for box in ends if ax.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= ax.bbox.x1 + 1)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(inside))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((1.3e-5, 9e-4), ["2·10⁻⁵", "5·10⁻⁵", "10⁻⁴", "2·10⁻⁴", "5·10⁻⁴"]),
        ((0.013, 0.9), ["0.02", "0.05", "0.1", "0.2", "0.5"]),
        ((0.3, 3.0), ["0.5", "1", "2"]),
        ((0.005, 2.0), ["0.01", "0.1", "1"]),
        ((5e-6, 2e-3), ["10⁻⁵", "10⁻⁴", "10⁻³"]),
    ],
)
def test_decades_are_ticks_where_there_are_two(limits, expected):
    ax = Figure().add_subplot()
    ax.set_yscale("log")
    ax.set_ylim(limits)
    ticks.in_decades(ax.yaxis, limits)
    assert labels(ax.yaxis) == expected


def test_single_device_measurements_lie_within_predictions():
    for ax in drawn().axes:
        lines = [line for line in ax.get_lines() if len(line.get_xdata())]
        (filled,) = [line for line in lines if line.get_marker() == "o"]
        (hollow,) = [line for line in lines if line.get_marker() == "s"]
        assert filled.get_xydata().tolist() == [hollow.get_xydata()[0].tolist()]
        assert filled.get_zorder() > hollow.get_zorder()
        assert filled.get_markersize() < hollow.get_markersize() - hollow.get_markeredgewidth()
        assert hollow.get_markerfacecolor() == "white" != filled.get_markerfacecolor()


def test_measured_and_predicted_are_lines_of_their_own():
    figure = drawn()
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told[0] == "measured: unknown"
    assert told[1].startswith(f"predicted by {step_times.WITHOUT_COMMUNICATION}: pays off up to ")
    assert told[2:] == ["perfect scaling"]


def test_published_times_have_marks_and_a_line_of_their_own():
    points_fit = points_file.of_steps(pd.Series(SIZES), pd.Series(50 * (1 + 64 / SIZES)))
    width, seconds = np.full(len(SIZES), 0.05), np.full(len(SIZES), 0.1)
    times = [
        StepTimes("X", basis, "", SIZES, SIZES, factor * seconds, width, width, np.zeros(2))
        for basis, factor in zip(step_times.BASES, (1, 3, 9), strict=True)
    ]
    subject = subjects.Subject({"dataset": "d"}, "d", points_fit, (), tuple(times))
    (one,) = payoff_figures.pictures(answers.answers([subject]))
    told = [text.get_text().split(":")[0].split()[0] for text in one.figure.legends[0].get_texts()]
    assert told == [*step_times.BASES, "perfect"]
    lines = [line for line in one.figure.axes[0].get_lines() if line.get_marker() not in ("None", "")]
    assert len(lines) == len({line.get_marker() for line in lines}) == len({line.get_color() for line in lines}) == 3
    firsts = [line.get_ydata()[0] for line in lines]
    assert firsts == pytest.approx([firsts[0], 3 * firsts[0], 9 * firsts[0]])


def test_a_gain_is_told_as_it_was_asked_for():
    assert "trains at least 99.9 % faster" in drawn(gain=0.999).texts[1].get_text()
