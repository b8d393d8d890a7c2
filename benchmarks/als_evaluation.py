"""Does evaluation scale? CPU seconds of ranking rows against many columns, against the product of float32 in it alone.

    python benchmarks/als_evaluation.py [--columns N] [--rows N] [--dim D] [--json FILE]

Ours folds rows in from their history and finds the best 50 of all columns without it. The baseline is NumPy's product
of as many vectors in the same batches and blocks, without its results. Both take turns, warm, in CPU seconds, so that
other work on the machine counts little; a ratio is the median over rounds.
"""

import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from report import in_turn, median_ratio, open_report, seconds

from harness import compile_cache
from results.als import Als
from workloads.datasets import webgraph_synthetic
from workloads.datasets.webgraph_synthetic import WebGraph
from workloads.factorization import recall
from workloads.factorization.half_epoch import AXIS, Weights
from workloads.factorization.training import Training

ROUNDS, TRAINED_ROWS, LINKS_OF_A_ROW = 5, 20_000, 100
MOST = 1.7  # of ours over the product alone
ARGUMENTS = {
    name: {"type": int, "default": default}
    for name, default in (("--columns", 500_000), ("--rows", 1024), ("--dim", 128))
}


def product(rows: np.ndarray, columns: np.ndarray) -> None:
    """Scores of float32[rows, d] against float32[columns, d], in the batches of ours; each overwrites the last."""
    width = recall.SCORES // recall.ROWS
    scores = np.empty((recall.ROWS, width), np.float32)
    for block in range(0, len(columns), width):
        vectors = columns[block : block + width]
        for batch in range(0, len(rows), recall.ROWS):
            some = rows[batch : batch + recall.ROWS]
            np.matmul(some, vectors.T, out=scores[: len(some), : len(vectors)])


def main() -> None:
    """Reads the command line and measures."""
    with open_report(__doc__, ARGUMENTS) as report:
        jax.config.update("jax_platforms", "cpu")
        compile_cache.enable()
        options = report.options
        if report.smoke:
            options.columns, options.rows, options.dim = 2000, 100, 8
        trained = min(TRAINED_ROWS, options.columns)
        links = trained * LINKS_OF_A_ROW
        graph = WebGraph(trained, options.columns, links, options.columns // 100, heldout_rows=options.rows)
        als = Als(dim=options.dim, gather="all_gather", epochs=1)
        mesh = jax.make_mesh((1,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
        training = Training(webgraph_synthetic.build(graph), als, mesh)
        tables, weights = training.start(0), Weights(jnp.float32(1e-2), jnp.float32(1e-2))
        columns = training.in_order(tables)[1]
        rows = np.random.default_rng(0).normal(size=(options.rows, options.dim)).astype(np.float32)
        work = {
            "evaluation": lambda: training.ranking(tables, weights),
            "product": lambda: product(rows, columns),
        }
        in_turn(work, 1, "warm-up")  # compiles, and wakes threads
        timed = {which: functools.partial(seconds, piece, time.process_time) for which, piece in work.items()}
        cpu_seconds = in_turn(timed, ROUNDS, "evaluation")
        name = f"{options.rows:,} rows, {options.columns:,} columns, d={options.dim}"
        for which, durations in cpu_seconds.items():
            report.add(f"{name}: {which}", 1e3 * statistics.median(durations) / options.rows, "CPU ms/row")
        ratio = median_ratio(cpu_seconds["product"], cpu_seconds["evaluation"])
        report.add(f"{name}: product / evaluation", ratio, "×", round(1 / MOST, 3))


if __name__ == "__main__":
    main()
