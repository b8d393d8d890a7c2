"""Figures of studies of batch sizes: curves, learning curves, and all of a curve on one page."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from analysis.figures import batch_figures, learning_curves, summaries
from analysis.fitting import curve_fits, fits, points_file
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.extents import Extent
from analysis.fitting.shapes import Check
from analysis.plotting import draw, evidence, tuning, verdict_marks
from analysis.plotting.picture import SETTINGS, Picture, Skipped
from analysis.plotting.verdict_marks import LabelledFit
from results import store
from results.plans.study import Target
from results.rules.confirmation import APART

from ...results import by_hand
from ..conftest import BATCH_SIZES, ERROR, Ran, plan, publish, sweep

RELEASE = Path(__file__).parents[3] / "results" / "published"
TRIALS = {
    0: Ran([(1, 0.9), (2, 0.6), (4, 0.3), (8, 0.05)]),
    1: Ran([(1, 0.8), (2, 0.7), (4, 0.08)]),
    2: Ran([(1, 0.5), (2, np.nan)], "INFEASIBLE"),
    APART + 1: Ran([(1, 0.01)]),
}


@pytest.fixture(scope="module")
def of_release() -> list[CurveFits]:
    return curve_fits.of_store(RELEASE)


@pytest.mark.slow
def test_legends_and_titles_stay_within_the_picture(of_release: list[CurveFits]) -> None:
    with mpl.rc_context(SETTINGS):
        drawn = [*batch_figures.steps_to_target(of_release), *batch_figures.optimizers(of_release)]
    pictures = [each for each in drawn if isinstance(each, Picture)]
    assert len(pictures) > 30
    for names, figure in pictures:
        words = [*figure.texts, *figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
        for box in (each.get_window_extent() for each in words):
            inside = box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0 and box.y1 <= figure.bbox.height
            assert inside, (names, box, figure.bbox)
        texts = [each for ax in figure.axes for each in ax.texts]
        told = [each for each in texts if each.get_text().startswith(("selected: pays", "confirmed: pays"))]
        boxes = [each.get_window_extent() for each in told]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2)), names


@pytest.mark.slow
def test_bars_from_the_start_of_training_do_not_stretch_the_axes(of_release: list[CurveFits]) -> None:
    cnn = [one for one in of_release if one.curve.model.startswith("simple_cnn")]
    assert any((one.selected.points.low == 0).any() for one in cnn)
    for picture in batch_figures.optimizers(cnn):
        assert isinstance(picture, Picture)
        assert all(ax.get_ylim()[0] > 4 for ax in picture.figure.axes)


@pytest.fixture(scope="module")
def fitted(swept: Path) -> list[CurveFits]:
    return curve_fits.of_store(swept)


def legend(made: Picture | Skipped) -> list[str]:
    assert isinstance(made, Picture)
    found = made.figure.axes[0].get_legend()
    assert found
    return [text.get_text() for text in found.get_texts()]


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
    assert "trial 1 reached it first: (2, 4]" in named
    assert "diverged afterwards (1)" in named
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
    assert "there are no finite measurements" in str(made)


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
    assert "trial 1 reached it first: [0, 0]" in [text.get_text() for text in legend.get_texts()]
    axes_of(made).figure.canvas.draw()


def pages(folder: Path) -> list[Picture | Skipped]:
    return list(summaries.summary(curve_fits.of_store(folder)))


def panels(made: Picture | Skipped) -> dict[str, Axes]:
    assert isinstance(made, Picture)
    return {ax.get_title(loc="left"): ax for ax in made.figure.axes}


def words(made: Picture | Skipped) -> str:
    assert isinstance(made, Picture)
    return "\n".join(text.get_text() for text in made.figure.texts)


@pytest.fixture
def confirmed(folder: Path) -> Path:
    """A store of a curve whose best trials take twice as long when they are run again, and never at batch size 2."""
    for i, batch_size in enumerate(BATCH_SIZES):
        best = max(8, 512 // batch_size)
        search = {0: Ran([(best - 1, 0.5), (best, 0.05)]), 1: Ran([(best, 0.5), (3 * best, 0.05)])}
        again = Ran([(2 * best - 1, 0.5), (2 * best, 0.05)]) if i != 1 else Ran([(2 * best, 0.5), (4096, 0.5)])
        diverged = {2: Ran([(2, np.nan)], "INFEASIBLE")}
        publish(folder, plan(trials=4, batch_size=batch_size, confirm=1), search | diverged | {APART: again})
    return folder


def test_study_page_has_curve_metaparameters_ledger_and_reruns(confirmed: Path) -> None:
    (page,) = pages(confirmed)
    assert isinstance(page, Picture)
    assert page.names == ("digits", "fully_connected_64", "sgd", "test_error", "0.1")
    found = panels(page)
    assert list(found) == [
        *("", "share of trials that reached (90 %)", "endings of 55 planned trials"),
        "confirmed over selected steps",
    ]
    share = found["share of trials that reached (90 %)"].lines[0].get_ydata()
    assert np.allclose(share, 2 / 3)
    legend = found["endings of 55 planned trials"].get_legend()
    assert legend and [text.get_text() for text in legend.get_texts()] == ["complete", "infeasible", "missing"]
    tops = {round(bar.get_y() + bar.get_height()) for bar in found["endings of 55 planned trials"].patches}
    assert max(tops) == 5, "two complete and one repeat, one infeasible, one missing"
    again = found["confirmed over selected steps"]
    ratios = [float(line.get_ydata()[0]) for line in again.lines if line.get_marker() == "s"]
    assert len(ratios) == len(BATCH_SIZES) - 1
    assert 2 < min(ratios) <= max(ratios) < 2.1, "(2 n - 1, 2 n] over (n - 1, n]"
    assert [line.get_marker() for line in again.lines].count("^") == 1
    labels = [text.get_text() for text in found[""].get_legend().get_texts()]
    assert labels[:3] == [
        *("selected, and fit", "confirmed: median, range, and fit", "confirmed: median never reached")
    ]
    assert words(page).count("verdict: ") == words(page).count("assumptions: ") == 2
    assert "best of 3 trials · not pruned" in words(page)


def test_a_pruned_curve_says_what_it_does_not_know(folder: Path) -> None:
    sweep(folder, trials=6, pruning="exact")
    made = pages(folder)
    assert len(made) == 3
    for page in made:
        found = panels(page)
        (unknown,) = found["share of trials that reached"].texts
        assert "pruned" in unknown.get_text()
        (unconfirmed,) = found["confirmed over selected steps"].texts
        assert "confirm=6" in unconfirmed.get_text()
        labels = [text.get_text() for text in found[""].get_legend().get_texts()]
        assert labels[0] == "measured, and fit" and not [label for label in labels if "confirmed" in label]


def test_nothing_is_drawn_of_nothing(folder: Path) -> None:
    publish(folder, plan(trials=1), {0: Ran([(4096, 0.5)])})
    (skipped,) = pages(folder)
    assert isinstance(skipped, Skipped)
    assert "no trial reached the target" in skipped.why


def test_words_beside_the_curve_make_room_for_themselves(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = curve_fits.of_store(swept)[0]
    (page,) = summaries.summary([one])
    long = one._replace(selected=one.selected._replace(reason="a reason that goes on and on; " * 40))
    (longer,) = summaries.summary([long])
    assert isinstance(page, Picture) and isinstance(longer, Picture)
    assert longer.figure.get_figheight() > page.figure.get_figheight() + 1
    beside, first = longer.figure.texts[2], longer.figure.axes[1]
    box = beside.get_window_extent(longer.figure.canvas.get_renderer())  # type: ignore[attr-defined]
    assert box.y0 > first.get_position().y1 * longer.figure.bbox.height


def test_the_command_writes_pages(swept: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = cli("figures", "--store", swept, "--out", tmp_path, "--name", "summary")
    assert (code, err) == (0, "")
    assert sorted(Path(line).suffix for line in out.split()) == [".png"] * 3 + [".svg"] * 3


def answer(pays: Extent, doubted: str = "") -> LabelledFit:
    """An answer with this extent. A check of the assumption ``doubted`` failed."""
    points_fit = points_file.of_steps(pd.Series(2.0 ** np.arange(11)), pd.Series(50 * (1 + 64 / 2.0 ** np.arange(11))))
    assert points_fit.extents and points_fit.fit
    checks = (Check(doubted, "seen", "doubt"),) if doubted else ()
    extents = points_fit.extents._replace(pays=pays)
    return LabelledFit("", "k", points_fit._replace(extents=extents, checks=checks))


def test_an_interval_of_a_share_by_its_definition() -> None:
    assert evidence.share_interval(0, 0, 10) == (0.0, pytest.approx(1 - 0.05**0.1))
    assert evidence.share_interval(10, 0, 10) == (pytest.approx(0.05**0.1), 1.0)
    low, high = evidence.share_interval(3, 0, 10)
    assert stats.binom.sf(2, 10, low) == pytest.approx(0.05)
    assert stats.binom.cdf(3, 10, high) == pytest.approx(0.05)
    assert evidence.share_interval(3, 2, 10) == (low, evidence.share_interval(5, 0, 10)[1])


PAYS = Extent(100.0, 64.6, 245.0, "identified")


@pytest.mark.parametrize("doubted", ["", "perfect scaling", *fits.OF_SEARCH])
def test_an_answer_in_doubt_is_hollow_and_dashed_and_says_so(doubted: str) -> None:
    one = answer(PAYS, doubted)
    of_search = doubted in fits.OF_SEARCH  # doubts about the shape do not concern answers for any shape
    words = "100 [64.6, 245]" + ", in doubt" * of_search
    assert one.points_fit.pays_in_words == one.points_fit.extents_in_words[0] == words
    figure = Figure()
    ax = figure.add_subplot()
    draw.batch_size_axes(ax, [1, 1024], [50, 3250], "tokens")
    assert ax.get_xlabel() == "batch size (tokens)"
    verdict_marks.answers(ax, [one])
    assert [each.get_text() for each in ax.texts] == [f"pays up to {words}"]
    lines = {str(line.get_label()): line for line in ax.get_lines()}
    (knee,) = [label for label in lines if label.startswith(verdict_marks.KNEE)]
    assert knee.endswith(", in doubt") == bool(doubted), "every doubt concerns the critical batch size"
    assert (lines[knee].get_markerfacecolor() == "white") == bool(doubted)
    (bar,) = [line for line in ax.get_lines() if list(line.get_xdata()) == [64.6, 245.0]]
    assert bar.is_dashed() == of_search
    draw.ring(ax, one.points_fit, draw.SELECTED)
    (ring,) = ax.collections
    assert (ring.get_linestyle()[0][1] is not None) == of_search
    assert np.allclose(ring.get_offsets()[0, 0], 100.0)


def test_the_legend_of_metaparameters_names_doubts(fitted: list[CurveFits]) -> None:
    def labels(lines: list[CurveFits]) -> list[str]:
        return [str(each.get_label()) for each in tuning.symbols(lines, rates=False)]

    one = fitted[0]
    certain = one._replace(selected=one.selected._replace(verdict="identified", checks=()))
    doubted = one._replace(
        selected=one.selected._replace(verdict="identified", checks=(Check("space", "seen", "doubt"),))
    )
    words = "critical batch size, if a hyperbola"
    assert labels([certain])[2:] == [words]
    assert labels([doubted])[2:] == [f"{words}, in doubt"]
    assert labels([doubted, certain])[2:] == [words, f"{words}, in doubt"]
