"""Runs a factorization epoch by epoch on its cores, with tables, work and compiled programs."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding

from workloads.base import Als
from workloads.factorization import half_epoch, recall, routes, solvers
from workloads.factorization.half_epoch import AXIS, BY_CORE, REPLICATED, Weights
from workloads.factorization.ratings import Ratings, halves
from workloads.factorization.routes import Route, RowPlacement

RECALL_AT = (20, 50)
BEST = max(RECALL_AT)  # number of ranked columns per row
FOLD_IN_BUCKETS = 4  # few, because they take longer to compile than to run
GATHER_BYTES = 2 << 30  # largest table that is replicated on all cores


def lengths(als: Als, chunk_slots: int | None = None) -> tuple[int, int, int]:
    """Returns the number of links gathered per step, and the maximum lengths of trained rows and of folded-in rows."""
    # 4 MiB of vectors, which is about a core's share of the cache.
    chunk = chunk_slots or max(1024, (1 << 20) // als.dim)
    # The fused kernel does not use chunks, which long rows would fill poorly.
    return chunk, chunk if als.kernel == "fused" else chunk // 8, chunk // 8


def hub_bytes(ratings: Ratings, als: Als, chunk_slots: int | None = None) -> int:
    """Returns the bytes of the matrices [hubs, d, d] of split rows. Each core holds all of them during a solve."""
    _, split, folded = lengths(als, chunk_slots)
    evaluated = np.concatenate(list(halves(ratings.history, ratings.heldout, als.evaluation_rows).values()))
    hubs = [np.sum(ratings.history.lengths[evaluated] > folded)]
    if als.solver not in solvers.CONJUGATE:
        hubs += [np.sum(side > split) for side in (ratings.train.lengths, ratings.train.column_lengths)]
    return int(max(hubs)) * als.dim**2 * np.dtype(np.float32).itemsize


def exchanges(opposite: RowPlacement, als: Als) -> bool:
    """Returns whether cores exchange the rows they need of the other table, instead of each holding a copy of it."""
    table_bytes = opposite.cores * opposite.slots_per_core * als.dim * jnp.dtype(als.table_dtype).itemsize
    return als.gather == "all_to_all" or (als.gather == "auto" and table_bytes > GATHER_BYTES)


class FactorTables(NamedTuple):
    """Both tables, [cores · slots, d], sharded by rows across cores."""

    rows: Array
    columns: Array


class Side(NamedTuple):
    """The placement of one side, its work on the cores, and the row in each slot (int32[cores, slots], -1 if empty)."""

    places: RowPlacement
    work: Route
    row_of: Array


class Training:
    """A factorization on the cores of ``mesh``. See ``start``, ``row_half``, ``column_half`` and ``evaluate``.

    Args:
      ratings: data to factorize.
      als: options of the solver.
      mesh: mesh of the cores along ``AXIS``. The cores of a host are adjacent, and all hosts have the same number of
        cores.
      chunk_slots: number of links gathered per step. By default, it is chosen to suit the cache.

    Attributes:
      peak_bytes_per_core: peak bytes of each core: all resident arrays plus the largest temporary memory of the
        compiled programs. 0 before ``compile``.
    """

    peak_bytes_per_core = 0

    def __init__(self, ratings: Ratings, als: Als, mesh: Mesh, *, chunk_slots: int | None = None):
        self.ratings = ratings
        self.als = als
        self.mesh = mesh
        self._by_core = NamedSharding(mesh, BY_CORE)
        self._replicated = NamedSharding(mesh, REPLICATED)
        self.chunk_slots, self._hub_length, folded_length = lengths(als, chunk_slots)
        # Placements of both sides. In a multi-host run, each host has the links that its own cores need.
        cores = mesh.shape[AXIS]
        own_cores = [i for i, device in enumerate(mesh.devices.flat) if device.process_index == jax.process_index()]
        self._here = slice(own_cores[0], own_cores[-1] + 1)
        self._alone = len(own_cores) == cores
        sides = [
            routes.places(lengths, cores, self.chunk_slots, self._hub_length)
            for lengths in (ratings.train.lengths, ratings.train.column_lengths)
        ]
        by_column = ratings.train.transpose(None if self._alone else routes.needed(sides[1], self._here))
        # Evaluation rows, and the placement of those that are folded in.
        split = halves(ratings.history, ratings.heldout, als.evaluation_rows)
        evaluated = np.sort(np.concatenate(list(split.values())))
        self._heldout = {
            name: (np.searchsorted(evaluated, rows), ratings.heldout.of_rows(rows)) for name, rows in split.items()
        }
        self._history = ratings.history.of_rows(evaluated)
        sides.append(routes.places(self._history.lengths, cores, self.chunk_slots, folded_length, FOLD_IN_BUCKETS))
        # The work of all three, and the programs, which are compiled by ``compile`` or on their first call.
        self.rows = self._side(ratings.train, sides[0], sides[1])
        self.columns = self._side(by_column, sides[1], sides[0])
        row_count = ratings.train.row_count
        column_count = ratings.train.column_count
        self._row_half = half_epoch.half_epoch(mesh, places=sides[0], other_rows=column_count, als=als)
        self._column_half = half_epoch.half_epoch(mesh, places=sides[1], other_rows=row_count, als=als)
        self._objective = half_epoch.objective(
            mesh, places=sides[0], sizes=(row_count, column_count), frequency_ridge=als.ridge == "frequency"
        )
        self.evaluated = self._side(self._history, sides[2], sides[1])
        ridge = als.fold_in_ridge or als.ridge
        exact = dataclasses.replace(als, solver="cholesky", solver_dtype="float32", kernel="xla", ridge=ridge)
        self._fold_in = half_epoch.half_epoch(mesh, places=sides[2], other_rows=column_count, als=exact, fold_in=True)
        self._rank = recall.program(mesh, min(BEST, column_count))
        self._draw = _start(mesh, als.dim, als.table_dtype)
        self._gather = jax.jit(lambda both: both, out_shardings=self._replicated)
        rows, *columns = recall.batches(self._history, sides[2], sides[1])
        everywhere = jax.make_array_from_callback(rows.shape, self._replicated, lambda index: rows[index])
        self._batches = recall.Batches(everywhere, *(self._put(array[self._here]) for array in columns))

    def compile(self, weights: Weights) -> None:
        """Compiles all programs ahead of time, without running them.

        Args:
          weights: weights that have the dtypes and shapes to compile for. Their values are not used.
        """
        rows, columns, unsolved = (
            jax.ShapeDtypeStruct((places.cores * places.slots_per_core, self.als.dim), dtype, sharding=self._by_core)
            for places, dtype in (
                (self.rows.places, self.als.table_dtype),
                (self.columns.places, self.als.table_dtype),
                (self.evaluated.places, "float32"),
            )
        )
        calls = {
            "_row_half": (rows, columns, self.rows.work, weights),
            "_column_half": (columns, rows, self.columns.work, weights),
            "_objective": (rows, columns, self.rows.work, self.columns.work.counts, weights),
            "_fold_in": (unsolved, columns, self.evaluated.work, weights),
            "_rank": (unsolved, columns, self._batches),
        }
        kept = (rows, columns, *((side.work, side.row_of) for side in (self.rows, self.columns, self.evaluated)))
        for name, arguments in calls.items():
            compiled = getattr(self, name).lower(*arguments).compile()
            setattr(self, name, compiled)
            statistics = compiled.memory_analysis()
            arrays = {id(array): array for array in jax.tree.leaves((kept, self._batches, arguments))}
            resident = sum(map(_bytes_of_core, arrays.values()))
            program_bytes = (
                statistics.output_size_in_bytes - statistics.alias_size_in_bytes + statistics.temp_size_in_bytes
            )
            self.peak_bytes_per_core = max(self.peak_bytes_per_core, resident + program_bytes)

    def start(self, seed: int) -> FactorTables:
        """Returns the initial tables: normal with variance 1/d, drawn by row and seed. Rows without links are zero."""
        key = jax.random.key(seed)
        sides = (self.rows, self.columns)
        return FactorTables(
            *(self._draw(jax.random.fold_in(key, i), s.row_of, s.work.counts) for i, s in enumerate(sides))
        )

    def row_half(self, tables: FactorTables, weights: Weights) -> FactorTables:
        """Solves all rows. Donates the given tables."""
        return FactorTables(*self._row_half(tables.rows, tables.columns, self.rows.work, weights))

    def column_half(self, tables: FactorTables, weights: Weights) -> FactorTables:
        """Solves all columns. Donates the given tables."""
        columns, rows = self._column_half(tables.columns, tables.rows, self.columns.work, weights)
        return FactorTables(rows, columns)

    def objective(self, tables: FactorTables, weights: Weights) -> float:
        """Returns the objective, summed in float64 over float32 terms."""
        terms = self._objective(tables.rows, tables.columns, self.rows.work, self.columns.work.counts, weights)
        return float(np.sum(np.asarray(terms), dtype=np.float64) + len(self.ratings.train.columns))

    def ranking(self, tables: FactorTables, weights: Weights) -> np.ndarray:
        """Returns int32[rows, best]. Each evaluated row is folded in, and gets its best columns outside its history."""
        folded = self._fold_in(self._zeros(), tables.columns, self.evaluated.work, weights)
        columns = np.asarray(self._rank(folded, tables.columns, self._batches))
        return columns.reshape(-1, columns.shape[-1])[: self._history.row_count]

    def evaluate(self, tables: FactorTables, weights: Weights) -> dict[str, float]:
        """Returns recall_20 and recall_50 for both halves of the evaluation rows, and the objective, by metric name."""
        ranking = self.ranking(tables, weights)
        recalls = {
            f"{split}_recall_{k}": recall.recall(ranking[rows], heldout, k)
            for split, (rows, heldout) in self._heldout.items()
            for k in RECALL_AT
        }
        return recalls | {"objective": self.objective(tables, weights)}

    def shards(self, tables: FactorTables) -> list[np.ndarray]:
        """Returns the shards of both tables on this host's cores, [own cores · slots, d]."""
        parts = [sorted(t.addressable_shards, key=lambda shard: shard.index[0].start or 0) for t in tables]
        return [np.concatenate([np.asarray(shard.data) for shard in shards]) for shards in parts]

    def from_shards(self, shards: Sequence[np.ndarray]) -> FactorTables:
        """Builds tables from every host's ``shards``. The shards are copied, so the tables can be donated."""
        return FactorTables(*(jnp.copy(self._put(shard)) for shard in shards))

    def in_order(self, tables: FactorTables) -> tuple[np.ndarray, np.ndarray]:
        """Returns both tables on the host, [rows, d] and [columns, d], in the order of the original data."""
        rows, columns = self._gather(tables)
        return np.asarray(rows)[self.rows.places.slot], np.asarray(columns)[self.columns.places.slot]

    def bytes_per_core(self) -> int:
        """Returns the bytes that both tables and all work occupy on each core."""
        tables = sum(side.places.slots_per_core for side in (self.rows, self.columns)) * self.als.dim
        work = sum(array.nbytes for side in (self.rows, self.columns) for array in jax.tree.leaves(side.work))
        return tables * jnp.dtype(self.als.table_dtype).itemsize + work // self.mesh.shape[AXIS]

    def _zeros(self) -> Array:
        """Returns the starting point of a fold-in: zeros, float32[cores · slots, d]."""
        count = len(range(self.mesh.shape[AXIS])[self._here])
        return self._put(np.zeros((count * self.evaluated.places.slots_per_core, self.als.dim), np.float32))

    def _side(self, links: Any, side: RowPlacement, opposite: RowPlacement) -> Side:
        work = routes.route(links, side, opposite, self.chunk_slots, self._hub_length, self._here)
        if exchanges(opposite, self.als):
            received = GATHER_BYTES // (self.als.dim * 4)
            told = () if self._alone else (_largest, self._dealt)
            work = routes.with_exchange(work, opposite, received, *told)
        row_of = np.full(side.cores * side.slots_per_core, -1, np.int32)
        row_of[side.slot] = np.arange(len(side.slot))
        arrays = (work, row_of.reshape(side.cores, -1)[self._here])
        return Side(side, *jax.tree.map(self._put, arrays))

    def _put(self, array: np.ndarray | Array) -> Array:
        """Puts an array on the devices. Its leading axis consists of this host's cores, or of their rows."""
        if isinstance(array, Array):
            return array
        cores = self.mesh.shape[AXIS]
        host_cores = range(self.mesh.shape[AXIS])[self._here]
        core_rows = len(array) // len(host_cores)

        def of_core(index: Any) -> np.ndarray:
            start, stop, _ = index[0].indices(core_rows * cores)
            return array[start - core_rows * host_cores[0] : stop - core_rows * host_cores[0]]

        return jax.make_array_from_callback((core_rows * cores, *array.shape[1:]), self._by_core, of_core)

    def _dealt(self, wanted: np.ndarray) -> Array:
        """Returns the rows that cores send, given the rows requested by each host. See ``routes.with_exchange``."""

        def of_core(wanted: Array) -> Array:
            return jax.lax.all_to_all(wanted, AXIS, 2, 0, tiled=True).swapaxes(0, 2)

        program = jax.shard_map(of_core, mesh=self.mesh, in_specs=BY_CORE, out_specs=BY_CORE, check_vma=False)
        return jax.jit(program)(self._put(wanted))


def _bytes_of_core(array: Any) -> int:
    """Returns the bytes of an array on each core, or of a number on the host."""
    if not isinstance(array, Array | jax.ShapeDtypeStruct):
        return int(np.asarray(array).nbytes)
    assert array.sharding is not None
    return math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize


def _largest(number: int) -> int:
    """Returns the maximum of a number over all hosts."""
    from jax.experimental import multihost_utils

    return int(np.max(multihost_utils.process_allgather(np.int32(number))))


def _start(mesh: Mesh, dim: int, dtype: str) -> Callable[[Array, Array, Array], Array]:
    """Returns a function that draws a table, given a key, the row in each slot, and the row's number of links."""

    def of_core(key: Array, row_of: Array, counts: Array) -> Array:
        draw = jax.vmap(lambda row: jax.random.normal(jax.random.fold_in(key, row), (dim,)))
        has_links = (counts[0] > 0)[:, None]
        return jnp.where(has_links, draw(row_of[0].astype(jnp.uint32)) / np.float32(dim**0.5), 0).astype(dtype)

    return jax.jit(jax.shard_map(of_core, mesh=mesh, in_specs=(REPLICATED, BY_CORE, BY_CORE), out_specs=BY_CORE))
