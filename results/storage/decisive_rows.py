"""Decisive rows: the measurements that can determine an answer, and why the others cannot. See ``envelope``."""

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

NOT_COMPLETE = -1  # rank of other trials; COMPLETE trials are counted from 0
TABLE_ROOM = 8  # maximum lookup-table entries per row, to find steps
MOST_EDGES = 256  # steps at which rows are compared; longer studies keep some redundant rows


def decisive(
    starts: np.ndarray, step: np.ndarray, rank: np.ndarray, metrics: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows that can determine an answer: rows for the minimum rule, and additional rows for other rules.

    Args:
      starts: whether each row is the first of its trial.
      step, rank: step and rank of each row.
      metrics: for each metric, the values, and the previous row with this metric for each row, or -1.
    """
    # Steps become ranks among the distinct steps. Each row also has the rank of the previous evaluation.
    place = _places(step)
    bounds = [*np.flatnonzero(starts).tolist(), len(step)]
    minimum, released = np.zeros(len(step), bool), np.zeros(len(step), bool)
    # A row matters only if it improves on its trial and beats all earlier rows, by either rank.
    for value, before in metrics:
        rows = _improving(value, bounds)
        is_ranked = rank[rows] != NOT_COMPLETE
        ranked = rows[is_ranked]
        for key in (place[rows], taken(place, before[rows])):
            minimum[rows[_first_of_all(key, value[rows])]] = True
            released[ranked[_first_of_ranks(key[is_ranked], value[ranked], rank[ranked])]] = True
    return np.flatnonzero(minimum), np.flatnonzero(released & ~minimum)


def row_before(starts: np.ndarray, column: pa.ChunkedArray) -> np.ndarray:
    """Returns, for each row, the previous row of the same trial that has a value of the metric, or -1."""
    row = np.arange(len(starts))
    measured = column.is_valid().to_numpy()
    last = np.maximum.accumulate(np.where(measured, row, -1))
    before = np.append(-1, last[:-1])[: len(row)]
    return np.where(before >= np.maximum.accumulate(np.where(starts, row, 0)), before, -1)


def taken(of: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the values at the given rows, with 0 for row -1."""
    return np.where(rows < 0, 0, of[rows]) if len(of) else of


def starts_of(trial: np.ndarray) -> np.ndarray:
    """Returns whether each row is the first of its trial."""
    starts = np.ones(len(trial), bool)
    np.not_equal(trial[1:], trial[:-1], out=starts[1:])
    return starts


def _places(step: np.ndarray) -> np.ndarray:
    """Returns the rank of each row's step among the distinct steps, counting from 1. Uses few bits, to sort fast."""
    if len(step) and step.min() >= 0 and step.max() < TABLE_ROOM * len(step):  # a lookup table is faster than sorting
        is_used = np.zeros(int(step.max()) + 1, bool)
        is_used[step] = True
        places = np.cumsum(is_used)
        return places.astype(np.min_scalar_type(int(places[-1])))[step]
    steps = np.unique(step)
    return (np.searchsorted(steps, step) + 1).astype(np.min_scalar_type(len(steps)))


def _improving(value: np.ndarray, bounds: Sequence[int]) -> np.ndarray:
    """Returns the rows whose value is below all previous values in their trial."""
    finite = np.where(np.isnan(value), np.inf, value)
    lowest = np.full(len(value) + 1, np.inf, value.dtype)
    for start, end in itertools.pairwise(bounds):
        np.minimum.accumulate(finite[start : end - 1], out=lowest[start + 1 : end])
    return np.flatnonzero(finite < lowest[:-1])


def _first_of_all(key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Returns the rows whose value is below all previous values, in order of (key, row)."""
    order = np.argsort(key, kind="stable")
    in_order = value[order]
    lowest = np.minimum.accumulate(in_order)
    return order[np.append(True, in_order[1:] < lowest[:-1])[: len(order)]]


def _first_of_ranks(key: np.ndarray, value: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Returns, as bool[rows], whether each row's value is below those of all rows of smaller rank and no larger key."""
    # A table of the lowest value so far, by rank and by key. Keys are coarse: there is one column per `edge` keys, and
    # a row counts from the next column on. A few redundant rows may therefore be kept, but no necessary row is lost.
    edge = int(key.max(initial=0)) // MOST_EDGES + 1
    height, width = int(rank.max(initial=-1)) + 2, -(-int(key.max(initial=0)) // edge) + 1
    lowest = np.full((height, width), np.inf, value.dtype)  # [r, e]: for ranks < r with keys up to e edges
    # Each row enters one rank above its own, because only smaller ranks count. Then take running minima along both.
    np.minimum.at(lowest.reshape(-1), (rank + 1) * width + -(-key.astype(np.int64) // edge), value)
    np.minimum.accumulate(lowest, axis=1, out=lowest)
    np.minimum.accumulate(lowest, axis=0, out=lowest)
    return value < lowest[rank, key // edge]
