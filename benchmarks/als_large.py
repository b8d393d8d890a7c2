"""A factorization of many links, from its data to an evaluation: seconds of every step, and memory, for each link."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from report import BenchmarkReport

from workloads.factorization import prepared

LINKS_OF_A_ROW, DIM, HELDOUT_ROWS, EVALUATED = 200, 128, 10_000, 1000
MEMORY = 24e9  # bytes, in all


def measure(report: BenchmarkReport, links: int, cores: int) -> None:
    """Adds all figures of a synthetic web graph with about so many links, on so many cores of a CPU."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", cores)
    import jax.numpy as jnp

    from harness import compile_cache
    from results.als import Als
    from workloads.datasets import webgraph_synthetic
    from workloads.factorization.half_epoch import AXIS, Weights
    from workloads.factorization.training import Training

    rows = links // LINKS_OF_A_ROW
    name = f"{links:,} links, {rows:,} rows and columns, d={DIM}"

    @contextmanager
    def step(what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        duration = time.perf_counter() - began
        report.add(f"{name}: {what}", duration, "s")
        report.add(f"{name}: {what}, of a link", 1e9 * duration / links, "ns")

    compile_cache.enable()  # of the user; data go to a folder of their own
    os.environ["SCALING_LIMITS_CACHE"] = str(report.folder)
    source = webgraph_synthetic.source(rows, rows, links, rows // 100, heldout_rows=HELDOUT_ROWS)
    with step("drawing and keeping the data"):
        ratings = prepared.load(source)
    stored = sum(file.stat().st_size for file in report.folder.rglob("*") if file.is_file())
    report.add(f"{name}: on disk, of a link", stored / links, "bytes")
    als = Als(dim=DIM, epochs=2, evaluation_rows=EVALUATED)
    mesh = jax.make_mesh((cores,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    with step("routes"):
        training = Training(ratings, als, mesh)
    weights = Weights(jnp.float32(2e-3), jnp.float32(1e-2))

    def epoch(tables):
        return jax.block_until_ready(training.column_half(training.row_half(tables, weights), weights))

    with step("the first epoch, compiling"):
        training.compile(weights)
        tables = epoch(training.start(0))
    with step("an epoch"):
        tables = epoch(tables)
    with step(f"the first evaluation of {EVALUATED:,} rows, compiling"):
        training.evaluate(tables, weights)
    with step(f"an evaluation of {EVALUATED:,} rows"):
        metrics = training.evaluate(tables, weights)
    report.add(f"{name}: Recall@20 of test after two epochs, %", 100 * metrics["test_recall_20"], "%")
    report.add(f"{name}: tables and work of a core, of a link", training.bytes_per_core() / links, "bytes")
    compiler_bytes = training.peak_bytes_per_core
    report.add(f"{name}: the compiler's peak of a core, of a link", compiler_bytes / links, "bytes")
    # Of this process, in units of the system: what is mapped from files counts while it is in memory.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    report.add(f"{name}: peak memory, of a link", peak / links, "bytes")
    report.add(f"{name}: memory allowed / peak memory", MEMORY / peak, "×", 1.0)
