"""Places the rows of a sparse matrix on cores, and arranges the work of solving them in chunks.

Rows are renumbered to make a core's shard of the new table the concatenated output of its chunks. The order is: hubs,
which are long rows that are split into segments across all cores; buckets of rows of similar length, padded to the
length of the bucket; rows without links; and a zero row, which all padding refers to. Everything is computed once, on
the host. In a multi-host run, each host computes the placement of all rows, which depends only on their lengths, and
the work of its own cores.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from workloads.factorization.links import Links

MOST_BUCKETS = 24  # each adds a loop to the program and increases compile time
PADDING = 1.18  # ratio of gathered links, including padding, to links, below which buckets are not added
BLOCK = 1 << 22  # links placed at once, because their indices need more memory than the links


class RowPlacement(NamedTuple):
    """The placement of the rows of one side in a table of ``cores * slots_per_core`` rows.

    Attributes:
      slot: int32[rows], slot of each row in the table of all cores.
      slots_per_core: number of rows in a core's shard. The last row is always zero.
      cores: number of cores.
      buckets: length, rows per chunk and chunks per core of each bucket.
      hubs: rows that are too long for a bucket, padded with -1 to a multiple of the number of cores.
      bucket_rows: int64[cores, chunks, rows per chunk], rows of each bucket. Padding is -1.
    """

    slot: np.ndarray
    slots_per_core: int
    cores: int
    buckets: tuple[tuple[int, int, int], ...]
    hubs: np.ndarray
    bucket_rows: tuple[np.ndarray, ...]


class Route(NamedTuple):
    """The work of one side's half-epoch, as NumPy or JAX arrays with a leading core axis.

    Attributes:
      columns: int32[cores, blocks, chunks, rows, length] for each bucket: slots in the other side's table or, with
        ``sends``, in the rows that a core receives for the block. Without ``sends``, there is a single block.
      sends: int32[cores, blocks, receiving cores, slots] for each bucket: rows of its shard of the other table that a
        core sends before a block. Empty if every core holds the whole table.
      hub_columns: int32[cores, blocks, chunks, segments, length], links of the hubs.
      hub_of: int32[cores, blocks, chunks, segments], hub of each segment.
      hub_sends: like ``sends``, for hubs, or None.
      counts: float32[cores, slots per core], number of links of the row in each slot.
    """

    columns: tuple[Any, ...]
    sends: tuple[Any, ...]
    hub_columns: Any
    hub_of: Any
    hub_sends: Any
    counts: Any


def bucket_lengths(lengths: np.ndarray, limit: int = MOST_BUCKETS) -> list[int]:
    """Returns the lengths to pad rows to: as few as achieve ``PADDING``, chosen to minimize padded links.

    Args:
      lengths: lengths of the rows, each at least 1.
      limit: maximum number of buckets.
    """
    if not len(lengths):
        return []
    candidates, counts = np.unique(lengths, return_counts=True)
    # Candidates are the distinct lengths. If there are more than 256, only the largest in each 2 % interval is used.
    if len(candidates) > 256:
        grid = np.unique(
            np.ceil(candidates[0] * 1.02 ** np.arange(0, np.log(candidates[-1] / candidates[0]) / np.log(1.02) + 2))
        )
        cell = np.searchsorted(grid, candidates)
        last_in_cell = np.flatnonzero(np.diff(cell, append=-1))
        counts = np.bincount(cell, counts)[cell[last_in_cell]].astype(np.int64)
        candidates = candidates[last_in_cell]
    # Dynamic programming: least[i] is the minimum number of slots for rows up to candidate i. Each round adds a bucket.
    # chosen[round][i] is the candidate that ends the bucket before that of i, or -1 if the additional bucket does not
    # help.
    row_counts = np.concatenate([[0], np.cumsum(counts)])  # number of rows with one of the first i lengths
    slots = candidates * row_counts[1:]  # with one bucket, all rows up to i are padded to length i
    chosen: list[np.ndarray] = []
    while len(chosen) < min(limit, len(candidates)) - 1 and slots[-1] > PADDING * lengths.sum():
        # cost[i, j]: lengths up to j in earlier buckets, j + 1 … i in a bucket of length i
        cost = slots[None, :] + candidates[:, None] * (row_counts[1:, None] - row_counts[None, 1:])
        cost = np.where(
            np.arange(len(candidates))[None, :] < np.arange(len(candidates))[:, None], cost, np.iinfo(np.int64).max
        )
        before = np.argmin(cost, axis=1)
        better = cost[np.arange(len(candidates)), before] < slots
        chosen.append(np.where(better, before, -1))
        slots = np.where(better, cost[np.arange(len(candidates)), before], slots)
    # Trace the choices back from the longest candidate.
    ends = []
    last = len(candidates) - 1
    for before in reversed(chosen):
        if before[last] >= 0:
            ends.append(int(candidates[last]))
            last = int(before[last])
    return sorted([*ends, int(candidates[last])])


def places(
    lengths: np.ndarray, cores: int, chunk_slots: int, hub_length: int, most_buckets: int = MOST_BUCKETS
) -> RowPlacement:
    """Places the rows of one side on cores.

    Args:
      lengths: int[rows], number of links of each row.
      cores: number of cores.
      chunk_slots: number of links, including padding, gathered by one iteration of a loop.
      hub_length: length above which rows are split.
      most_buckets: maximum number of buckets.
    """
    # Rows by decreasing length: hubs, padded to a multiple of the cores, then other rows with links, then empty rows.
    rows = np.argsort(-lengths, kind="stable")
    sorted_lengths = lengths[rows]
    hubs = rows[sorted_lengths > hub_length]
    hubs = np.concatenate([hubs, np.full(-len(hubs) % cores, -1)])
    empty = rows[sorted_lengths == 0]
    ends = bucket_lengths(sorted_lengths[(sorted_lengths > 0) & (sorted_lengths <= hub_length)], most_buckets)
    # Slots are packed as core << 40 | place until the number of slots per core is known. `at` is the next free place.
    slot = np.empty(len(lengths), np.int64)
    free = len(hubs) // cores  # hubs take the first places
    shapes = []
    bucket_rows = []
    for low, length in itertools.pairwise([0, *ends]):
        bucket = rows[(sorted_lengths > low) & (sorted_lengths <= length)]
        per_core = -(-len(bucket) // cores)
        chunks = -(-per_core // max(1, chunk_slots // length))
        in_chunk = -(-per_core // chunks)
        padded = np.full(cores * chunks * in_chunk, -1)
        padded[: len(bucket)] = bucket
        by_core = padded.reshape(chunks * in_chunk, cores).T  # round robin, so that cores have equal work
        present = by_core >= 0
        core, place = np.nonzero(present)
        slot[by_core[present]] = core * (1 << 40) + free + place
        free += chunks * in_chunk
        shapes.append((length, in_chunk, chunks))
        bucket_rows.append(by_core.reshape(cores, chunks, in_chunk))
    # Empty rows are distributed round robin. One place is reserved for the zero row.
    index = np.arange(len(empty))
    slot[empty] = (index % cores) * (1 << 40) + free + index // cores
    free += -(-len(empty) // cores) + 1
    # Hubs take the first places of each core, in equal numbers.
    real = hubs >= 0
    index = np.flatnonzero(real)
    per_core = max(1, len(hubs) // cores)
    slot[hubs[real]] = (index // per_core) * (1 << 40) + index % per_core
    core, place = np.divmod(slot, 1 << 40)
    return RowPlacement((core * free + place).astype(np.int32), free, cores, tuple(shapes), hubs, tuple(bucket_rows))


def needed(side: RowPlacement, cores: slice) -> np.ndarray:
    """Returns bool[rows], True for rows with links that the given cores need: their own rows, and hubs."""
    core = side.slot // side.slots_per_core
    mine = (core >= cores.start) & (core < cores.stop)
    mine[side.hubs[side.hubs >= 0]] = True
    return mine


def route(
    links: Links,
    side: RowPlacement,
    opposite: RowPlacement,
    chunk_slots: int,
    hub_length: int,
    cores: slice = slice(None),
) -> Route:
    """Returns the work of solving the rows of ``links``.

    Args:
      links: links of all rows, or of those that are ``needed``.
      side: placement of the rows.
      opposite: placement of the columns.
      chunk_slots: as in ``places``.
      hub_length: as in ``places``.
      cores: cores to include in the leading axis of the arrays.
    """
    # Buckets padded to their lengths, then the number of links in each slot and the segments of hubs.
    lengths = np.append(links.lengths, 0)
    columns = []
    for (length, _, _), rows in zip(side.buckets, side.bucket_rows, strict=True):
        flat = rows[cores].reshape(-1)
        padded = _padded(links, opposite, links.starts[flat], lengths[flat], length)
        columns.append(padded.reshape(*rows[cores].shape, length))
    counts = np.zeros(side.cores * side.slots_per_core, np.float32)
    counts[side.slot] = links.lengths
    hub_columns, hub_of = _segments(links, side, opposite, chunk_slots, max(1, hub_length // 4), cores)
    blocked = tuple(array[:, None] for array in columns)
    return Route(blocked, (), hub_columns[:, None], hub_of[:, None], None, counts.reshape(side.cores, -1)[cores])


def with_exchange(
    route: Route,
    opposite: RowPlacement,
    received_slots: int,
    largest: Callable[[int], int] = lambda number: number,
    dealt: Callable[[np.ndarray], Any] = lambda wanted: wanted.swapaxes(0, 2),
) -> Route:
    """Returns the work for cores that cannot hold the other table, and therefore exchange rows before each block.

    Args:
      route: work without exchange.
      opposite: placement of the rows of the other table.
      received_slots: approximate number of rows that a core may receive per block. A block has at least one chunk.
      largest: function that returns the maximum of a number over all hosts.
      dealt: function that maps the rows that cores request, int32[cores, blocks, sending cores, slots], to the rows
        that they send, [cores, blocks, receiving cores, slots], for all cores of this host.
    """
    blocks = [_exchange(columns, opposite, received_slots, largest) for columns in route.columns]
    blocks = [(received, dealt(wanted)) for received, wanted in blocks]
    hub_columns = route.hub_columns
    hub_of = route.hub_of
    hub_sends = None
    if hub_of.size:
        hub_columns, wanted = _exchange(hub_columns, opposite, received_slots, largest)
        hub_sends = dealt(wanted)
        short = hub_columns.shape[1] * hub_columns.shape[2] - hub_of.shape[2]
        hub_of = np.pad(hub_of[:, 0], ((0, 0), (0, short), (0, 0))).reshape(hub_columns.shape[:4])
    return Route(tuple(c for c, _ in blocks), tuple(s for _, s in blocks), hub_columns, hub_of, hub_sends, route.counts)


def _exchange(
    columns: np.ndarray, opposite: RowPlacement, received_slots: int, largest: Callable[[int], int]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns columns [cores, 1, chunks, rows, length] as indices into a block's received rows, and rows to request."""
    # Chunks are grouped into blocks of equal size. Chunks that pad the last block only request the zero row.
    cores, _, chunks, rows, length = columns.shape
    in_block = int(np.clip(received_slots // (rows * length), 1, chunks))
    blocks = -(-chunks // in_block)
    in_block = -(-chunks // blocks)
    zero = opposite.slots_per_core - 1
    short = blocks * in_block - chunks
    blocked = np.pad(columns[:, 0], ((0, 0), (0, short), (0, 0), (0, 0)), constant_values=zero)
    blocked = blocked.reshape(cores, blocks, -1)
    # needed[core][block] are distinct slots of the other table. owners are the cores that hold them.
    needed = [[np.unique(blocked[core, block]) for block in range(blocks)] for core in range(cores)]
    owners = [[block_slots // opposite.slots_per_core for block_slots in core_blocks] for core_blocks in needed]
    largest_request = largest(
        max(int(np.bincount(o, minlength=1).max()) for core_blocks in owners for o in core_blocks)
    )
    widest = largest_request + 1  # the last row sent is zero
    wanted = np.full((cores, blocks, opposite.cores, widest), zero, np.int32)
    # Each owner sends its slots in increasing order. The receiver's columns become places in the received rows.
    received = np.empty_like(blocked)
    for core in range(cores):
        for block in range(blocks):
            slots = needed[core][block]
            owner = owners[core][block]
            rank = np.arange(len(slots)) - np.searchsorted(owner, np.arange(opposite.cores))[owner]
            wanted[core, block, owner, rank] = slots % opposite.slots_per_core
            received[core, block] = (owner * widest + rank)[np.searchsorted(slots, blocked[core, block])]
    return received.reshape(cores, blocks, in_block, rows, length), wanted


def _segments(
    links: Links, side: RowPlacement, opposite: RowPlacement, chunk_slots: int, segment: int, cores: slice
) -> tuple[np.ndarray, np.ndarray]:
    """Splits hubs into segments across cores: int32[cores, chunks, segments, length], and the hub of each segment."""
    per_chunk = max(1, chunk_slots // segment)
    starts = []
    hub_of = []
    for number, row in enumerate(side.hubs):
        if row >= 0:
            first = np.arange(links.starts[row], links.starts[row + 1], segment)
            starts.append(first)
            hub_of.append(np.full(len(first), number))
    if not starts:
        count = len(range(side.cores)[cores])
        return np.empty((count, 0, per_chunk, segment), np.int32), np.empty((count, 0, per_chunk), np.int32)
    # Segments are distributed chunk by chunk. Empty segments of hub 0 pad the last round.
    first = np.concatenate(starts)
    hub = np.concatenate(hub_of)
    short = -len(first) % (side.cores * per_chunk)
    counts = np.minimum(links.starts[side.hubs[hub] + 1] - first, segment)
    first, hub, counts = (np.append(array, np.zeros(short, np.int64)) for array in (first, hub, counts))
    first, hub, counts = (
        array.reshape(-1, side.cores, per_chunk).swapaxes(0, 1)[cores] for array in (first, hub, counts)
    )
    columns = _padded(links, opposite, first.reshape(-1), counts.reshape(-1), segment)
    return columns.reshape(*first.shape, segment), np.ascontiguousarray(hub.astype(np.int32))


def _padded(links: Links, opposite: RowPlacement, first: np.ndarray, counts: np.ndarray, length: int) -> np.ndarray:
    """Returns slots int32[rows, length]: ``counts`` columns of each row, from link ``first`` on, then the zero row."""
    columns = links.columns if len(links.columns) else np.zeros(1, np.int32)
    padded = np.empty((len(first), length), np.int32)
    rows = max(1, BLOCK // length)
    offsets = np.arange(length)
    for start in range(0, len(first), rows):
        part = slice(start, start + rows)
        is_link = offsets < counts[part, None]
        slots = opposite.slot[columns[np.where(is_link, first[part, None] + offsets, 0)]]
        padded[part] = np.where(is_link, slots, opposite.slots_per_core - 1)
    return padded
