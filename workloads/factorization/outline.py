"""Derives the shapes of a factorization's work from the number of rows, columns and links only.

All links are assumed to refer to distinct rows of the other table. Rows are assumed to have two lengths, each for half
of the rows, with the correct mean. Data sets with more variable row lengths need more buckets, and their longest rows
are split across cores.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from workloads.base import Als
from workloads.factorization import half_epoch
from workloads.factorization.half_epoch import AXIS, BY_CORE, REPLICATED, Weights
from workloads.factorization.ratings import Size
from workloads.factorization.routes import Route, RowPlacement
from workloads.factorization.training import GATHER_BYTES, exchanges, lengths

SPREAD = (0.4, 1.6)  # the two lengths, relative to their mean
BUCKET = 8  # lengths are multiples of this


class Outline(NamedTuple):
    """The placements and routes of both sides as shapes on one core, and the number of rows and of columns."""

    places: tuple[RowPlacement, RowPlacement]
    work: tuple[Route, Route]
    sizes: tuple[int, int]


def bucket_lengths(links: float, rows: int) -> tuple[int, ...]:
    """Returns the two row lengths that result in a total number of links."""
    return tuple(max(1, BUCKET * round(share * links / rows / BUCKET)) for share in SPREAD)


def outline(size: Size, cores: int, als: Als, own_lengths: Sequence[int] | None = None) -> Outline:
    """Returns the outline of a factorization on a number of cores.

    Args:
      size: size of the data.
      cores: number of cores.
      als: options of the solver. ``auto`` is resolved for this size.
      own_lengths: lengths of rows and of columns. With None, they are derived from their mean.
    """
    chunk, _, _ = lengths(als)
    counts = (size.rows, size.columns)
    sides = []
    for rows in counts:
        buckets = []
        for length in own_lengths or bucket_lengths(size.links, rows):
            in_chunk = max(1, chunk // length)
            buckets.append((length, in_chunk, -(-rows // (len(SPREAD) * cores * in_chunk))))
        slots = sum(in_chunk * chunks for _, in_chunk, chunks in buckets) + 1
        nothing = np.empty(0, np.int64)
        sides.append(RowPlacement(nothing, slots, cores, tuple(buckets), nothing, ()))
    both = tuple(_route(side, opposite, als) for side, opposite in zip(sides, reversed(sides), strict=True))
    return Outline((sides[0], sides[1]), (both[0], both[1]), counts)


def _route(side: RowPlacement, opposite: RowPlacement, als: Als) -> Route:
    exchange = exchanges(opposite, als)
    columns = []
    sends = []
    for length, in_chunk, chunks in side.buckets:
        in_block = max(1, GATHER_BYTES // (4 * als.dim) // (in_chunk * length)) if exchange else chunks
        in_block = min(in_block, chunks)
        blocks = -(-chunks // in_block)
        columns.append(_int32(1, blocks, in_block, in_chunk, length))
        if exchange:
            sends.append(_int32(1, blocks, side.cores, -(-in_block * in_chunk * length // side.cores) + 1))
    counts = jax.ShapeDtypeStruct((1, side.slots_per_core), np.dtype("float32"))
    return Route(tuple(columns), tuple(sends), _int32(1, 1, 0, 1, 1), _int32(1, 1, 0, 1), None, counts)


def _int32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.dtype("int32"))


def calls(shapes: Outline, mesh: Mesh, als: Als) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Returns the programs of an epoch over a mesh by name, each with the shapes of its arguments."""
    cores = mesh.shape[AXIS]
    by_core = NamedSharding(mesh, BY_CORE)
    everywhere = NamedSharding(mesh, REPLICATED)

    def of_all(array: Any) -> Any:
        return jax.ShapeDtypeStruct((cores, *array.shape[1:]), array.dtype, sharding=by_core)

    rows, columns = (
        jax.ShapeDtypeStruct((cores * side.slots_per_core, als.dim), jax.numpy.dtype(als.table_dtype), sharding=by_core)
        for side in shapes.places
    )
    row_work, column_work = (jax.tree.map(of_all, route) for route in shapes.work)
    weights = Weights(*(jax.ShapeDtypeStruct((), np.dtype("float32"), sharding=everywhere) for _ in range(2)))
    row_half, column_half = (
        half_epoch.half_epoch(mesh, places=places, other_rows=other_rows, als=als)
        for places, other_rows in zip(shapes.places, shapes.sizes[::-1], strict=True)
    )
    return {
        "row half": (row_half, (rows, columns, row_work, weights)),
        "column half": (column_half, (columns, rows, column_work, weights)),
        "objective": (
            half_epoch.objective(
                mesh, places=shapes.places[0], sizes=shapes.sizes, frequency_ridge=als.ridge == "frequency"
            ),
            (rows, columns, row_work, column_work.counts, weights),
        ),
    }
