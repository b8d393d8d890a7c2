"""A user's own ratings, in real files, right and wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from results.bad_input import BadInput
from workloads import memory
from workloads.datasets import link_files, rating_files
from workloads.factorization import prepared
from workloads.factorization.links import Links
from workloads.factorization.ratings import Ratings

TRAIN = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 1]], bool)
HELDOUT = np.array([[0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 1], [0, 0, 0, 0, 0]], bool)
HISTORY = np.array([[0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
Write = Callable[[Path, np.ndarray], Path]


def as_matrix(path: Path, links: np.ndarray) -> Path:
    path = path.with_suffix(".npz")
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(links.astype(np.float32)))
    return path


def as_table(path: Path, links: np.ndarray) -> Path:
    path = path.with_suffix(".parquet")
    rows, columns = np.nonzero(links)
    order = np.random.default_rng(0).permutation(len(rows))
    pd.DataFrame({"col": columns[order].astype(np.int32), "row": rows[order], "stars": 5.0}).to_parquet(path)
    return path


def dense(links: Links) -> np.ndarray:
    """bool[rows, columns]."""
    matrix = np.zeros((links.row_count, links.column_count), bool)
    matrix[np.repeat(np.arange(links.row_count), links.lengths), links.columns] = True
    return matrix


def built(*files: Path) -> Ratings:
    source = rating_files.source(*map(str, files))
    source.check()
    return source.build()


def refused(*files: Path) -> str:
    """The one line that refuses files."""
    with pytest.raises(BadInput) as raised:
        built(*files)
    line = str(raised.value)
    assert "\n" not in line
    return line


@pytest.fixture
def good(tmp_path: Path) -> tuple[Path, Path]:
    return as_matrix(tmp_path / "train", TRAIN), as_matrix(tmp_path / "heldout", HELDOUT)


@pytest.mark.parametrize("write_train", [as_matrix, as_table])
@pytest.mark.parametrize("write_heldout", [as_matrix, as_table])
def test_both_kinds_of_files(write_train: Write, write_heldout: Write, tmp_path: Path) -> None:
    files = [write_train(tmp_path / "train", TRAIN), write_heldout(tmp_path / "heldout", HELDOUT)]
    ratings = built(*files)
    np.testing.assert_array_equal(dense(ratings.train), TRAIN)
    np.testing.assert_array_equal(dense(ratings.history), TRAIN[[0, 2]])
    np.testing.assert_array_equal(dense(ratings.heldout), HELDOUT[[0, 2]])
    assert ratings.lines() == ()
    files.append(write_heldout(tmp_path / "history", HISTORY))
    ratings = built(*files)
    np.testing.assert_array_equal(dense(ratings.train), TRAIN)
    np.testing.assert_array_equal(dense(ratings.history), HISTORY[[0, 2]])
    np.testing.assert_array_equal(dense(ratings.heldout), HELDOUT[[0, 2]])


def test_the_largest_ids_of_all_tables_are_the_shape(tmp_path: Path) -> None:
    heldout = np.zeros((6, 9), bool)
    heldout[5, 8] = True
    ratings = built(as_table(tmp_path / "train", TRAIN), as_table(tmp_path / "heldout", heldout))
    assert (ratings.train.row_count, ratings.train.column_count) == (6, 9)
    assert dense(ratings.history).tolist() == [[False] * 9]


def test_duplicates_are_merged_and_zeros_are_no_links(tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    rows, columns, values = (
        np.array([0, 0, 0, 1, 1]),
        np.array([3, 1, 3, 0, 2]),
        np.array([1.0, 2.0, np.nan, 0.0, -1.0]),
    )
    matrix = scipy.sparse.csr_array((values, columns, np.array([0, 3, 5, 5])), shape=(3, 4))
    assert len(rows) == matrix.nnz
    scipy.sparse.save_npz(path, matrix, compressed=False)
    heldout = tmp_path / "heldout.parquet"
    pd.DataFrame({"row": [0, 2, 2], "col": [0, 1, 1]}).to_parquet(heldout)
    ratings = built(path, heldout)
    assert dense(ratings.train).tolist() == [[False, True, False, True], [False, False, True, False], [False] * 4]
    assert ratings.lines() == (
        "2 duplicate links were merged",
        "1 row with held-out links has no history and cannot be evaluated",
    )


def test_links_that_are_known_are_left_out(good: tuple[Path, Path], tmp_path: Path) -> None:
    heldout = HELDOUT | (TRAIN & np.array([[1], [0], [0], [1]], bool))
    ratings = built(good[0], as_matrix(tmp_path / "more", heldout))
    np.testing.assert_array_equal(dense(ratings.heldout), HELDOUT[[0, 2]])
    assert ratings.lines() == ("4 held-out links also occur in training or history and are ignored",)
    assert refused(good[0], good[0]).startswith(f"every link of {good[0]} is also in another file")


@pytest.mark.parametrize("block", [1, 2])
def test_matrices_are_read_in_blocks(block: int, good: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.factorization.links.PAIRS_BLOCK", block)
    monkeypatch.setattr(link_files, "BATCH", block)
    np.testing.assert_array_equal(dense(built(*good).train), TRAIN)


def test_content_decides_the_version(good: tuple[Path, Path], tmp_path: Path) -> None:
    version = rating_files.source(*map(str, good)).version()
    assert re.fullmatch("sha256:[0-9a-f]{16}", version)
    moved = good[0].rename(tmp_path / "elsewhere.npz")
    assert rating_files.source(str(moved), str(good[1])).version() == version
    assert rating_files.source(str(good[1]), str(moved)).version() != version
    assert rating_files.source(str(moved), str(good[1]), str(moved)).version() != version
    as_matrix(moved, ~TRAIN)
    assert rating_files.source(str(moved), str(good[1])).version() != version


def test_the_cache_takes_them(good: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path))
    source = rating_files.source(*map(str, good))
    prepared.load(source)
    unwanted = source._replace(build=lambda: pytest.fail("built twice"))
    np.testing.assert_array_equal(dense(prepared.load(unwanted).train), TRAIN)


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_matrices_that_cannot_be_used(good: tuple[Path, Path], tmp_path: Path) -> None:
    train, heldout = good
    other = as_matrix(tmp_path / "other", np.ones((4, 6), bool))
    assert refused(train, other) == f"{other} is 4 × 6 and {train} is 4 × 5. All files must have the same shape."
    empty = as_matrix(tmp_path / "empty", np.zeros((4, 5), bool))
    assert refused(empty, heldout) == f"{empty} holds no links. It needs at least one."
    assert refused(train, empty) == f"{empty} holds no links. It needs at least one."
    nothing = tmp_path / "nothing.npz"
    scipy.sparse.save_npz(nothing, scipy.sparse.csr_array((0, 5)))
    assert refused(nothing, nothing).startswith(f"{nothing} is 0 × 5. ")
    scipy.sparse.save_npz(tmp_path / "csc.npz", scipy.sparse.csc_array(TRAIN))
    assert (
        refused(tmp_path / "csc.npz", heldout)
        == f"{tmp_path / 'csc.npz'} is a csc matrix. Convert it with .tocsr() first."
    )
    dense = save(tmp_path / "dense.npz", matrix=TRAIN)
    assert refused(dense, heldout).startswith(f"{dense} is not a SciPy sparse matrix: ")
    pickled = save(tmp_path / "pickled.npz", format=np.array([None]))
    assert refused(pickled, heldout).startswith(f"{pickled} cannot be read: Object arrays cannot be loaded")
    parts = {"format": b"csr", "shape": [2, 3], "data": [1, 1], "indptr": [0, 1, 2], "indices": [0, 2]}
    for change, text in (
        ({"indices": [0, 3]}, "col 3 in row 1 is out of range. There are 3 columns"),
        ({"indices": [-1, 2]}, "col -1 in row 0 is out of range. There are 3 columns"),
        ({"indptr": [0, 2, 1]}, "is damaged: its row pointers do not match"),
        ({"indptr": [0, 2]}, "is damaged: its arrays do not match"),
        ({"indices": [0.0, 2.0]}, "is damaged: its arrays do not match"),
        ({"shape": [1 << 40, 3]}, f"is {1 << 40:,} × 3. There must be 1 to"),
    ):
        wrong = save(tmp_path / "wrong.npz", **(parts | change))
        line = refused(wrong, wrong)
        assert line.startswith(str(wrong)) and text in line


def test_tables_that_cannot_be_used(good: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "wrong.parquet"
    for columns, text in (
        ({"row": [0, 1], "col": [2, -7]}, f"{path}: col -7 is negative. Ids start at 0."),
        ({"row": [0, 4], "col": [2, 1]}, f"{path}: row 4 is out of range. {good[0]} has 4 of them"),
        ({"row": [0, 1], "col": [2, 5]}, f"{path}: col 5 is out of range. {good[0]} has 5 of them"),
        ({"row": [0, 1 << 60], "col": [2, 5]}, f"{path}: row {1 << 60} is out of range. Ids go to"),
        (
            {"row": [0, 1.0], "col": [2, 5]},
            f"{path}: column row is double. Ids must be integers without missing values",
        ),
        (
            {"row": [0, np.nan], "col": [2, 5]},
            f"{path}: column row is double. Ids must be integers without missing values",
        ),
        ({"row": pd.array([0, None], "Int64"), "col": [2, 5]}, f"{path}: column row has missing values"),
        ({"row": [0, 1], "col": ["a", "b"]}, f"{path}: column col is "),
        ({"row": [0, 1], "column": [2, 5]}, f"{path} has no column col (it has row, column). It needs integer"),
        ({"row": np.array([], int), "col": np.array([], int)}, f"{path} holds no links"),
    ):
        pd.DataFrame(columns).to_parquet(path, index=False)
        assert refused(good[0], path).startswith(text)


def test_files_that_are_none(good: tuple[Path, Path], tmp_path: Path) -> None:
    absent = tmp_path / "absent.npz"
    assert refused(absent, good[1]).startswith(f"{absent} does not exist. It should be SciPy CSR .npz")
    assert refused(good[0], tmp_path).startswith(f"{tmp_path} is not a file")
    text = tmp_path / "text.npz"
    text.write_text("row,col\n")
    assert refused(text, good[1]).startswith(f"{text} has an unsupported format")
    table = as_table(tmp_path / "table", TRAIN)
    for file in (good[0], table):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
        assert refused(file, good[1]).startswith(f"{file} cannot be read: ")
    with pytest.raises(BadInput, match=r"ratings\.heldout is missing\. It must name a file"):
        rating_files.source("a", "")
    with pytest.raises(BadInput, match="does not exist"):
        rating_files.source(str(absent), str(good[1])).version()


def test_flipped_bits_are_found(good: tuple[Path, Path], tmp_path: Path) -> None:
    for file in (as_matrix(tmp_path / "big", np.random.default_rng(0).random((4, 5000)) < 0.5),):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x55
        file.write_bytes(data)
        assert refused(file, file).startswith(f"{file} cannot be read: ")


def test_what_does_not_fit_is_refused_before_it_is_read(
    good: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(link_files, "blocks", lambda file: pytest.fail("read"))
    with pytest.raises(BadInput, match=r"reading 10 links from .*train\.npz and the others needs about 0 MB"):
        rating_files.source(*map(str, good)).check()
    monkeypatch.undo()
    monkeypatch.setattr(memory, "available", lambda: 1 << 30)
    far = tmp_path / "far.parquet"
    pd.DataFrame({"row": [0, 1 << 30], "col": [2, 5]}).to_parquet(far)
    assert refused(far, far).startswith(
        "a matrix of 1,073,741,825 × 6 needs about 25.8 GB of memory and 1.1 GB are free"
    )
