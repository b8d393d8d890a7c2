"""The objective, and half an epoch, which solves all rows of one side given the other side's table."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from workloads.base import Als
from workloads.factorization import fused, solvers
from workloads.factorization.routes import Route, RowPlacement
from workloads.factorization.solvers import Observed, System
from workloads.workload import ArrayPair

AXIS = "cores"
BY_CORE = PartitionSpec(AXIS)
REPLICATED = PartitionSpec()
_SUMMED = 1024  # rows summed in float32; their sums are added up on the host in float64


class Weights(NamedTuple):
    """Tuned weights, float32[]: the weight α of unobserved pairs, and the norm penalty λ."""

    unobserved: Any
    norm: Any


def solved_rows(
    shard: Array, table: Array, work: Route, weights: Weights, *, places: RowPlacement, other_rows: int, als: Als
) -> ArrayPair:
    """Runs one core's part of a half-epoch. Call it inside ``shard_map`` over ``AXIS``.

    Args:
      shard: [slots, d], this core's shard of the table to solve. Iterative solvers start from it.
      table: [other slots, d], this core's shard of the other table. The last row is zero.
      work: route of this core's links, without the core axis.
      weights: weights α and λ.
      places: placement of the rows to solve.
      other_rows: number of rows of the other side, without padding.
      als: options of the solver.

    Returns:
      The new shard, and the shard of the other table (rotated if the solver rotates tables).
    """
    kind = jnp.dtype(als.solver_dtype)
    gram = _gram(table, kind)
    if als.solver == "rotated_cg":
        values, rotation = jnp.linalg.eigh(gram.astype(np.promote_types(kind, np.float32)))
        shard, table = (_rotate(array, rotation) for array in (shard, table))
        gram = jnp.maximum(values, 0).astype(kind)
    shared = weights.unobserved.astype(kind) * gram

    def solve(links: Observed, ridge: Array, start: Array) -> Array:
        return solvers.solve(als.solver, System(links, shared, ridge, start), als.cg_steps)

    ridge = _ridge(work.counts, weights, other_rows, als.ridge == "frequency").astype(kind)
    of_bucket = None
    if als.kernel == "fused":
        of_bucket = functools.partial(fused.rows, diagonal=shared, steps=als.cg_steps)
    return _over_rows(solve, shard.astype(kind), ridge, table, work, places, of_bucket).astype(shard.dtype), table


def objective_terms(
    shard: Array,
    table: Array,
    work: Route,
    other_counts: Array,
    weights: Weights,
    *,
    places: RowPlacement,
    sizes: tuple[int, int],
    frequency_ridge: bool,
) -> Array:
    """Returns one core's terms of the objective, float32[terms], inside ``shard_map``. Constants are omitted.

    The terms are partial sums of Σ_observed ((1 − u·v)² − 1) + α Σ_all (u·v)² + Σ ridge ‖u‖² + Σ ridge ‖v‖².

    Args:
      shard, table, work, weights, places: as in ``solved_rows``. The tables are not changed.
      other_counts: float32[other slots], number of links of each row of the other side.
      sizes: number of rows and of columns, without padding.
      frequency_ridge: whether the ridge is λ (links of the row + α · other rows), as in ALX, instead of λ.
    """
    shard = shard.astype(jnp.float32)
    table = table.astype(jnp.float32)

    def loss(links: Observed, ridge: Array, x: Array) -> Array:
        score = jnp.sum(x * (2 * links.residual(x) + links.product(x)), axis=-1)  # Σ 2s − s²
        return (ridge * jnp.sum(x * x, axis=-1) - score)[:, None]

    ridge = _ridge(work.counts, weights, sizes[1], frequency_ridge)
    rows = _over_rows(loss, shard, ridge, table, work, places)[:, 0]
    columns = _ridge(other_counts, weights, sizes[0], frequency_ridge) * jnp.sum(table * table, axis=-1)
    shared = weights.unobserved * jnp.sum(_gram(shard, jnp.float32) * _gram(table, jnp.float32))
    once = jnp.where(jax.lax.axis_index(AXIS) == 0, shared, 0)
    return jnp.concatenate([*(_partial_sums(terms) for terms in (rows, columns)), once[None]])


def half_epoch(
    mesh: Mesh, *, places: RowPlacement, other_rows: int, als: Als, fold_in: bool = False
) -> Callable[[Array, Array, Route, Weights], Any]:
    """Returns ``solved_rows`` for all cores of ``mesh``, compiled on the first call. It donates both tables.

    The returned function takes the arguments of ``solved_rows``, but tables [cores · slots, d] are sharded by rows, and
    route arrays have a core axis.

    Args:
      mesh: mesh of the cores.
      fold_in: whether to fold in rows that are not trained. The function then returns only these rows, and does not
        donate the other table.
    """

    def of_core(shard: Array, table: Array, work: Route, weights: Weights) -> Any:
        mine = jax.tree.map(lambda array: array[0], work)
        tables = solved_rows(shard, table, mine, weights, places=places, other_rows=other_rows, als=als)
        return tables[0] if fold_in else tables

    return _over_cores(mesh, of_core, (BY_CORE, BY_CORE, BY_CORE, REPLICATED), BY_CORE, (0,) if fold_in else (0, 1))


def objective(
    mesh: Mesh, *, places: RowPlacement, sizes: tuple[int, int], frequency_ridge: bool
) -> Callable[[Array, Array, Route, Array, Weights], Array]:
    """Returns ``objective_terms`` of all cores of ``mesh``, replicated on each core, compiled on the first call."""

    def of_core(shard: Array, table: Array, work: Route, other_counts: Array, weights: Weights) -> Array:
        mine, counts = jax.tree.map(lambda array: array[0], (work, other_counts))
        terms = objective_terms(
            shard, table, mine, counts, weights, places=places, sizes=sizes, frequency_ridge=frequency_ridge
        )
        return jax.lax.all_gather(terms, AXIS, tiled=True)

    return _over_cores(mesh, of_core, (BY_CORE, BY_CORE, BY_CORE, BY_CORE, REPLICATED), REPLICATED)


def _over_cores(mesh: Mesh, of_core: Callable[..., Any], given: Any, out: Any, donated: tuple[int, ...] = ()) -> Any:
    """Compiles a function for all cores on its first call, given the shardings of its arguments and results."""
    program = jax.shard_map(in_full(of_core), mesh=mesh, in_specs=given, out_specs=out, check_vma=False)
    return jax.jit(program, donate_argnums=donated, compiler_options=compiler_options(mesh))


def in_full(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function to use full-precision float32 matmuls. By default, TPUs and GPUs reduce their precision."""

    @functools.wraps(function)
    def precise(*arguments: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*arguments)

    return precise


def compiler_options(mesh: Mesh | AbstractMesh) -> dict[str, Any] | None:
    """Returns compiler options for programs over ``mesh``.

    On a CPU, LLVM's higher optimization levels compile more slowly. With jaxlib 0.10.2, they also make gathers of
    vectors of 64 numbers so slow that half-epochs take twice as long.
    """
    has_devices = not isinstance(
        mesh, AbstractMesh
    )  # an abstract mesh has no devices, and its programs are not compiled
    return {"xla_backend_optimization_level": 1} if has_devices and mesh.devices.flat[0].platform == "cpu" else None


def _over_rows(
    of_rows: Callable[[Observed, Array, Array], Array],
    start: Array,
    ridge: Array,
    other: Array,
    work: Route,
    places: RowPlacement,
    of_bucket: Callable[..., Array] | None = None,
) -> Array:
    """Returns ``of_rows(links, ridge[rows], start[rows, d])`` for all rows of a core, [slots, width].

    Results are zero for rows without links and for the zero row at the end. If ``of_bucket(table, columns, counts of
    links, ridge, start)`` is given, it computes the same results for a whole block, without a loop over chunks.
    """
    kind = start.dtype
    fetch = _fetch(other, exchange=bool(work.sends) or work.hub_sends is not None)
    # Hubs first: all cores sum over their links, and each keeps the rows that lie on it.
    pieces = []
    start_slot = len(places.hubs) // places.cores
    if start_slot:
        everybody = [jax.lax.all_gather(array[:start_slot], AXIS, tiled=True) for array in (ridge, start)]
        hubs = of_rows(_hub_links(fetch, work, kind, len(places.hubs), start.shape[1]), *everybody)
        pieces.append(jax.lax.dynamic_slice_in_dim(hubs, jax.lax.axis_index(AXIS) * start_slot, start_slot))
    # Then buckets: a loop over blocks, each of which fetches its part of the other table, and an inner loop over
    # chunks.
    for bucket, (_, rows, chunks) in enumerate(places.buckets):
        count = chunks * rows
        blocks = work.columns[bucket].shape[:2]  # numbers of blocks and of chunks per block, including padding

        def block(_: None, step: tuple[Any, ...]) -> tuple[None, Array]:
            send, *of_chunks = step
            table = fetch(send)

            def chunk(step: tuple[Array, ...]) -> Array:
                columns, _counts, ridge, start = step
                return of_rows(solvers.sums_over_links(_gather(table, columns, kind)), ridge, start)

            if of_bucket is not None:
                return None, of_bucket(table, *(array.reshape(-1, *array.shape[2:]) for array in of_chunks))
            return None, jax.lax.map(chunk, tuple(of_chunks))

        send = work.sends[bucket] if work.sends else None
        starts = [
            _in_blocks(array[start_slot : start_slot + count], blocks, rows) for array in (work.counts, ridge, start)
        ]
        solved = jax.lax.scan(block, None, (send, work.columns[bucket], *starts))[1]
        pieces.append(solved.reshape(-1, solved.shape[-1])[:count])
        start_slot += count
    # The rest of the shard (rows without links and the zero row) is zero.
    width = pieces[0].shape[1] if pieces else start.shape[1]
    return jnp.concatenate([*pieces, jnp.zeros((len(start) - start_slot, width), kind)])


def _hub_links(fetch: Callable[[Array | None], Array], work: Route, kind: Any, hubs: int, size: int) -> Observed:
    """Returns the links of rows that are split across all cores. Each function sums over segments, then over cores."""

    def over_segments(per_segment: Callable[[Observed, Array], Array], shape: tuple[int, ...]) -> Array:
        def block(total: Array, step: tuple[Any, ...]) -> tuple[Array, None]:
            send, *of_chunks = step
            table = fetch(send)

            def chunk(total: Array, step: ArrayPair) -> tuple[Array, None]:
                columns, hub = step
                return total.at[hub].add(per_segment(solvers.sums_over_links(_gather(table, columns, kind)), hub)), None

            return jax.lax.scan(chunk, total, tuple(of_chunks))

        start = jnp.zeros((hubs, *shape), kind)
        total, _ = jax.lax.scan(block, start, (work.hub_sends, work.hub_columns, work.hub_of))
        return jax.lax.psum(total, AXIS)

    return Observed(
        residual=lambda x: over_segments(lambda links, hub: links.residual(x[hub]), (size,)),
        product=lambda x: over_segments(lambda links, hub: links.product(x[hub]), (size,)),
        square=lambda x: over_segments(lambda links, hub: links.square(x[hub]), (1,)),
        gram=lambda: over_segments(lambda links, hub: links.gram(), (size, size)),
    )


def _fetch(shard: Array, exchange: bool) -> Callable[[Array | None], Array]:
    """Returns a function that fetches the table for a block: all of its shards, or only the rows the block needs."""
    if not exchange:
        alone = jax.lax.axis_size(AXIS) == 1  # avoids a copy of the shard
        everything = shard if alone else jax.lax.all_gather(shard, AXIS, tiled=True)
        return lambda send: everything
    return lambda send: jax.lax.all_to_all(shard[send], AXIS, 0, 0).reshape(-1, shard.shape[1])


def _gather(table: Array, columns: Array, kind: Any) -> Array:
    return table.at[columns].get(mode="promise_in_bounds").astype(kind)


def _in_blocks(array: Array, blocks: tuple[int, int], rows: int) -> Array:
    """Reshapes rows [chunks · rows, …] to [blocks, chunks of a block, rows, …], padded with ones."""
    fill = blocks[0] * blocks[1] * rows - len(array)
    filled = jnp.pad(array, [(0, fill)] + [(0, 0)] * (array.ndim - 1), constant_values=1)
    return filled.reshape(*blocks, rows, *array.shape[1:])


def _gram(table: Array, kind: Any) -> Array:
    return jax.lax.psum(jnp.einsum("nd,ne->de", table.astype(kind), table.astype(kind)), AXIS)


def _ridge(counts: Array, weights: Weights, rows: int, frequency: bool) -> Array:
    return weights.norm * (counts + weights.unobserved * rows if frequency else jnp.ones_like(counts))


def _rotate(table: Array, rotation: Array) -> Array:
    return (table.astype(rotation.dtype) @ rotation).astype(table.dtype)


def _partial_sums(terms: Array) -> Array:
    return jnp.sum(jnp.pad(terms, (0, -len(terms) % _SUMMED)).reshape(-1, _SUMMED), axis=1)
