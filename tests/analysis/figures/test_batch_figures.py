"""Figures of studies of batch sizes, of the release: nothing that is written leaves the picture."""

import itertools
from pathlib import Path

import matplotlib as mpl
import pytest

from analysis.figures import batch_figures
from analysis.fitting import curve_fits
from analysis.fitting.curve_fits import CurveFits
from analysis.plotting.picture import SETTINGS, Picture

RELEASE = Path(__file__).parents[3] / "results" / "published"


@pytest.fixture(scope="module")
def fitted() -> list[CurveFits]:
    return curve_fits.of_store(RELEASE)


@pytest.mark.slow
def test_legends_and_titles_lie_within_the_picture_and_critical_batch_sizes_apart(fitted: list[CurveFits]) -> None:
    with mpl.rc_context(SETTINGS):
        drawn = [*batch_figures.steps_to_target(fitted), *batch_figures.optimizers(fitted)]
    pictures = [each for each in drawn if isinstance(each, Picture)]
    assert len(pictures) > 30
    for names, figure in pictures:
        words = [*figure.texts, *figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
        for box in (each.get_window_extent() for each in words):
            inside = box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0 and box.y1 <= figure.bbox.height
            assert inside, (names, box, figure.bbox)
        texts = [each for ax in figure.axes for each in ax.texts]
        told = [each for each in texts if each.get_text().startswith(("selected:", "confirmed:"))]
        boxes = [each.get_window_extent() for each in told]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2)), names


@pytest.mark.slow
def test_bars_from_the_start_of_training_do_not_stretch_the_axes(fitted: list[CurveFits]) -> None:
    cnn = [one for one in fitted if one.curve.model.startswith("simple_cnn")]
    assert any((one.selected.points.low == 0).any() for one in cnn)
    for picture in batch_figures.optimizers(cnn):
        assert isinstance(picture, Picture)
        assert all(ax.get_ylim()[0] > 4 for ax in picture.figure.axes)
