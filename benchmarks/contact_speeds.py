"""The checks of first_contact.py on JAX's device and its speed."""

import statistics

import jax
import jax.numpy as jnp
import training
from contact_checks import Finding, Number, at_least
from report import in_turn, median_ratio, seconds

from harness.processes import processors
from harness.step import mesh, programs
from harness.step.batch_partition import Division
from results.costs import predictions

GOAL_LANES = 20.0
LANES, LANE_STEPS, ROUNDS = 32, 300, 3


def device(smoke: bool) -> Finding:
    """Checks that JAX computes on the accelerator of the machine, and that a program runs there."""
    del smoke
    kind, _ = processors.accelerators()
    backend = jax.default_backend()
    total = float(jnp.arange(1000).sum())
    on_kind = Number(f"JAX computes on {kind}", float(backend == kind), "", "= 1", backend == kind)
    right = Number("sum of 0 to 999", total, "", "= 499500", total == 499_500)
    numbers = [on_kind, right, Number("devices of this process", jax.local_device_count())]
    numbers += [Number("memory of a device", (mesh.device_bytes() or 0) / 2**30, "GiB")]
    return Finding(numbers, "" if backend == kind else f"the machine has {kind}, but JAX computes on {backend}")


def lanes(smoke: bool) -> Finding:
    """Measures the trial-steps per second of all lanes and of a single lane, alternating between the two."""
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


def speed(smoke: bool, name: str, precision: str) -> Finding:
    """Measures a network's or task's steps per second and its fraction of the bfloat16 peak."""
    key, steps = training.case(name, precision, smoke)
    devices = len(mesh.devices())
    division, work = Division(), {}

    def prepare() -> None:
        nonlocal division
        division = training.fitting(key, devices)
        work[name] = training.ours(key, devices, division, steps)

    ready = seconds(prepare)
    rate = statistics.median(in_turn(work, 1 if smoke else ROUNDS, name)[name]) / devices
    step = training.step_work(key)
    numbers = [
        Number("batch size", key.batch_size, "examples"),
        Number("microbatches", division.microbatches),
        Number("steps per second of a device", rate, "1/s"),
        Number("operations per step", step.flops / 1e6, "M"),
        Number("operations per second", step.flops * rate / 1e12, "T/s"),
        Number("time from lowering to the end of the first call", ready, "s"),
    ]
    rates = predictions.rates(jax.local_devices()[0].device_kind, jax.default_backend(), precision)
    if rates is not None:
        predicted = predictions.seconds(step, rates)
        numbers += [Number("seconds of a step / predicted from tables", 1 / rate / predicted.middle, "×")]
    peak = training.peak()
    if precision != "bfloat16" or peak is None:
        goal = training.GOALS.get(name) if precision == "bfloat16" else None
        return Finding(numbers, "the peak of this device is unknown" if goal else "")
    share = step.flops * rate / peak
    numbers += [Number("peak of the device in bfloat16", peak / 1e12, "T/s")]
    numbers += [at_least("model FLOPs utilization", share, training.GOALS.get(name), "of 1")]
    return Finding(numbers)
