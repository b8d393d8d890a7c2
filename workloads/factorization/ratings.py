"""Ratings: the links a factorization is trained on and those it is tested with, and where they come from."""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads import caches
from workloads.factorization.links import Links

HELDOUT_SHARE = 0.2  # of the links of an evaluation row, where a data set does not say which ones
HALVES_SEED = 1


class Ratings(NamedTuple):
    """The data of a factorization. Ratings have no values: every rating is a link.

    Attributes:
      train: rows × columns.
      history: evaluation rows × columns: the links an evaluation row is solved from (fold-in).
      heldout: the same rows: the links to be found, none of them in ``history``, at least one in every row. ``halves``
        says which of the rows are validation and which are test; those without a history are neither.
      merged: links that were given more than once, and are one now.
      remarks: other lines of ``lines``, such as that the data had to be prepared anew.
    """

    train: Links
    history: Links
    heldout: Links
    merged: int
    remarks: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Notes for the user about these data, a line each; mostly none."""
        lines = []
        if self.merged:
            links = "1 duplicate link was" if self.merged == 1 else f"{self.merged:,} duplicate links were"
            lines.append(f"{links} merged")
        if bare := int(np.sum((self.heldout.lengths > 0) & (self.history.lengths == 0))):
            rows = "1 row with held-out links has" if bare == 1 else f"{bare:,} rows with held-out links have"
            lines.append(f"{rows} no history to be solved from and are left out")
        return (*self.remarks, *lines)


class Size(NamedTuple):
    """How large ratings are: rows and columns of training, and its links, about."""

    rows: int
    columns: int
    links: int


class RatingsSource(NamedTuple):
    """A data set of ratings: its builder, and metadata available without loading it.

    Attributes:
      name: of files and messages, without a slash.
      version: hash of the content, ``sha256:`` and 16 hex digits; part of every study's identity.
      check: raises BadInput where ``build`` would, as far as that can be told without reading it all:
        among others where memory is too small.
      build: makes the ratings from the original data; slow, use ``prepared.load``.
      size: how large they are, where that is known without the data; None where it is not.
    """

    name: str
    version: Callable[[], str]
    check: Callable[[], None]
    build: Callable[[], Ratings]
    size: Callable[[], Size | None] = lambda: None


def split_rows(links: Links, seed: int) -> tuple[Links, Links]:
    """Splits the links of every row at random into history and held-out ones.

    Args:
      links: of the evaluation rows, at least 2 each.
      seed: decides, together with ``links``.

    Returns:
      History and held-out links; of the latter ``HELDOUT_SHARE`` of the row's links, rounded, but at least one.
    """
    lengths = links.lengths
    row = np.repeat(np.arange(links.row_count), lengths)
    # One sort by row, then by random bits; where a place in the row falls below the quota, the link is held out.
    order = np.argsort(row << 32 | random_bits(seed, len(row)) >> 32, kind="stable")
    quota = np.maximum(1, np.rint(HELDOUT_SHARE * lengths)).astype(np.int64)
    is_heldout = np.empty(len(row), bool)
    is_heldout[order] = np.arange(len(row)) - links.starts[row] < quota[row]
    return _select(links, row, ~is_heldout), _select(links, row, is_heldout)


def halves(history: Links, heldout: Links, most: int | None = None) -> dict[str, np.ndarray]:
    """The evaluation rows in two halves: ``validation``, by which trials are chosen, and ``test``, which is reported.

    The rows with a history and held-out links at random, as many in either (of an odd number one more is validation),
    always the same of the same data.

    Args:
      history, heldout: of the evaluation rows.
      most: rows in all; a sample of more is of the same rows and further ones. None takes all.

    Returns:
      Sorted numbers of rows by split, int64[rows].
    """
    rows = np.flatnonzero((history.lengths > 0) & (heldout.lengths > 0))
    order = np.argsort(random_bits(HALVES_SEED, len(rows)), kind="stable")
    middle = -(-len(rows) // 2)
    most = len(rows) if most is None else most
    validation = order[:middle][: -(-most // 2)]
    test = order[middle:][: most // 2]
    return {"validation": np.sort(rows[validation]), "test": np.sort(rows[test])}


def evaluation(train: Links, history: Links | None, heldout: Links) -> tuple[Links, Links, int]:
    """The evaluation rows of matrices of one shape: those with held-out links that are not known already.

    Args:
      train, heldout: links.
      history: None where a row's history is its links in ``train``.

    Returns:
      History and held-out links of these rows, and how many held-out links were left out as known.
    """
    rows = np.flatnonzero(heldout.lengths)
    candidates = heldout.of_rows(rows)
    trained = train.of_rows(rows)
    known = history.of_rows(rows) if history else trained
    new = _without(candidates, known)
    if history:
        new = _without(new, trained)
    remaining = np.flatnonzero(new.lengths)
    return known.of_rows(remaining), new.of_rows(remaining), len(candidates.columns) - len(new.columns)


def short(*parts: object) -> str:
    """The version of data: ``sha256:`` and 16 hex digits, of the texts of some parts."""
    return f"sha256:{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def file_digest(file: Path) -> str:
    """sha256 of a file; it is read once in a process, unless its size or time changes."""
    stat = file.stat()
    return _file_digest(file, stat.st_size, stat.st_mtime_ns)


def left_out(known: int) -> tuple[str, ...]:
    """The remark on held-out links that ``evaluation`` left out."""
    return (f"{known:,} held-out links were known from training or history and are left out",) if known else ()


def random_bits(seed: int, count: int) -> np.ndarray:
    """int64[count] of 63 random bits, the same with every version of NumPy and on every machine."""
    return (np.random.SFC64(seed).random_raw(count) >> np.uint64(1)).astype(np.int64)


def _select(links: Links, row: np.ndarray, mask: np.ndarray) -> Links:
    counts = np.bincount(row[mask], minlength=links.row_count)
    return Links(np.concatenate([[0], np.cumsum(counts)]), links.columns[mask], links.column_count)


def _without(links: Links, others: Links) -> Links:
    """The links that are not among ``others``, which has the same rows and columns."""
    row = np.repeat(np.arange(links.row_count), links.lengths)
    other_row = np.repeat(np.arange(others.row_count), others.lengths)
    shared = np.isin(row << 32 | links.columns, other_row << 32 | others.columns, assume_unique=True)
    return _select(links, row, ~shared)


@functools.lru_cache(maxsize=4096)
def _file_digest(file: Path, size: int, time: int) -> str:
    return caches.file_digest(file)
