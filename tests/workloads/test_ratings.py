"""Links gathered from pairs, split for evaluation, and kept on disk."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from results.bad_input import BadInput
from workloads import memory
from workloads.factorization import prepared
from workloads.factorization.links import MOST_IDS, Links, Pairs
from workloads.factorization.ratings import Ratings, RatingsSource, evaluation, halves, random_bits, split_rows

from .graphs import from_pairs

SHAPE = (70, 50)


def dense(links: Links) -> np.ndarray:
    """bool[rows, columns]."""
    matrix = np.zeros((links.row_count, links.column_count), bool)
    matrix[np.repeat(np.arange(links.row_count), links.lengths), links.columns] = True
    return matrix


def some_links(seed: int, count: int = 600) -> Links:
    random = np.random.default_rng(seed)
    return from_pairs(random.integers(0, SHAPE[0], count), random.integers(0, SHAPE[1], count), SHAPE)[0]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of these tests."""
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ratings"


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("kind", [np.int8, np.uint32, np.int64])
def test_pairs_in_any_order_become_a_matrix(block: int, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.factorization.links.PAIRS_BLOCK", block)
    random = np.random.default_rng(1)
    rows, columns = random.integers(0, 60, 300).astype(kind), random.integers(0, 40, 300).astype(kind)
    gathered = Pairs()
    for part in np.array_split(np.arange(300), 4):
        gathered.add(rows[part], columns[part], "here")
    gathered.add(rows[:0], columns[:0], "here")
    assert gathered.shape == (rows.max() + 1, columns.max() + 1)
    links, merged = gathered.links(SHAPE)
    expected = np.zeros(SHAPE, bool)
    expected[rows, columns] = True
    np.testing.assert_array_equal(dense(links), expected)
    assert merged == 300 - expected.sum() > 0
    assert (links.starts.dtype, links.columns.dtype) == (np.int64, np.int32)
    for row in range(SHAPE[0]):
        assert (np.diff(links.columns[links.starts[row] : links.starts[row + 1]]) > 0).all()


def test_no_pairs_are_an_empty_matrix() -> None:
    links, merged = Pairs().links(SHAPE)
    assert (links.row_count, links.column_count, len(links.columns), merged) == (*SHAPE, 0, 0)


@pytest.mark.parametrize(
    ("rows", "columns", "text"),
    [
        ([0, -3], [0, 0], "here: row -3 is negative. Ids start at 0."),
        ([0, 1], [0, 2**31], f"here: col {2**31} is out of range. Ids go to {MOST_IDS - 1}."),
    ],
)
def test_ids_that_cannot_be(rows: list[int], columns: list[int], text: str) -> None:
    with pytest.raises(BadInput, match=re.escape(text)):
        Pairs().add(np.array(rows), np.array(columns), "here")


def test_a_fifth_of_every_row_is_held_out() -> None:
    links = some_links(2, 1500)
    history, heldout = split_rows(links, seed=5)
    np.testing.assert_array_equal(dense(history) | dense(heldout), dense(links))
    assert not (dense(history) & dense(heldout)).any()
    np.testing.assert_array_equal(heldout.lengths, np.maximum(1, np.rint(links.lengths / 5)))
    assert (dense(split_rows(links, seed=5)[1]) == dense(heldout)).all()
    other = dense(split_rows(links, seed=6)[1]) & dense(heldout)
    assert other.sum() < 0.4 * len(heldout.columns)  # a fifth would be chance


@pytest.mark.parametrize("rows", [2, 3, 400, 401])
def test_evaluation_rows_are_validation_or_test(rows: int) -> None:
    heldout = Links(np.arange(rows + 1), np.zeros(rows, np.int32), 1)
    found = halves(heldout, heldout)
    assert list(found) == ["validation", "test"]
    assert sorted(np.concatenate(list(found.values()))) == list(range(rows))
    assert [len(half) for half in found.values()] == [rows - rows // 2, rows // 2]
    for half in found.values():
        assert half.tolist() == sorted(half)
        if rows >= 400:  # at random, so neither a block of neighbours nor every other row
            assert abs(np.mean(half) - rows / 2) < 0.1 * rows
            assert 0.3 < np.mean(np.diff(half) == 1) < 0.7


def test_the_halves_of_data_never_change() -> None:
    links = some_links(8, 100)
    once, again = halves(links, links), halves(links, links._replace(columns=links.columns.copy()))
    for split in once:
        np.testing.assert_array_equal(once[split], again[split])
        assert (links.lengths[once[split]] > 0).all()
    eight = Links(np.arange(9), np.zeros(8, np.int32), 1)
    assert halves(eight, eight)["validation"].tolist() == [1, 2, 3, 7]


def test_rows_without_a_history_are_in_neither_half() -> None:
    heldout, history = some_links(8, 100), some_links(9, 100)
    found = np.concatenate(list(halves(history, heldout).values()))
    there = (history.lengths > 0) & (heldout.lengths > 0)
    assert sorted(found) == np.flatnonzero(there).tolist() != np.flatnonzero(heldout.lengths).tolist()
    left = int((heldout.lengths > 0).sum() - there.sum())
    (line,) = Ratings(history, history, heldout, 0).lines()
    assert line == f"{left} rows with held-out links have no history and cannot be evaluated"


def test_a_larger_sample_of_rows_holds_the_smaller_ones() -> None:
    links = some_links(8)
    everything = halves(links, links)
    for most in (2, 5, 6, 31, 1000):
        some, more = halves(links, links, most), halves(links, links, most + 1)
        assert sum(map(len, some.values())) == min(most, links.row_count)
        assert 0 <= len(some["validation"]) - len(some["test"]) <= 1
        for split in some:
            assert set(some[split]) <= set(more[split]) <= set(everything[split])


def test_random_bits_never_change() -> None:
    assert random_bits(7, 2).tolist() == [404542462756400999, 5416649575040343389]


@pytest.mark.parametrize("given", [True, False])
def test_known_links_are_no_test(given: bool) -> None:
    train, other, heldout = some_links(3), some_links(4), some_links(5, 60)
    history, sought, known = evaluation(train, other if given else None, heldout)
    seen = dense(train) | dense(other) if given else dense(train)
    expected = dense(heldout) & ~seen
    rows = np.flatnonzero(expected.any(1))
    np.testing.assert_array_equal(dense(sought), expected[rows])
    np.testing.assert_array_equal(dense(history), dense(other if given else train)[rows])
    assert known == (dense(heldout) & seen).sum() > 0


def test_remarks_become_lines() -> None:
    ratings = Ratings(some_links(0), some_links(1), some_links(2), 0)
    assert ratings.lines() == ()
    assert ratings._replace(merged=1234, remarks=("this",)).lines() == ("this", "1,234 duplicate links were merged")
    assert ratings._replace(merged=1).lines() == ("1 duplicate link was merged",)


class Counted:
    """A source that counts how often it is built; one matrix is empty."""

    def __init__(self) -> None:
        self.built = 0
        self.ratings = Ratings(some_links(6), some_links(7), some_links(8).of_rows(np.empty(0, int)), 3, ("a remark",))

    def build(self) -> Ratings:
        self.built += 1
        return self.ratings

    def source(self, version: str = "sha256:0123456789abcdef") -> RatingsSource:
        return RatingsSource("counted", lambda: version, lambda: None, self.build)


def assert_same(one: Ratings, other: Ratings) -> None:
    for part in prepared.PARTS:
        for mine, theirs in zip(getattr(one, part), getattr(other, part), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert one.merged == other.merged


def leftovers(cache: Path) -> list[Path]:
    return list(cache.glob(".tmp-*"))


def test_ratings_are_prepared_once(cache: Path) -> None:
    counted = Counted()
    for _ in range(3):
        loaded = prepared.load(counted.source())
        assert_same(loaded, counted.ratings)
        assert loaded.remarks == ("a remark",)
        assert type(loaded.train.columns) is np.ndarray
        assert not loaded.train.columns.flags.writeable
    assert counted.built == 1
    prepared.load(counted.source("sha256:other"))
    assert counted.built == 2
    assert sorted(path.name for path in cache.iterdir()) == ["counted-1-0123456789abcdef", "counted-1-other"]


def damages(place: Path) -> Iterator[tuple[str, Path, bytes | None]]:
    """What could be wrong: the reason, the file and what it holds then."""
    columns, contents = place / "train.columns.npy", place / "contents.json"
    data = columns.read_bytes()
    yield "train.columns.npy has changed", columns, data[:-1]
    yield "train.columns.npy has changed", columns, data[:-1] + bytes([data[-1] ^ 1])
    yield "train.columns.npy: No such file or directory", columns, None
    yield "contents.json cannot be read", contents, b""
    yield "contents.json cannot be read", contents, None
    yield "contents.json has changed", contents, contents.read_bytes().replace(b'"merged": 3', b'"merged": 4')
    yield "contents.json cannot be read", contents, json.dumps([]).encode()


@pytest.mark.parametrize("number", range(7))
def test_a_corrupted_cache_is_prepared_anew_and_that_is_said(cache: Path, number: int) -> None:
    counted = Counted()
    prepared.load(counted.source())
    place = cache / "counted-1-0123456789abcdef"
    reason, file, data = list(damages(place))[number]
    file.unlink()
    if data is not None:
        file.write_bytes(data)
    loaded = prepared.load(counted.source())
    assert_same(loaded, counted.ratings)
    assert counted.built == 2
    said = f"the prepared counted in {place} was corrupted ({reason}) and has been prepared again"
    assert loaded.remarks == (said, "a remark")
    assert prepared.load(counted.source()).remarks == ("a remark",)
    assert not leftovers(cache)


def test_a_file_in_the_place_of_the_folder_is_corruption(cache: Path) -> None:
    counted = Counted()
    cache.mkdir(parents=True)
    (cache / "counted-1-0123456789abcdef").write_text("what")
    assert "corrupted" in prepared.load(counted.source()).remarks[0]


def test_whoever_is_first_wins(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    first = Counted()

    def overtaken() -> Ratings:
        prepared.load(first.source())
        return counted.build()

    source = counted.source()._replace(build=overtaken)
    assert_same(prepared.load(source), counted.ratings)
    assert not leftovers(cache)
    assert (first.built, counted.built) == (1, 1)


def test_a_failed_build_leaves_nothing(cache: Path) -> None:
    def fails() -> Ratings:
        raise BadInput("no")

    with pytest.raises(BadInput, match=r"^no$"):
        prepared.load(Counted().source()._replace(build=fails))
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "file"))
    with pytest.raises(
        BadInput, match=r"stored in .*: Not a directory.*hoose another folder with SCALING_LIMITS_CACHE=DIR"
    ) as raised:
        prepared.load(Counted().source())
    assert "\n" not in str(raised.value)


def test_what_is_prepared_needs_no_check() -> None:
    def refuses() -> None:
        raise BadInput("too large")

    source = Counted().source()
    with pytest.raises(BadInput, match="too large"):
        prepared.check(source._replace(check=refuses))
    prepared.load(source)
    prepared.check(source._replace(check=refuses))
    prepared.load(source._replace(check=refuses))


def test_what_killed_processes_left_is_removed_once_it_is_old(cache: Path) -> None:
    old, young = cache / ".tmp-old", cache / ".tmp-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    prepared.load(Counted().source())
    assert leftovers(cache) == [young]


def test_memory_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = memory.available()
    assert free is None or 1 << 20 < free < 1 << 50
    meminfo, group = tmp_path / "meminfo", tmp_path / "cgroup"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable: 6000000 kB\n")
    group.write_text("0::/user/job\n")
    inner = tmp_path / "groups" / "user" / "job"
    inner.mkdir(parents=True)
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    monkeypatch.setattr(memory, "OWN_GROUP", group)
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")
    assert memory.available() == 6_144_000_000
    (inner / "memory.max").write_text("max\n")
    assert memory.available() == 6_144_000_000
    for name, text in (("max", "3000"), ("current", "2500"), ("stat", "inactive_file 100\nactive_file 7\nanon 1")):
        (inner.parent / f"memory.{name}").write_text(text)
    assert memory.available() == 607
    meminfo.write_text("MemAvailable: 6000000 kB\n")
    (inner.parent / "memory.max").unlink()
    memory.require(6_000_000_000, "it", "Take less")
    with pytest.raises(BadInput, match=r"^it needs about 7\.0 GB of memory and 6\.1 GB are free\. Take less\.$"):
        memory.require(7_000_000_000, "it", "Take less")
