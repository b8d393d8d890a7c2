"""Ratings: the links that a factorization is trained and tested on, and their sources."""

import functools
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from workloads.factorization.links import Links

HELDOUT_SHARE = 0.2  # share of an evaluation row's links, if a data set does not define its own
HALVES_SEED = 1


class Ratings(NamedTuple):
    """The data for a factorization. Every rating is a link without a value.

    Attributes:
      train: training links, rows × columns.
      history: links that evaluation rows are solved from (fold-in), evaluation rows × columns.
      heldout: links of the same rows that should be predicted, at least one per row and all distinct from ``history``.
        ``halves`` splits the rows into validation and test, except for rows without a history.
      merged: number of duplicate links that were merged.
      remarks: additional notes for the user, for example if the data had to be prepared again.
    """

    train: Links
    history: Links
    heldout: Links
    merged: int
    remarks: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Returns notes for the user about these data, one line each. The list is usually empty."""
        lines = []
        if self.merged:
            links = "1 duplicate link was" if self.merged == 1 else f"{self.merged:,} duplicate links were"
            lines.append(f"{links} merged")
        if bare := int(np.sum((self.heldout.lengths > 0) & (self.history.lengths == 0))):
            rows = "1 row with held-out links has" if bare == 1 else f"{bare:,} rows with held-out links have"
            lines.append(f"{rows} no history and cannot be evaluated")
        return (*self.remarks, *lines)


class Size(NamedTuple):
    """The number of training rows and columns, and the approximate number of training links."""

    rows: int
    columns: int
    links: int


class RatingsSource(NamedTuple):
    """A data set of ratings: its builder, and metadata that are available without loading the data.

    Attributes:
      name: name for files and messages, without a slash.
      version: hash of the content, ``sha256:`` and 16 hex digits. Part of every study's identity.
      check: function that raises BadInput if ``build`` would, for example due to insufficient memory, as far as this
        can be checked without reading all data.
      build: function that builds the ratings from the original data. It is slow, so use ``prepared.load`` instead.
      size: function that returns the size, or None if it is unknown without the data.
    """

    name: str
    version: Callable[[], str]
    check: Callable[[], None]
    build: Callable[[], Ratings]
    size: Callable[[], Size | None] = lambda: None

    @classmethod
    def of(cls, name: str, choice: Any, *functions: Callable[[Any], Any]) -> "RatingsSource":
        """Returns the source whose functions, in the order of the fields, are called with a choice of data."""
        return cls(name, *(functools.partial(function, choice) for function in functions))


def split_rows(links: Links, seed: int) -> tuple[Links, Links]:
    """Randomly splits the links of each row into history and held-out links.

    Args:
      links: links of the evaluation rows, at least 2 in each row.
      seed: seed of the split.

    Returns:
      History and held-out links. In each row, ``HELDOUT_SHARE`` of the links are held out, rounded to a whole number of
        at least one.
    """
    row = links.row_of_link
    # Links are sorted by row, then by random bits. The first links of each row, up to its quota, are held out.
    order = np.argsort(row << 32 | random_bits(seed, len(row)) >> 32, kind="stable")
    quota = np.maximum(1, np.rint(HELDOUT_SHARE * links.lengths)).astype(np.int64)
    is_heldout = np.empty(len(row), bool)
    is_heldout[order] = np.arange(len(row)) - links.starts[row] < quota[row]
    return _select(links, row, ~is_heldout), _select(links, row, is_heldout)


def halves(history: Links, heldout: Links, limit: int | None = None) -> dict[str, np.ndarray]:
    """Splits the evaluation rows into halves: ``validation``, used to select trials, and ``test``, which is reported.

    Rows that have a history and held-out links are split at random into equal halves. If their number is odd,
    validation gets one more. The split depends only on the data.

    Args:
      history, heldout: links of the evaluation rows.
      limit: maximum number of rows in total, or None for all rows. A larger sample contains all rows of a smaller one.

    Returns:
      Sorted row numbers by split, int64[rows].
    """
    rows = np.flatnonzero((history.lengths > 0) & (heldout.lengths > 0))
    order = np.argsort(random_bits(HALVES_SEED, len(rows)), kind="stable")
    middle = -(-len(rows) // 2)
    limit = len(rows) if limit is None else limit
    validation = order[:middle][: -(-limit // 2)]
    test = order[middle:][: limit // 2]
    return {"validation": np.sort(rows[validation]), "test": np.sort(rows[test])}


def evaluation(train: Links, history: Links | None, heldout: Links) -> tuple[Links, Links, int]:
    """Returns the evaluation rows of matrices of equal shape: rows with held-out links that are not already known.

    Args:
      train, heldout: training links and held-out links.
      history: history links, or None if the history of a row is its links in ``train``.

    Returns:
      History and held-out links of these rows, and the number of held-out links that were dropped because they are
      known.
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
    """Returns a data version: ``sha256:`` followed by 16 hex digits of a hash of texts."""
    return f"sha256:{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def left_out(count: int) -> tuple[str, ...]:
    """Returns a note about held-out links that ``evaluation`` dropped."""
    return (f"{count:,} held-out links also occur in training or history and are ignored",) if count else ()


def random_bits(seed: int, count: int) -> np.ndarray:
    """Returns 63-bit random numbers, int64[count], which do not depend on the version of NumPy or the machine."""
    return (np.random.SFC64(seed).random_raw(count) >> np.uint64(1)).astype(np.int64)


def _select(links: Links, row: np.ndarray, mask: np.ndarray) -> Links:
    counts = np.bincount(row[mask], minlength=links.row_count)
    return Links(np.concatenate([[0], np.cumsum(counts)]), links.columns[mask], links.column_count)


def _without(links: Links, excluded: Links) -> Links:
    """Returns the links that are not in ``excluded``, a matrix of the same shape."""
    row = links.row_of_link
    excluded_keys = excluded.row_of_link << 32 | excluded.columns
    return _select(links, row, ~np.isin(row << 32 | links.columns, excluded_keys, assume_unique=True))
