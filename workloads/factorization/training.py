"""A factorization on its cores: tables, work and compiled programs, ready to be run epoch by epoch."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from results.als import Als
from workloads.factorization import half_epoch, recall, routes, solvers
from workloads.factorization.half_epoch import AXIS, Weights
from workloads.factorization.ratings import Ratings, halves
from workloads.factorization.routes import Route, RowPlacement

RECALL_AT = (20, 50)
BEST = max(RECALL_AT)  # columns a row is ranked to
FOLD_IN_BUCKETS = 4  # few, as they take longer to compile than to compute
GATHER_BYTES = 2 << 30  # the largest table that every core holds a copy of


def lengths(als: Als, chunk_slots: int | None = None) -> tuple[int, int, int]:
    """Links gathered at once; the length beyond which a row is split over the cores; and that of a row folded in."""
    # 4 MiB of vectors, about what a core's share of the cache holds.
    chunk = chunk_slots or max(1024, (1 << 20) // als.dim)
    # The fused kernel cuts no chunks, which long rows would fill badly.
    return chunk, chunk if als.kernel == "fused" else chunk // 8, chunk // 8


def hub_bytes(ratings: Ratings, als: Als, chunk_slots: int | None = None) -> int:
    """Size of the matrices [hubs, d, d] of rows that are split, all of which every core holds while they are solved."""
    _, split, folded = lengths(als, chunk_slots)
    evaluated = np.concatenate(list(halves(ratings.history, ratings.heldout, als.evaluation_rows).values()))
    hubs = [np.sum(ratings.history.lengths[evaluated] > folded)]
    if als.solver not in solvers.CONJUGATE:
        hubs += [np.sum(side > split) for side in (ratings.train.lengths, ratings.train.column_lengths)]
    return int(max(hubs)) * als.dim**2 * np.dtype(np.float32).itemsize


class FactorTables(NamedTuple):
    """Both tables, [cores · slots, d], sharded by rows over the cores."""

    rows: Array
    columns: Array


class Side(NamedTuple):
    """One side's places, its work on the cores, and the row in each slot (int32[cores, slots], -1 for none)."""

    places: RowPlacement
    work: Route
    row_of: Array


class Training:
    """A factorization on the cores of ``mesh``; see ``start``, ``row_half``, ``column_half`` and ``evaluate``.

    Args:
      ratings: the data.
      als: how it is solved.
      mesh: the cores, along ``AXIS``.
      chunk_slots: links gathered at once; None chooses for the cache.
    """

    def __init__(self, ratings: Ratings, als: Als, mesh: Mesh, *, chunk_slots: int | None = None):
        self.ratings, self.als, self.mesh = ratings, als, mesh
        self._by_core = NamedSharding(mesh, PartitionSpec(AXIS))
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self.chunk_slots, self._hub_length, folded_length = lengths(als, chunk_slots)
        # Places of both sides of training.
        cores = mesh.shape[AXIS]
        by_column = ratings.train.transpose()
        sides = [
            routes.places(links.lengths, cores, self.chunk_slots, self._hub_length)
            for links in (ratings.train, by_column)
        ]
        # Evaluation rows: which there are, and the places of those that are folded in.
        split = halves(ratings.history, ratings.heldout, als.evaluation_rows)
        evaluated = np.sort(np.concatenate(list(split.values())))
        self._heldout = {
            name: (np.searchsorted(evaluated, rows), ratings.heldout.of_rows(rows)) for name, rows in split.items()
        }
        self._history = ratings.history.of_rows(evaluated)
        sides.append(routes.places(self._history.lengths, cores, self.chunk_slots, folded_length, FOLD_IN_BUCKETS))
        # The work of all three, and the programs; these are compiled at their first calls.
        self.rows = self._side(ratings.train, sides[0], sides[1])
        self.columns = self._side(by_column, sides[1], sides[0])
        row_count, column_count = ratings.train.row_count, ratings.train.column_count
        self._row_half = half_epoch.half_epoch(mesh, places=sides[0], other_rows=column_count, als=als)
        self._column_half = half_epoch.half_epoch(mesh, places=sides[1], other_rows=row_count, als=als)
        self._objective = half_epoch.objective(
            mesh, places=sides[0], sizes=(row_count, column_count), frequency_ridge=als.ridge == "frequency"
        )
        self.evaluated = self._side(self._history, sides[2], sides[1])
        exact = dataclasses.replace(als, solver="cholesky", solver_dtype="float32", kernel="xla")
        self._fold_in = half_epoch.half_epoch(mesh, places=sides[2], other_rows=column_count, als=exact, fold_in=True)
        self._rank = recall.program(mesh, min(BEST, column_count))
        self._draw = _start(mesh, als.dim, als.table_dtype)
        self._gather = jax.jit(lambda both: both, out_shardings=self._replicated)
        rows, *columns = recall.batches(self._history, sides[2], sides[1])
        self._batches = recall.Batches(
            self._put(rows, self._replicated), *(self._put(array, self._by_core) for array in columns)
        )

    def start(self, seed: int) -> FactorTables:
        """Both tables at the start: normal of variance 1/d by row and seed, whatever the cores; zero without links."""
        key = jax.random.key(seed)
        sides = (self.rows, self.columns)
        return FactorTables(
            *(self._draw(jax.random.fold_in(key, i), s.row_of, s.work.counts) for i, s in enumerate(sides))
        )

    def row_half(self, tables: FactorTables, weights: Weights) -> FactorTables:
        """Solves all rows. The tables that are given are used up."""
        return FactorTables(*self._row_half(tables.rows, tables.columns, self.rows.work, weights))

    def column_half(self, tables: FactorTables, weights: Weights) -> FactorTables:
        """Solves all columns. The tables that are given are used up."""
        columns, rows = self._column_half(tables.columns, tables.rows, self.columns.work, weights)
        return FactorTables(rows, columns)

    def objective(self, tables: FactorTables, weights: Weights) -> float:
        """The objective, summed in float64 over terms of float32."""
        terms = self._objective(tables.rows, tables.columns, self.rows.work, self.columns.work.counts, weights)
        return float(np.sum(np.asarray(terms), dtype=np.float64) + len(self.ratings.train.columns))

    def ranking(self, tables: FactorTables, weights: Weights) -> np.ndarray:
        """The best columns of every evaluated row, folded in from its history, without that: int32[rows, best]."""
        folded = self._fold_in(self._zeros(), tables.columns, self.evaluated.work, weights)
        columns = np.asarray(self._rank(folded, tables.columns, self._batches))
        return columns.reshape(-1, columns.shape[-1])[: self._history.row_count]

    def evaluate(self, tables: FactorTables, weights: Weights) -> dict[str, float]:
        """recall_20 and recall_50 of either half of the evaluation rows (validation_recall_20 …), and objective."""
        ranking = self.ranking(tables, weights)
        recalls = {
            f"{split}_recall_{k}": recall.recall(ranking[rows], heldout, k)
            for split, (rows, heldout) in self._heldout.items()
            for k in RECALL_AT
        }
        return recalls | {"objective": self.objective(tables, weights)}

    def in_order(self, tables: FactorTables) -> tuple[np.ndarray, np.ndarray]:
        """Both tables on the host, [rows, d] and [columns, d], in the order of the data."""
        rows, columns = self._gather(tables)
        return np.asarray(rows)[self.rows.places.slot], np.asarray(columns)[self.columns.places.slot]

    def bytes_per_core(self) -> int:
        """Bytes of both tables and all work, on each core."""
        tables = sum(side.places.slots_per_core for side in (self.rows, self.columns)) * self.als.dim
        work = sum(array.nbytes for side in (self.rows, self.columns) for array in jax.tree.leaves(side.work))
        return tables * jnp.dtype(self.als.table_dtype).itemsize + work // self.mesh.shape[AXIS]

    def peak_bytes_per_core(self, tables: FactorTables, weights: Weights) -> int:
        """Peak bytes of each core: all arrays that are kept, and the largest reservation of the compiled programs.

        Args:
          tables, weights: any; nothing is changed.
        """
        unsolved = self._zeros()
        calls: tuple[tuple[Any, tuple[Any, ...]], ...] = (
            (self._row_half, (*tables, self.rows.work, weights)),
            (self._column_half, (*reversed(tables), self.columns.work, weights)),
            (self._objective, (*tables, self.rows.work, self.columns.work.counts, weights)),
            (self._fold_in, (unsolved, tables.columns, self.evaluated.work, weights)),
            (self._rank, (unsolved, tables.columns, self._batches)),
        )
        sides = [(side.work, side.row_of) for side in (self.rows, self.columns, self.evaluated)]
        peaks = []
        for program, arguments in calls:
            statistics = program.lower(*arguments).compile().memory_analysis()
            arrays = jax.tree.leaves((tables, sides, self._batches, arguments))
            resident = sum({id(array): array.addressable_data(0).nbytes for array in arrays}.values())
            peaks.append(
                resident
                + statistics.output_size_in_bytes
                - statistics.alias_size_in_bytes
                + statistics.temp_size_in_bytes
            )
        return max(peaks)

    def _zeros(self) -> Array:
        """The start of folding in: zeros, float32[cores · slots, d]."""
        places = self.evaluated.places
        return self._put(np.zeros((places.cores * places.slots_per_core, self.als.dim), np.float32), self._by_core)

    def _side(self, links: Any, own: RowPlacement, other: RowPlacement) -> Side:
        work = routes.route(links, own, other, self.chunk_slots, self._hub_length)
        table_bytes = other.cores * other.slots_per_core * self.als.dim * jnp.dtype(self.als.table_dtype).itemsize
        gather = self.als.gather
        if gather == "all_to_all" or (gather == "auto" and table_bytes > GATHER_BYTES):
            work = routes.with_exchange(work, other, GATHER_BYTES // (self.als.dim * 4))
        row_of = np.full(own.cores * own.slots_per_core, -1, np.int32)
        row_of[own.slot] = np.arange(len(own.slot))
        arrays = (work, row_of.reshape(own.cores, -1))
        return Side(own, *jax.tree.map(lambda array: self._put(array, self._by_core), arrays))

    def _put(self, array: np.ndarray, sharding: NamedSharding) -> Array:
        # With several processes each puts what its own cores hold.
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _start(mesh: Mesh, dim: int, dtype: str) -> Callable[[Array, Array, Array], Array]:
    """A function that draws a table from a key, the row in each slot, and the number of that row's links."""

    def of_core(key: Array, row_of: Array, counts: Array) -> Array:
        draw = jax.vmap(lambda row: jax.random.normal(jax.random.fold_in(key, row), (dim,)))
        there = (counts[0] > 0)[:, None]
        return jnp.where(there, draw(row_of[0].astype(jnp.uint32)) / np.float32(dim**0.5), 0).astype(dtype)

    spread = PartitionSpec(AXIS)
    return jax.jit(jax.shard_map(of_core, mesh=mesh, in_specs=(PartitionSpec(), spread, spread), out_specs=spread))
