"""python -m harness.probe: measures how fast a device of this machine is, and keeps what predictions read of it.

Predictions read what some small networks took to compile and to train, products of bfloat16 over those of float32, and
with several devices sums over all. Of a device that is in no table they read products, memory and operations as well.
Gathers, programs that do nothing and exchanges between all devices are printed, not kept. On a CPU it is one physical
core, as a study has.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from results import cli

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    cli.run("harness.probe")

from harness import processors
from harness.costs import Work
from results.plans.batch_study import BatchStudy

# Sizes m × k × n of products; those of tests are others.
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
LARGEST_FLOPS = {"cpu": 5e9, "gpu": 2e14, "tpu": 2e14}  # of a product: the others take too long
VECTORS = (1 << 14, 1 << 18, 1 << 22, 1 << 25)  # numbers that are read and written
# Networks that are trained, none of them that of a task: data set, model, its options, optimizer, examples.
NETWORKS: tuple[tuple[str, str, dict[str, Any], str, int], ...] = (
    ("digits", "fully_connected", {"widths": [32]}, "sgd", 4),
    ("digits", "fully_connected", {"widths": [128]}, "momentum", 32),
    ("digits", "fully_connected", {"widths": [256, 128]}, "sgd", 128),
    ("digits", "simple_cnn", {"channels": [4, 8], "width": 16}, "sgd", 16),
    ("digits", "simple_cnn", {"channels": [16, 16], "width": 64}, "momentum", 64),
    ("pydoc", "lstm", {"d_model": 24}, "momentum", 8),
    ("pydoc", "transformer", {"layers": 1, "d_model": 64, "heads": 4}, "sgd", 16),
)
STEPS = 1000  # of each, with an evaluation whenever there are a tenth more, as small sweeps have them
CHAIN = 2000  # steps that take no time of their own
LEAST_SECONDS = 0.02  # that is timed at once
ROUNDS = 5  # of which the fastest counts, as whatever else a machine does only makes it slower
PRECISIONS = {"float32": "highest", "bfloat16": "default"}


def _all_reduce(array: Any) -> Any:
    import jax

    return jax.lax.psum(array, "devices")


def _all_to_all(array: Any) -> Any:
    import jax

    return jax.lax.all_to_all(array.reshape(jax.lax.axis_size("devices"), -1), "devices", 0, 0)


EXCHANGES = {"all_reduce": _all_reduce, "all_to_all": _all_to_all}


class Product(NamedTuple):
    """A product of matrices as measured: its sizes m × k × n, and seconds."""

    m: int
    k: int
    n: int
    seconds: float

    @property
    def flops(self) -> float:
        """Two for each product of two numbers."""
        return 2.0 * self.m * self.k * self.n

    @property
    def numbers(self) -> int:
        """Of both matrices and of the product."""
        return self.m * self.k + self.k * self.n + self.m * self.n


class ProductRates(NamedTuple):
    """Seconds of a product as a sum: of its operations, of its bytes, and of its start."""

    flop_seconds: float
    byte_seconds: float
    start_seconds: float

    def seconds(self, m: int, k: int, n: int, itemsize: int) -> float:
        """Predicted seconds of a product of other sizes."""
        each = Product(m, k, n, 0.0)
        return each.flops * self.flop_seconds + each.numbers * itemsize * self.byte_seconds + self.start_seconds


def fitted(products: Sequence[Product], itemsize: int) -> ProductRates:
    """The rates that measured products fit best, relative to their seconds; none below 0."""
    import numpy as np
    from scipy.optimize import nnls

    seconds = np.array([each.seconds for each in products])
    terms = np.array([[each.flops, each.numbers * itemsize, 1.0] for each in products]) / seconds[:, None]
    scale = terms.max(axis=0)
    found, _ = nnls(terms / scale, np.ones(len(products)))
    return ProductRates(*(found / scale).tolist())


@cli.guarded
def main(argv: list[str]) -> int:
    """Probes a device, prints what was found, and keeps it."""
    parser = cli.CommandParser("python -m harness.probe", description=__doc__)
    cli.add_output_arguments(parser)
    given = parser.parse_args(argv)
    cli.set_output(csv=given.csv, json=given.json, wide=given.wide)
    backend, _ = processors.accelerators()
    if backend == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors.physical_cores()[0])
    from harness import microbenchmarks, provenance

    device = provenance.device()
    cli.say(f"measuring {device['device_kind']}, which takes up to two minutes")
    found = measured(device["backend"])
    file = microbenchmarks.write(device["device_kind"], found)
    rows = _rows(device["device_kind"], found)
    header = ("device_kind", "what", "value", "unit")
    texts = [(what, f"{value:.4g}", unit) for _, what, value, unit in rows]
    cli.show(header, rows, lambda: cli.table(header[1:], texts, ("what", "unit")))
    cli.say(f"kept in {file}; `python -m sweeps.plan` predicts from it")
    return 0


def _rows(kind: str, found: Mapping[str, Any]) -> list[tuple[str, str, float, str]]:
    rows = []
    for precision, own in found["rates"].items():
        rows.append((kind, f"products, {precision}", own["flops"] / 1e9, "GFLOP/s"))
    one = found["rates"]["float32"]
    rows += [
        (kind, "memory", one["bytes"] / 1e9, "GB/s"),
        (kind, "gathers", found["gather_bytes_per_second"] / 1e9, "GB/s"),
        (kind, "an operation", one["operation_seconds"] * 1e6, "µs"),
        (kind, "a call", found["call_seconds"] * 1e6, "µs"),
    ]
    rows += [
        (kind, f"a step of {dataset}, {model}, {examples} examples", each.seconds * 1e6, "µs")
        for (dataset, model, _, _, examples), each in zip(NETWORKS, found["networks"], strict=True)
    ]
    rows += [
        (kind, f"compiling {dataset}, {model}, {examples} examples", each.compiling, "s")
        for (dataset, model, _, _, examples), each in zip(NETWORKS, found["networks"], strict=True)
    ]
    for name in ("all_reduce", "all_to_all"):
        rows += [
            (kind, f"{name.replace('_', '-')} of {size:,} bytes over {devices} devices", seconds * 1e6, "µs")
            for devices, size, seconds in found[name]
        ]
    return rows


def measured(backend: str) -> dict[str, Any]:
    """What the first device of this process does, and all of them together: plain data."""
    import jax
    import jax.numpy as jnp

    memory = [(4 * 3 * count, _vectors(count)) for count in VECTORS]
    operation = _operation_seconds()
    nothing, zero = jax.jit(lambda a: a + 1), jnp.zeros(())
    call = best(lambda: nothing(zero))
    found: dict[str, Any] = {
        "backend": backend,
        "rates": {},
        "gather_bytes_per_second": _gather_rate(),
        "networks": [trained(study) for study in _networks()],
        "call_seconds": call,
        # Those of a CPU would be emulated devices.
        **{name: [] if backend == "cpu" else exchange_seconds(each) for name, each in EXCHANGES.items()},
    }
    for precision in PRECISIONS:
        own = products(PRODUCTS, precision, LARGEST_FLOPS[backend])
        fit = fitted(own, 4 if precision == "float32" else 2)
        found["rates"][precision] = {
            "flops": 1 / fit.flop_seconds if fit.flop_seconds else own[-1].flops / own[-1].seconds,
            "bytes": math.exp(sum(math.log(size / seconds) for size, seconds in memory) / len(memory)),
            "operation_seconds": operation,
        }
    return found


def best(run: Callable[[], Any]) -> float:
    """Seconds of a call that is repeated until it takes long enough to be timed; the least of some rounds.

    On a CPU processor seconds, as one core is probed, and others may be busy.
    """
    import jax

    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter

    def timed(times: int) -> float:
        began = clock()
        for _ in range(times):
            last = run()
            if jax.default_backend() == "cpu":  # where several programs that exchange wait for each other
                jax.block_until_ready(last)
        jax.block_until_ready(last)
        return clock() - began

    timed(1)  # compiles
    times = 1
    while (seconds := timed(times)) < LEAST_SECONDS:
        times *= 4
    return min(seconds, *(timed(times) for _ in range(ROUNDS - 1))) / times


def products(sizes: Sequence[tuple[int, int, int]], precision: str, largest: float) -> list[Product]:
    """Products of matrices as they are in a program, many in a loop, so that no call of the host is in their time."""
    import jax
    import jax.numpy as jnp

    found = []
    for m, k, n in sizes:
        if 2.0 * m * k * n > largest:
            continue
        turns = max(1, int(2e7 // (m * k * n)) * 4)

        def loop(a: Any, b: Any, turns: int = turns) -> Any:
            # The next product depends on the one before, by so little that it changes no number.
            def turn(_: Any, carry: Any) -> Any:
                left, total = carry
                with jax.default_matmul_precision(PRECISIONS[precision]):
                    out = left @ b
                return left + (out[:1, :1] * 0).astype(left.dtype), total + out[0, 0]

            return jax.lax.fori_loop(0, turns, turn, (a, jnp.zeros((), a.dtype)))

        dtype = jnp.dtype(precision)
        # Numbers that nobody else has, so that no compiler knows the result.
        a, b = (jax.random.normal(jax.random.key(i), shape).astype(dtype) for i, shape in enumerate(((m, k), (k, n))))
        program = jax.jit(loop)
        found.append(Product(m, k, n, best(lambda program=program, a=a, b=b: program(a, b)) / turns))  # type: ignore[misc]
    return found


def _vectors(count: int) -> float:
    """Seconds of a sum of two vectors of so many numbers, in the place of one of them."""
    import jax
    import jax.numpy as jnp

    a, b = jnp.ones(count), jnp.ones(count)
    turns = max(4, (1 << 22) // count)
    program = jax.jit(lambda a, b: jax.lax.fori_loop(0, turns, lambda _, c: c * 0.5 + b, a))
    return best(lambda: program(a, b)) / turns


def _gather_rate() -> float:
    """Bytes a second of rows that are gathered from a table, read and written."""
    import jax
    import jax.numpy as jnp

    rows, width, count = 1 << 17, 64, 1 << 16
    table = jnp.ones((rows, width))
    places = jax.random.randint(jax.random.key(0), (count,), 0, rows)
    program = jax.jit(lambda table, places: table.at[places].get(mode="promise_in_bounds"))
    return 2 * 4 * width * count / best(lambda: program(table, places))


def _operation_seconds() -> float:
    """Seconds of an operation that has next to nothing to do: of steps on one example of a small network."""
    import jax
    import jax.numpy as jnp

    from harness import jaxpr_cost, network_costs
    from workloads import registry

    options = {"widths": [16]}
    workload = registry.workload(registry.DATASETS["digits"], "fully_connected", options, "momentum", "float32")
    step, given = network_costs.a_step(workload, 1)
    count = jaxpr_cost.of(jax.make_jaxpr(step)(*given)).operations
    carry, *others = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), given)
    program = jax.jit(lambda carry, *rest: jax.lax.fori_loop(0, CHAIN, lambda _, each: step(each, *rest), carry))
    return best(lambda: program(carry, *others)) / (CHAIN * count)


class Trained(NamedTuple):
    """A network that was trained, as ``probes`` reads it.

    Attributes:
      work: of a step.
      calls: of programs, for each step.
      seconds: of the run for each step, with all that the host does for calls.
      equations: operations of its programs.
      compiling: seconds of that.
    """

    work: Work
    calls: float
    seconds: float
    equations: int
    compiling: float


def trained(study: BatchStudy) -> Trained:
    """Trains a network as a run does, twice, of which the faster counts; its programs are compiled anew.

    On a CPU seconds are times the share in which this process had its core, as others may be busy.
    """
    from harness import engine, network_costs, search
    from harness.run import Settings

    settings, trials = Settings(lanes=1), search.draw(study, [0])
    counts = network_costs.counts(study, None, settings)
    stepping, compiling = [], []
    with _without_cache():
        for _ in range(2):
            began, clock = time.process_time(), time.perf_counter()
            record = engine.run(study, trials, settings)
            share = (time.process_time() - began) / (time.perf_counter() - clock)
            share = min(1.0, share) if processors.accelerators()[0] == "cpu" else 1.0
            stepping.append(share * (record.train_seconds or 0.0) / (record.trial_steps or 1))
            compiling.append(share * (record.compile_seconds or 0.0))
    calls = len(study.evaluations) / study.budget_steps
    return Trained(counts.step, calls, min(stepping), counts.equations, max(compiling))


def _networks() -> list[BatchStudy]:
    """The studies of ``NETWORKS``."""
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


def exchange_seconds(exchange: Callable[[Any], Any]) -> list[tuple[int, int, float]]:
    """Devices, bytes of each and seconds of an exchange between all of this process; none where there is but one."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    devices = jax.devices()
    if len(devices) == 1:
        return []
    mesh = jax.make_mesh((len(devices),), ("devices",), devices=devices, axis_types=(AxisType.Auto,))
    spread = PartitionSpec("devices")
    found = []
    for count in (1 << 10, 1 << 16, 1 << 22):
        whole = jax.device_put(jnp.ones(count * len(devices)), NamedSharding(mesh, spread))
        program = jax.jit(jax.shard_map(exchange, mesh=mesh, in_specs=spread, out_specs=spread, check_vma=False))
        found.append((len(devices), 4 * count, best(lambda program=program, whole=whole: program(whole))))  # type: ignore[misc]
    return found
