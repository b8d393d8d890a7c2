"""python -m harness.costs.probe: measures the speed of a device and stores the results for predictions.

Predictions use the time to compile and train some small networks, the speed of bfloat16 matmuls relative to float32,
and, with several devices, all-reduces across all of them. For a device that is not in the tables, they also use the
times of matmuls, memory traffic and single operations. Times of gathers, empty programs and all-to-alls are only
printed. On a CPU, only one physical core is probed because a study uses only one.
"""

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from results import cli, printing, tables

if __name__ == "__main__":  # precedes all other imports, so that import errors are reported in one line
    cli.run("harness.costs.probe")

from harness.costs import microbenchmarks
from harness.costs.microbenchmarks import Trained
from harness.processes import processors, provenance
from results.aliases import Fields, Json
from results.plans.batch_study import BatchStudy

# JAX is imported inside functions, so that --help stays fast.
# Sizes m × k × n of matmuls. Tests override them.
PRODUCTS = (
    (64, 64, 64),
    (1, 256, 256),
    (256, 256, 256),
    (2048, 64, 64),
    (64, 2048, 64),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
)
LARGEST_FLOPS = {"cpu": 5e9, "gpu": 2e14, "tpu": 2e14}  # limit per matmul; larger ones take too long
VECTORS = (1 << 14, 1 << 18, 1 << 22, 1 << 25)  # lengths of vectors to read and write
# Networks to train, distinct from those of the tasks: data set, model, model options, optimizer, batch size.
NETWORKS: tuple[tuple[str, str, Json, str, int], ...] = (
    ("digits", "fully_connected", {"widths": [32]}, "sgd", 4),
    ("digits", "fully_connected", {"widths": [128]}, "momentum", 32),
    ("digits", "fully_connected", {"widths": [256, 128]}, "sgd", 128),
    ("digits", "simple_cnn", {"channels": [4, 8], "width": 16}, "sgd", 16),
    ("digits", "simple_cnn", {"channels": [16, 16], "width": 64}, "momentum", 64),
    ("pydoc", "lstm", {"d_model": 24}, "momentum", 8),
    ("pydoc", "transformer", {"layers": 1, "d_model": 64, "heads": 4}, "sgd", 16),
)
STEPS = 1000  # steps per network; as in small sweeps, it is evaluated whenever their number has grown by a tenth
CHAIN = 2000  # steps in one call, so that the overhead of the call is negligible
LEAST_SECONDS = 0.02  # minimum duration of a timed loop
ROUNDS = 5  # the fastest round counts, because other load only slows rounds down
PRECISIONS = {"float32": "highest", "bfloat16": "default"}


EXCHANGES = ("all_reduce", "all_to_all")


class Product(NamedTuple):
    """The measurement of a matmul: its sizes m × k × n and its seconds."""

    m: int
    k: int
    n: int
    seconds: float

    @property
    def flops(self) -> float:
        """FLOPs (two per multiply-add)."""
        return 2.0 * self.m * self.k * self.n

    @property
    def numbers(self) -> int:
        """Total number of elements of both matrices and the result."""
        return self.m * self.k + self.k * self.n + self.m * self.n


def fitted(products: Sequence[Product], itemsize: int) -> tuple[float, float, float]:
    """Returns the non-negative seconds per FLOP, per byte and per matmul that minimize the relative error."""
    import numpy as np
    from scipy.optimize import nnls

    seconds = np.array([product.seconds for product in products])
    terms = np.array([[product.flops, product.numbers * itemsize, 1.0] for product in products]) / seconds[:, None]
    scale = terms.max(axis=0)
    weights, _ = nnls(terms / scale, np.ones(len(products)))
    per_flop, per_byte, start = (weights / scale).tolist()
    return per_flop, per_byte, start


@cli.guarded
def main(argv: list[str]) -> int:
    """Probes a device, then prints and stores the measurements."""
    parser = cli.CommandParser("python -m harness.costs.probe", description=__doc__)
    cli.add_output_arguments(parser)
    given = parser.parse_args(argv)
    printing.set_output(csv=given.csv, json=given.json, wide=given.wide)
    backend, _ = processors.accelerators()
    if backend == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors.physical_cores()[0])
    device = provenance.device()
    printing.say(f"measuring {device['device_kind']}, which takes up to two minutes")
    results = measured(device["backend"])
    file = microbenchmarks.write(device["device_kind"], results)
    header = ("device_kind", "what", "value", "unit")
    rows = _rows(results)
    texts = [(name, f"{value:.4g}", unit) for name, value, unit in rows]
    stored = [(device["device_kind"], *row) for row in rows]
    printing.show(header, stored, lambda: tables.table(header[1:], texts, ("what", "unit")))
    printing.say(f"stored in {file}; `python -m sweeps.plan` uses it for predictions")
    return 0


def _rows(found: Fields) -> list[tuple[str, float, str]]:
    """Returns the rows of the printed table: names, values and units."""
    table = found["rates"]["float32"]
    rates = found["rates"].items()
    rows = [(f"products, {precision}", numbers["flops"] / 1e9, "GFLOP/s") for precision, numbers in rates]
    rows += [
        ("memory", table["bytes"] / 1e9, "GB/s"),
        ("gathers", found["gather_bytes_per_second"] / 1e9, "GB/s"),
        ("an operation", table["operation_seconds"] * 1e6, "µs"),
        ("a call", found["call_seconds"] * 1e6, "µs"),
    ]
    names = [f"{dataset}, {model}, {examples} examples" for dataset, model, _, _, examples in NETWORKS]
    networks = list(zip(names, found["networks"], strict=True))
    rows += [(f"a step of {name}", run.seconds * 1e6, "µs") for name, run in networks]
    rows += [(f"compiling {name}", run.compiling, "s") for name, run in networks]
    for name in EXCHANGES:
        rows += [
            (f"{name.replace('_', '-')} of {size:,} bytes over {devices} devices", seconds * 1e6, "µs")
            for devices, size, seconds in found[name]
        ]
    return rows


def measured(backend: str) -> Json:
    """Measures the first device of this process, and all devices together. Returns the results as plain data."""
    import jax
    import jax.numpy as jnp

    memory = [(4 * 3 * count, _vectors(count)) for count in VECTORS]
    operation = _operation_seconds()
    nothing = jax.jit(lambda a: a + 1)
    zero = jnp.zeros(())
    call = best(lambda: nothing(zero))
    results: Json = {
        "backend": backend,
        "rates": {},
        "gather_bytes_per_second": _gather_rate(),
        "networks": [trained(study) for study in _networks()],
        "call_seconds": call,
        # The devices of a CPU would be emulated.
        **{name: [] if backend == "cpu" else exchange_seconds(name) for name in EXCHANGES},
    }
    for precision in PRECISIONS:
        rates = products(PRODUCTS, precision, LARGEST_FLOPS[backend])
        per_flop = fitted(rates, 4 if precision == "float32" else 2)[0]
        results["rates"][precision] = {
            "flops": 1 / per_flop if per_flop else rates[-1].flops / rates[-1].seconds,
            "bytes": math.exp(sum(math.log(size / seconds) for size, seconds in memory) / len(memory)),
            "operation_seconds": operation,
        }
    return results


def best(run: Callable[[], Any]) -> float:
    """Returns the seconds per call in the fastest round. A round repeats the call often enough to be timed.

    On a CPU, CPU seconds are measured, because the other cores may be busy while one core is probed.
    """
    import jax

    is_cpu = jax.default_backend() == "cpu"
    clock = time.process_time if is_cpu else time.perf_counter

    def timed(times: int) -> float:
        began = clock()
        for _ in range(times):
            last = run()
            if is_cpu:  # programs with collectives that run concurrently would wait for each other
                jax.block_until_ready(last)
        jax.block_until_ready(last)
        return clock() - began

    timed(1)  # compiles
    times = 1
    while (seconds := timed(times)) < LEAST_SECONDS:
        times *= 4
    return min(seconds, *(timed(times) for _ in range(ROUNDS - 1))) / times


def products(sizes: Sequence[tuple[int, int, int]], precision: str, largest: float) -> list[Product]:
    """Times matmuls inside a program that runs many of them in a loop, to exclude the overhead of the call."""
    import jax
    import jax.numpy as jnp

    timings = []
    for m, k, n in sizes:
        if 2.0 * m * k * n > largest:
            continue
        turns = max(1, int(2e7 // (m * k * n)) * 4)

        def loop(a: Any, b: Any, turns: int = turns) -> Any:
            # Each matmul depends on the previous one, but so weakly that its result does not change.
            def turn(_: Any, carry: Any) -> Any:
                left, total = carry
                with jax.default_matmul_precision(PRECISIONS[precision]):
                    out = left @ b
                return left + (out[:1, :1] * 0).astype(left.dtype), total + out[0, 0]

            return jax.lax.fori_loop(0, turns, turn, (a, jnp.zeros((), a.dtype)))

        dtype = jnp.dtype(precision)
        # Random numbers prevent the compiler from precomputing the result.
        a, b = (jax.random.normal(jax.random.key(i), shape).astype(dtype) for i, shape in enumerate(((m, k), (k, n))))
        program = jax.jit(loop)
        timings.append(Product(m, k, n, best(functools.partial(program, a, b)) / turns))
    return timings


def _vectors(count: int) -> float:
    """Returns the seconds of an in-place addition of two vectors of this length."""
    import jax
    import jax.numpy as jnp

    a, b = jnp.ones(count), jnp.ones(count)
    turns = max(4, (1 << 22) // count)
    program = jax.jit(lambda a, b: jax.lax.fori_loop(0, turns, lambda _, c: c * 0.5 + b, a))
    return best(functools.partial(program, a, b)) / turns


def _gather_rate() -> float:
    """Returns the bytes per second of a gather of rows from a table, counting both reads and writes."""
    import jax
    import jax.numpy as jnp

    rows = 1 << 17
    width = 64
    count = 1 << 16
    table = jnp.ones((rows, width))
    places = jax.random.randint(jax.random.key(0), (count,), 0, rows)
    program = jax.jit(lambda table, places: table.at[places].get(mode="promise_in_bounds"))
    return 2 * 4 * width * count / best(lambda: program(table, places))


def _operation_seconds() -> float:
    """Returns the seconds of an operation with almost no work, measured in steps of a small network on one example."""
    import jax
    import jax.numpy as jnp

    from harness.compiled import jaxpr_cost
    from harness.costs import network_costs
    from workloads import registry

    options = {"widths": [16]}
    workload = registry.workload(registry.DATASETS["digits"], "fully_connected", options, "momentum", "float32")
    step, given = network_costs.a_step(workload, 1)
    count = jaxpr_cost.of(jax.make_jaxpr(step)(*given)).operations
    carry, *arrays = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), given)
    program = jax.jit(lambda carry, *rest: jax.lax.fori_loop(0, CHAIN, lambda _, each: step(each, *rest), carry))
    return best(lambda: program(carry, *arrays)) / (CHAIN * count)


def trained(study: BatchStudy) -> Trained:
    """Trains a network twice, like a real run, and recompiles its programs each time. Returns the faster run.

    On a CPU, seconds are multiplied by this process's share of its core, because other processes may use that core.
    """
    from harness.costs import network_costs
    from harness.run import Settings
    from harness.runners import engine
    from harness.trials import search

    settings = Settings(lanes=1)
    trials = search.draw(study, [0])
    counts = network_costs.counts(study, None, settings)
    stepping = []
    compiling = []
    with _without_cache():
        for _ in range(2):
            began = time.process_time()
            clock = time.perf_counter()
            record = engine.run(study, trials, settings)
            share = (time.process_time() - began) / (time.perf_counter() - clock)
            share = min(1.0, share) if processors.accelerators()[0] == "cpu" else 1.0
            stepping.append(share * (record.train_seconds or 0.0) / (record.trial_steps or 1))
            compiling.append(share * (record.compile_seconds or 0.0))
    calls = len(study.evaluations) / study.budget_steps
    return Trained(counts.step, calls, min(stepping), counts.equations, max(compiling))


def _networks() -> list[BatchStudy]:
    """Returns the studies of ``NETWORKS``."""
    from results.plans.search_space import Range, SearchSpace
    from workloads import registry

    return [
        BatchStudy(
            dataset=dataset,
            dataset_version=registry.DATASETS[dataset].version(),
            model=model,
            model_options=options,
            optimizer=optimizer,
            schedule="constant",
            batch_size=examples,
            space=SearchSpace({name: Range("LOG", 1e-3, 2e-3) for name in registry.OPTIMIZERS[optimizer].tuned}),
            targets=(),
            budget_steps=STEPS,
            evaluation_ratio=1.1,
            evaluation_spacing=0.0,
            seed=0,
            pruning="off",
            trials=1,
            stop="budget",
        )
        for dataset, model, options, optimizer, examples in NETWORKS
    ]


@contextlib.contextmanager
def _without_cache() -> Any:
    import jax

    kept = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", kept)


def exchange_seconds(name: str) -> list[tuple[int, int, float]]:
    """Returns (devices, bytes per device, seconds) of a collective across all devices. Empty for a single device."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    devices = jax.devices()
    if len(devices) == 1:
        return []
    mesh = jax.make_mesh((len(devices),), ("devices",), devices=devices, axis_types=(AxisType.Auto,))
    spread = PartitionSpec("devices")
    exchange = {
        "all_reduce": lambda array: jax.lax.psum(array, "devices"),
        "all_to_all": lambda array: jax.lax.all_to_all(array.reshape(len(devices), -1), "devices", 0, 0),
    }[name]
    timings = []
    for count in (1 << 10, 1 << 16, 1 << 22):
        whole = jax.device_put(jnp.ones(count * len(devices)), NamedSharding(mesh, spread))
        program = jax.jit(jax.shard_map(exchange, mesh=mesh, in_specs=spread, out_specs=spread, check_vma=False))
        timings.append((len(devices), 4 * count, best(functools.partial(program, whole))))
    return timings
