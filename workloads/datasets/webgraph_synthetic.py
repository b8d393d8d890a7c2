"""Draws a synthetic web graph of any size, with power-law degrees and communities that are grouped into topics.

Every row has a home community, drawn in proportion to popularity. Two thirds of the row's links go to columns in that
community, a fifth to communities with the same topic, and the rest to any column. Duplicates are redrawn and may then
go to any column. The popularity of columns follows a power law both within a community and overall, so popularity is
not enough to predict the links of a row. Evaluation rows are drawn from the same distribution but are absent from
training, as in ALX (arXiv 2112.02194).

The graph is computed from raw random bits, sorting, and quantiles rounded to 2⁻¹⁶, so it is the same on all machines.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from workloads import memory
from workloads.base import BadInput
from workloads.factorization.links import MOST_IDS, Links
from workloads.factorization.ratings import Ratings, RatingsSource, Size, random_bits, short, split_rows

GENERATOR = 1  # version of this module; part of the data's identity
TOPIC = 16  # communities per topic
HOME = 170  # out of 256 links
SAME_TOPIC = 51  # out of 256 links. The others go anywhere
LONGEST = 16  # a row links to at most one in 16 columns, or to four times the mean number
FEWEST = 5  # minimum number of links of an evaluation row, one of which is held out
BLOCK = 1 << 16  # links drawn at once, so that sorting fits in a core's cache
ROUNDS = 16  # rounds of replacing duplicates
AT_HOME = 2  # rounds by the first rule; later ones draw from anywhere


@dataclasses.dataclass(frozen=True)
class WebGraph:
    """Parameters of a graph.

    Attributes:
      rows, columns: size of the training matrix.
      links: total number of training links. Dense graphs have slightly fewer links (by a few per thousand).
      communities: number of communities. Each has columns / communities columns.
      exponent: exponent of the power laws of degrees. It must be above 2.
      heldout_rows: number of evaluation rows, in addition to ``rows``. 80 % of their links are history, and 20 % are
        held out. Half of the evaluation rows are used for validation, and half for testing.
      seed: seed of all random choices.
    """

    rows: int = 50_000
    columns: int = 50_000
    links: int = 2_000_000
    communities: int = 500
    exponent: float = 2.5
    heldout_rows: int = 5_000
    seed: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise BadInput(f"{field.name} must be a number, not {value!r}")
            if field.name != "exponent":
                if value != value or int(value) != value:
                    raise BadInput(f"{field.name} must be an integer, not {value!r}")
                object.__setattr__(self, field.name, int(value))
        for name, low, high in (
            ("rows", 1, MOST_IDS),
            ("columns", 80, MOST_IDS),
            ("communities", 1, self.columns),
            ("heldout_rows", 2, MOST_IDS),
            ("links", 1, self.rows * self.columns // 8),
            ("seed", 0, 2**63 - 1),
        ):
            if not low <= getattr(self, name) <= high:
                raise BadInput(f"{name} must be from {low:,} to {high:,}, not {getattr(self, name):,}")
        if not 2 < self.exponent <= 100:
            raise BadInput(f"exponent must be above 2 (for degrees with a mean) and at most 100, not {self.exponent}")


def source(**options: Any) -> RatingsSource:
    """Returns the data set with these parameters of ``WebGraph``. Raises BadInput if a parameter is invalid."""
    graph = WebGraph(**options)
    return RatingsSource.of("webgraph_synthetic", graph, version, check, build, size)


def size(graph: WebGraph) -> Size:
    """Returns the size of the training matrix."""
    return Size(graph.rows, graph.columns, graph.links)


def version(graph: WebGraph) -> str:
    """Returns the hash of the parameters and the generator's version."""
    return short(GENERATOR, dataclasses.asdict(graph))


def needed_bytes(graph: WebGraph) -> int:
    """Returns the approximate peak memory needed for generating the graph, in bytes."""
    heldout = 40 * round(graph.links * graph.heldout_rows / graph.rows)  # all evaluation links are split together
    return 200_000_000 + 5 * graph.links + heldout + 50 * (graph.rows + graph.heldout_rows) + 20 * graph.columns


def check(graph: WebGraph) -> None:
    """Raises BadInput if the graph does not fit in memory."""
    what = f"a synthetic web graph of {graph.links:,} links, {graph.rows:,} rows and {graph.columns:,} columns"
    memory.require(needed_bytes(graph), what, "Request fewer")


def build(graph: WebGraph) -> Ratings:
    """Draws the graph."""
    distributions = _distributions(graph)
    train = _links(graph, distributions, graph.rows, graph.links, 0)
    fewest = max(round(graph.links / graph.rows), FEWEST)
    evaluated = _links(graph, distributions, graph.heldout_rows, fewest * graph.heldout_rows, 1)
    history, heldout = split_rows(evaluated, _seed(graph, 3, 0))
    return Ratings(train, history, heldout, 0)


class _Distributions(NamedTuple):
    """Distributions that links are drawn from.

    Attributes:
      within: quantiles of the power law over the ranks in a community.
      anywhere: quantiles of the power law over all columns.
      home: quantiles of the power law over the communities.
      column_of: int32[columns], column ids by rank. Rank ``rank * communities + c`` belongs to community c.
    """

    within: np.ndarray
    anywhere: np.ndarray
    home: np.ndarray
    column_of: np.ndarray


def _distributions(graph: WebGraph) -> _Distributions:
    exponent = 1 / (graph.exponent - 1)  # of sizes over ranks; ``graph.exponent`` is that of the distribution of sizes
    return _Distributions(
        within=_quantiles(graph.columns // graph.communities, exponent),
        anywhere=_quantiles(graph.columns, exponent),
        home=_quantiles(graph.communities, exponent),
        column_of=_permutation(graph.columns, _seed(graph, 2, 0)),
    )


def _quantiles(count: int, exponent: float) -> np.ndarray:
    """Returns quantiles of the power law over [0, count), float64[2 ** 16 + 1], rounded to be machine-independent."""
    power = 1 - exponent
    ranks = (1 + np.linspace(0, 1, (1 << 16) + 1) * ((count + 1) ** power - 1)) ** (1 / power) - 1
    return np.minimum(np.rint(np.maximum(ranks, 0) * 65536) / 65536, np.nextafter(count, 0))


def _ranks(quantiles: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Returns int64 ranks, one for every 32 random bits, by interpolating between quantiles."""
    cell = bits >> 16
    low = quantiles[cell]
    return (low + (quantiles[cell + 1] - low) * ((bits & 0xFFFF) / 65536)).astype(np.int64)


def _seed(graph: WebGraph, stream: int, block: int) -> int:
    """Returns the seed for a part of the graph."""
    text = f"{graph.seed} {stream} {block}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _permutation(count: int, seed: int) -> np.ndarray:
    """Returns a random order, int32[count], by sorting random bits that have the index in the low bits."""
    mask = (1 << count.bit_length()) - 1
    keys = random_bits(seed, count)
    keys &= ~mask
    keys |= np.arange(count)
    keys.sort()
    keys &= mask
    return keys.astype(np.int32)


def _degrees(graph: WebGraph, rows: int, links: int, seed: int) -> np.ndarray:
    """Returns degrees int64[rows] that sum to ``links`` and follow a truncated power law, in random order."""
    limit = max(graph.columns // LONGEST, 4 * -(-links // rows))
    # Scale until the truncated degrees sum to ``links``, then round such that the sum is exact.
    weights = ((_permutation(rows, seed) + 0.5) / rows) ** (-1 / (graph.exponent - 1))
    scale = 1.0
    for _ in range(20):  # each round redistributes truncated links to the other rows
        degrees = np.minimum(weights * scale, limit)
        scale *= links / degrees.sum()
    ends = np.cumsum(np.rint(degrees * 65536).astype(np.int64))
    return np.diff(np.rint(ends / ends[-1] * links).astype(np.int64), prepend=0)


def _links(graph: WebGraph, distributions: _Distributions, rows: int, links: int, stream: int) -> Links:
    """Draws the links of all training rows (stream 0) or evaluation rows (stream 1)."""
    degrees = _degrees(graph, rows, links, _seed(graph, 4, stream))
    if stream:
        np.maximum(degrees, FEWEST, out=degrees)
    columns = np.empty(int(degrees.sum()), np.int32)
    starts = np.zeros(rows + 1, np.int64)
    end = 0
    for number, (first, last) in enumerate(_blocks(degrees)):
        keys = _block(graph, distributions, degrees[first:last], _seed(graph, 5 + stream, number))
        columns[end : end + len(keys)] = keys & 0xFFFFFFFF
        end += len(keys)
        starts[first + 1 : last + 1] = np.bincount(keys >> 32, minlength=last - first)
    return Links(np.cumsum(starts, out=starts), columns[:end], graph.columns)


def _blocks(degrees: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows that have about BLOCK links each."""
    ends = np.cumsum(degrees)
    first = 0
    while first < len(degrees):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
        last = min(last, first + BLOCK)
        yield first, last
        first = last


def _block(graph: WebGraph, distributions: _Distributions, degrees: np.ndarray, seed: int) -> np.ndarray:
    """Draws distinct links of some rows: int64[links], sorted, with rows in the high and columns in the low bits."""
    # Duplicates are redrawn, first by the same rule, then from anywhere.
    home = _ranks(distributions.home, random_bits(seed, len(degrees)) >> 31)
    keys = np.empty(0, np.int64)
    missing = degrees
    for attempt in range(ROUNDS):
        row = np.repeat(np.arange(len(degrees)), missing)
        bits = random_bits(seed + 1 + attempt, len(row))
        if attempt < AT_HOME:
            columns = _columns(graph, distributions, home[row], bits)
        else:
            columns = distributions.column_of[_ranks(distributions.anywhere, bits >> 31)]
        pairs = row << 32 | columns
        pairs.sort()
        keys = np.concatenate([keys, pairs])
        keys.sort(kind="stable")  # merges two sorted runs
        distinct = np.empty(len(keys), bool)
        distinct[:1] = True
        np.not_equal(keys[1:], keys[:-1], out=distinct[1:])
        if distinct.all():
            break
        keys = keys[distinct]
        missing = degrees - np.bincount(keys >> 32, minlength=len(degrees))
    return keys


def _columns(graph: WebGraph, distributions: _Distributions, home: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Returns a column for each home. Uses 63 random bits each: 32 for rank, 23 for community, 8 for kind of link."""
    kind = bits & 255
    high = bits >> 31
    # Community: the home, or a uniform choice within its topic.
    community = home.copy()
    topical = np.flatnonzero(kind >= HOME)
    first = home[topical] // TOPIC * TOPIC
    pick = bits[topical] >> 8 & 0x7FFFFF
    community[topical] = first + (pick * np.minimum(TOPIC, graph.communities - first) >> 23)
    # Rank: within the community, or over all columns.
    rank = _ranks(distributions.within, high) * graph.communities + community
    far = np.flatnonzero(kind >= HOME + SAME_TOPIC)
    rank[far] = _ranks(distributions.anywhere, high[far])
    return distributions.column_of[rank]
