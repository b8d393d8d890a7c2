"""Medians best of k in a picture: a line for every k that has a band, beside the best of all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.figures import best_of_figures
from analysis.fitting import curve_fits
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting.picture import Picture, Skipped
from analysis.trials import medians, trials

from ..conftest import BATCH_SIZES, ERROR, sweep


@pytest.fixture(scope="module")
def fitted(swept: Path) -> list[CurveFits]:
    return curve_fits.of_store(swept)


def legend(made: Picture | Skipped) -> list[str]:
    assert isinstance(made, Picture)
    found = made.figure.axes[0].get_legend()
    assert found
    return [text.get_text() for text in found.get_texts()]


def test_every_search_with_a_band_has_a_line(fitted: list[CurveFits]) -> None:
    made = list(best_of_figures.draw_searches(fitted, [2, 5, 6]))
    assert len(made) == len(fitted) == 3
    assert legend(made[0]) == [
        "median best of 2, with its 90 % band",
        "median best of 5, with its 90 % band",
        "best of all 24",
    ], "of 24 trials the best of 6 has a band without a lower end"


def test_lines_are_the_medians_of_the_table(fitted: list[CurveFits]) -> None:
    one = fitted[0]
    (made,) = best_of_figures.draw_searches([one], [5])
    assert isinstance(made, Picture)
    studies: list[Any] = list(trials.of_commits(one.curve.workload.commits, ERROR).values())
    told = {each.study.batch_size: medians.summarize(each, 24, 5).median for each in studies}
    (line,) = [each for each in made.figure.axes[0].get_lines() if str(each.get_label()).startswith("median")]
    assert np.allclose(line.get_xdata(), BATCH_SIZES)
    middles = np.array([(told[size].low + told[size].high) / 2 for size in BATCH_SIZES])
    assert np.isinf(middles[0]), "half of such searches miss the target at batch size 1: the line begins later"
    assert np.allclose(line.get_ydata(), np.where(np.isinf(middles), np.nan, middles), equal_nan=True)


def test_pruned_curves_are_named(folder: Path) -> None:
    sweep(folder, trials=6, pruning="exact")
    made = list(best_of_figures.draw_searches(curve_fits.of_store(folder), [2]))
    assert [type(each) for each in made] == [Skipped] * 3
    assert "pruning=off" in str(made[0])
