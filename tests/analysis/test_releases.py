"""Where the data that ship lie, and what may stand in for them."""

from pathlib import Path

import pytest

from analysis import releases
from results.bad_input import BadInput


def test_a_variable_names_another_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(releases.VARIABLE, str(tmp_path))
    assert releases.release() == tmp_path


def test_releases_lie_in_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(releases.VARIABLE, raising=False)
    monkeypatch.setattr(releases, "ROOT", tmp_path)
    for name, find in (("published", releases.release), ("mlperf", releases.mlperf)):
        with pytest.raises(BadInput, match=f"no release at {tmp_path}/results/{name}"):
            find()
        (tmp_path / "results" / name).mkdir(parents=True)
        assert find() == tmp_path / "results" / name


def test_the_points_of_mlperf_are_there() -> None:
    assert (releases.mlperf() / "manifest.json").is_file()
