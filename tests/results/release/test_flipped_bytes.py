"""A bit that is flipped anywhere in a release of published studies is found."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from results.checks import verify
from results.release import release

ROOT = Path(__file__).parents[3]


def quiet(line: str) -> None:
    """Takes lines about progress."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of MLPerf's points, exported by this version, so that its documents are compared, too."""
    out = tmp_path_factory.mktemp("flipped") / "release"
    assert release.export(ROOT / "results" / "mlperf", out, quiet) == 0
    assert verify.run(out, quiet) == 0
    return out


@pytest.mark.parametrize("place", range(0, 300, 20))
def test_every_flipped_byte_is_found(place: int, released: Path, tmp_path: Path) -> None:
    """A seeded fifteenth of each; `make attack` flips all 300."""
    flipped(released, tmp_path / "copy", range(place, place + 1))


@pytest.mark.attack
def test_all_300_flipped_bytes_are_found(released: Path, tmp_path: Path) -> None:
    flipped(released, tmp_path / "copy", range(300))


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
