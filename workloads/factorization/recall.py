"""Recall of held-out links. For each row, all columns except the links it was solved from are ranked exactly.

The scores of a batch of rows and a block of columns are computed in one matmul, and are few enough to stay in a cache.
A core's columns are processed in increasing order, so the smaller column number wins a tie, regardless of placement.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from workloads.factorization.half_epoch import AXIS, BY_CORE, REPLICATED, in_full
from workloads.factorization.links import Links
from workloads.factorization.routes import RowPlacement
from workloads.workload import ArrayPair

ROWS = 256  # maximum per batch
FEWEST = 64  # minimum number of rows that the size of a block assumes, because its columns are copied
SCORES = 1 << 22  # scores of a batch and a block, float32: 16 MiB per core
GROUP = 16  # columns per group: the best scores of groups are compared first, then the columns of the best groups
FEW = 16  # groups of a block that are merged into a row's best, if no row of the batch has more relevant groups


class Batches(NamedTuple):
    """Batches of evaluation rows, replicated on all cores, and blocks of each core's columns (NumPy or JAX arrays).

    Attributes:
      rows: int32[batches, rows], slots of the evaluation rows, with arbitrary padding.
      columns: int32[cores, blocks, groups, GROUP], columns of a core in increasing order. Padding is -1.
      slots: int32[cores, blocks, GROUP · groups], slots of these columns in the core's shard: the first column of each
        group, then the second column of each group, and so on. This layout vectorizes the comparison of groups.
      hidden: int32[cores, blocks, batches, links], flat indices of excluded links in the scores [rows, GROUP · groups].
        Padding is out of range.
    """

    rows: Any
    columns: Any
    slots: Any
    hidden: Any


def batches(history: Links, rows: RowPlacement, columns: RowPlacement) -> Batches:
    """Splits the rows of ``history`` into batches and the columns into blocks.

    Args:
      history: links that are excluded in each row.
      rows: placement of the evaluation rows.
      columns: placement of the columns.
    """
    # Batches have equal numbers of rows. Blocks have equal widths, limited by the scores of a batch.
    count = -(-history.row_count // ROWS)
    size = -(-history.row_count // count)
    core, local = np.divmod(columns.slot, columns.slots_per_core)
    per_core = np.bincount(core, minlength=columns.cores)
    blocks = -(-int(per_core.max()) // (SCORES // max(size, FEWEST) // GROUP * GROUP))
    groups = -(-int(per_core.max()) // (blocks * GROUP))
    width = groups * GROUP
    # The rank of a column among those of its core determines its block and its place in the block.
    by_core = np.argsort(core, kind="stable")
    rank = np.empty(len(core), np.int64)  # rank of each column among those of its core
    rank[by_core] = np.arange(len(core)) - np.repeat(np.cumsum(per_core) - per_core, per_core)
    block, offset = np.divmod(rank, width)
    column = np.full((columns.cores, blocks, width), -1, np.int32)
    column[core, block, offset] = np.arange(len(core))
    # Scores are ordered like ``Batches.slots``.
    place = offset % GROUP * groups + offset // GROUP
    slots = np.full((columns.cores, blocks, width), columns.slots_per_core - 1, np.int32)
    slots[core, block, place] = local
    padded = np.concatenate([np.arange(history.row_count), np.zeros(count * size - history.row_count, np.int64)])
    return Batches(
        rows.slot[padded].reshape(count, size),
        column.reshape(columns.cores, blocks, groups, GROUP),
        slots,
        _hidden(history, (core * blocks + block, place), (columns.cores, blocks, count), (size, width)),
    )


def _hidden(
    history: Links, cell_of_column: tuple[np.ndarray, np.ndarray], cells: tuple[int, int, int], shape: tuple[int, int]
) -> np.ndarray:
    """Returns ``Batches.hidden``, given the core, the block and the place of each column."""
    (block, place), (size, width), count = cell_of_column, shape, cells[2]
    batch, row = np.divmod(history.row_of_link, size)
    cell = block[history.columns] * count + batch  # core, block and batch as one number
    links = np.bincount(cell, minlength=int(np.prod(cells)))
    # Links are sorted by cell. Their index within a cell is their place in the padded array.
    order = np.argsort(cell, kind="stable")
    hidden = np.full((len(links), int(links.max())), size * width, np.int32)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(links) - links, links)
    hidden[cell[order], rank] = (row * width + place[history.columns])[order]
    return hidden.reshape(*cells, -1)


def program(mesh: Mesh, best: int) -> Callable[[Array, Array, Batches], Array]:
    """Returns a function, compiled on first use, that finds the ``best`` columns of each evaluation row.

    Columns are ranked by float32 score. The function takes the evaluation rows [cores · slots, d] and the column table
    [cores · slots, d], both sharded by rows, and batches sharded along their core axis. It returns columns
    int32[batches, rows, best], padded with -1. The smaller column number wins a tie.
    """

    @in_full
    def of_core(rows: Array, table: Array, work: Batches) -> Array:
        all_rows = jax.lax.all_gather(rows, AXIS, tiled=True).astype(jnp.float32)
        columns, slots, hidden = (array[0] for array in work[1:])

        def block(so_far: ArrayPair, step: tuple[Array, ...]) -> tuple[ArrayPair, None]:
            columns, slots, hidden = step
            vectors = table[slots].astype(jnp.float32)

            def batch(step: tuple[Array, ...]) -> ArrayPair:
                rows, hidden, *best = step
                scores = all_rows[rows] @ vectors.T
                scores = scores.reshape(-1).at[hidden].set(-jnp.inf, mode="drop").reshape(scores.shape)
                return _better(scores, columns, *best)

            return jax.lax.map(batch, (work.rows, hidden, *so_far)), None

        # Each core scans its blocks. The best columns of all cores are then sorted by score and number.
        shape = (*work.rows.shape, best)
        nothing = jnp.full(shape, -jnp.inf, jnp.float32), jnp.full(shape, -1, jnp.int32)
        best_of_core, _ = jax.lax.scan(block, nothing, (columns, slots, hidden))
        score, column = (jax.lax.all_gather(array, AXIS, axis=2, tiled=True) for array in best_of_core)
        return jax.lax.sort((-score, column), num_keys=2)[1][..., :best]

    given = (BY_CORE, BY_CORE, Batches(REPLICATED, BY_CORE, BY_CORE, BY_CORE))
    return jax.jit(jax.shard_map(of_core, mesh=mesh, in_specs=given, out_specs=REPLICATED, check_vma=False))


def _better(scores: Array, columns: Array, score: Array, numbers_before: Array) -> ArrayPair:
    """Merges the best columns so far with the best columns of a block.

    A group can be skipped if its best score is not above the lowest of the best scores so far. The best k columns of a
    block are in the k groups with the best maxima, because each of these groups contains a column that precedes all
    columns of any other group. One more group is kept, because padding can make a group look better than it is. In
    later blocks, few groups remain, and only those are merged.

    Args:
      scores: [rows, GROUP · groups], in the order of ``Batches.slots``.
      columns: int32[groups, GROUP].
      score, numbers_before: [rows, best], decreasing scores and their columns. These columns have smaller numbers than
        those of the block.
    """
    # The best score of each group. Groups that cannot contribute are excluded.
    rows, best = score.shape
    by_group = scores.reshape(rows, GROUP, -1)
    highest = _real(by_group.max(axis=1), columns[:, 0])
    highest = jnp.where(highest > score[:, -1:], highest, -jnp.inf)

    def joined(count: int) -> ArrayPair:
        # The columns of the best groups, by rising number, behind the best so far, so that ties go to the smaller.
        _, chosen = jax.lax.top_k(highest, count)
        chosen = jnp.sort(chosen, axis=1)
        near = jnp.take_along_axis(by_group, chosen[:, None], axis=2).swapaxes(1, 2)
        scores = jnp.concatenate([score, _real(near, columns[chosen]).reshape(rows, -1)], axis=1)
        numbers = jnp.concatenate([numbers_before, columns[chosen].reshape(rows, -1)], axis=1)
        first, places = jax.lax.top_k(scores, best)
        return first, jnp.take_along_axis(numbers, places, axis=1)

    # In later blocks few groups usually remain, so the smaller merge suffices.
    group_limit = min(best + 1, len(columns))
    if group_limit <= FEW:
        return joined(group_limit)
    few = jnp.sum(highest > -jnp.inf, axis=1).max() <= FEW
    return jax.lax.cond(few, lambda: joined(FEW), lambda: joined(group_limit))


def _real(scores: Array, columns: Array) -> Array:
    """Returns scores for ranking. Padding sorts last, and -0 becomes 0, because -0 would sort below 0."""
    return jnp.where(columns >= 0, jnp.where(scores == 0, 0, scores), -jnp.inf)


def recall(ranking: np.ndarray, heldout: Links, k: int) -> float:
    """Returns recall at ``k``: hits among the first ``k`` columns / min(k, held-out links), averaged over rows.

    Args:
      ranking: int[rows, at least k], columns by decreasing score, padded with -1.
      heldout: held-out links. Rows without held-out links are ignored.
      k: number of columns to consider.
    """
    # Rows and columns are combined into one number, so that a single membership test finds all hits.
    expected = np.repeat(np.arange(heldout.row_count, dtype=np.int64), heldout.lengths) * heldout.column_count
    expected += heldout.columns
    ranked = np.arange(heldout.row_count, dtype=np.int64)[:, None] * heldout.column_count + ranking[:, :k]
    hits = (np.isin(ranked, expected) & (ranking[:, :k] >= 0)).sum(axis=1)
    scored = heldout.lengths > 0
    if not scored.any():
        return float("nan")
    return float(np.mean(hits[scored] / np.minimum(k, heldout.lengths[scored])))
