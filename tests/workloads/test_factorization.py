"""Implicit ALS against float64 and brute force, over cores and over processes."""

import os
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from results.als import SOLVERS, Als
from workloads.datasets import webgraph_synthetic
from workloads.datasets.webgraph_synthetic import WebGraph
from workloads.factorization import recall, routes
from workloads.factorization.half_epoch import AXIS, Weights
from workloads.factorization.links import Links
from workloads.factorization.ratings import Ratings, halves
from workloads.factorization.training import FactorTables, Training, hub_bytes

from .graphs import dense, from_pairs, ratings, with_strangers

ALPHA, PENALTY = 0.01, 0.02
FLOAT, BFLOAT = ("float32", "float32"), ("bfloat16", "bfloat16")
WEIGHTS = Weights(jnp.float32(ALPHA), jnp.float32(PENALTY))


def training(data: Ratings, chunk_slots: int = 128, **changes: object) -> Training:
    plain = {"dim": 8, "solver": "cholesky", "cg_steps": 3, "gather": "all_gather", "epochs": 3}
    mesh = jax.make_mesh((1,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    return Training(data, Als(**(plain | changes)), mesh, chunk_slots=chunk_slots)  # type: ignore[arg-type]


def copied(tables: FactorTables) -> FactorTables:
    """A copy, for a half-epoch uses up what it is given."""
    return FactorTables(*(jnp.array(table) for table in tables))


def solved(matrix: np.ndarray, other: np.ndarray, alpha: float, penalty: float, frequency: bool) -> np.ndarray:
    """The rows that minimize the objective, one dense float64 solve each."""
    other = other.astype(np.float64)
    gram = alpha * other.T @ other
    rows = np.zeros((len(matrix), other.shape[1]))
    for row, links in zip(rows, matrix, strict=True):
        ridge = penalty * (links.sum() + alpha * len(other) if frequency else 1)
        own = other[links > 0]
        row[:] = np.linalg.solve(own.T @ own + gram + ridge * np.eye(other.shape[1]), own.sum(0))
    return rows


def loss(matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray, frequency: bool = True) -> float:
    """The objective in float64, over all pairs."""
    rows, columns = rows.astype(np.float64), columns.astype(np.float64)
    scores = rows @ columns.T
    total = (matrix * (1 - scores) ** 2).sum() + ALPHA * (scores**2).sum()
    for table, counts, others in ((rows, matrix.sum(1), len(columns)), (columns, matrix.sum(0), len(rows))):
        ridge = PENALTY * (counts + ALPHA * others) if frequency else PENALTY
        total += (ridge * (table**2).sum(1)).sum()
    return float(total)


def few_solvers(*names: str) -> list[Any]:
    """Returns all solvers as cases; only those with the given names are not slow."""
    return [pytest.param(name, marks=() if name in names else pytest.mark.slow) for name in SOLVERS]


@pytest.mark.parametrize("ridge", ["frequency", pytest.param("constant", marks=pytest.mark.slow)])
@pytest.mark.parametrize("solver", few_solvers("rotated_cg", "cholesky", "qr"))
def test_every_solver_solves_every_row(solver: str, ridge: str) -> None:
    data = ratings()
    own = training(data, solver=solver, ridge=ridge, cg_steps=20)
    assert len(own.rows.places.hubs) > 0, "the graph has rows that are split"
    assert (data.train.lengths == 0).any(), "and empty ones"
    before = own.start(0)
    columns = own.in_order(before)[1]
    found, rotated = own.in_order(own.row_half(before, WEIGHTS))
    right = solved(dense(data.train), columns, ALPHA, PENALTY, ridge == "frequency")
    scores = right @ columns.T.astype(np.float64)
    np.testing.assert_allclose(found @ rotated.T, scores, atol=3e-5 * np.abs(scores).max())
    assert (found[data.train.lengths == 0] == 0).all()


def test_the_objective_is_what_it_says_and_never_rises() -> None:
    data = ratings()
    matrix = dense(data.train)
    own = training(data)
    tables = own.start(0)
    values = [loss(matrix, *own.in_order(tables))]
    for _ in range(4):
        for half in (own.row_half, own.column_half):
            tables = half(tables, WEIGHTS)
            values.append(loss(matrix, *own.in_order(tables)))
            np.testing.assert_allclose(own.objective(tables, WEIGHTS), values[-1], rtol=1e-5)
    assert np.all(np.diff(values) <= 1e-6 * np.abs(values[:-1]))
    assert values[-1] < 0.7 * values[0]


@pytest.mark.parametrize("fold_in_ridge", [pytest.param(None, marks=pytest.mark.slow), "constant"])
def test_folded_in_recall_is_that_of_brute_force(fold_in_ridge: str | None) -> None:
    data = ratings()
    own = training(data, solver="rotated_cg", fold_in_ridge=fold_in_ridge)
    tables = own.column_half(own.row_half(own.start(0), WEIGHTS), WEIGHTS)
    columns = own.in_order(tables)[1]
    rows = solved(dense(data.history), columns, ALPHA, PENALTY, fold_in_ridge is None)
    folded = np.asarray(own._fold_in(own._zeros(), tables.columns, own.evaluated.work, WEIGHTS))
    evaluated_rows = np.sort(np.concatenate(list(halves(data.history, data.heldout).values())))
    np.testing.assert_allclose(folded[own.evaluated.places.slot], rows[evaluated_rows], atol=2e-4)
    scores = np.where(dense(data.history) > 0, -np.inf, rows @ columns.T.astype(np.float64))
    ranked = np.argsort(-scores, axis=1, kind="stable")
    evaluated = own.evaluate(tables, WEIGHTS)
    for k in (20, 50):
        hits = {
            row: len(set(best[:k]) & set(np.flatnonzero(wanted))) / min(k, int(wanted.sum()))
            for row, (best, wanted) in enumerate(zip(ranked, dense(data.heldout), strict=True))
            if wanted.any()
        }
        split = halves(data.history, data.heldout)
        assert sorted(np.concatenate(list(split.values()))) == [row for row in hits if data.history.lengths[row]]
        for name, rows in split.items():
            own_hits = np.mean([hits[row] for row in rows.tolist()])
            assert evaluated[f"{name}_recall_{k}"] == pytest.approx(own_hits, abs=0.02)
        assert recall.recall(ranked, data.heldout, k) == pytest.approx(np.mean(list(hits.values())))


def test_unknown_rows_are_left_out_and_ties_keep_their_order() -> None:
    data = ratings()
    own, plain = training(with_strangers(data)), training(data)
    tables = own.column_half(own.row_half(own.start(0), WEIGHTS), WEIGHTS)
    found = own.ranking(tables, WEIGHTS)
    assert len(found) == len(plain.ranking(tables, WEIGHTS)) + 2
    columns = data.train.column_count
    for row, known in zip(found[-2:], (columns - 2, columns - 1), strict=True):  # all of their scores are 0
        assert row.tolist() == [column for column in range(columns) if column != known][:50]


@pytest.mark.parametrize("most", [7, *(pytest.param(most, marks=pytest.mark.slow) for most in (2, 1000))])
def test_a_sample_of_rows_is_ranked_as_all_are(most: int) -> None:
    data = ratings()
    everything, some = training(data), training(data, evaluation_rows=most)
    tables = everything.start(0)
    rows = {name: halves(data.history, data.heldout, limit) for name, limit in (("all", None), ("some", most))}
    all_rows, own_rows = (np.sort(np.concatenate(list(split.values()))) for split in rows.values())
    assert len(own_rows) == min(most, len(all_rows))
    found = everything.ranking(tables, WEIGHTS)[np.searchsorted(all_rows, own_rows)]
    np.testing.assert_array_equal(some.ranking(tables, WEIGHTS), found)
    for split, own in rows["some"].items():
        expected = recall.recall(found[np.searchsorted(own_rows, own)], data.heldout.of_rows(own), 20)
        assert some.evaluate(tables, WEIGHTS)[f"{split}_recall_20"] == pytest.approx(expected)


@pytest.mark.parametrize("popular", ["columns", pytest.param("history", marks=pytest.mark.slow)])
def test_few_rows_that_are_all_long(popular: str) -> None:
    """A catalogue of few columns, of which each is split over the cores; and evaluation rows that all are."""
    rng = np.random.default_rng(0)
    row, column = (ids.ravel() for ids in np.meshgrid(np.arange(300), np.arange(60), indexing="ij"))
    part = rng.choice(3, len(row), p=(0.1, 0.1, 0.8) if popular == "columns" else (0.1, 0.6, 0.3))
    train, history, heldout = (from_pairs(row[part == i], column[part == i], (300, 60))[0] for i in range(3))
    own = training(Ratings(train, history, heldout, 0))
    side = own.columns if popular == "columns" else own.evaluated
    assert side.places.buckets == () and (side.places.hubs >= 0).sum() == len(side.places.slot)
    rows = own.row_half(own.start(0), WEIGHTS)
    found, columns = own.in_order(own.column_half(copied(rows), WEIGHTS))
    np.testing.assert_allclose(columns, solved(dense(train).T, found, ALPHA, PENALTY, True), atol=2e-5)
    folded = solved(dense(history), columns, ALPHA, PENALTY, True)
    scores = np.where(dense(history) > 0, -np.inf, folded @ columns.T.astype(np.float64))
    evaluated = own.evaluate(own.column_half(rows, WEIGHTS), WEIGHTS)
    for split, rows_of in halves(history, heldout).items():
        ranked = np.argsort(-scores[rows_of], axis=1, kind="stable")
        expected = recall.recall(ranked, heldout.of_rows(rows_of), 20)
        assert evaluated[f"{split}_recall_20"] == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("columns", "best"),
    [(7, 7), (700, 50), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((50, 50), (700, 3)))],
)
def test_ranking_is_that_of_brute_force_with_many_equals(
    columns: int, best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "ROWS", 8)
    monkeypatch.setattr(recall, "FEWEST", 8)
    monkeypatch.setattr(recall, "SCORES", 8 * 160)  # so that there are batches and blocks
    rng = np.random.default_rng(columns)
    history = from_pairs(rng.integers(0, 30, 200), rng.integers(0, columns, 200), (30, columns))[0]
    sides = [routes.places(rng.integers(0, 40, count), 1, 128, 16) for count in (30, columns)]
    tables = []
    for side, count in zip(sides, (30, columns), strict=True):
        tables.append(np.zeros((side.slots_per_core, 3), np.float32))
        tables[-1][side.slot] = rng.integers(-2, 3, (count, 3))
    mesh = jax.make_mesh((1,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    work = recall.batches(history, *sides)
    assert (len(work.rows) > 1, work.slots.shape[1] > 1) == (True, columns > 160)
    found = np.asarray(recall.program(mesh, best)(*map(jnp.asarray, tables), work)).reshape(-1, best)[:30]
    scores = tables[0][sides[0].slot] @ tables[1][sides[1].slot].T
    scores[dense(history) > 0] = -np.inf
    ranked = np.argsort(-scores, axis=1, kind="stable")[:, :best]
    there = np.isfinite(np.take_along_axis(scores, ranked, axis=1))
    np.testing.assert_array_equal(found[there], ranked[there])


def products(jaxpr: Any) -> Iterator[Any]:
    """The matrix products of a program, those of its loops and branches, too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns"):
                yield from products(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize("solver", few_solvers("rotated_cg", "cholesky"))
def test_products_of_float32_are_taken_in_float32(solver: str) -> None:
    own = training(small(), solver=solver)
    tables, unsolved = own.start(0), own._zeros()
    calls = {
        "half": (own._row_half, *tables, own.rows.work, WEIGHTS),
        "objective": (own._objective, *tables, own.rows.work, own.columns.work.counts, WEIGHTS),
        "fold-in": (own._fold_in, unsolved, tables.columns, own.evaluated.work, WEIGHTS),
        "scores": (own._rank, unsolved, tables.columns, own._batches),
    }
    for name, (program, *arguments) in calls.items():
        taken = [product.params["precision"] for product in products(program.trace(*arguments).jaxpr.jaxpr)]
        assert taken and set(taken) == {(jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)}, name


def small() -> Ratings:
    """Few lengths of rows, which are quickly compiled for."""
    return ratings(rows=60, columns=48, links=300)


@pytest.mark.parametrize("solver", [pytest.param("rotated_cg", marks=pytest.mark.slow), "cholesky"])
def test_peak_memory_holds_kept_arrays_and_split_rows(solver: str) -> None:
    data = ratings()
    own = training(data, solver=solver, dim=32)
    hubs = [int((side.places.hubs >= 0).sum()) for side in (own.evaluated, own.rows, own.columns)]
    matrices = max(hubs if solver == "cholesky" else hubs[:1]) * 32 * 32 * 4
    assert hub_bytes(data, own.als, own.chunk_slots) == matrices > 0
    own.compile(WEIGHTS)
    tables, peak = own.start(0), own.peak_bytes_per_core
    routes_ = [array for side in (own.rows, own.columns, own.evaluated) for array in jax.tree.leaves(side.work)]
    kept = sum(array.nbytes for array in (*tables, *routes_))
    assert own.bytes_per_core() < kept + matrices < peak < 4 * (kept + matrices) + (8 << 20)


def test_a_route_takes_little_more_memory_than_it_has_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BLOCK", 1 << 12)
    rng = np.random.default_rng(0)
    rows, length, columns = 4000, 100, 5000
    links = Links(
        np.arange(rows + 1) * length,
        np.sort(rng.integers(0, columns, (rows, length)), axis=1).ravel().astype(np.int32),
        columns,
    )
    sides = [routes.places(lengths, 1, 4096, 512) for lengths in (links.lengths, links.column_lengths)]
    tracemalloc.start()
    made = routes.route(links, *sides, 4096, 512)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {array.dtype for array in (*made.columns, made.hub_columns, made.hub_of)} == {np.dtype(np.int32)}
    assert most / len(links.columns) < 8  # of every link its place


def test_a_host_has_its_own_part_of_the_work_of_all() -> None:
    data = ratings()
    sides = [routes.places(lengths, 4, 512, 8) for lengths in (data.train.column_lengths, data.train.lengths)]
    links = data.train.transpose()
    assert (sides[0].hubs >= 0).any()
    whole = routes.route(links, *sides, 512, 8)
    for cores in (slice(0, 1), slice(1, 3), slice(3, 4)):
        needed = routes.needed(sides[0], cores)
        some = data.train.transpose(needed)
        assert np.array_equal(some.lengths, np.where(needed, links.lengths, 0)) and not needed.all()
        part = routes.route(some, *sides, 512, 8, cores)
        for ours, theirs in zip(jax.tree.leaves(part), jax.tree.leaves(whole), strict=True):
            np.testing.assert_array_equal(ours, theirs[cores])


def test_hosts_that_tell_each_other_what_they_want_send_the_same() -> None:
    data = ratings()
    sides = [routes.places(lengths, 4, 512, 8) for lengths in (data.train.lengths, data.train.column_lengths)]
    whole = routes.with_exchange(routes.route(data.train, *sides, 512, 8), sides[1], 1024)
    widths: list[list[int]] = []
    for both in (False, True):  # first each host says how much it needs at most, then all take the largest of these
        asked: list[list[np.ndarray]] = []
        for cores in (slice(0, 2), slice(2, 4)):
            own = routes.route(data.train, *sides, 512, 8, cores)
            mine: list[int] = []
            wanted: list[np.ndarray] = []

            def largest(number: int, mine: list[int] = mine, both: bool = both) -> int:
                mine.append(number)
                return max(each[len(mine) - 1] for each in widths) if both else number

            def dealt(array: np.ndarray, wanted: list[np.ndarray] = wanted) -> np.ndarray:
                wanted.append(array)
                return array

            part = routes.with_exchange(own, sides[1], 1024, largest, dealt)
            asked.append(wanted)
            if not both:
                widths.append(mine)
            else:
                for ours, theirs in zip(part.columns, whole.columns, strict=True):
                    np.testing.assert_array_equal(ours, theirs[cores])
    sends = [np.concatenate(parts).swapaxes(0, 2) for parts in zip(*asked, strict=True)]
    assert whole.hub_sends is not None
    for ours, theirs in zip(sends, (*whole.sends, whole.hub_sends), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_planted_structure_is_recovered() -> None:
    # Four groups of rows, each linked to half of its own columns: what is held out is the other half.
    rng = np.random.default_rng(0)
    row, column = (x.ravel() for x in np.meshgrid(np.arange(80), np.arange(80), indexing="ij"))
    own = (row % 4 == column % 4) & (rng.random(len(row)) < 0.5)
    links, _ = from_pairs(row[own], column[own], (80, 80))
    rest, _ = from_pairs(*(x[(row % 4 == column % 4) & ~own] for x in (row, column)), (80, 80))
    data = Ratings(links, links, rest, 0)
    fitted = training(data, dim=4, solver="rotated_cg", chunk_slots=4096)
    tables = fitted.start(0)
    for _ in range(5):
        tables = fitted.column_half(fitted.row_half(tables, WEIGHTS), WEIGHTS)
    assert fitted.evaluate(tables, WEIGHTS)["test_recall_20"] > 0.999


def test_half_an_epoch_equals_that_of_the_package_implicit() -> None:
    """Confidence c on links and ridge reg (Hu et al. 2008) are α = 1/(c − 1) and λ = reg/c here, but for a scale."""
    rng = np.random.default_rng(0)
    matrix, columns = dense(ratings().train), rng.normal(size=(240, 6))
    confidence, reg = 40.0, 0.7
    alpha = 1 / (confidence - 1)
    ours = solved(matrix, columns / np.sqrt(1 + alpha), alpha, reg / confidence, frequency=False)
    theirs = np.zeros((len(matrix), 6))
    for row, links in zip(theirs, matrix, strict=True):
        weights = 1 + (confidence - 1) * links
        row[:] = np.linalg.solve(
            (columns.T * weights) @ columns + reg * np.eye(6), (columns.T * (confidence * links)).sum(1)
        )
    scores = ours @ (columns / np.sqrt(1 + alpha)).T
    np.testing.assert_allclose(theirs @ columns.T, (1 + alpha) * scores, rtol=1e-10, atol=1e-12)


def factorized(folder: Path, cores: int, gather: str, processes: int = 1, kernel: str = "xla") -> dict[str, np.ndarray]:
    """What tests/workloads/graphs.py saves, in processes of its own."""
    out = folder / f"{cores}-{gather}-{processes}-{kernel}.npz"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{here}:{here.parent.parent}"}
    command = [sys.executable, str(here / "graphs.py"), str(cores), gather, kernel, str(out)]
    lines = [[*command, str(i), address] for i in range(processes)] if processes > 1 else [command]
    running = [
        subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in lines
    ]
    said = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes, "\n".join(said)
    with np.load(out) as saved:
        return dict(saved)


def assert_equal_scores(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    a, b = (made["rows"] @ made["columns"].T for made in (one, other))
    np.testing.assert_allclose(a, b, atol=2e-5 * np.abs(a).max())
    assert one["test_recall_20"] == pytest.approx(other["test_recall_20"], abs=0.01)
    assert one["objective"] == pytest.approx(other["objective"], rel=1e-5)
    np.testing.assert_array_equal(one["strangers"], other["strangers"])


@pytest.mark.slow
def test_two_cores_and_two_processes_give_the_scores_of_one(tmp_path: Path) -> None:
    alone = factorized(tmp_path, 1, "all_gather")
    assert_equal_scores(alone, factorized(tmp_path, 2, "all_to_all"))
    assert_equal_scores(alone, factorized(tmp_path, 2, "all_gather", processes=2))
    assert_equal_scores(alone, factorized(tmp_path, 2, "all_to_all", kernel="fused"))


@pytest.mark.slow
@pytest.mark.parametrize("cores", [2, 4, 8])
@pytest.mark.parametrize("gather", ["all_gather", "all_to_all"])
def test_any_number_of_cores_gives_the_scores_of_one(tmp_path: Path, cores: int, gather: str) -> None:
    assert_equal_scores(factorized(tmp_path, 1, "all_gather"), factorized(tmp_path, cores, gather))


def test_a_half_epoch_lowers_for_tpus() -> None:
    own = training(ratings(), solver="rotated_cg")
    tables = own.start(0)
    lowered = own._row_half.trace(tables.rows, tables.columns, own.rows.work, WEIGHTS).lower(
        lowering_platforms=("tpu",)
    )
    assert "stablehlo" in lowered.as_text()


def test_duplicates_are_merged_and_transposition_is_exact() -> None:
    links, merged = from_pairs(np.array([1, 0, 1, 1]), np.array([2, 1, 2, 0]), (3, 3))
    assert merged == 1
    np.testing.assert_array_equal(dense(links), [[0, 1, 0], [1, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(dense(links.transpose()), dense(links).T)
    assert isinstance(links.of_rows(np.array([1])), Links)


@pytest.mark.slow
def test_bfloat16_tables_keep_recall_unlike_bfloat16_solvers() -> None:
    """As in ALX's study of precision: with a weak ridge, matrices that are rounded to bfloat16 cannot be solved."""
    data = webgraph_synthetic.build(WebGraph(1000, 1000, 30_000, 10, 2.5, 500, 0))
    weak = Weights(jnp.float32(1e-3), jnp.float32(1e-5))

    def evaluated(table: str, solver: str) -> dict[str, float]:
        own = training(data, dim=64, table_dtype=table, solver_dtype=solver, chunk_slots=4096)
        tables = own.start(0)
        for _ in range(3):
            tables = own.column_half(own.row_half(tables, weak), weak)
        return own.evaluate(tables, weak)

    plain, tables, everything = (evaluated(*kinds) for kinds in (FLOAT, (BFLOAT[0], FLOAT[0]), BFLOAT))
    assert plain["test_recall_20"] > 0.1
    assert tables["test_recall_20"] == pytest.approx(plain["test_recall_20"], abs=0.01)
    assert tables["objective"] == pytest.approx(plain["objective"], rel=1e-3)
    assert not np.isfinite(everything["objective"])
    assert everything["test_recall_20"] < 0.5 * plain["test_recall_20"]
