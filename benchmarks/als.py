"""Is implicit ALS fast? Seconds per epoch against the package `implicit`, at the same recall.

    python benchmarks/als.py [--graph FILE.npz --heldout FILE.npz [--history FILE.npz] --dim D] [--gpu]
      [--json FILE] [--smoke]
    python benchmarks/als.py --large [LINKS] [--json FILE]

Both factorize the same graph from the same initial tables under the same objective (ridge constant; the equivalence is
tested) for as many epochs, each in a process of its own, on the same cores, in turn: ours with rotated conjugate
gradients on one device per core, by the programs of XLA and, where there is a C++ compiler, by the fused kernel, to
which the targets apply then; `implicit` with 3 steps of conjugate gradients and as many threads. A ratio is the median
over rounds of the best epochs. Recall@20 of all is computed by one function, in NumPy, from the columns' table
alone: held-out rows are solved exactly from their history. It also reports the algorithm's floating-point operations
and bytes per second, relative to a matrix product and a copy on this machine.

Without --graph: synthetic web graphs of 50,000 rows and columns with 2 million links, and 200,000 with 10 million.
--gpu compares on an accelerator, with the CUDA version of `implicit`. Needs `pip install scaling-limits[bench]`,
except for --smoke, where ours takes its place, and for --large, which prepares, trains and evaluates a graph of 100
million links and reports seconds and bytes per link.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import als_large
import numpy as np
import scipy.linalg
import scipy.sparse
from factorizers import FactorizationCase
from report import BenchmarkReport, in_turn, median_ratio, open_report

from harness import processors
from results.bad_input import BadInput
from workloads.datasets import rating_files, webgraph_synthetic
from workloads.datasets.webgraph_synthetic import WebGraph
from workloads.factorization import fused, recall
from workloads.factorization.links import Links
from workloads.factorization.ratings import Ratings, halves

ROUNDS, EPOCHS, THREADS = 5, 8, 2
SMOKE_GRAPHS, SMOKE_EPOCHS = ((400, 4_000, 8, 2, 1.0),), 2
LEAST_RECALL = -0.002  # ours less theirs
# rows and columns, links, dim, steps of ours; the least ratio that will do
GRAPHS = ((50_000, 2_000_000, 64, 2, 1.5), (50_000, 2_000_000, 128, 2, 2.1), (200_000, 10_000_000, 128, 3, 1.5))
UNOBSERVED_WEIGHT, NORM_PENALTY = 0.01, 0.3
ARGUMENTS = {
    **{name: {"type": Path} for name in ("--graph", "--heldout", "--history")},
    "--dim": {"type": int, "default": 64},
    "--gpu": {"action": "store_true"},
    "--large": {"type": int, "nargs": "?", "const": 10**8},
}


class Factorizer:
    """One of the programs of ``factorizers``, waiting for commands."""

    def __init__(self, which: str, folder: Path):
        command = [sys.executable, str(Path(__file__).with_name("factorizers.py")), which, str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(1)
        )
        self._answer()

    def run(self, epochs: int) -> list[float]:
        """Seconds of every epoch."""
        return json.loads(self._answer(f"run {epochs}\n"))

    def columns(self, path: Path) -> np.ndarray:
        """The columns' table of the last run, float32[columns, d]."""
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
            sys.exit(f"a program that is measured ended with exit code {self._process.wait()}")
        return line


class Peak(NamedTuple):
    """The peak rates of this machine on the cores in use: 10⁹ operations and 10⁹ bytes per second."""

    gflops: float
    gbytes: float


def measure(
    report: BenchmarkReport,
    name: str,
    ratings: Ratings,
    case: FactorizationCase,
    target: float | None,
    peak: Peak | None,
) -> None:
    """Adds all figures of one graph and one size of tables."""
    rounds, epochs, rival = (1, SMOKE_EPOCHS, "xla") if report.smoke else (ROUNDS, EPOCHS, "implicit")
    targets = {"fused": target, "xla": None} if _can_fuse(case) else {"xla": target}  # by kernel of ours
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
    theirs = statistics.median(best[rival])
    report.add(f"{name}: {rival}", theirs, "s/epoch")
    flops, moved = operations(ratings, case)
    for kernel, goal in targets.items():
        ours, label = statistics.median(best[kernel]), f"{name}, {kernel}"
        report.add(f"{label}: ours", ours, "s/epoch")
        report.add(f"{label}: implicit / ours", median_ratio(best[rival], best[kernel]), "×", goal)
        report.add(f"{label}: Recall@20 of ours, %", 100 * recalls[kernel], "%")
        difference = 100 * (recalls[kernel] - recalls[rival])
        report.add(f"{label}: Recall@20 of ours less implicit's", difference, "points", 100 * LEAST_RECALL)
        if peak:
            share = 100 * flops / ours / 1e9 / peak.gflops
            report.add(f"{label}: operations, of what a matrix product reaches", share, "%")
            report.add(f"{label}: bytes, of what a copy reaches", 100 * moved / ours / 1e9 / peak.gbytes, "%")


def quality(columns: np.ndarray, ratings: Ratings, case: FactorizationCase) -> float:
    """Recall@20 of held-out rows, solved exactly from their history against ``columns`` float32[columns, d]."""
    weight, table = case.unobserved_weight, columns.astype(np.float64)
    shared = weight * table.T @ table + case.norm_penalty * np.eye(case.dim)
    evaluated = np.sort(np.concatenate(list(halves(ratings.history, ratings.heldout).values())))
    history, heldout = ratings.history.of_rows(evaluated), ratings.heldout.of_rows(evaluated)
    ranked = []
    for first in range(0, history.row_count, 512):
        rows = np.arange(first, min(first + 512, history.row_count))
        scores = _solve(history, rows, table, shared).astype(np.float32) @ columns.T
        known = history.of_rows(rows)
        scores[np.repeat(np.arange(len(rows)), known.lengths), known.columns] = -np.inf
        best = np.argpartition(-scores, 20, axis=1)[:, :20]
        ranked.append(np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1), 1))
    return recall.recall(np.concatenate(ranked).astype(np.int32), heldout, 20)


def operations(ratings: Ratings, case: FactorizationCase) -> tuple[float, float]:
    """Floating-point operations and bytes of an epoch, as they follow from the algorithm.

    A link costs two products with a vector of length d for the first residual and for every step; a row the steps'
    vectors; a table its Gramian, and, rotated, one product more. Bytes: every link's vector is read once, as a chunk
    stays in the cache for all steps; every row is read and written.
    """
    links, sides = 2 * len(ratings.train.columns), ratings.train.row_count + ratings.train.column_count
    per_row = 12 * case.dim * case.cg_steps + 2 * case.dim**2 * (
        3 if case.solver == "rotated_cg" else 1 + case.cg_steps
    )
    flops = 4 * case.dim * (1 + case.cg_steps) * links + per_row * sides
    return float(flops), float(4 * case.dim * (links + 3 * sides))


def peak(threads: int) -> Peak:
    """Measures a product of square matrices and a copy, with as many threads as the cores that are used."""
    program = (
        "import time, sys, numpy as np, concurrent.futures as f\n"
        "a, b = (np.random.default_rng(0).random((4096, 4096), np.float32) for _ in range(2))\n"
        "def best(work, n=5):\n"
        "    times = []\n"
        "    for _ in range(n):\n"
        "        began = time.perf_counter(); work(); times.append(time.perf_counter() - began)\n"
        "    return min(times)\n"
        "big = [np.ones(1 << 26, np.float32) for _ in range(2 * int(sys.argv[1]))]\n"
        "pool = f.ThreadPoolExecutor(int(sys.argv[1]))\n"
        "copies = lambda: list(pool.map(lambda i: np.copyto(big[2 * i], big[2 * i + 1]), range(int(sys.argv[1]))))\n"
        "print(2 * 4096**3 / best(lambda: a @ b) / 1e9, len(big) * big[0].nbytes / best(copies) / 1e9)"
    )
    command = [sys.executable, "-c", program, str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=_environment(threads))
    return Peak(*map(float, done.stdout.split()))


def _can_fuse(case: FactorizationCase) -> bool:
    try:
        return not case.gpu and bool(fused.compiler())
    except BadInput as error:
        print(error, file=sys.stderr)
        return False


def _environment(threads: int) -> dict[str, str]:
    """The environment of a process with so many threads for NumPy's products; `implicit` wants 1: it has its own."""
    return dict(os.environ) | {"OPENBLAS_NUM_THREADS": str(threads)}


def _solve(history: Links, rows: np.ndarray, table: np.ndarray, shared: np.ndarray) -> np.ndarray:
    solved = np.zeros((len(rows), table.shape[1]))
    for i, row in enumerate(rows):
        vectors = table[history.columns[history.starts[row] : history.starts[row + 1]]]
        solved[i] = scipy.linalg.solve(shared + vectors.T @ vectors, vectors.sum(0), assume_a="pos")
    return solved


def _write(folder: Path, ratings: Ratings, case: FactorizationCase) -> None:
    """The data as SciPy's matrices of one shape, so that evaluation rows are further rows."""
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


def _graphs(options: argparse.Namespace, smoke: bool) -> Iterator[tuple[str, Ratings, int, int, float | None]]:
    """Name, data, dim, steps and target of everything that is measured."""
    if options.graph:
        files = (str(path) for path in (options.graph, options.heldout, options.history) if path)
        yield f"{options.graph.name}, d={options.dim}", rating_files.source(*files).build(), options.dim, 2, None
        return
    for rows, links, dim, steps, target in SMOKE_GRAPHS if smoke else GRAPHS:
        heldout = min(5_000, rows // 4)
        graph = WebGraph(rows=rows, columns=rows, links=links, communities=rows // 100, heldout_rows=heldout)
        name = f"{rows // 1000}k × {rows // 1000}k, {links // 10**6} M links, d={dim}"
        yield name, webgraph_synthetic.build(graph), dim, steps, None if options.gpu else target


def main() -> None:
    """Reads the command line and measures."""
    with open_report(__doc__, ARGUMENTS) as report:
        options = report.options
        threads = min(THREADS, len(processors.physical_cores()))
        if options.large:
            als_large.measure(report, options.large, threads)
            return
        if importlib.util.find_spec("implicit") is None and not report.smoke:
            sys.exit("`implicit` is what this is measured against: pip install scaling-limits[bench]")
        if bool(options.graph) != bool(options.heldout):
            sys.exit("--graph and --heldout go together")
        machine = None if options.gpu or report.smoke else peak(threads)
        if machine:
            report.add("matrix product of float32", machine.gflops, "GFLOP/s")
            report.add("copy in memory, read and written", machine.gbytes, "GB/s")
        for name, ratings, dim, steps, target in _graphs(options, report.smoke):
            case = FactorizationCase(dim, "rotated_cg", steps, UNOBSERVED_WEIGHT, NORM_PENALTY, threads, options.gpu)
            measure(report, name, ratings, case, target, machine)


if __name__ == "__main__":
    main()
