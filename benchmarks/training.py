"""How fast does a trial train, how well does it use the device, and how expensive is partitioning a batch?

    python benchmarks/training.py [--against DIR] [--precision bfloat16] [--json FILE] [--smoke]

1. Steps per second of one trial on one device, without evaluations: the engine's compiled calls, alternating with a
   hand-written flax/optax loop over a jitted step with donated arguments. The loop uses the same data on the device and
   the same precision. ResNet-50 and Transformer base run at full size on accelerators and in a tiny version on CPUs.
   The small tasks run on both.
2. Model FLOPs utilization = M × steps per second / peak. M is the number of FLOPs of the matmuls and convolutions in
   the loss and gradient of one step, counting two per multiply-add (``harness.compiled.jaxpr_cost``). The peak is the
   vendor's number for dense bfloat16 matmuls (``PEAKS``).
3. On CPUs: the CPU time of a step of eight lanes on eight emulated devices, with batches split across all eight devices
   or into four microbatches, relative to one lane per device.
4. With --against DIR: CPU seconds of training whole studies, alternating between another checkout and this one. Each
   checkout runs its own copy of this file.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

if os.environ.get("JAX_PLATFORMS") == "cpu" or "--emulated" in sys.argv:
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8" if "--emulated" in sys.argv else "1")

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, CALLS = 5, 3
# FLOPs per second of dense bfloat16 matmuls, by the prefix of the device kind in JAX. The longest prefix counts.
# NVIDIA's data sheets often list rates with sparsity, which are twice as high. Google's are on the page of each TPU
# below cloud.google.com/tpu/docs.
PEAKS = {
    "NVIDIA H100 80GB HBM3": 989.4e12,  # H100 Tensor Core GPU Architecture, table of H100 SXM5
    "NVIDIA H200": 989.4e12,  # H200 data sheet, SXM: 1,979 with sparsity
    "NVIDIA A100": 312e12,  # A100 data sheet
    "TPU v3": 61.5e12,  # v3: 123 per chip of two cores, each of which is a device
    "TPU v4": 275e12,  # v4
    "TPU v5 lite": 197e12,  # v5e
    "TPU v5": 459e12,  # v5p
    "TPU v6 lite": 918e12,  # v6e
}
GOALS = {"resnet_50": 0.35, "transformer_base": 0.5}  # fraction of the bfloat16 peak
MICROBATCHES = (1, 2, 4, 8)  # the smallest that fits in memory is used
DIVIDED = ("digits_fc", "pydoc_transformer")
COST, REPEATS = 1.05, 5
STUDIES = {"digits_fc": (64, 20_000), "digits_cnn": (64, 800), "pydoc_transformer": (16, 120)}  # batch size, steps


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
    import numpy as np

    from workloads import losses, registry
    from workloads.workload import Dataset, Examples, Splits, shapes_of

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


def key_of(network: Network, precision: str) -> Any:
    """Returns the program key of a network."""
    from harness.step.programs_key import ProgramsKey

    options = json.dumps(dict(network.options), sort_keys=True)
    name, model = network.dataset, network.model
    return ProgramsKey(name, '["random numbers", {}]', model, options, "momentum", precision, network.batch_size)


def key_of_task(task: str, batch_size: int, precision: str) -> Any:
    """Returns the program key of a task."""
    from harness.step.programs_key import programs_key
    from sweeps import overrides, planning

    line = [f"task={task}", "optimizer=momentum", f"batch_size={batch_size}", "pruning=off", "store=none"]
    (study,) = planning.request(overrides.command_line([*line, f"precision={precision}"])).studies
    return programs_key(study)


def case(name: str, precision: str, smoke: bool) -> tuple[Any, int]:
    """Returns the program key of a network or task, and the steps per call. Registers its data."""
    if name in SMALL:
        batch_size, steps = SMALL[name]
        return key_of_task(name, batch_size, precision), 2 if smoke else steps
    network = (LARGE | TINY)[name]
    register(network)
    return key_of(network, precision), network.steps


def fitting(key: Any, lanes: int) -> Any:
    """Returns the batch partition with the fewest microbatches that fits in memory."""
    from harness.step import mesh, programs
    from harness.step.batch_partition import Division

    free = mesh.device_bytes()
    for count in MICROBATCHES:
        built, _ = programs.programs_for(key, lanes, programs.default_strategy(), Division(1, count))
        if free is None or built.bytes <= free:
            break
    return built.division


def peak() -> float | None:
    """Returns the peak FLOPs per second of dense bfloat16 matmuls of this device, or None if it is not in the table."""
    import jax

    kind = jax.local_devices()[0].device_kind
    return max(((len(name), value) for name, value in PEAKS.items() if kind.startswith(name)), default=(0, None))[1]


def ours(key: Any, lanes: int, division: Any, steps: int, strategy: str | None = None) -> Callable[[], float]:
    """Returns a function that measures trial-steps per second. ``lanes`` is a multiple of the device groups."""
    import jax
    import numpy as np

    from harness.step import mesh, programs

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
        began = time.perf_counter()
        for _ in range(CALLS):
            call(steps)
        return CALLS * steps * lanes / (time.perf_counter() - began)

    return rate


def by_hand(key: Any, steps: int) -> Callable[[], float]:
    """Returns a function that measures steps per second of a hand-written loop with a jitted step that donates.

    Like our engine, the loop uses full-precision float32 matmuls. Accelerators reduce the precision by default.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    from harness.step import programs
    from workloads import registry

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

    def rate() -> float:
        nonlocal params, state, rule
        began = time.perf_counter()
        with jax.default_matmul_precision("highest"):
            for step_number in range(CALLS * steps):
                rows = rng.permutation(count)[:batch_size]
                params, state, rule = step(
                    params, state, rule, train, rows, jax.random.fold_in(key_of_trial, step_number)
                )
            jax.block_until_ready(params)
        return CALLS * steps / (time.perf_counter() - began)

    rate()
    return rate


def speed(report: Any, precision: str) -> None:
    """Reports the throughput of the engine and of the hand-written loop, run in turns, and the share of the peak."""
    import jax
    from report import in_turn, median_ratio

    from harness.compiled import jaxpr_cost
    from harness.costs import network_costs
    from harness.step import mesh, programs

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
        step = network_costs.step_jaxpr(programs.workload_of(key), key.batch_size)
        operations = jaxpr_cost.matrix_flops(step)
        report.add(f"{what}: operations per step", operations / 1e6, "M")
        if highest is not None and precision == "bfloat16":
            report.add(f"{what}: model FLOPs utilization", operations * rate / highest, "of 1", GOALS.get(name))
        programs.forget()


def divided(report: Any) -> None:
    """Adds the CPU time with shards and with microbatches relative to whole batches, on eight emulated devices."""
    command = [sys.executable, __file__, "--emulated"]
    if report.smoke:
        command.append("--smoke")
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    for name, ratio in json.loads(done.stdout.splitlines()[-1]).items():
        report.add(name, ratio, "×")


def emulated(smoke: bool) -> None:
    """Prints the ratios of ``divided`` as JSON."""
    from harness.step.batch_partition import Division

    ways = {"over 8 shards": Division(8, 1), "in 4 microbatches": Division(1, 4)}
    ratios = {}
    for task in DIVIDED:
        steps = 2 if smoke else 40
        key = key_of_task(task, 64, "float32")
        work = {name: ours(key, 8, way, steps, "map") for name, way in {"": Division(), **ways}.items()}
        seconds: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(1 if smoke else ROUNDS):
            for name, piece in work.items():
                began = time.process_time()
                piece()
                seconds[name].append(time.process_time() - began)
        for name in ways:
            ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[""], strict=True))
            ratios[f"{task}, batch 64 {name}: CPU time / whole batches"] = ratio
    print(json.dumps(ratios))


def measured(smoke: bool) -> None:
    """Prints the CPU seconds of training for each task as JSON, excluding compilation."""
    from harness.run import Settings
    from harness.runners import engine
    from harness.trials import search
    from sweeps import overrides, planning

    cpu_seconds = {}
    for task, (batch_size, steps) in STUDIES.items():
        line = [f"task={task}", "optimizer=nesterov", f"batch_size={batch_size}", "trials=4", "pruning=off"]
        line += [f"task.budget.steps={4 if smoke else steps}", "task.targets=[]", "store=none"]
        line += ["optimizer.space.learning_rate={scale: LOG, low: 1e-3, high: 1e-2}"]
        (study,) = planning.request(overrides.command_line(line)).studies
        trials = search.draw(study, range(4))
        engine.run(study, trials, Settings())
        began = time.process_time()
        engine.run(study, trials, Settings())
        cpu_seconds[task] = time.process_time() - began
    print(json.dumps(cpu_seconds))


def against(report: Any, other_checkout: Path) -> None:
    """Adds the CPU time of another checkout relative to this one. Measurements alternate between the two."""

    def by(checkout: Path) -> dict[str, float]:
        environment = os.environ | {"PYTHONPATH": str(checkout), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, str(checkout / "benchmarks" / "training.py"), "--measured"]
        if report.smoke:
            command.append("--smoke")
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=checkout, env=environment)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    pairs = [(by(ROOT), by(other_checkout)) for _ in range(1 if report.smoke else REPEATS)]
    for task in STUDIES:
        ratio = statistics.median(other_seconds[task] / mine[task] for mine, other_seconds in pairs)
        report.add(f"{task}: CPU time of the other checkout × {COST} / of this one", COST * ratio, "×", 1.0)


def main() -> None:
    """Runs the inner command in a subprocess, otherwise all measurements."""
    parser = argparse.ArgumentParser(add_help=False)
    for name in ("--emulated", "--measured", "--smoke"):
        parser.add_argument(name, action="store_true")
    inner, _ = parser.parse_known_args()
    if inner.emulated or inner.measured:
        sys.path[:1] = []  # remove the folder of this file
        (emulated if inner.emulated else measured)(inner.smoke)
        return
    from report import open_report

    from harness.compiled import compile_cache

    compile_cache.enable()
    arguments = {
        "--against": {"type": Path, "metavar": "DIR", "help": "another checkout"},
        "--precision": {"choices": ("float32", "bfloat16"), "default": "float32"},
    }
    with open_report(__doc__, arguments) as report:
        import jax

        speed(report, report.options.precision)
        if jax.default_backend() == "cpu":
            divided(report)
        if report.options.against:
            against(report, report.options.against.resolve())


if __name__ == "__main__":
    main()
