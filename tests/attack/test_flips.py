"""A flipped bit, wherever it is: verify finds it, and nothing that is merged or exported of it is believed."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from results import store
from results.bad_input import BadInput
from results.checks import verify
from results.release import merge, release
from results.storage.commits import Tables


@pytest.fixture(autouse=True)
def _disk_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no machine goes down in these tests


@pytest.fixture(scope="module")
def places(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store of three studies, and a release of it."""
    made = tmp_path_factory.mktemp("places") / "release"
    assert release.export(whole, made, silent) == 0
    return {"store": whole, "release": made}


def silent(line: str) -> None:
    pass


def flips(folder: Path, seed: int, count: int) -> Iterator[Path]:
    """Flips one bit at seeded places over all bytes of all files, one at a time; each is put right again after.

    Every file has one first, if there are as many; then every second is anywhere in all bytes, and the others are in
    any file, however small.
    """
    chance = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    places = [(path, chance.randrange(path.stat().st_size)) for path in files]
    chance.shuffle(places)
    sizes = [path.stat().st_size for path in files]
    while len(places) < count:
        (path,) = chance.choices(files, sizes if len(places) % 2 else None)
        places.append((path, chance.randrange(path.stat().st_size)))
    for path, at in places[:count]:
        data = path.read_bytes()
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        yield path
        path.write_bytes(data)


def held(folder: Path) -> Tables:
    """All rows of a store or a release, of whichever run."""
    return Tables(*(table.drop(columns="run", errors="ignore") for table in store.read(folder)))


def are_same(one: Tables, other: Tables) -> bool:
    return all(list(a) == list(b) and a.equals(b) for a, b in zip(one, other, strict=True))


def refusal(write: Callable[[], int]) -> str | None:
    """The line by which something is refused, if it is."""
    try:
        write()
    except BadInput as error:
        return str(error)
    return None


def assert_not_believed(folder: Path, scratch: Path, truth: Tables, path: Path) -> int:
    """What is merged and exported of it is refused, or the truth; how often it was refused."""
    refused = 0
    for name, write in (("merged", merge_into), ("exported", release.export)):
        line = refusal(lambda name=name, write=write: write(folder, scratch / name, silent))
        if line is None:
            assert are_same(held(scratch / name), truth), path
            assert verify.run(scratch / name, silent) == 0
            shutil.rmtree(scratch / name)
        else:
            assert "\n" not in line and not (scratch / name).exists(), path
            refused += 1
    return refused


def merge_into(folder: Path, into: Path, report: Callable[[str], None]) -> int:
    return merge.merge([folder], into, report)


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.attack)])
@pytest.mark.parametrize("kind", ["store", "release"])
def test_every_flipped_bit_is_found(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, count: int
) -> None:
    folder, scratch = Path(shutil.copytree(places[kind], tmp_path / kind)), tmp_path / "scratch"
    scratch.mkdir()
    truth = held(folder)
    refused = 0
    kinds = set()
    for path in flips(folder, seed=count, count=count):
        with monkeypatch.context() as hashes:
            hashes.setattr(verify, "REBUILD_BYTES", 0)  # hashes are enough
            lines = [fault.line for findings in verify.examine(folder, silent) for fault in findings.faults]
        told = [line for line in lines if line.startswith(f"{path}: ")]
        assert told if kind == "store" else lines == told and len(told) == 1, (path, lines)
        refused += assert_not_believed(folder, scratch, truth, path)
        kinds.add(path.name.partition("-")[0] if kind == "store" else path.relative_to(folder).parts[0])
    assert are_same(held(folder), truth)
    assert verify.run(folder, silent) == 0
    assert refused >= count // 4
    assert len(kinds) >= 5
