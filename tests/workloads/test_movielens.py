"""MovieLens: originals in their three formats are prepared offline by TFDS's real builder, read and split."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from results.bad_input import BadInput
from workloads import memory, prepare
from workloads.datasets import movielens
from workloads.factorization import prepared
from workloads.factorization.links import Links

ROOT = Path(prepare.__file__).parents[1]
Pairs = set[tuple[int, int]]
Write = Callable[[str], Pairs]


def some_ratings() -> Pairs:
    """Of 40 users and some of 300 movies; ids have gaps; two users have few ratings."""
    random = np.random.default_rng(4)
    pairs: Pairs = set()
    for user in range(1, 81, 2):
        count = 3 if user in (5, 31) else int(random.integers(20, 60))
        pairs |= {(user, int(movie)) for movie in random.choice(np.arange(7, 307), count, replace=False)}
    return pairs


def files(size: str, pairs: Pairs) -> dict[str, str]:
    """The files of an archive that TFDS reads, and one that it does not."""
    users, movies = sorted({user for user, _ in pairs}), sorted({movie for _, movie in pairs})
    if size == "1m":
        return {
            "movies.dat": "".join(f"{movie}::Élan (1999)::Children's|Drama\n" for movie in movies),
            "users.dat": "".join(f"{user}::F::25::4::02139\n" for user in users),
            "ratings.dat": "".join(f"{user}::{movie}::5::978300760\n" for user, movie in sorted(pairs)),
        }
    if size == "100k":
        return {
            "u.item": "".join(
                f"{movie}|Élan (1999)|01-Jan-1999||http://x|{'|'.join('01' + '0' * 17)}\n" for movie in movies
            ),
            "u.user": "".join(f"{user}|24|M|writer|02139\n" for user in users),
            "u.data": "".join(f"{user}\t{movie}\t1\t881250949\n" for user, movie in sorted(pairs)),
        }
    return {
        "movies.csv": "movieId,title,genres\n" + "".join(f'{movie},"A, B (1999)",Drama|IMAX\n' for movie in movies),
        "ratings.csv": "userId,movieId,rating,timestamp\n"
        + "".join(f"{user},{movie},0.5,1112486027\n" for user, movie in sorted(pairs)),
        "genome-scores.csv": "not of interest",
    }


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Puts an archive of a size where ``prepare`` looks for it."""
    from tensorflow_datasets.core.download.download_manager import DownloadManager

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(DownloadManager, "_register_or_validate_checksums", lambda self, **known: None)

    def made(size: str) -> Pairs:
        pairs = some_ratings()
        manual = tmp_path / "downloads" / "manual" / "movielens" / size
        manual.mkdir(parents=True)
        with zipfile.ZipFile(manual / f"ml-{size}.zip", "w") as archive:
            for name, text in files(size, pairs).items():
                encoding = "utf-8" if name.endswith("csv") else "latin-1"
                archive.writestr(f"ml-{size}/{name}", text.encode(encoding))
        monkeypatch.setitem(movielens.SIZES, size, movielens.SIZES[size]._replace(ratings=len(pairs)))
        return pairs

    return made


def as_sets(links: Links) -> list[set[int]]:
    return [set(row.tolist()) for row in np.split(links.columns, links.starts[1:-1])]


@pytest.mark.parametrize("size", list(movielens.SIZES))
def test_originals_are_prepared_and_read(size: str, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = write(size)
    assert prepare.main([f"movielens/{size}"]) == 0
    assert capsys.readouterr().out.startswith(f"movielens/{size}: {len(pairs):,} ratings, ")
    ratings = prepared.load(movielens.source(size))
    movies = sorted({movie for _, movie in pairs})
    expected = [
        frozenset(movies.index(movie) for other, movie in pairs if other == user)
        for user in sorted({u for u, _ in pairs})
    ]
    assert ratings.train.column_count == len(movies)
    evaluated = [
        known | sought for known, sought in zip(as_sets(ratings.history), as_sets(ratings.heldout), strict=True)
    ]
    assert len(evaluated) == 4
    assert sorted(map(sorted, as_sets(ratings.train) + evaluated)) == sorted(map(sorted, expected))
    assert [row for row in expected if row not in evaluated] == as_sets(ratings.train)
    assert ratings.lines() == ()


def test_a_tenth_of_the_users_is_held_out_by_the_seed(write: Write) -> None:
    write("1m")
    assert prepare.main(["movielens/1m"]) == 0
    source = movielens.source("1m")
    ratings = source.build()
    assert ratings.train.row_count + ratings.history.row_count == 40
    count = ratings.history.lengths + ratings.heldout.lengths
    np.testing.assert_array_equal(ratings.heldout.lengths, np.maximum(1, np.rint(count / 5)))
    assert count.min() >= movielens.FEWEST
    assert not any(
        known & sought for known, sought in zip(as_sets(ratings.history), as_sets(ratings.heldout), strict=True)
    )
    again, other = source.build(), movielens.source("1m", seed=1)
    np.testing.assert_array_equal(again.heldout.columns, ratings.heldout.columns)
    assert as_sets(other.build().heldout) != as_sets(ratings.heldout)
    assert other.version() != source.version() == movielens.source("1m").version()
    assert re.fullmatch("sha256:[0-9a-f]{16}", source.version())


def test_what_cannot_be_read(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"unknown variant '2m' of movielens; choices: 100k, latest-small, 1m, 20m, 25m"):
        movielens.source("2m")
    source = movielens.source("100k")
    for refuses in (source.check, source.version):
        with pytest.raises(BadInput, match=r"100k-ratings/0\.1\.1 does not exist\. Run python -m workloads"):
            refuses()
    pairs = write("100k")
    assert prepare.main(["movielens/100k"]) == 0
    monkeypatch.setitem(movielens.SIZES, "100k", movielens.SIZES["100k"]._replace(ratings=100_000))
    with pytest.raises(BadInput, match=rf"holds {len(pairs):,} ratings, not 100,000\. Delete .* and run"):
        source.build()
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(BadInput, match=r"^reading movielens/100k needs about .* Choose a smaller one\.$"):
        source.check()


def test_other_originals_are_refused(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("1m")
    monkeypatch.setitem(movielens.SIZES, "1m", movielens.SIZES["1m"]._replace(ratings=1_000_209))
    assert prepare.main(["movielens/1m"]) == 1
    assert "the originals hold {'train': " in capsys.readouterr().err.splitlines()[-1]
    assert not movielens.folder("1m").exists()
    monkeypatch.undo()
    assert prepare.main(["movielens/1m", "--data-dir", str(tmp_path)]) == 1
    assert "NonMatchingChecksumError" in capsys.readouterr().err.splitlines()[-1]


def test_the_sizes_are_those_of_tfds() -> None:
    from tensorflow_datasets.structured.movielens import Movielens

    real = {
        config.name.removesuffix("-ratings"): config
        for config in Movielens.BUILDER_CONFIGS
        if "movies" not in config.name
    }
    assert set(real) == set(movielens.SIZES)
    for size, config in real.items():
        assert str(config.version) == movielens.VERSION
        assert f"{movielens.SIZES[size].ratings:,} " in config.description
        assert Movielens.url_infos[config.download_url].size == movielens.SIZES[size].download_bytes


PREPARE_AND_READ = """
import sys
from tensorflow_datasets.core.download.download_manager import DownloadManager
from workloads import prepare
from workloads.datasets import movielens

DownloadManager._register_or_validate_checksums = lambda self, **known: None
movielens.SIZES["1m"] = movielens.SIZES["1m"]._replace(ratings=int(sys.argv[1]))
assert prepare.main(["movielens/1m"]) == 0
assert len(movielens.source("1m").build().train.columns)
assert not {"tensorflow", "jax"} & set(sys.modules)
"""


def test_tensorflow_is_never_imported(write: Write) -> None:
    pairs = write("1m")
    command = [sys.executable, "-W", "error", "-c", PREPARE_AND_READ, str(len(pairs))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
