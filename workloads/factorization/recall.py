"""Recall of held-out links: rows ranked against all columns, exactly, with the links they were solved from left out."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from workloads.factorization.half_epoch import AXIS
from workloads.factorization.links import Links
from workloads.factorization.routes import Places

SCORES = 1 << 22  # of a core at once


class Batches(NamedTuple):
    """Evaluation rows in batches, the same on every core.

    Attributes:
      rows: int32[batches, rows], slots of the evaluation rows; filled up with any.
      history_row, history_slot: int32[batches, links], what is left out: row within the batch and slot of the column.
    """

    rows: np.ndarray
    history_row: np.ndarray
    history_slot: np.ndarray


def batches(history: Links, rows: Places, columns: Places) -> Batches:
    """Puts the evaluation rows in batches of a size that keeps a core's scores in ``SCORES``."""
    size = min(history.row_count, max(1, SCORES // columns.slots_per_core))
    count = -(-history.row_count // size)
    order = np.concatenate([np.arange(history.row_count), np.zeros(count * size - history.row_count, np.int64)])
    parts = [history.of_rows(own) for own in order.reshape(count, size)]
    longest = max(len(part.columns) for part in parts)
    nowhere = columns.cores * columns.slots_per_core
    in_row = np.zeros((count, longest), np.int32)
    slot = np.full((count, longest), nowhere, np.int32)
    for i, part in enumerate(parts):
        in_row[i, : len(part.columns)] = np.repeat(np.arange(size), part.lengths)
        slot[i, : len(part.columns)] = columns.slot[part.columns]
    return Batches(rows.slot[order].reshape(count, size), in_row, slot)


def program(mesh: Mesh, columns: Places, best: int) -> Callable[[Array, Array, Array, Batches], Array]:
    """The ``best`` columns of every evaluation row, by score in float32, compiled at its first call.

    The function takes the evaluation rows [cores · slots, d] and the columns' table [cores · slots, d], both sharded by
    rows, which slots of that hold a column (bool, sharded), and batches; it gives slots int32[batches, rows, best].
    """

    def of_core(rows: Array, table: Array, real: Array, work: Batches) -> Array:
        everybody = jax.lax.all_gather(rows, AXIS, tiled=True).astype(jnp.float32)
        mine = table.astype(jnp.float32)
        first = jax.lax.axis_index(AXIS) * len(table)

        def batch(step: Batches) -> Array:
            scores = jnp.where(real, everybody[step.rows] @ mine.T, -jnp.inf)
            here = (step.history_slot >= first) & (step.history_slot < first + len(table))
            place = jnp.where(here, step.history_slot - first, len(table))  # which is dropped
            scores = scores.at[step.history_row, place].set(-jnp.inf, mode="drop")
            score, slot = jax.lax.top_k(scores, min(best, len(table)))
            score = jax.lax.all_gather(score, AXIS, axis=1, tiled=True)
            slot = jax.lax.all_gather(slot + first, AXIS, axis=1, tiled=True)
            _, among = jax.lax.top_k(score, best)
            return jnp.take_along_axis(slot, among, axis=1)

        return jax.lax.map(batch, work)

    spread, everywhere = PartitionSpec(AXIS), PartitionSpec()
    whole = jax.shard_map(
        of_core,
        mesh=mesh,
        in_specs=(spread, spread, spread, everywhere),
        out_specs=everywhere,
        check_vma=False,
    )
    return jax.jit(whole)


def recall(found: np.ndarray, heldout: Links, k: int) -> float:
    """Mean over rows with held-out links of hits among the first ``k`` over min(k, held-out links).

    Args:
      found: int[rows, at least k], columns by falling score; -1 counts as none.
      heldout: the links that were to be found.
      k: how many are looked at.
    """
    wanted = np.repeat(np.arange(heldout.row_count, dtype=np.int64), heldout.lengths) * heldout.column_count
    wanted += heldout.columns
    ranked = np.arange(heldout.row_count, dtype=np.int64)[:, None] * heldout.column_count + found[:, :k]
    hits = (np.isin(ranked, wanted) & (found[:, :k] >= 0)).sum(axis=1)
    there = heldout.lengths > 0
    if not there.any():
        return float("nan")
    return float(np.mean(hits[there] / np.minimum(k, heldout.lengths[there])))
