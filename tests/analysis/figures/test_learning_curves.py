"""Learning curves of a study: all trials, the best so far, and the strip in which the target was crossed."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures import learning_curves
from analysis.plotting import draw
from analysis.plotting.picture import Picture, Skipped
from results import store
from results.plans.study import Target
from results.rules.confirmation import APART

from ...results import by_hand
from ..conftest import ERROR, Ran, plan, publish

TRIALS = {
    0: Ran([(1, 0.9), (2, 0.6), (4, 0.3), (8, 0.05)]),
    1: Ran([(1, 0.8), (2, 0.7), (4, 0.08)]),
    2: Ran([(1, 0.5), (2, np.nan)], "INFEASIBLE"),
    APART + 1: Ran([(1, 0.01)]),
}


def drawn(folder: Path, trials: dict[int, Ran] = TRIALS, target: Target = ERROR) -> Picture | Skipped:
    publish(folder, plan(trials=3, confirm=1), trials)
    (commit,) = store.catalogue(folder)
    (made,) = learning_curves.draw_study(commit, target)
    return made


def axes_of(made: Picture | Skipped) -> Axes:
    assert isinstance(made, Picture)
    return made.figure.axes[0]


def lines(ax: Axes, color: str) -> list[Any]:
    return [line for line in ax.get_lines() if line.get_color() == color and line.get_linestyle() == "-"]


def test_the_best_so_far_is_of_the_search_alone() -> None:
    rows = pd.DataFrame({"step": [1, 2, 4, 1, 2, 4], "error": [0.9, 0.6, 0.7, 0.8, np.nan, 0.5]})
    assert learning_curves.best_so_far(rows, "error").to_dict("list") == {"step": [1, 2, 4], "error": [0.8, 0.6, 0.5]}


def test_every_trial_is_a_line_and_repeats_are_another_colour(folder: Path) -> None:
    ax = axes_of(drawn(folder))
    (best,) = lines(ax, learning_curves.BEST)
    assert np.allclose(best.get_xdata(), [1, 2, 4, 8])
    assert np.allclose(best.get_ydata(), [0.5, 0.5, 0.08, 0.05])
    assert len(lines(ax, learning_curves.TRIAL["color"])) == 3
    (repeat,) = lines(ax, learning_curves.AGAIN)
    assert np.allclose(repeat.get_ydata(), [0.01])


def test_the_strip_is_the_interval_of_the_answer(folder: Path) -> None:
    made = drawn(folder)
    legend = axes_of(made).get_legend()
    assert legend
    named = [text.get_text() for text in legend.get_texts()]
    assert "trial 1 was first: (2, 4]" in named
    assert "diverged soon after (1)" in named
    (strip,) = axes_of(made).patches
    assert np.allclose(strip.get_extents().transformed(axes_of(made).transData.inverted()).intervalx, [2, 4])
    (cross,) = [line for line in axes_of(made).get_lines() if line.get_marker() == "x"]
    assert np.allclose(cross.get_xydata(), [[1, 0.5]])


def test_a_target_that_nobody_reached_has_no_strip(folder: Path) -> None:
    ax = axes_of(drawn(folder, target=Target("test_error", 0.001)))
    assert not ax.patches
    assert np.allclose([line.get_ydata()[0] for line in ax.get_lines() if line.get_color() == draw.INK], 0.001)


def test_what_was_not_measured_is_named(folder: Path) -> None:
    made = drawn(folder, target=Target("test_loss", 1.0))
    assert isinstance(made, Skipped)
    assert "did not measure test_loss" in str(made)


def test_a_study_without_a_number_is_named(folder: Path) -> None:
    made = drawn(folder, {0: Ran([(1, np.nan)], "INFEASIBLE")})
    assert isinstance(made, Skipped)
    assert "no trial measured anything" in str(made)


def test_curves_that_begin_at_step_0(folder: Path) -> None:
    study = by_hand.study()
    by_hand.publish(folder, study, {1: by_hand.Ran("COMPLETE", [(0, 0.9), (4, 0.5), (16, 0.1)])})
    (commit,) = store.catalogue(folder)
    (made,) = learning_curves.draw_study(commit, Target(by_hand.METRIC, 0.5))
    ax = axes_of(made)
    assert ax.get_xlim() == (4 / 1.25, 16 * 1.25)
    (made,) = learning_curves.draw_study(commit, Target(by_hand.METRIC, 0.95))
    legend = axes_of(made).get_legend()
    assert legend
    assert "trial 1 was first: [0, 0]" in [text.get_text() for text in legend.get_texts()]
    axes_of(made).figure.canvas.draw()
