"""Releases of 0.1 and 0.2 are read and fitted as they were, become releases of today, and lose nothing."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import analysis.__main__ as analysis_cli
from analysis import workload_studies
from analysis.fitting import confirmations
from results import store
from results.catalog import scan
from results.checks import verify
from results.plans.batch_study import BatchStudy
from results.plans.study import COMPARABLE
from results.plans.trial_request import Repeats, TrialRequest
from results.release import merge, release

# Answers that the software of then printed: steps lie in (low, high].
ANSWERS = {1: (966, 1063), 8: (140, 154), 32: (46, 51), 128: (33, 37), 1024: (30, 33)}
VERSIONS = ("0.1", "0.2")
FOLDERS = ("dataset", "model", "optimizer", "batch_size")


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


@pytest.fixture(scope="module")
def converted(stored: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("converted")

    def convert(version: str) -> Path:
        if not (folder / version).exists():
            assert release.export(stored(f"release-{version}"), folder / version, quiet) == 0
        return folder / version

    return convert


def files(old: Path, table: str) -> Iterator[tuple[pa.Table, dict[str, str]]]:
    """Every file of a table of an old release as it lies there, with what its folders tell."""
    for path in sorted((old / table).rglob("*.parquet")):
        folders = [folder.name.partition("=") for folder in path.parents if "=" in folder.name]
        yield pq.read_table(path, partitioning=None), {name: unquote(value) for name, _, value in folders}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table", ["studies", "trials", "measurements"])
def test_every_value_of_every_file_is_in_the_table_of_all(
    version: str, table: str, stored: Callable[[str], Path], converted: Callable[[str], Path]
) -> None:
    """Both read by PyArrow alone: nothing here knows how a release is written."""
    new = pq.read_table(converted(version) / f"{table}.parquet")
    rows = 0
    for old, folders in files(stored(f"release-{version}"), table):
        (study,) = old["study"].unique().to_pylist()
        own = new.filter(pc.equal(new["study"], study))
        assert len(own) == len(old)
        for name in old.column_names:
            before, after = old[name], own[name]
            assert before.is_null().equals(after.is_null()), (study, name)
            if pa.types.is_floating(before.type):
                back = after.to_numpy().astype(before.type.to_pandas_dtype())
                assert back.tobytes() == before.to_numpy().tobytes(), (study, name)
                assert np.array_equal(after.to_numpy(), before.to_numpy().astype(np.float64), equal_nan=True)
            else:
                assert after.to_pylist() == before.to_pylist(), (study, name)
        for name in set(own.column_names) - set(old.column_names) - set(FOLDERS) if table == "measurements" else ():
            assert own[name].null_count == len(own), f"{study} has no {name}"
        if table != "studies":
            for name, value in folders.items():
                (told,) = set(own[name].to_pylist())
                assert str(told) == value or (told is None and value == "__HIVE_DEFAULT_PARTITION__")
        rows += len(old)
    assert rows == len(new)


@pytest.mark.parametrize("version", [VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.slow)])
def test_it_is_whole_and_goes_on_being_the_same(
    version: str,
    stored: Callable[[str], Path],
    converted: Callable[[str], Path],
    same_values: Callable[[Path, Path], None],
    tmp_path: Path,
) -> None:
    old, new = stored(f"release-{version}"), converted(version)
    assert verify.run(old, quiet) == verify.run(new, quiet) == 0
    same_values(old, new)
    lines: list[str] = []
    for source in (new, old, new):
        assert merge.merge([source], tmp_path / "store", lines.append) == 0
    count = len(list((tmp_path / "store").iterdir()))
    assert [line.rpartition("studies: ")[2] for line in lines] == [
        f"{count} new, 0 grown, 0 already there",
        *[f"0 new, 0 grown, {count} already there"] * 2,
    ]
    same_values(tmp_path / "store", old)
    assert merge.merge([old, new], tmp_path / "both", quiet) == 0
    same_values(tmp_path / "both", new)
    for source in (old, new, tmp_path / "store"):
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        assert release.export(source, tmp_path / "again", quiet) == 0
        for path in new.iterdir():
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), (source, path.name)


@pytest.mark.parametrize("place", range(0, 300, 20))
def test_every_flipped_byte_is_found(place: int, converted: Callable[[str], Path], tmp_path: Path) -> None:
    """A seeded fifteenth of each; `make attack` flips all 300."""
    flipped(converted("0.2"), tmp_path / "copy", range(place, place + 1))


@pytest.mark.attack
def test_all_300_flipped_bytes_are_found(converted: Callable[[str], Path], tmp_path: Path) -> None:
    flipped(converted("0.2"), tmp_path / "copy", range(300))


def flipped(folder: Path, copy: Path, numbers: range) -> None:
    """Flips a bit anywhere in a release, one after the other, and has each found."""
    shutil.copytree(folder, copy)
    paths = sorted(copy.iterdir())
    for number in numbers:
        generator = np.random.default_rng(number)
        path = paths[number % len(paths)]
        data = bytearray(path.read_bytes())
        data[generator.integers(len(data))] ^= 1 << int(generator.integers(8))
        good = path.read_bytes()
        path.write_bytes(bytes(data))
        assert verify.run(copy, quiet) == 1, (number, path)
        path.write_bytes(good)
