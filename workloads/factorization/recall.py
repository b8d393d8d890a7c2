"""Recall of held-out links: rows ranked against all columns, exactly, with the links they were solved from left out.

A batch of rows meets a block of columns in one product, whose scores are few enough to stay in a cache. A core's
columns are taken by rising number, so that of equal scores the smaller number is first, wherever the columns lie.
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

ROWS = 256  # of a batch, at most
FEWEST = 64  # rows: a block is sized for at least so many, as its columns are copied
SCORES = 1 << 22  # of a batch and a block, float32: 16 MiB of a core
GROUP = 16  # columns in a group: first the best score of each group is compared, then the columns of the best groups
FEW = 16  # groups of a block that a row's best are joined with, if no row of the batch has more that matter


class Batches(NamedTuple):
    """Evaluation rows in batches, the same on every core, and each core's columns in blocks: NumPy's or JAX's arrays.

    Attributes:
      rows: int32[batches, rows], slots of the evaluation rows; filled up with any.
      columns: int32[cores, blocks, groups, GROUP], a core's columns by rising number; -1 where there is none.
      slots: int32[cores, blocks, GROUP · groups], where these lie in the core's shard: the first of all groups, then
        the second ones, and so on, so that groups are compared side by side.
      hidden: int32[cores, blocks, batches, links], places in the scores [rows, GROUP · groups] of what is left out;
        beyond them where there is none.
    """

    rows: Any
    columns: Any
    slots: Any
    hidden: Any


def batches(history: Links, rows: RowPlacement, columns: RowPlacement) -> Batches:
    """Puts the rows of ``history`` in batches and the columns in blocks.

    Args:
      history: what is left out of each row.
      rows: where the evaluation rows lie.
      columns: where the columns lie.
    """
    # Rows in equal batches; blocks of equal width, no wider than a batch of scores allows.
    count = -(-history.row_count // ROWS)
    size = -(-history.row_count // count)
    core, local = np.divmod(columns.slot, columns.slots_per_core)
    per_core = np.bincount(core, minlength=columns.cores)
    blocks = -(-int(per_core.max()) // (SCORES // max(size, FEWEST) // GROUP * GROUP))
    groups = -(-int(per_core.max()) // (blocks * GROUP))
    width = groups * GROUP
    # Every column has a rank among those of its core, and from that a block and a place within it.
    by_core = np.argsort(core, kind="stable")
    rank = np.empty(len(core), np.int64)  # of a column among those of its core
    rank[by_core] = np.arange(len(core)) - np.repeat(np.cumsum(per_core) - per_core, per_core)
    block, within = np.divmod(rank, width)
    column = np.full((columns.cores, blocks, width), -1, np.int32)
    column[core, block, within] = np.arange(len(core))
    # In the scores the first columns of all groups come first, then the second ones: see ``Batches.slots``.
    place = within % GROUP * groups + within // GROUP
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
    history: Links, at: tuple[np.ndarray, np.ndarray], cells: tuple[int, int, int], shape: tuple[int, int]
) -> np.ndarray:
    """``Batches.hidden`` from the core and block of every column and its place there, and from a batch's scores."""
    (block, place), (size, width), count = at, shape, cells[2]
    batch, row = np.divmod(np.repeat(np.arange(history.row_count), history.lengths), size)
    cell = block[history.columns] * count + batch  # of core, block and batch, in one number
    links = np.bincount(cell, minlength=int(np.prod(cells)))
    # Links in the order of their cells; each cell's are numbered from 0, which is their place in the padded array.
    order = np.argsort(cell, kind="stable")
    hidden = np.full((len(links), int(links.max())), size * width, np.int32)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(links) - links, links)
    hidden[cell[order], rank] = (row * width + place[history.columns])[order]
    return hidden.reshape(*cells, -1)


def program(mesh: Mesh, best: int) -> Callable[[Array, Array, Batches], Array]:
    """The ``best`` columns of every evaluation row, by score in float32, compiled at its first call.

    The function takes the evaluation rows [cores · slots, d] and the columns' table [cores · slots, d], both sharded by
    rows, and batches, whose arrays with an axis of cores are sharded along it; it gives columns int32[batches, rows,
    best], of equal scores the smaller number first, -1 where there are no more.
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

        # Each core scans its blocks; then all cores' best are sorted together, by score and then by number.
        shape = (*work.rows.shape, best)
        nothing = jnp.full(shape, -jnp.inf, jnp.float32), jnp.full(shape, -1, jnp.int32)
        own, _ = jax.lax.scan(block, nothing, (columns, slots, hidden))
        score, column = (jax.lax.all_gather(array, AXIS, axis=2, tiled=True) for array in own)
        return jax.lax.sort((-score, column), num_keys=2)[1][..., :best]

    given = (BY_CORE, BY_CORE, Batches(REPLICATED, BY_CORE, BY_CORE, BY_CORE))
    return jax.jit(jax.shard_map(of_core, mesh=mesh, in_specs=given, out_specs=REPLICATED, check_vma=False))


def _better(scores: Array, columns: Array, score: Array, numbers_before: Array) -> ArrayPair:
    """Joins the best so far with those of a block.

    A block adds nothing from a group whose best is not above the last of the best so far; the best k of a block are in
    the k groups whose best ones are best, as each group before another has a column before all of that one's. One group
    more, as one may hold places without a column, which make it look better than it is. Later blocks have few groups
    that add anything, and are joined with those alone.

    Args:
      scores: [rows, GROUP · groups], in the order of ``Batches.slots``.
      columns: int32[groups, GROUP].
      score, numbers_before: [rows, best], falling scores and their columns, which are smaller than those of the block.
    """
    # The best of every group; groups that cannot add anything are out.
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
        first, at = jax.lax.top_k(scores, best)
        return first, jnp.take_along_axis(numbers, at, axis=1)

    # With few groups left, which is the rule in later blocks, the smaller join does.
    most = min(best + 1, len(columns))
    if most <= FEW:
        return joined(most)
    few = jnp.sum(highest > -jnp.inf, axis=1).max() <= FEW
    return jax.lax.cond(few, lambda: joined(FEW), lambda: joined(most))


def _real(scores: Array, columns: Array) -> Array:
    """Scores as they are ranked: last where there is no column, and no -0, which would be below 0."""
    return jnp.where(columns >= 0, jnp.where(scores == 0, 0, scores), -jnp.inf)


def recall(ranking: np.ndarray, heldout: Links, k: int) -> float:
    """Mean over rows with held-out links of hits among the first ``k`` over min(k, held-out links).

    Args:
      ranking: int[rows, at least k], columns by falling score; -1 counts as none.
      heldout: the links that were to be found.
      k: how many are looked at.
    """
    # A row and a column are one number, so that one membership test finds all hits.
    expected = np.repeat(np.arange(heldout.row_count, dtype=np.int64), heldout.lengths) * heldout.column_count
    expected += heldout.columns
    ranked = np.arange(heldout.row_count, dtype=np.int64)[:, None] * heldout.column_count + ranking[:, :k]
    hits = (np.isin(ranked, expected) & (ranking[:, :k] >= 0)).sum(axis=1)
    scored = heldout.lengths > 0
    if not scored.any():
        return float("nan")
    return float(np.mean(hits[scored] / np.minimum(k, heldout.lengths[scored])))
