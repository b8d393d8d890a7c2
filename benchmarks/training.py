"""How fast does a trial train, how well does it use the device, and how expensive is partitioning a batch?

    python benchmarks/training.py [--precision bfloat16] [--json FILE] [--smoke]

1. Steps per second of one trial on one device, without evaluations: the engine's compiled calls, alternating with a
   hand-written flax/optax loop over a jitted step with donated arguments. The loop uses the same data on the device and
   the same precision. ResNet-50 and Transformer base run at full size on accelerators and in a tiny version on CPUs.
   The small tasks run on both.
2. Model FLOPs utilization = M × steps per second / peak. M is the number of FLOPs of the matmuls and convolutions in
   the loss and gradient of one step, counting two per multiply-add (``harness.compiled.jaxpr_cost``). The peak is the
   number for dense bfloat16 matmuls in ``results/costs/hardware.csv``.
3. On CPUs: the CPU time of a step of eight lanes on eight emulated devices, with batches split across all eight devices
   or into four microbatches, relative to one lane per device.

To compare the speed of two checkouts, use benchmarks/quickstart.py.
"""

import functools
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

if os.environ.get("JAX_PLATFORMS") == "cpu":
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from report import BenchmarkReport, in_turn, median_ratio, open_report, python, seconds, study_of

from harness.compiled import compile_cache, jaxpr_cost
from harness.costs import network_costs
from harness.step import mesh, programs
from harness.step.batch_partition import Division
from harness.step.programs_key import ProgramsKey, programs_key
from results.costs.counts import Work
from results.costs.hardware import HARDWARE, hardware_of
from workloads import losses, registry
from workloads.workload import Dataset, Examples, Splits, shapes_of

ROUNDS, CALLS = 5, 3
GOALS = {"resnet_50": 0.35, "transformer_base": 0.5}  # fraction of the bfloat16 peak
MICROBATCHES = (1, 2, 4, 8)  # the smallest that fits in memory is used
DIVIDED = ("digits_fc", "pydoc_transformer")
WAYS = {"over 8 shards": Division(8, 1), "in 4 microbatches": Division(1, 4)}


class Network(NamedTuple):
    """A network to time: a data set of random numbers, a model and a batch size.

    Attributes:
      dataset: name in the registry during the benchmark.
      inputs, labels: shapes of the input and the label of one example.
      classes: number of label classes.
      model, options: model in the registry and its options.
      batch_size: number of examples per step.
      steps: number of steps per call.
    """

    dataset: str
    inputs: tuple[int, ...]
    labels: tuple[int, ...]
    classes: int
    model: str
    options: Mapping[str, Any]
    batch_size: int
    steps: int


RESNET = {"norm": "ghost", "group": 16}
TRANSFORMER = {"dropout": 0.1}
RESNET_50 = RESNET | {"blocks": [3, 4, 6, 3], "width": 64}
BASE = TRANSFORMER | {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048}
LARGE = {
    "resnet_50": Network("images", (224, 224, 3), (), 1000, "resnet", RESNET_50, 256, 8),
    "transformer_base": Network("tokens", (256,), (256,), 32768, "transformer_decoder", BASE, 128, 8),
}
RESNET_TINY = RESNET | {"blocks": [2, 2, 2, 2], "width": 8}
TINIEST = TRANSFORMER | {"layers": 2, "d_model": 32, "heads": 2, "d_ff": 128}
TINY = {
    "resnet_tiny": Network("images", (32, 32, 3), (), 10, "resnet", RESNET_TINY, 32, 2),
    "transformer_tiny": Network("tokens", (32,), (32,), 64, "transformer_decoder", TINIEST, 32, 4),
}
SMALL = {"digits_fc": (64, 300), "digits_cnn": (64, 40), "pydoc_transformer": (16, 12)}  # batch size, steps of a call


def register(network: Network) -> None:
    """Registers a data set of random numbers, which consists of four batches of uint8 images or tokens."""
    rng = np.random.default_rng(0)

    def drawn(count: int) -> Examples:
        is_text = bool(network.labels)
        inputs = rng.integers(0, network.classes if is_text else 256, (count, *network.inputs))
        labels = rng.integers(0, network.classes, (count, *network.labels))
        return Examples(inputs.astype(np.int32 if is_text else np.uint8), labels.astype(np.int32))

    splits = Splits(drawn(4 * network.batch_size), drawn(network.batch_size), None)
    registry.DATASETS[network.dataset] = Dataset(
        load=lambda: splits,
        version=lambda: "random numbers",
        train_examples=4 * network.batch_size,
        evaluation_examples=network.batch_size,
        classes=network.classes,
        splits=("validation",),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
        shapes=lambda: shapes_of(splits),
    )


def key_of(network: Network, precision: str) -> ProgramsKey:
    """Returns the program key of a network."""
    options = json.dumps(dict(network.options), sort_keys=True)
    return ProgramsKey(
        network.dataset, '["random numbers", {}]', network.model, options, "momentum", precision, network.batch_size
    )


def key_of_task(task: str, batch_size: int, precision: str) -> ProgramsKey:
    """Returns the program key of a task."""
    line = [f"task={task}", "optimizer=momentum", f"batch_size={batch_size}", "pruning=off", "store=none"]
    return programs_key(study_of(*line, f"precision={precision}"))


def case(name: str, precision: str, smoke: bool) -> tuple[ProgramsKey, int]:
    """Returns the program key of a network or task, and the steps per call. Registers its data."""
    if name in SMALL:
        batch_size, steps = SMALL[name]
        return key_of_task(name, batch_size, precision), 2 if smoke else steps
    network = (LARGE | TINY)[name]
    register(network)
    return key_of(network, precision), network.steps


def fitting(key: ProgramsKey, lanes: int) -> Division:
    """Returns the batch partition with the fewest microbatches that fits in memory."""
    free = mesh.device_bytes()
    for count in MICROBATCHES:
        built, _ = programs.programs_for(key, lanes, programs.default_strategy(), Division(1, count))
        if free is None or built.bytes <= free:
            break
    return built.division


def peak() -> float | None:
    """Returns the peak FLOPs per second of dense bfloat16 matmuls of this device, or None if it is not in the table."""
    row = hardware_of(jax.local_devices()[0].device_kind)
    return HARDWARE[row].flops if row else None


def step_work(key: ProgramsKey) -> Work:
    """Returns the counted work of a step on one device."""
    workload = programs.workload_of(key)
    lane = programs.one_lane(workload)
    jaxpr = network_costs.step_jaxpr(workload, key.batch_size, lane=lane)
    return jaxpr_cost.of(jaxpr, len(jax.tree.leaves(lane[0].params)))


def ours(
    key: ProgramsKey, lanes: int, division: Division, steps: int, strategy: str | None = None
) -> Callable[[], float]:
    """Returns a function that measures trial-steps per second. ``lanes`` is a multiple of the device groups."""
    built, _ = programs.programs_for(key, lanes, strategy or programs.default_strategy(), division)
    workload = programs.workload_of(key)
    shapes = programs.shapes(workload, mesh.mesh(division), lanes)
    spans = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes.spans)
    spans = spans._replace(
        seed=np.arange(lanes, dtype=np.uint32),
        end_factor=np.ones(lanes, np.float32),
        metaparameters=spans.metaparameters | {"learning_rate": np.full(lanes, 1e-3, np.float32)},
    )
    carry, done = built.empty(), 0

    def call(count: int) -> None:
        nonlocal carry, done
        span = built.call_steps or count
        for first in range(done, done + count, span):
            stop = min(first + span, done + count)
            carry = built.advance(
                carry, spans._replace(start=np.full(lanes, first, np.int32), stop=np.full(lanes, stop, np.int32))
            )
        done += count
        jax.block_until_ready(carry)

    call(steps)

    def rate() -> float:
        return CALLS * steps * lanes / seconds(lambda: [call(steps) for _ in range(CALLS)])

    return rate


def by_hand(key: ProgramsKey, steps: int) -> Callable[[], float]:
    """Returns a function that measures steps per second of a hand-written loop with a jitted step that donates.

    Like our engine, the loop uses full-precision float32 matmuls. Accelerators reduce the precision by default.
    """
    workload = programs.workload_of(key)
    train = jax.device_put(registry.DATASETS[key.dataset].load().train)
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=1e-3, momentum=0.9)
    params, state = workload.init(jax.random.key(0))
    count, batch_size = len(train.labels), key.batch_size
    labels = np.float32(batch_size * int(np.prod(train.labels.shape[1:])))

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(params: Any, state: Any, rule: Any, train: Any, rows: Any, step_key: Any) -> Any:
        def loss(params: Any) -> Any:
            batch = jax.tree.map(lambda a: a[rows], train)
            keys = jax.random.split(step_key, batch_size)
            total, after = workload.loss(params, state, batch, None, keys, jnp.float32(0))
            return total / labels, after

        grads, after = jax.grad(loss, has_aux=True)(params)
        updates, rule = optimizer.update(grads, rule, params)
        return optax.apply_updates(params, updates), after, rule

    rule = optimizer.init(params)
    rng, key_of_trial = np.random.default_rng(0), jax.random.key(1)

    def call() -> None:
        nonlocal params, state, rule
        with jax.default_matmul_precision("highest"):
            for step_number in range(CALLS * steps):
                rows = rng.permutation(count)[:batch_size]
                step_key = jax.random.fold_in(key_of_trial, step_number)
                params, state, rule = step(params, state, rule, train, rows, step_key)
            jax.block_until_ready(params)

    call()
    return lambda: CALLS * steps / seconds(call)


def speed(report: BenchmarkReport, precision: str) -> None:
    """Reports the throughput of the engine and of the hand-written loop, run in turns, and the share of the peak."""
    devices, highest = len(mesh.devices()), peak()
    networks = TINY if jax.default_backend() == "cpu" or report.smoke else LARGE
    for name in (*networks, *SMALL):
        key, steps = case(name, precision, report.smoke)
        work = {"ours": ours(key, devices, fitting(key, devices), steps), "by hand": by_hand(key, steps)}
        rates = in_turn(work, 1 if report.smoke else ROUNDS, name)
        mine = [rate / devices for rate in rates["ours"]]  # per device, as in the hand-written loop
        what, rate = f"{name}, batch {key.batch_size}, {precision}", statistics.median(mine)
        report.add(f"{what}: steps per second", rate, "1/s")
        report.add(f"{what}: ours / hand-written loop", median_ratio(mine, rates["by hand"]), "×")
        operations = step_work(key).flops
        report.add(f"{what}: operations per step", operations / 1e6, "M")
        if highest is not None and precision == "bfloat16":
            report.add(f"{what}: model FLOPs utilization", operations * rate / highest, "of 1", GOALS.get(name))
        programs.forget()


def divided(report: BenchmarkReport) -> None:
    """Adds the CPU time with shards and with microbatches relative to whole batches, on eight emulated devices."""
    environment = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(Path(__file__).parent)}
    program = f"import training; training.emulated({report.smoke})"
    done = python("-c", program, env=os.environ | environment)
    for name, ratio in json.loads(done.stdout.splitlines()[-1]).items():
        report.add(name, ratio, "×")


def emulated(smoke: bool) -> None:
    """Prints the ratios of ``divided`` as JSON."""
    ratios = {}
    for task in DIVIDED:
        key = key_of_task(task, 64, "float32")
        calls = {way: ours(key, 8, division, 2 if smoke else 40, "map") for way, division in WAYS.items()}
        calls["whole"] = ours(key, 8, Division(), 2 if smoke else 40, "map")
        work = {way: functools.partial(seconds, call, time.process_time) for way, call in calls.items()}
        taken = in_turn(work, 1 if smoke else ROUNDS, task)
        for way in WAYS:
            ratios[f"{task}, batch 64 {way}: CPU time / whole batches"] = median_ratio(taken[way], taken["whole"])
    print(json.dumps(ratios))


if __name__ == "__main__":
    compile_cache.enable()
    precision_option = {"choices": ("float32", "bfloat16"), "default": "float32"}
    with open_report(__doc__, {"--precision": precision_option}) as report:
        speed(report, report.options.precision)
        if jax.default_backend() == "cpu":
            divided(report)
