"""One page for each curve: what is on it, and what it does not claim."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from analysis.figures import summaries
from analysis.fitting import curve_fits
from analysis.plotting.picture import Picture, Skipped
from results.rules.confirmation import APART

from ..conftest import BATCH_SIZES, Ran, plan, publish, sweep


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


def test_a_page_holds_curve_metaparameters_success_ledger_and_confirmation(confirmed: Path) -> None:
    (page,) = pages(confirmed)
    assert isinstance(page, Picture)
    assert page.names == ("digits", "fully_connected_64", "sgd", "test_error", "0.1")
    found = panels(page)
    assert list(found) == [
        *("", "share of trials that reached (90 %)", "how 55 planned trials ended"),
        "confirmed over selected steps",
    ]
    share = found["share of trials that reached (90 %)"].lines[0].get_ydata()
    assert np.allclose(share, 2 / 3)
    legend = found["how 55 planned trials ended"].get_legend()
    assert legend and [text.get_text() for text in legend.get_texts()] == ["complete", "infeasible", "missing"]
    tops = {round(bar.get_y() + bar.get_height()) for bar in found["how 55 planned trials ended"].patches}
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
    assert words(page).count("verdict: ") == words(page).count("assumed: ") == 2
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
