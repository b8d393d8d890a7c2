"""Is implicit ALS fast? Seconds per epoch against the package `implicit`, at the same recall.

    python benchmarks/als.py [--json FILE] [--smoke]
    python benchmarks/als.py --large [LINKS] [--json FILE]
    python benchmarks/als.py --evaluation [--json FILE] [--smoke]

Both factorize the same graph from the same initial tables with the same objective. (The ridge is constant, and a test
checks the equivalence.) They take turns for the same number of epochs, each in a separate process on the same cores.
Our program uses rotated conjugate gradients on one device per core, compiled by XLA and, if there is a C++ compiler,
also with the fused kernel. In that case, the targets apply to the fused kernel. `implicit` uses 3 steps of conjugate
gradients and one thread per core. Ratios are computed from the best epoch of each round, and the median over rounds is
reported. A single NumPy function computes Recall@20 of all tables. It solves held-out rows exactly from their history.
Floating-point operations per second are reported relative to a matmul on this machine.

The data are synthetic web graphs: 50,000 rows and columns with 2 million links, and 200,000 with 10 million. This
requires `pip install scaling-limits[bench]`, except with --smoke, which compares our program with itself, and in the
other two modes:

--large prepares, trains on and evaluates a graph of 100 million links, and reports seconds and bytes per link.
--evaluation compares the time for ranking rows against 500,000 columns with that for the float32 matmul it contains.
Our program folds rows in from their history and finds the best 50 columns that are not in the history. The baseline is
NumPy's matmul of the same number of vectors in the same batches and blocks. Both take turns after a warm-up. CPU
seconds are compared, so other load on the machine hardly matters. The ratio is the median over rounds.
"""

import contextlib
import functools
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse
from factorizers import FactorizationCase
from report import BenchmarkReport, in_turn, median_ratio, open_report, python, seconds

from harness.compiled import compile_cache
from harness.processes import processors
from results.als import Als
from results.bad_input import BadInput
from workloads.datasets import webgraph_synthetic
from workloads.datasets.webgraph_synthetic import WebGraph
from workloads.factorization import fused, prepared, recall
from workloads.factorization.half_epoch import AXIS, Weights
from workloads.factorization.links import Links
from workloads.factorization.ratings import Ratings, halves
from workloads.factorization.training import Training

ROUNDS, EPOCHS, THREADS = 5, 8, 2
SMOKE_GRAPHS, SMOKE_EPOCHS = ((400, 4_000, 8, 2, 1.0),), 2
LEAST_RECALL = -0.002  # ours minus theirs
# Number of rows and of columns, number of links, dim, our number of steps, and the target for the ratio.
GRAPHS = ((50_000, 2_000_000, 64, 2, 1.5), (50_000, 2_000_000, 128, 2, 2.1), (200_000, 10_000_000, 128, 3, 1.5))
UNOBSERVED_WEIGHT, NORM_PENALTY = 0.01, 0.3
LARGE_LINKS_PER_ROW, LARGE_DIM, LARGE_HELDOUT_ROWS, LARGE_EVALUATED = 200, 128, 10_000, 1000
LARGE_MEMORY = 24e9  # bytes, for the whole process
EVALUATION, SMOKE_EVALUATION = (1024, 500_000, 128), (100, 2000, 8)  # rows, columns and dim
EVALUATION_TRAINED_ROWS, EVALUATION_LINKS_PER_ROW = 20_000, 100
MOST_EVALUATION = 1.7  # our time relative to the matmul
ARGUMENTS = {
    "--large": {"type": int, "nargs": "?", "const": 10**8},
    "--evaluation": {"action": "store_true"},
}


class Factorizer:
    """A running program of ``factorizers``, which waits for commands."""

    def __init__(self, which: str, folder: Path):
        command = [sys.executable, str(Path(__file__).with_name("factorizers.py")), which, str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(1)
        )
        self._answer()

    def run(self, epochs: int) -> list[float]:
        """Returns the seconds of each epoch."""
        return json.loads(self._answer(f"run {epochs}\n"))

    def columns(self, path: Path) -> np.ndarray:
        """Returns the column table of the last run, float32[columns, d]."""
        self._answer(f"save {path}\n")
        with np.load(path) as tables:
            return tables["columns"]

    def end(self) -> None:
        self._process.communicate()

    def _answer(self, command: str = "") -> str:
        self._process.stdin.write(command)
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"factorizers.py ended with exit code {self._process.wait()}")
        return line


def measure(
    report: BenchmarkReport,
    name: str,
    ratings: Ratings,
    case: FactorizationCase,
    target: float,
    peak: float | None,
) -> None:
    """Adds all figures for one graph and one table size. ``peak`` is in operations per second."""
    rounds, epochs, rival = (1, SMOKE_EPOCHS, "xla") if report.smoke else (ROUNDS, EPOCHS, "implicit")
    targets = {"fused": target, "xla": None} if _can_fuse() else {"xla": target}  # by kernel of ours
    _write(report.folder, ratings, case)
    with contextlib.ExitStack() as stack:
        programs = {}
        for which in dict.fromkeys([*targets, rival]):
            programs[which] = Factorizer(which, report.folder)
            stack.callback(programs[which].end)
        work = {which: lambda program=program: min(program.run(epochs)) for which, program in programs.items()}
        best = in_turn(work, rounds, name)
        recalls = {
            which: quality(program.columns(report.folder / f"{which}.npz"), ratings, case)
            for which, program in programs.items()
        }
    rival_seconds = statistics.median(best[rival])
    report.add(f"{name}: {rival}", rival_seconds, "s/epoch")
    flops = operations(ratings, case)
    for kernel, goal in targets.items():
        seconds_of_kernel, label = statistics.median(best[kernel]), f"{name}, {kernel}"
        report.add(f"{label}: ours", seconds_of_kernel, "s/epoch")
        report.add(f"{label}: implicit / ours", median_ratio(best[rival], best[kernel]), "×", goal)
        report.add(f"{label}: our Recall@20, %", 100 * recalls[kernel], "%")
        difference = 100 * (recalls[kernel] - recalls[rival])
        report.add(f"{label}: our Recall@20 minus implicit's", difference, "points", 100 * LEAST_RECALL)
        if peak:
            share = 100 * flops / seconds_of_kernel / peak
            report.add(f"{label}: operations per second relative to a matmul", share, "%")


def quality(columns: np.ndarray, ratings: Ratings, case: FactorizationCase) -> float:
    """Returns the Recall@20 of held-out rows, solved exactly from their history. ``columns`` is float32[columns, d]."""
    weight, table = case.unobserved_weight, columns.astype(np.float64)
    shared = weight * table.T @ table + case.norm_penalty * np.eye(case.dim)
    evaluated = np.sort(np.concatenate(list(halves(ratings.history, ratings.heldout).values())))
    history, heldout = ratings.history.of_rows(evaluated), ratings.heldout.of_rows(evaluated)
    ranked = []
    for first in range(0, history.row_count, 512):
        rows = np.arange(first, min(first + 512, history.row_count))
        scores = _solve(history, rows, table, shared).astype(np.float32) @ columns.T
        links_known = history.of_rows(rows)
        scores[np.repeat(np.arange(len(rows)), links_known.lengths), links_known.columns] = -np.inf
        best = np.argpartition(-scores, 20, axis=1)[:, :20]
        ranked.append(np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1), 1))
    return recall.recall(np.concatenate(ranked).astype(np.int32), heldout, 20)


def operations(ratings: Ratings, case: FactorizationCase) -> float:
    """Returns the floating-point operations that rotated conjugate gradients need per epoch.

    Each link costs two products with a vector of length d for the first residual and for each step. Each row costs the
    vector operations of the steps. Each table costs its Gramian and, because it is rotated, another matmul.
    """
    links, sides = 2 * len(ratings.train.columns), ratings.train.row_count + ratings.train.column_count
    per_row = 12 * case.dim * case.cg_steps + 6 * case.dim**2
    return float(4 * case.dim * (1 + case.cg_steps) * links + per_row * sides)


def peak(threads: int) -> float:
    """Measures the operations per second of a matmul of square matrices, with ``threads`` threads."""
    program = (
        "import timeit, numpy as np\n"
        "a, b = (np.random.default_rng(0).random((4096, 4096), np.float32) for _ in range(2))\n"
        "print(2 * 4096**3 / min(timeit.repeat(lambda: a @ b, number=1)))"
    )
    return float(python("-c", program, env=_environment(threads)).stdout)


def _can_fuse() -> bool:
    try:
        return bool(fused.compiler())
    except BadInput as error:
        print(error, file=sys.stderr)
        return False


def _environment(threads: int) -> dict[str, str]:
    """Returns the environment of a process with ``threads`` NumPy threads. Use 1 for `implicit`, which has its own."""
    return dict(os.environ) | {"OPENBLAS_NUM_THREADS": str(threads)}


def _solve(history: Links, rows: np.ndarray, table: np.ndarray, shared: np.ndarray) -> np.ndarray:
    solved = np.zeros((len(rows), table.shape[1]))
    for i, row in enumerate(rows):
        vectors = table[history.columns[history.starts[row] : history.starts[row + 1]]]
        solved[i] = scipy.linalg.solve(shared + vectors.T @ vectors, vectors.sum(0), assume_a="pos")
    return solved


def _write(folder: Path, ratings: Ratings, case: FactorizationCase) -> None:
    """Writes the data as SciPy matrices of the same shape. Evaluation rows come last."""
    rows = ratings.train.row_count
    for name in ("train", "history", "heldout"):
        links: Links = getattr(ratings, name)
        starts = links.starts
        if name == "train":
            starts = np.concatenate([starts, np.full(ratings.history.row_count, starts[-1])])
        else:
            starts = np.concatenate([np.zeros(rows, np.int64), starts])
        shape = (rows + ratings.history.row_count, links.column_count)
        matrix = scipy.sparse.csr_matrix((np.ones(len(links.columns), np.float32), links.columns, starts), shape)
        scipy.sparse.save_npz(folder / f"{name}.npz", matrix, compressed=False)
    (folder / "case.json").write_text(json.dumps(case._asdict()))


def _graphs(smoke: bool) -> Iterator[tuple[str, Ratings, int, int, float]]:
    """Yields the name, data, dim, steps and target for each graph."""
    for rows, links, dim, steps, target in SMOKE_GRAPHS if smoke else GRAPHS:
        heldout = min(5_000, rows // 4)
        graph = WebGraph(rows=rows, columns=rows, links=links, communities=rows // 100, heldout_rows=heldout)
        name = f"{rows // 1000}k × {rows // 1000}k, {links // 10**6} M links, d={dim}"
        yield name, webgraph_synthetic.build(graph), dim, steps, target


def measure_large(report: BenchmarkReport, links: int, cores: int) -> None:
    """Adds all figures for a synthetic web graph with about ``links`` links, on ``cores`` CPU cores."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", cores)
    rows = links // LARGE_LINKS_PER_ROW
    name = f"{links:,} links, {rows:,} rows and columns, d={LARGE_DIM}"

    @contextlib.contextmanager
    def step(what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        duration = time.perf_counter() - began
        report.add(f"{name}: {what}", duration, "s")
        report.add(f"{name}: {what}, per link", 1e9 * duration / links, "ns")

    compile_cache.enable()  # the user's cache, but the data go to a temporary folder
    os.environ["SCALING_LIMITS_CACHE"] = str(report.folder)
    source = webgraph_synthetic.source(rows, rows, links, rows // 100, heldout_rows=LARGE_HELDOUT_ROWS)
    with step("generating and preparing the data"):
        ratings = prepared.load(source)
    stored = sum(file.stat().st_size for file in report.folder.rglob("*") if file.is_file())
    report.add(f"{name}: on disk, per link", stored / links, "bytes")
    als = Als(dim=LARGE_DIM, epochs=2, evaluation_rows=LARGE_EVALUATED)
    mesh = jax.make_mesh((cores,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    with step("routes"):
        training = Training(ratings, als, mesh)
    weights = Weights(jnp.float32(2e-3), jnp.float32(1e-2))

    def epoch(tables):
        return jax.block_until_ready(training.column_half(training.row_half(tables, weights), weights))

    with step("first epoch, with compilation"):
        training.compile(weights)
        tables = epoch(training.start(0))
    with step("an epoch"):
        tables = epoch(tables)
    with step(f"first evaluation of {LARGE_EVALUATED:,} rows, with compilation"):
        training.evaluate(tables, weights)
    with step(f"evaluation of {LARGE_EVALUATED:,} rows"):
        metrics = training.evaluate(tables, weights)
    report.add(f"{name}: Recall@20 of test after two epochs, %", 100 * metrics["test_recall_20"], "%")
    report.add(f"{name}: tables and work per core, per link", training.bytes_per_core() / links, "bytes")
    compiler_bytes = training.peak_bytes_per_core
    report.add(f"{name}: the compiler's peak per core, per link", compiler_bytes / links, "bytes")
    # Includes resident pages of memory-mapped files. Linux reports kilobytes, macOS bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    report.add(f"{name}: peak memory, per link", peak / links, "bytes")
    report.add(f"{name}: memory allowed / peak memory", LARGE_MEMORY / peak, "×", 1.0)


def product(rows: np.ndarray, columns: np.ndarray) -> None:
    """Multiplies float32[rows, d] by float32[columns, d] in batches of our size. Each product overwrites the last."""
    width = recall.SCORES // recall.ROWS
    scores = np.empty((recall.ROWS, width), np.float32)
    for block in range(0, len(columns), width):
        vectors = columns[block : block + width]
        for batch in range(0, len(rows), recall.ROWS):
            some = rows[batch : batch + recall.ROWS]
            np.matmul(some, vectors.T, out=scores[: len(some), : len(vectors)])


def measure_evaluation(report: BenchmarkReport) -> None:
    """Adds the CPU time of ranking rows against many columns, and the CPU time of the matmul in it."""
    jax.config.update("jax_platforms", "cpu")
    compile_cache.enable()
    row_count, column_count, dim = SMOKE_EVALUATION if report.smoke else EVALUATION
    trained = min(EVALUATION_TRAINED_ROWS, column_count)
    links = trained * EVALUATION_LINKS_PER_ROW
    graph = WebGraph(trained, column_count, links, column_count // 100, heldout_rows=row_count)
    als = Als(dim=dim, gather="all_gather", epochs=1)
    mesh = jax.make_mesh((1,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    training = Training(webgraph_synthetic.build(graph), als, mesh)
    tables, weights = training.start(0), Weights(jnp.float32(1e-2), jnp.float32(1e-2))
    columns = training.in_order(tables)[1]
    rows = np.random.default_rng(0).normal(size=(row_count, dim)).astype(np.float32)
    work = {
        "evaluation": lambda: training.ranking(tables, weights),
        "product": lambda: product(rows, columns),
    }
    in_turn(work, 1, "warm-up")  # compiles, and starts the threads
    timed = {which: functools.partial(seconds, piece, time.process_time) for which, piece in work.items()}
    cpu_seconds = in_turn(timed, ROUNDS, "evaluation")
    name = f"{row_count:,} rows, {column_count:,} columns, d={dim}"
    for which, durations in cpu_seconds.items():
        report.add(f"{name}: {which}", 1e3 * statistics.median(durations) / row_count, "CPU ms/row")
    ratio = median_ratio(cpu_seconds["product"], cpu_seconds["evaluation"])
    report.add(f"{name}: matmul / evaluation", ratio, "×", round(1 / MOST_EVALUATION, 3))


def main() -> None:
    """Reads the command line and runs the benchmark."""
    with open_report(__doc__, ARGUMENTS) as report:
        threads = min(THREADS, len(processors.physical_cores()))
        if report.options.large:
            measure_large(report, report.options.large, threads)
            return
        if report.options.evaluation:
            measure_evaluation(report)
            return
        if importlib.util.find_spec("implicit") is None and not report.smoke:
            sys.exit("this benchmark compares with `implicit`. Install it with: pip install scaling-limits[bench]")
        machine = None if report.smoke else peak(threads)
        if machine:
            report.add("float32 matmul", machine / 1e9, "GFLOP/s")
        for name, ratings, dim, steps, target in _graphs(report.smoke):
            case = FactorizationCase(dim, "rotated_cg", steps, UNOBSERVED_WEIGHT, NORM_PENALTY, threads)
            measure(report, name, ratings, case, target, machine)


if __name__ == "__main__":
    main()
