"""Places of stores: those below a folder, and what a mistyped path may have meant."""

import pytest

from results import store
from results.bad_input import BadInput, meaning, similar_path
from results.checks import verify
from results.storage import folders

from ..by_hand import Ran, publish as publish_trials, study


def publish(folder):
    publish_trials(folder, study(), {0: Ran("COMPLETE", [(1, 0.5)])})


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder with two stores below it, of which one is two folders down, and a folder that is none."""
    monkeypatch.chdir(tmp_path)
    for name in ("results/mine", "results/of/2026"):
        publish(tmp_path / name)
    (tmp_path / "results/notes").mkdir()
    return tmp_path / "results"


def test_a_folder_above_stores_names_them(shelf):
    for look in (store.catalogue, store.names, store.read):
        with pytest.raises(
            BadInput,
            match=r"^results holds no studies. Name one of the stores below it: results/mine, results/of/2026$",
        ):
            look("results")
    with pytest.raises(BadInput, match=r"stores below it: "):
        verify.run(shelf, print)
    for number in range(5):
        publish(shelf / f"more/s{number}")
    with pytest.raises(BadInput, match=r"stores below it: .*mine, .*s0, .*s3 and 2 more$"):
        store.names(shelf)
    assert store.names(shelf / "mine") and store.names(shelf / "notes") == []


def test_a_folder_above_stores_may_become_one(shelf):
    store.check_destination(shelf)
    publish(shelf)
    assert len(store.catalogue(shelf)) == 1


def test_missing_path_suggests_an_existing_one(shelf, tmp_path):
    with pytest.raises(BadInput, match=r"^no store at results/mien. Did you mean results/mine[?] Create one with `"):
        store.names("results/mien")
    with pytest.raises(BadInput, match=r"^no store at reslts/of/2025. Did you mean results/of/2026[?] "):
        store.catalogue("reslts/of/2025")
    with pytest.raises(BadInput, match=r"^no store at results/note. Create one with"):  # what is alike is no store
        store.catalogue("results/note")
    (tmp_path / "steps.csv").touch()
    assert meaning(tmp_path / "step.csv") == f"; did you mean {tmp_path}/steps.csv?"
    assert meaning(tmp_path / "other.csv") == meaning(tmp_path / "steps.csv") == ""
    assert similar_path(tmp_path / "steps.csv/within") is None
    assert folders.advice(tmp_path / "results/published", "name another").startswith("The repository ships it")
