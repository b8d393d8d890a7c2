"""Releases with files of each study's own, as 0.1 and 0.2 were, become releases of few files, and lose nothing."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from results.checks import verify
from results.release import merge, release

VERSIONS = ("0.1", "0.2")
FOLDERS = ("dataset", "model", "optimizer", "batch_size")


def quiet(line: str) -> None:
    """Takes lines about progress."""


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
