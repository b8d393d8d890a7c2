"""Routes: the placement of a sparse matrix's rows on the cores, and the chunks of work that solve their links.

Rows are relabelled so that a core's shard of the new table is what its chunks give, one after the other: hubs, rows so
long that they are split in segments over all cores; buckets of rows of nearly one length, padded to the bucket's; rows
without links; and a zero row, which all padding points to. All of this is computed once, on the host: of several hosts
that work together each computes where every row lies, for which lengths are enough, and the work of its own cores.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from workloads.factorization.links import Links

MOST_BUCKETS = 24  # each is a loop of its own in the program and costs compile time
PADDING = 1.18  # gathered links over links, at which no further bucket is added
BLOCK = 1 << 22  # links placed at once: their indices take more memory than they do


class RowPlacement(NamedTuple):
    """The places of the rows of one side: ``slot`` int32[rows] in a table of ``cores * slots_per_core`` rows.

    Attributes:
      slot: of every row, in the table of all cores.
      slots_per_core: rows of a core's shard; the last one is always zero.
      cores: how many.
      buckets: of every bucket its length, its rows per chunk and its chunks per core.
      hubs: rows too long for a bucket, padded to a multiple of the cores with -1.
      bucket_rows: of every bucket the rows, int64[cores, chunks, rows per chunk], -1 where there is none.
    """

    slot: np.ndarray
    slots_per_core: int
    cores: int
    buckets: tuple[tuple[int, int, int], ...]
    hubs: np.ndarray
    bucket_rows: tuple[np.ndarray, ...]


class Route(NamedTuple):
    """The work of one side's half-epoch: NumPy's or JAX's arrays with a leading axis of cores.

    Attributes:
      columns: of every bucket, int32[cores, blocks, chunks, rows, length]: slots in the other side's table, or, with
        ``sends``, in what a core receives for the block. Without, there is one block.
      sends: of every bucket, int32[cores, blocks, receiving cores, slots]: what a core sends of its shard of the other
        table before a block; empty if every core holds all of it.
      hub_columns: int32[cores, blocks, chunks, segments, length], links of rows that are split.
      hub_of: int32[cores, blocks, chunks, segments], which hub a segment is of.
      hub_sends: as ``sends``, or None.
      counts: float32[cores, slots per core], links of the row in every slot.
    """

    columns: tuple[Any, ...]
    sends: tuple[Any, ...]
    hub_columns: Any
    hub_of: Any
    hub_sends: Any
    counts: Any


def bucket_lengths(lengths: np.ndarray, most: int = MOST_BUCKETS) -> list[int]:
    """The lengths to pad rows to: as few as keep to ``PADDING``, and those with the fewest padded links in all.

    Args:
      lengths: of the rows, each at least 1.
      most: buckets.
    """
    if not len(lengths):
        return []
    candidates, counts = np.unique(lengths, return_counts=True)
    # Candidates are the distinct lengths; of more than 256 only the largest in every step of 2 %, which is near enough.
    if len(candidates) > 256:
        grid = np.unique(
            np.ceil(candidates[0] * 1.02 ** np.arange(0, np.log(candidates[-1] / candidates[0]) / np.log(1.02) + 2))
        )
        cell = np.searchsorted(grid, candidates)
        in_cell = np.bincount(cell, counts, minlength=len(grid))
        largest = np.zeros(len(grid), np.int64)
        np.maximum.at(largest, cell, candidates)
        candidates = largest[in_cell > 0]
        counts = in_cell[in_cell > 0].astype(np.int64)
    # Dynamic programming: least[i] is the fewest slots for the rows up to candidate i, with one bucket more per round.
    # chosen[round][i] is the candidate that ends the bucket before that of i, or -1 if one bucket fewer does as well.
    below = np.concatenate([[0], np.cumsum(counts)])  # rows with one of the first i lengths
    least = candidates * below[1:]  # one bucket: all rows up to i are padded to length i
    chosen: list[np.ndarray] = []
    while len(chosen) < min(most, len(candidates)) - 1 and least[-1] > PADDING * lengths.sum():
        # cost[i, j]: lengths up to j in earlier buckets, j + 1 … i in one of length i
        cost = least[None, :] + candidates[:, None] * (below[1:, None] - below[None, 1:])
        cost = np.where(
            np.arange(len(candidates))[None, :] < np.arange(len(candidates))[:, None], cost, np.iinfo(np.int64).max
        )
        before = np.argmin(cost, axis=1)
        better = cost[np.arange(len(candidates)), before] < least
        chosen.append(np.where(better, before, -1))
        least = np.where(better, cost[np.arange(len(candidates)), before], least)
    # Back from the longest candidate, along the choices.
    ends = []
    at = len(candidates) - 1
    for before in reversed(chosen):
        if before[at] >= 0:
            ends.append(int(candidates[at]))
            at = int(before[at])
    return sorted([*ends, int(candidates[at])])


def places(
    lengths: np.ndarray, cores: int, chunk_slots: int, hub_length: int, most_buckets: int = MOST_BUCKETS
) -> RowPlacement:
    """Lays out the rows of one side.

    Args:
      lengths: int[rows], links of every row.
      cores: to lay them out over.
      chunk_slots: links, padding included, that one step of a loop gathers.
      hub_length: rows longer than this are split.
      most_buckets: see ``bucket_lengths``.
    """
    # Rows by falling length: hubs, filled up to a multiple of the cores, then those with links, then empty ones.
    rows = np.argsort(-lengths, kind="stable")
    sorted_lengths = lengths[rows]
    hubs = rows[sorted_lengths > hub_length]
    hubs = np.concatenate([hubs, np.full(-len(hubs) % cores, -1)])
    empty = rows[sorted_lengths == 0]
    ends = bucket_lengths(sorted_lengths[(sorted_lengths > 0) & (sorted_lengths <= hub_length)], most_buckets)
    # A slot is packed as core << 40 | place until it is known how many slots a core has; `at` is the next free place.
    slot = np.empty(len(lengths), np.int64)
    at = len(hubs) // cores  # the first places are those of the hubs
    shapes = []
    bucket_rows = []
    for low, length in itertools.pairwise([0, *ends]):
        own = rows[(sorted_lengths > low) & (sorted_lengths <= length)]
        per_core = -(-len(own) // cores)
        chunks = -(-per_core // max(1, chunk_slots // length))
        in_chunk = -(-per_core // chunks)
        padded = np.full(cores * chunks * in_chunk, -1)
        padded[: len(own)] = own
        by_core = padded.reshape(chunks * in_chunk, cores).T  # dealt out like cards, so that cores have equal work
        present = by_core >= 0
        core, place = np.nonzero(present)
        slot[by_core[present]] = core * (1 << 40) + at + place
        at += chunks * in_chunk
        shapes.append((length, in_chunk, chunks))
        bucket_rows.append(by_core.reshape(cores, chunks, in_chunk))
    # Empty rows, one after the other over the cores, and one place for the zero row.
    index = np.arange(len(empty))
    slot[empty] = (index % cores) * (1 << 40) + at + index // cores
    at += -(-len(empty) // cores) + 1
    # Hubs are in the first places of every core, in equal numbers.
    real = hubs >= 0
    index = np.flatnonzero(real)
    per_core = max(1, len(hubs) // cores)
    slot[hubs[real]] = (index // per_core) * (1 << 40) + index % per_core
    core, place = np.divmod(slot, 1 << 40)
    return RowPlacement((core * at + place).astype(np.int32), at, cores, tuple(shapes), hubs, tuple(bucket_rows))


def needed(own: RowPlacement, cores: slice) -> np.ndarray:
    """bool[rows]: the rows whose links some cores need: their own, and those that are split over all."""
    core = own.slot // own.slots_per_core
    mine = (core >= cores.start) & (core < cores.stop)
    mine[own.hubs[own.hubs >= 0]] = True
    return mine


def route(
    links: Links,
    own: RowPlacement,
    other: RowPlacement,
    chunk_slots: int,
    hub_length: int,
    cores: slice = slice(None),
) -> Route:
    """The work of solving the rows of ``links``, whose columns lie where ``other`` says.

    Args:
      links: of all rows, or of those ``needed``.
      own: places of the rows.
      other: places of the columns.
      chunk_slots: as of ``places``.
      hub_length: as of ``places``.
      cores: whose work it is; the arrays have an axis of these.
    """
    # Buckets, padded to their lengths; then hubs in segments, and the number of links in every slot.
    lengths = np.append(links.lengths, 0)
    columns = []
    for (length, _, _), rows in zip(own.buckets, own.bucket_rows, strict=True):
        flat = rows[cores].reshape(-1)
        padded = _padded(links, other, links.starts[flat], lengths[flat], length)
        columns.append(padded.reshape(*rows[cores].shape, length))
    counts = np.zeros(own.cores * own.slots_per_core, np.float32)
    counts[own.slot] = links.lengths
    hub_columns, hub_of = _segments(links, own, other, chunk_slots, max(1, hub_length // 4), cores)
    whole = tuple(each[:, None] for each in columns)
    return Route(whole, (), hub_columns[:, None], hub_of[:, None], None, counts.reshape(own.cores, -1)[cores])


def with_exchange(
    route: Route,
    other: RowPlacement,
    received_slots: int,
    largest: Callable[[int], int] = lambda number: number,
    dealt: Callable[[np.ndarray], Any] = lambda wanted: wanted.swapaxes(0, 2),
) -> Route:
    """The same work for cores that cannot hold the other table: before each block of it they exchange what it needs.

    Args:
      route: from ``route``.
      other: places of the other table.
      received_slots: of the other table that a core may receive at once, about; a block has at least one chunk.
      largest: a number to the largest of all hosts'.
      dealt: what cores want, int32[cores, blocks, sending cores, slots], to what they send, [cores, blocks, receiving
        cores, slots]; of all cores or, with several hosts, of each host's.
    """
    blocks = [_exchange(columns, other, received_slots, largest) for columns in route.columns]
    blocks = [(received, dealt(wanted)) for received, wanted in blocks]
    hub_columns = route.hub_columns
    hub_of = route.hub_of
    hub_sends = None
    if hub_of.size:
        hub_columns, wanted = _exchange(hub_columns, other, received_slots, largest)
        hub_sends = dealt(wanted)
        short = hub_columns.shape[1] * hub_columns.shape[2] - hub_of.shape[2]
        hub_of = np.pad(hub_of[:, 0], ((0, 0), (0, short), (0, 0))).reshape(hub_columns.shape[:4])
    return Route(tuple(c for c, _ in blocks), tuple(s for _, s in blocks), hub_columns, hub_of, hub_sends, route.counts)


def _exchange(
    columns: np.ndarray, other: RowPlacement, received_slots: int, largest: Callable[[int], int]
) -> tuple[np.ndarray, np.ndarray]:
    """Columns [cores, 1, chunks, rows, length] as places in each block's received rows, and what each core wants."""
    # Chunks are grouped into blocks of equal size; chunks that fill up the last one want the zero row alone.
    cores, _, chunks, rows, length = columns.shape
    in_block = int(np.clip(received_slots // (rows * length), 1, chunks))
    blocks = -(-chunks // in_block)
    in_block = -(-chunks // blocks)
    zero = other.slots_per_core - 1
    short = blocks * in_block - chunks
    blocked = np.pad(columns[:, 0], ((0, 0), (0, short), (0, 0), (0, 0)), constant_values=zero)
    blocked = blocked.reshape(cores, blocks, -1)
    # needed[core][block]: distinct slots of the other table; owners: the cores that hold them.
    needed = [[np.unique(blocked[core, block]) for block in range(blocks)] for core in range(cores)]
    owners = [[each // other.slots_per_core for each in own] for own in needed]
    most = largest(max(int(np.bincount(o, minlength=1).max()) for own in owners for o in own))
    widest = most + 1  # the last one sent is zero
    wanted = np.full((cores, blocks, other.cores, widest), zero, np.int32)
    # Every owner sends the slots it holds in rising order; the receiver's columns become places among those it gets.
    received = np.empty_like(blocked)
    for core in range(cores):
        for block in range(blocks):
            slots = needed[core][block]
            owner = owners[core][block]
            rank = np.arange(len(slots)) - np.searchsorted(owner, np.arange(other.cores))[owner]
            wanted[core, block, owner, rank] = slots % other.slots_per_core
            received[core, block] = (owner * widest + rank)[np.searchsorted(slots, blocked[core, block])]
    return received.reshape(cores, blocks, in_block, rows, length), wanted


def _segments(
    links: Links, own: RowPlacement, other: RowPlacement, chunk_slots: int, segment: int, cores: slice
) -> tuple[np.ndarray, np.ndarray]:
    """Hubs in segments, dealt over all cores: columns int32[cores, chunks, segments, length], and the hub of each."""
    per_chunk = max(1, chunk_slots // segment)
    starts = []
    hub_of = []
    for number, row in enumerate(own.hubs):
        if row >= 0:
            first = np.arange(links.starts[row], links.starts[row + 1], segment)
            starts.append(first)
            hub_of.append(np.full(len(first), number))
    if not starts:
        count = len(range(own.cores)[cores])
        return np.empty((count, 0, per_chunk, segment), np.int32), np.empty((count, 0, per_chunk), np.int32)
    # Segments are dealt out chunk by chunk, with empty ones of hub 0 to fill up the last round.
    first = np.concatenate(starts)
    hub = np.concatenate(hub_of)
    short = -len(first) % (own.cores * per_chunk)
    counts = np.minimum(links.starts[own.hubs[hub] + 1] - first, segment)
    first, hub, counts = (np.append(array, np.zeros(short, np.int64)) for array in (first, hub, counts))
    first, hub, counts = (
        array.reshape(-1, own.cores, per_chunk).swapaxes(0, 1)[cores] for array in (first, hub, counts)
    )
    columns = _padded(links, other, first.reshape(-1), counts.reshape(-1), segment)
    return columns.reshape(*first.shape, segment), np.ascontiguousarray(hub.astype(np.int32))


def _padded(links: Links, other: RowPlacement, first: np.ndarray, counts: np.ndarray, length: int) -> np.ndarray:
    """int32[rows, length]: slots of ``counts`` columns of every row, from link ``first`` on, then the zero row's."""
    columns = links.columns if len(links.columns) else np.zeros(1, np.int32)
    padded = np.empty((len(first), length), np.int32)
    rows = max(1, BLOCK // length)
    within = np.arange(length)
    for start in range(0, len(first), rows):
        own = slice(start, start + rows)
        there = within < counts[own, None]
        slots = other.slot[columns[np.where(there, first[own, None] + within, 0)]]
        padded[own] = np.where(there, slots, other.slots_per_core - 1)
    return padded
