"""A small release of scaling-limits 0.1: it is read, verified, merged and fitted as it was, and shares no curve."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import analysis.__main__ as analysis_cli
from analysis import workload_studies
from analysis.fitting import confirmations
from results import store
from results.checks import verify
from results.plans.batch_study import BatchStudy
from results.plans.study import COMPARABLE
from results.plans.trial_request import Repeats, TrialRequest
from results.reading import scan
from results.release import merge, release

# Answers that the software of then printed: steps lie in (low, high].
ANSWERS = {1: (966, 1063), 8: (140, 154), 32: (46, 51), 128: (33, 37), 1024: (30, 33)}


@pytest.fixture(scope="module", name="old")
def old_release(stored: Callable[[str], Path]) -> Path:
    return stored("release-0.1")


def quiet(line: str) -> None:
    """Takes lines about progress."""


def networks(folder: Path) -> list[BatchStudy]:
    return [study for commit in store.catalogue(folder) if isinstance(study := commit.study, BatchStudy)]


def test_plans_say_what_they_said(old: Path) -> None:
    for study in networks(old):
        assert (study.comparable, study.stop, study.ends_at) == ("0.1", "target", study.targets)
        assert "stop" not in study.plan()
        assert study.request == TrialRequest(64, Repeats(top=1, confirm=5))


@pytest.mark.parametrize("again", ["release", "merged", "exported"])
def test_it_is_whole_and_answers_as_it_did(old: Path, tmp_path: Path, again: str) -> None:
    folder = old
    if again == "exported":
        folder = tmp_path / "release"
        assert release.export(old, folder, quiet) == 0
    if again == "merged":
        lines: list[str] = []
        folder = tmp_path / "store"
        for _ in range(2):
            assert merge.merge([old], folder, lines.append) == 0
        assert lines[-1] == f"{folder}: studies: 0 new, 0 grown, 7 already there"
    assert verify.run(folder, quiet) == 0
    (target,) = networks(folder)[0].targets
    commits = [commit for commit in store.catalogue(folder) if isinstance(commit.study, BatchStudy)]
    found = scan.intervals(commits, target).groupby("study")[["steps_low", "steps_high"]].min()
    by_size = {commit.study.batch_size: tuple(found.loc[commit.name]) for commit in commits}
    assert by_size == ANSWERS
    told = confirmations.of_commits(commits, target)
    assert [one.repeats for one in told] == [5] * 5, "all repeats of the best trial report"
    assert all(not store.progress(folder, commit.study).to_run for commit in commits if again == "merged")


def test_it_is_fitted_and_its_factorizations_are_read(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analysis_cli.main(["fit", "--store", str(old)]) == 0
    assert "quadratic" in capsys.readouterr().out
    assert analysis_cli.main(["epochs", "--store", str(old)]) == 0
    assert "webgraph_synthetic" in capsys.readouterr().out


def test_a_study_of_today_shares_no_curve_with_it(
    old: Path, tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Callable[..., None]
) -> None:
    folder = tmp_path / "store"
    assert merge.merge([old], folder, quiet) == 0
    (then,) = [study for study in networks(folder) if study.batch_size == 8]
    today = dataclasses.replace(then, comparable=COMPARABLE, batch_size=16, trials=3, confirm=0)
    assert (today.name.split("-b")[0], today.stream != then.stream) == (then.name.split("-b")[0], True)
    fill(folder, today)
    assert verify.run(folder, quiet) == 0
    curves = workload_studies.of_store(folder)
    assert sorted(len(curve.commits) for curve in curves) == [1, 5]
    assert len({curve.title for curve in curves}) == 2
    assert any(f"comparable={COMPARABLE}" in curve.distinction for curve in curves)


def test_a_flipped_byte_of_it_is_found(old: Path, tmp_path: Path) -> None:
    folder = tmp_path / "release"
    shutil.copytree(old, folder)
    (path, *_) = sorted(folder.rglob("measurements*.parquet")) or sorted(folder.rglob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    assert verify.run(folder, quiet) == 1
