"""The synthetic web graph: its shape, its degrees, its memory, and that there is something in it to learn."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.bad_input import BadInput
from workloads import memory
from workloads.datasets import webgraph_synthetic
from workloads.datasets.webgraph_synthetic import WebGraph
from workloads.factorization.links import Links
from workloads.factorization.ratings import Ratings

ROOT = Path(webgraph_synthetic.__file__).parents[2]
SMALL = WebGraph(rows=4000, columns=3000, links=120_000, communities=60, heldout_rows=500)


@pytest.fixture(scope="module")
def small() -> Ratings:
    return webgraph_synthetic.build(SMALL)


def digest(ratings: Ratings) -> str:
    parts = (array for links in ratings[:3] for array in links[:2])
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def assert_sound(links: Links) -> None:
    """Columns are within the matrix, sorted and distinct within every row."""
    assert (links.starts.dtype, links.columns.dtype) == (np.int64, np.int32)
    assert links.starts[0] == 0 and links.starts[-1] == len(links.columns)
    rows = np.repeat(np.arange(links.row_count), links.lengths)
    assert (np.diff(rows * links.column_count + links.columns) > 0).all()
    assert links.columns.min() >= 0 and links.columns.max() < links.column_count


def test_it_is_as_large_as_it_was_asked_to_be(small: Ratings) -> None:
    for links, rows in ((small.train, 4000), (small.history, 500), (small.heldout, 500)):
        assert_sound(links)
        assert (links.row_count, links.column_count) == (rows, 3000)
    assert 0.999 * 120_000 <= len(small.train.columns) <= 120_000
    assert small.lines() == ()


def test_a_fifth_of_the_links_of_evaluation_rows_is_held_out(small: Ratings) -> None:
    count = small.history.lengths + small.heldout.lengths
    np.testing.assert_array_equal(small.heldout.lengths, np.maximum(1, np.rint(count / 5)))
    assert count.min() >= webgraph_synthetic.FEWEST
    assert abs(count.mean() / small.train.lengths.mean() - 1) < 0.05
    key = [np.repeat(np.arange(500), part.lengths) * 3000 + part.columns for part in (small.history, small.heldout)]
    assert not np.isin(*key).any()


@pytest.mark.parametrize("exponent", [2.2, 2.5, 3.5])
def test_degrees_follow_a_power_law(exponent: float) -> None:
    graph = WebGraph(rows=30_000, columns=30_000, links=600_000, communities=300, exponent=exponent)
    train = webgraph_synthetic.build(graph).train
    # Of the rows with at least n links a share of 2 ** -(exponent - 1) has at least 2n.
    few = 4 * int(np.median(train.lengths)) // 2
    ratio = (train.lengths >= 2 * few).sum() / (train.lengths >= few).sum()
    assert abs(-np.log2(ratio) - (exponent - 1)) < 0.3
    popularity = np.sort(train.transpose().lengths)[::-1]
    slope = np.polyfit(np.log(np.arange(30, 3000)), np.log(popularity[30:3000]), 1)[0]
    assert abs(slope + 1 / (exponent - 1)) < 0.3


def test_the_parameters_decide_and_nothing_else(small: Ratings) -> None:
    assert digest(small) == "5364f307df4404b5"
    assert webgraph_synthetic.version(SMALL) == "sha256:bcfe4dd74a16fa62"
    for name, value in (("seed", 1), ("exponent", 2.6), ("communities", 61), ("heldout_rows", 501)):
        changed: dict[str, Any] = SMALL.__dict__ | {name: value}
        assert webgraph_synthetic.version(WebGraph(**changed)) != webgraph_synthetic.version(SMALL)
        assert digest(webgraph_synthetic.build(WebGraph(**changed))) != digest(small)
    source = webgraph_synthetic.source(rows=4000, columns=3000, links=120_000.0, communities=60, heldout_rows=500)  # type: ignore[arg-type]
    assert source.version() == webgraph_synthetic.version(SMALL)


@pytest.mark.parametrize(
    ("rows", "columns", "links", "communities"),
    [(1, 80, 10, 1), (3, 1000, 30, 1000), (5000, 80, 50_000, 3), (100, 100_000, 100_000, 17), (50_000, 100, 20, 10)],
)
def test_odd_shapes(rows: int, columns: int, links: int, communities: int) -> None:
    ratings = webgraph_synthetic.build(WebGraph(rows, columns, links, communities, heldout_rows=7))
    for part in ratings[:3]:
        assert_sound(part)
    assert 0.99 * links <= len(ratings.train.columns) <= links
    assert ratings.heldout.lengths.min() >= 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rows": 0}, "rows must be from 1 to"),
        ({"rows": 1 << 32}, "rows must be from 1 to"),
        ({"columns": 79}, "columns must be from 80 to"),
        ({"communities": 50_001}, "communities must be from 1 to 50,000, not 50,001"),
        ({"links": 400_000_000}, "links must be from 1 to 312,500,000, not 400,000,000"),
        ({"links": 1.5}, "links must be an integer, not 1.5"),
        ({"links": float("nan")}, "links must be an integer, not nan"),
        ({"heldout_rows": 0}, "heldout_rows must be from 2 to"),
        ({"exponent": 2}, "exponent must be above 2"),
        ({"exponent": "2.5"}, "exponent must be a number, not '2.5'"),
        ({"seed": -1}, "seed must be from 0 to"),
        ({"seed": True}, "seed must be a number, not True"),
    ],
)
def test_parameters_that_make_no_sense(change: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=f"^{text}") as raised:
        webgraph_synthetic.source(**change)
    assert "\n" not in str(raised.value)


def test_a_graph_that_does_not_fit_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 24 * 10**9)
    webgraph_synthetic.source(rows=2_000_000, columns=2_000_000, links=100_000_000).check()
    line = r"^a synthetic web graph of 30,000,000,000 links, .* needs about 1\d\d GB of memory and 24\.0 GB are free"
    with pytest.raises(BadInput, match=line):
        webgraph_synthetic.source(rows=400_000_000, columns=400_000_000, links=30_000_000_000).check()


MEASURE = """
import re, sys
from pathlib import Path
from workloads.datasets.webgraph_synthetic import WebGraph, build
build(WebGraph(20_000, 20_000, int(sys.argv[1]), 200, heldout_rows=500))
print(1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_a_few_bytes_a_link() -> None:
    peaks = []
    for links in (1_000_000, 9_000_000):
        command = [sys.executable, "-c", MEASURE, str(links)]
        peaks.append(int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout))
        assert peaks[-1] < webgraph_synthetic.needed_bytes(WebGraph(20_000, 20_000, links, 200, heldout_rows=500))
    assert (peaks[1] - peaks[0]) / 8_000_000 < 8  # 4 are the columns themselves; 10⁸ links take less than a gigabyte


def test_two_million_links_take_a_second() -> None:
    start = time.process_time()
    webgraph_synthetic.build(WebGraph(40_000, 40_000, 2_000_000, 400))
    assert time.process_time() - start < 4  # measured: 0.4 s, and ten million links in 2 s


def test_factorization_recall_is_far_above_popularity(small: Ratings) -> None:
    by_column = small.train.transpose()
    columns = np.random.default_rng(0).standard_normal((3000, 24)) / 24**0.5
    for _ in range(4):
        rows = solved(small.train, columns)
        columns = solved(by_column, rows)
    popular = np.tile(by_column.lengths.astype(float), (500, 1))
    factorized, baseline = (recall(scores, small) for scores in (solved(small.history, columns) @ columns.T, popular))
    assert factorized > 0.3
    assert factorized > 3 * baseline


def solved(links: Links, other: np.ndarray, alpha: float = 0.05, penalty: float = 0.01) -> np.ndarray:
    """Rows of implicit ALS by their normal equations, [rows, d]."""
    shared = alpha * other.T @ other
    rows = np.zeros((links.row_count, other.shape[1]))
    for row, length in enumerate(links.lengths):
        own = other[links.columns[links.starts[row] : links.starts[row + 1]]]
        ridge = penalty * (length + alpha * len(other)) * np.eye(other.shape[1])
        rows[row] = np.linalg.solve(own.T @ own + shared + ridge, own.sum(0))
    return rows


def recall(scores: np.ndarray, ratings: Ratings) -> float:
    """Mean recall@20."""
    found = []
    for row, ranked in enumerate(scores):
        of_row = slice(*ratings.history.starts[row : row + 2])
        ranked[ratings.history.columns[of_row]] = -np.inf
        sought = ratings.heldout.columns[slice(*ratings.heldout.starts[row : row + 2])]
        found.append(np.isin(np.argsort(-ranked)[:20], sought).sum() / min(20, len(sought)))
    return float(np.mean(found))
