"""Pictures in a notebook: in the look of files, and a line for each that could not be drawn."""

import io
from typing import Any

import IPython.display
import matplotlib
import pytest
from PIL import Image

from analysis.plotting import gallery
from analysis.plotting.picture import Picture, Skipped, axes


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What was handed to the notebook, with what goes beside it."""
    found: list[tuple[Any, Any]] = []
    monkeypatch.setattr(IPython.display, "display", lambda data, raw, metadata: found.append((data, metadata)))
    return found


def test_pictures_are_shown_and_what_is_missing_is_named(
    shown: list[tuple[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    figure, _ = axes("title", "goal")
    gallery.show([Picture(("digits", "sgd"), figure), Skipped("another", "nothing reached")])
    ((data, metadata),) = shown
    assert data["text/plain"] == "digits · sgd"
    assert Image.open(io.BytesIO(data["image/png"])).size == (960, 690)
    assert metadata == {"image/png": {"width": 640}}
    assert capsys.readouterr().out == "not drawn: another: nothing reached\n"


def test_what_is_yielded_is_drawn_in_the_look_of_files(shown: list[tuple[Any, Any]]) -> None:
    def pictures() -> Any:
        assert matplotlib.rcParams["axes.spines.top"] is False
        yield Picture(("one",), axes("title", "goal")[0])

    before = matplotlib.rcParams["axes.spines.top"]
    gallery.show(pictures())
    assert len(shown) == 1
    assert matplotlib.rcParams["axes.spines.top"] == before
