"""Where the data that ship lie, and what may stand in for them."""

from pathlib import Path

import pytest

from analysis import shipped
from results.bad_input import BadInput


def test_a_variable_names_another_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(shipped.VARIABLE, str(tmp_path))
    assert shipped.release() == tmp_path


def test_releases_lie_in_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(shipped.VARIABLE, raising=False)
    monkeypatch.setattr(shipped, "ROOT", tmp_path)
    for name, find in (("published", shipped.release), ("mlperf", shipped.mlperf)):
        with pytest.raises(BadInput, match=f"no release at {tmp_path}/results/{name}"):
            find()
        (tmp_path / "results" / name).mkdir(parents=True)
        assert find() == tmp_path / "results" / name


def test_the_points_of_mlperf_are_there() -> None:
    assert (shipped.mlperf() / "manifest.json").is_file()
