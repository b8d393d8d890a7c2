"""The checks of first_contact.py and their results."""

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ROOT / "results" / "published"
PASS, FAIL, MEASURED, NOT_MEASURED, ERROR = "pass", "fail", "measured", "not measured", "error"

# In NumPy, sums of 256 products of standard normal numbers have a relative error of 3e-7 in float32, 4e-6 in three
# products of bfloat16, 3e-4 in TF32 and 2e-3 in bfloat16.
MOST_ERROR = 1e-6
ROUNDED = 1e-4, 5e-2  # relative differences of a gradient in bfloat16
ROUNDED_ATTENTION = 2e-2  # relative error of attention in bfloat16, whose numbers have 8 bits
GOAL_LANES = 20.0
LANES, LANE_STEPS, ROUNDS = 32, 300, 3
STOPPED = 75  # exit code
STOP_SECONDS = 10.0  # from SIGTERM to the end of the process: 5, plus 5 for saving
TOLERANCE = 1e-3  # of losses after a resumption, if results are not bitwise identical
RESUMED = ["task=digits_fc", "optimizer=momentum", "batch_size=64", "trials=8", "pruning=off", "task.targets=[]"]
RESUMED += ["optimizer.space.learning_rate={scale: LOG, low: 1e-3, high: 1e-2}", "launcher.workers=1"]
RESUMED_STEPS, LONGER, ATTEMPTS, TRAINED_SECONDS = 40_000, 8, 3, 1.0
MOST_APART = 1e-5  # measured 6e-7 between batched and sequential lanes on a CPU
RELEASED = ["+experiment=published/digits", "task=digits_fc", "optimizer=momentum", "batch_size=64"]


class Number(NamedTuple):
    """A number measured by a check.

    Attributes:
      name, value, unit: the name, value and unit of the number. A value that is not finite is replaced by None.
      goal: the goal as text, such as ≥ 20, or None if there is no goal.
      met: whether the goal is met, or True if there is no goal.
    """

    name: str
    value: float | None
    unit: str = ""
    goal: str | None = None
    met: bool = True


class Finding(NamedTuple):
    """The result of a check: its numbers, and a reason for the outcome if the numbers do not explain it."""

    numbers: Sequence[Number]
    why: str = ""
    outcome: str | None = None  # by default derived from the numbers

    def judged(self) -> str:
        """Returns "fail" if a goal is missed, "pass" if all goals are met, and "measured" if there are no goals."""
        if self.outcome is not None:
            return self.outcome
        if not all(number.met for number in self.numbers):
            return FAIL
        return PASS if any(number.goal for number in self.numbers) else MEASURED


class Check(NamedTuple):
    """A check, run as ``run(smoke)`` in a separate process with a time limit.

    Attributes:
      run: function that returns the result.
      seconds: time limit.
      on_device: whether the check's process itself computes on the device, instead of starting processes that do.
      accelerator: whether the check requires an accelerator.
    """

    run: Callable[[bool], Finding]
    seconds: float
    on_device: bool = True
    accelerator: bool = False


def at_most(name: str, value: float, limit: float, unit: str = "") -> Number:
    """Returns a number whose goal is at most ``limit``."""
    return Number(name, value, unit, f"≤ {limit:g}", bool(value <= limit))


def at_least(name: str, value: float, limit: float | None, unit: str = "") -> Number:
    """Returns a number whose goal is at least ``limit``. With None, there is no goal."""
    if limit is None:
        return Number(name, value, unit)
    return Number(name, value, unit, f"≥ {limit:g}", bool(value >= limit))


def device(smoke: bool) -> Finding:
    """Checks that JAX computes on the accelerator of the machine, and that a program runs there."""
    del smoke
    import jax
    import jax.numpy as jnp

    from harness.processes import processors
    from harness.step import mesh

    kind, _ = processors.accelerators()
    backend = jax.default_backend()
    total = float(jnp.arange(1000).sum())
    on_kind = Number(f"JAX computes on {kind}", float(backend == kind), "", "= 1", backend == kind)
    right = Number("sum of 0 to 999", total, "", "= 499500", total == 499_500)
    numbers = [on_kind, right, Number("devices of this process", jax.local_device_count())]
    numbers += [Number("memory of a device", (mesh.device_bytes() or 0) / 2**30, "GiB")]
    return Finding(numbers, "" if backend == kind else f"the machine has {kind}, but JAX computes on {backend}")


def precision(smoke: bool) -> Finding:
    """Measures relative errors of matmuls and attention, compiled like in the engine, and of a bfloat16 gradient."""
    import jax
    import numpy as np
    import training

    from harness.step import batch_partition, mesh, programs
    from workloads import registry

    rng = np.random.default_rng(0)
    rows = 64 if smoke else 1024
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((rows, 256), (256, rows)))
    images = rng.standard_normal((8, 16, 16, 32), np.float32)  # [N, H, W, C]
    kernel = rng.standard_normal((3, 3, 32, 64), np.float32)  # [H, W, C, D]

    def product(a: Any, b: Any) -> Any:
        return a @ b

    def convolution(images: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def of_engine(function: Callable[..., Any], *arguments: Any) -> Any:
        device_mesh = mesh.mesh(batch_partition.Division())
        return jax.device_get(programs.lower(jax.jit(function), device_mesh, *arguments).compile()(*arguments))

    padded = np.pad(images.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    exact = {
        "product": a.astype(np.float64) @ b.astype(np.float64),
        "convolution": sum(
            padded[:, i : i + 16, j : j + 16] @ kernel[i, j].astype(np.float64) for i in range(3) for j in range(3)
        ),
    }
    numbers = []
    for function, arguments in ((product, (a, b)), (convolution, (images, kernel))):
        name = function.__name__
        error = relative(of_engine(function, *arguments), exact[name])
        numbers.append(at_most(f"{name} of float32, error", error, MOST_ERROR))
        plain = relative(jax.device_get(jax.jit(function)(*arguments)), exact[name])
        numbers.append(Number(f"{name} of float32 with JAX's own setting, error", plain))
    numbers += [attention(of_engine, rng, 16 if smoke else 256)]
    gradients = {}
    for number_format in ("float32", "bfloat16"):
        key = training.key_of_task("digits_fc", 64, number_format)
        workload = programs.workload_of(key)
        batch = jax.tree.map(lambda array: array[:64], registry.DATASETS["digits"].load().train)
        params, state = workload.init(jax.random.key(0))
        keys = jax.random.split(jax.random.key(1), 64)

        def loss(params: Any, state: Any, batch: Any, keys: Any, workload: Any = workload) -> Any:
            return workload.loss(params, state, batch, None, keys, np.float32(0))[0]

        leaves = jax.tree.leaves(of_engine(jax.grad(loss), params, state, batch, keys))
        gradients[number_format] = np.concatenate([np.ravel(leaf) for leaf in leaves])
    low, high = ROUNDED
    rounded = relative(gradients["bfloat16"], gradients["float32"])
    numbers.append(
        Number(
            "gradient in bfloat16, difference", rounded, "", f"between {low:g} and {high:g}", bool(low < rounded < high)
        )
    )
    return Finding(numbers)


def attention(of_engine: Callable[..., Any], rng: Any, length: int) -> Number:
    """Measures the relative error of causal attention in bfloat16 and of its gradients."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from workloads.models.attention import causal_attention

    shape = (4, length, 8, 64)  # [B, T, H, K]
    given = [jnp.asarray(rng.standard_normal(shape, np.float32), jnp.bfloat16) for _ in range(4)]

    def both(q: Any, k: Any, v: Any, of_output: Any) -> Any:
        output, backward = jax.vjp(causal_attention, q, k, v)
        return output, *backward(of_output)

    q, k, v, of_output = (np.asarray(array).astype(np.float64) for array in given)
    scores = np.where(np.tri(length, dtype=bool), np.einsum("bthk,bshk->bhts", q, k) / math.sqrt(shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    of_weights = np.einsum("bthk,bshk->bhts", of_output, v)
    of_scores = weights * (of_weights - (of_weights * weights).sum(axis=-1, keepdims=True)) / math.sqrt(shape[-1])
    exact = [
        np.einsum("bhts,bshk->bthk", weights, v),
        np.einsum("bhts,bshk->bthk", of_scores, k),
        np.einsum("bhts,bthk->bshk", of_scores, q),
        np.einsum("bhts,bthk->bshk", weights, of_output),
    ]
    computed = of_engine(both, *given)
    worst = max(relative(result, reference) for result, reference in zip(computed, exact, strict=True))
    return at_most("attention of bfloat16 and its gradients, error", worst, ROUNDED_ATTENTION)


def relative(computed: Any, exact: Any) -> float:
    """Returns the norm of the error relative to the norm of ``exact``."""
    import numpy as np

    return float(np.linalg.norm(np.asarray(computed, np.float64) - exact) / np.linalg.norm(exact))


def release(smoke: bool) -> Finding:
    """Reruns a released study as a sweep, and compares the results."""
    from results import store

    with tempfile.TemporaryDirectory() as folder:
        words = ["trials=2", "confirm=0"] if smoke else []
        done = python("-m", "sweeps", *RELEASED, *words, f"store={folder}")
        if done.returncode:
            return Finding((), last_line(done.stderr), FAIL)
        compared = python("-m", "analysis", "compare", folder, RELEASE, "--json")
        if compared.returncode > 1:
            return Finding((), last_line(compared.stderr), FAIL)
        rows = [row for row in json.loads(compared.stdout) if row["what"] == "steps" and row["result"][:4] != "only"]
        (mine,) = store.catalogue(Path(folder))
        released = next(commit for commit in store.catalogue(RELEASE) if commit.study.plan_json == mine.study.plan_json)
        columns = ["trial", "step", "train_loss", "validation_loss"]
        new_rows, released_rows = (
            store.read(place, commit.name).measurements[columns]
            for place, commit in ((folder, mine), (RELEASE, released))
        )
    both = new_rows.merge(released_rows, on=["trial", "step"], suffixes=("", "_released"))
    first = both[both["step"] == both["step"].min()]
    difference = max(
        float((first[name] / first[f"{name}_released"] - 1).abs().max()) for name in ("train_loss", "validation_loss")
    )
    judged = [row for row in rows if row["result"] in ("same", "agree", "differ")]
    differ = [row for row in judged if row["result"] == "differ"]
    numbers = [
        at_most("answers that contradict the release", len(differ), 0, f"of {len(judged)}"),
        at_least("answers that were compared", len(judged), 1),
        Number("trials in both", float(both["trial"].nunique())),
        at_most("largest relative difference of a loss at the first evaluation", difference, MOST_APART),
    ]
    return Finding(numbers, "; ".join(dict.fromkeys(row["why"] for row in differ)))


def lanes(smoke: bool) -> Finding:
    """Measures the trial-steps per second of all lanes and of a single lane, alternating between the two."""
    import jax
    import training
    from report import in_turn, median_ratio

    from harness.step import mesh, programs
    from harness.step.batch_partition import Division

    key, groups = training.key_of_task("digits_fc", 64, "float32"), len(mesh.devices())
    steps = 4 if smoke else LANE_STEPS
    lane_count = LANES * groups
    work = {str(count): training.ours(key, count, Division(), steps) for count in (groups, lane_count)}
    rates = in_turn(work, 1 if smoke else ROUNDS, "lanes")
    numbers = [Number(f"lanes: {count}", statistics.median(rates[count]), "trial-steps/s") for count in work]
    goal = None if jax.default_backend() == "cpu" else GOAL_LANES
    ratio = median_ratio(rates[str(lane_count)], rates[str(groups)])
    way = "sequentially" if programs.default_strategy() == "map" else "concurrently"
    return Finding([*numbers, at_least(f"{LANES} lanes {way} / one at a time", ratio, goal, "×")])


def resume(smoke: bool) -> Finding:
    """Compares a sweep that is stopped and resumed with an uninterrupted sweep."""
    with tempfile.TemporaryDirectory() as name:
        folder, steps = Path(name), RESUMED_STEPS // (4 if smoke else 1)
        for _ in range(ATTEMPTS):
            code, seconds = stopped(sweep_command(folder / "stopped", steps), folder / "stopped")
            if code != 0:
                break
            steps *= LONGER
            folder = folder / "longer"
        else:
            return Finding((), f"the sweep ended before it could be stopped, even with {steps:,} steps", NOT_MEASURED)
        runs = [python(*sweep_command(folder / name, steps)) for name in ("stopped", "whole")]
        if why := next((last_line(run.stderr) for run in runs if run.returncode), ""):
            return Finding((), why, FAIL)
        rows, difference, exact = differences(folder / "stopped", folder / "whole")
    numbers = [
        Number("exit code of the stopped sweep", code, "", f"= {STOPPED}", code == STOPPED),
        at_most("seconds from SIGTERM to its end", seconds, STOP_SECONDS, "s"),
        at_most("trials and evaluations in only one of them", rows, 0),
        at_most("largest relative difference of a loss", difference, 0.0 if exact else TOLERANCE),
    ]
    lost = f"exit code {code}, not {STOPPED}: unfinished trials started again" if code != STOPPED else ""
    return Finding(numbers, lost)


def sweep_command(store: Path, steps: int) -> list[str]:
    """Returns the arguments of ``python`` for the sweep that will be stopped."""
    budget = f"task.budget={{steps: {steps}, epochs: null, examples: null, at_least_steps: null}}"
    return ["-m", "sweeps", *RESUMED, budget, f"store={store}"]


def stopped(words: Sequence[str], store: Path) -> tuple[int, float]:
    """Runs a sweep, and stops it after a second of training. Returns its exit code and the seconds until it ended.

    The exit code is 0 if the sweep ends without an error before it is stopped.
    """
    from harness.run import TRAINING
    from results.storage import heartbeat

    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        beats = [heartbeat.read(study) for study in store.glob("*") if study.is_dir()]
        if any(beat is not None and beat.doing == TRAINING for beat in beats):
            time.sleep(TRAINED_SECONDS)
            process.terminate()  # no effect if it has ended
            break
        time.sleep(0.1)
    began = time.perf_counter()
    return process.wait(), time.perf_counter() - began


def differences(first: Path, second: Path) -> tuple[int, float, bool]:
    """Compares two stores of the same study, which should be equal.

    Returns:
      The number of trials and evaluations that differ or are missing from one store, the largest relative difference of
      a loss, and whether the device is a CPU. On a CPU, results must be bitwise identical.
    """
    from results import store

    first_rows, second_rows = (store.read(folder) for folder in (first, second))
    rows = 0
    for name, columns in (("trials", ["trial", "seed", "status", "steps"]), ("measurements", ["trial", "step"])):
        joined = getattr(first_rows, name)[columns].merge(
            getattr(second_rows, name)[columns], how="outer", indicator=True
        )
        rows += int((joined["_merge"] != "both").sum())
    both = first_rows.measurements.merge(second_rows.measurements, on=["trial", "step"], suffixes=("", "_other"))
    losses = [name for name in first_rows.measurements.columns if name.endswith("_loss")]
    difference = max(float((both[name] / both[f"{name}_other"] - 1).abs().max()) for name in losses)
    backends = {*first_rows.studies["backend"], *second_rows.studies["backend"]}
    return rows, difference, backends == {"cpu"}


def speed(name: str, precision: str) -> Callable[[bool], Finding]:
    """Returns a check that measures a network's or task's steps per second and its fraction of the bfloat16 peak."""

    def measured(smoke: bool) -> Finding:
        import jax
        import training
        from report import in_turn

        from harness.costs import network_costs
        from harness.step import mesh, programs
        from results.costs import predictions

        key, steps = training.case(name, precision, smoke)
        devices = len(mesh.devices())
        began = time.perf_counter()
        division = training.fitting(key, devices)
        work = {name: training.ours(key, devices, division, steps)}
        ready = time.perf_counter() - began
        rate = statistics.median(in_turn(work, 1 if smoke else ROUNDS, name)[name]) / devices
        step = network_costs.step_work(programs.workload_of(key), key.batch_size)
        operations = step.flops
        numbers = [
            Number("batch size", key.batch_size, "examples"),
            Number("microbatches", division.microbatches),
            Number("steps per second of a device", rate, "1/s"),
            Number("operations per step", operations / 1e6, "M"),
            Number("operations per second", operations * rate / 1e12, "T/s"),
            Number("time from lowering to the end of the first call", ready, "s"),
        ]
        kind, backend = jax.local_devices()[0].device_kind, jax.default_backend()
        rates = predictions.rates(kind, backend, precision)
        if rates is not None:
            predicted = predictions.seconds(step, rates)
            numbers += [Number("seconds of a step / predicted from tables", 1 / rate / predicted.middle, "×")]
        peak = training.peak()
        if precision != "bfloat16" or peak is None:
            goal = training.GOALS.get(name) if precision == "bfloat16" else None
            return Finding(numbers, "the peak of this device is unknown" if goal else "")
        share = operations * rate / peak
        numbers += [Number("peak of the device in bfloat16", peak / 1e12, "T/s")]
        numbers += [at_least("model FLOPs utilization", share, training.GOALS.get(name), "of 1")]
        return Finding(numbers)

    return measured


def python(*words: object) -> "subprocess.CompletedProcess[str]":
    """Runs Python in the root of the repository."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def last_line(text: str) -> str:
    """Returns the last line of a text that is not blank."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no output")


CHECKS = {
    "device": Check(device, 90),
    "precision": Check(precision, 90),
    "release": Check(release, 150, on_device=False),
    "lanes": Check(lanes, 90),
    "resume": Check(resume, 150, on_device=False),
    "speed:digits_fc": Check(speed("digits_fc", "float32"), 60),
    "speed:digits_cnn": Check(speed("digits_cnn", "float32"), 60),
    "speed:pydoc_transformer": Check(speed("pydoc_transformer", "float32"), 60),
    "speed:transformer_base": Check(speed("transformer_base", "bfloat16"), 150, accelerator=True),
    "speed:resnet_50": Check(speed("resnet_50", "bfloat16"), 150, accelerator=True),
}
