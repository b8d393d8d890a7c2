"""The picture of GPT-3's published runs: its numbers against the file, and its texts against each other."""

import csv
import itertools

import matplotlib
import numpy as np
import pytest

from analysis.figures import payoff_figures, registry, run_figures
from analysis.plotting import picture
from results.papers import published_numbers


@pytest.fixture(scope="module")
def figure():
    with matplotlib.rc_context(picture.SETTINGS):
        (one,) = run_figures.of_gpt3()
    assert one.names == ("gpt3",)
    one.figure.canvas.draw()
    return one.figure


def published():
    with (published_numbers.FOLDER / "gpt3_runs.csv").open() as file:
        return [(float(row["chips"]), float(row["minutes"])) for row in csv.DictReader(file)]


def test_every_run_is_drawn_in_minutes_and_in_chip_hours(figure):
    left, right = figure.axes
    for ax, of_run in ((left, lambda chips, minutes: minutes), (right, lambda chips, minutes: chips * minutes / 60)):
        dashes = np.concatenate([line.get_xydata() for line in ax.get_lines() if line.get_marker() == "_"])
        expected = [(chips, of_run(chips, minutes)) for chips, minutes in published()]
        np.testing.assert_allclose(sorted(dashes.tolist()), sorted(expected), rtol=1e-6)


def test_gains_and_answers_are_written(figure):
    gains = [text.get_text() for text in figure.axes[0].texts]
    assert sorted(gains) == sorted(["+102%", "+92%", "+82%", "+105%", "+82%"])
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == [
        "TPU v5p, published: pays off up to at least 4,096 chips",
        "TPU v5e, published: unknown",
        "TPU v6e, published: pays off up to at least 2,048 chips",
        "one run",
        "perfect scaling",
    ]


def test_published_marks_are_their_own(figure):
    marks = {basis: look.marker for basis, look in payoff_figures.LOOKS.items()}
    assert len(set(marks.values())) == 3
    lines = [line for ax in figure.axes for line in ax.get_lines() if line.get_marker() not in ("_", "None", "")]
    assert {line.get_marker() for line in lines} == {marks["published"]}


def test_no_text_is_cut_or_overlaps(figure):
    left, right = figure.axes
    gains = [text.get_window_extent() for text in left.texts]
    for one, other in itertools.combinations(gains, 2):
        assert not one.overlaps(other)
    title = max(figure.texts, key=lambda text: -text.get_window_extent().y0).get_window_extent()
    every = [*gains, *(text.get_window_extent() for text in figure.texts), figure.legends[0].get_window_extent()]
    for box in every:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
    tick = right.yaxis.get_majorticklabels()[0].get_window_extent()
    assert right.yaxis.label.get_window_extent().x1 < tick.x0
    assert left.bbox.y1 < title.y0


def test_it_is_a_figure_of_published_numbers():
    row = registry.FIGURES["payoff_gpt3"]
    assert (row.source, row.function) == (registry.PUBLISHED, "analysis.figures.run_figures.of_gpt3")
    assert "payoff_gpt3" in registry.store_figures()
