"""How accurate are predictions of the cost of a sweep, with and without measurements on this machine?

    python benchmarks/plan.py [--planning] [--json FILE] [--smoke]

With --planning, measures only the CPU seconds of planning two large sweeps, without cached counts: 1,000 batch sizes
with five seeds, and all workloads of Shallue et al. Then counts the costs of random sizes of each sweep one by one, and
compares them with the counts of the plan.

Otherwise, first compares the measured times of matmuls with predictions from a probe of other sizes (medians of three
each). Then predicts sweeps of other networks, before and after running a sweep by which predictions are scaled, and
runs the predicted sweeps. Predictions and measurements are CPU seconds of one worker for compilation, training and
evaluation, without cached programs. Stores record wall-clock seconds, which include waiting if other processes use the
machine. Predictions after the sweep are therefore multiplied by the fraction of time that the worker was not waiting.
"""

import json
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import BenchmarkReport, Cost, cost, open_report

from harness.costs import network_costs, probe
from harness.run import Settings
from results import exit_codes, store
from results.costs.predictions import NOTHING, Seconds
from sweeps import overrides, planning
from sweeps.configured_study import DATA
from sweeps.costs import estimates

COMMON = ("pruning=off", "stop=budget", "-m")
SCALED_BY = ("task=digits_fc,pydoc_lstm", "optimizer=sgd", "batch_size=4,32", "trials=4", "task.budget.steps=400")
# The first two were used while the predictor was developed, the others only after it was finished.
OTHERS = {
    "pydoc, a Transformer": ("task=pydoc_transformer", "optimizer=adam", "batch_size=2,16", "trials=2"),
    "digits, a convolutional network": ("task=digits_cnn", "optimizer=momentum", "batch_size=8,128", "trials=4"),
    "held out: digits, a residual network": (
        "task=tiny/resnet_basic", "task.model.width=8", "optimizer=nesterov", "batch_size=16,64", "trials=4",
    ),
    "held out: digits, wide and fully connected": (
        "task=digits_fc", "task.model.widths=[512,512]", "optimizer=adamw", "batch_size=64,256", "trials=4",
    ),
}  # fmt: skip
STEPS = dict(zip(OTHERS, (300, 1000, 400, 2000), strict=True))
OTHER_PRODUCTS = ((128, 128, 128), (384, 384, 384), (1024, 128, 64), (700, 300, 500), (256, 784, 100))
START = ("task=noisy_quadratic", "batch_size=1", "trials=1", "task.budget.steps=2")  # of a worker and of a command

LIMITS = {"1,000 batch sizes × 5 seeds": 15.0, "all of Shallue et al. 2018": 60.0}  # CPU seconds of planning
CHECKED = 12  # studies that are counted one by one


def predicted(words: Sequence[str], folder: str) -> Seconds:
    """Predicts the device-seconds of a sweep."""
    request = planning.request(overrides.command_line([*words, *COMMON, f"store={folder}"]))
    missing = {study.name: store.progress(request.store, study).to_run for study in request.studies}
    total = NOTHING
    for estimate in estimates.of_request(request, missing):
        assert estimate.device_seconds is not None
        total = total.plus(estimate.device_seconds)
    return total


def measured(words: Sequence[str], folder: str) -> Cost:
    """Runs a sweep with one worker and an empty compilation cache. Returns its CPU and wall-clock seconds."""
    with tempfile.TemporaryDirectory() as compiled:
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": compiled, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "sweeps", *words, *COMMON, f"store={folder}", "launcher.workers=1"]
        return cost(command, env=environment)[0]


def products(smoke: bool) -> dict[str, float]:
    """Returns the ratios of measured to predicted seconds for matmuls of sizes that the probe does not measure."""
    largest = 2e6 if smoke else 2e8
    sizes = [size for size in probe.PRODUCTS if math.prod(size) < largest]
    further_sizes = [size for size in OTHER_PRODUCTS if size not in probe.PRODUCTS and math.prod(size) < 2 * largest]
    per_flop, per_byte, start = probe.fitted(probe.products(sizes, "float32", 1e9), 4)
    repeats = [probe.products(further_sizes, "float32", 1e9) for _ in range(3)]
    ratios = {}
    for measurements in zip(*repeats, strict=True):
        first = measurements[0]
        predicted = first.flops * per_flop + first.numbers * 4 * per_byte + start
        ratios[f"{first.m} × {first.k} × {first.n}"] = statistics.median(
            measurement.seconds / predicted for measurement in measurements
        )
    return ratios


def planned(words: Sequence[str], folder: str) -> tuple[float, list[dict[str, Any]]]:
    """Plans a sweep without cached counts. Returns the CPU seconds and the rows of the plan."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "sweeps.plan", *words, "-m", "--json", f"store={folder}"]
        codes = (exit_codes.DONE, exit_codes.FAILED)  # a study may not fit into this machine's memory
        taken, rows = cost(command, codes, env=os.environ | {"SCALING_LIMITS_CACHE": cache})
    return taken.cpu, json.loads(rows)


def planning_time(report: BenchmarkReport, folder: str) -> None:
    """Reports the CPU seconds of planning, and the largest error of counts relative to those of single studies."""
    sizes = ",".join(map(str, range(1, 4 if report.smoke else 1001)))
    sweeps = {"1,000 batch sizes × 5 seeds": (f"batch_size={sizes}", "seed=0,1,2,3,4")}
    if not report.smoke:
        sweeps["all of Shallue et al. 2018"] = ("+experiment=shallue2018/all",)
    for name, words in sweeps.items():
        seconds, rows = planned(words, folder)
        report.add(f"{name}: number of studies", len(rows), "")
        report.add(f"{name}: CPU seconds of planning", seconds, "s")
        report.add(f"{name}: limit / CPU seconds", LIMITS[name] / seconds, "×", 1.0)
        request = planning.request(overrides.command_line([*words, "-m", f"store={folder}"]), absent=(DATA,))
        by_name = {study.name: study for study in request.studies}
        worst = 0.0
        for row in random.Random(0).sample(rows, min(CHECKED, len(rows))):
            study = by_name[row["study"]]
            network_costs.forget()
            counts = network_costs.counts(study, request.sources.get(study.name), Settings())
            alone = (counts.step.flops, counts.step.bytes, counts.held_bytes)
            together = (row[column] for column in ("flops_per_step", "bytes_per_step", "memory_bytes"))
            worst = max(worst, *(abs(joint / two - 1) for joint, two in zip(together, alone, strict=True)))
        report.add(f"{name}: largest error of counts", 100 * worst, "% (at most 0.5)")
        report.add(f"{name}: 1.5 % − error", 1.5 - 100 * worst, "%", 1.0)


def main() -> None:
    """Runs the sweeps, and reports the ratios."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    arguments = {"--planning": {"action": "store_true", "help": "measure only the CPU seconds of planning"}}
    with open_report(__doc__, arguments) as report, tempfile.TemporaryDirectory() as folder:
        if report.options.planning:
            planning_time(report, str(Path(folder) / "store"))
            return
        for name, ratio in products(report.smoke).items():
            report.add(f"matmul of {name}, measured / predicted", ratio, "×")
            report.add(f"matmul of {name}, 1.5 / error factor", 1.5 / max(ratio, 1 / ratio), "×", 1.0)
        os.environ["SCALING_LIMITS_CACHE"] = str(Path(folder) / "cache")  # without a probe
        store_path = str(Path(folder) / "store")
        steps = dict.fromkeys(OTHERS, 4) if report.smoke else STEPS
        first = (*SCALED_BY[:-1], "task.budget.steps=8") if report.smoke else SCALED_BY
        tasks = {name: (*words, f"task.budget.steps={steps[name]}") for name, words in OTHERS.items()}
        start, _ = measured(START, str(Path(folder) / "start"))  # start-up time, which is not predicted
        before = {name: predicted(words, store_path) for name, words in tasks.items()}
        processor, clock = measured(first, store_path)
        report.add("CPU time / wall-clock time of the first sweep", processor / clock, "")
        after = {name: predicted(words, store_path) for name, words in tasks.items()}
        for name, words in tasks.items():
            seconds = max(0.1, measured(words, store_path)[0] - start)
            wide, narrow = before[name], after[name].times(min(1.0, processor / clock))
            report.add(f"{name}: measured CPU seconds", seconds, "s")
            report.add(f"{name}: predicted before, lower end", wide.low, "s")
            report.add(f"{name}: predicted before, upper end", wide.high, "s")
            report.add(f"{name}: width of this range", wide.high / wide.low, "×")
            inside = float(wide.low <= seconds <= wide.high)
            report.add(f"{name}: measured time is in the range", inside, "(1: yes)", 1.0)
            report.add(f"{name}: predicted after", narrow.middle, "s")
            off = max(seconds / narrow.middle, narrow.middle / seconds)
            report.add(f"{name}: predicted after, error factor", off, "× (at most 2)")
            report.add(f"{name}: 2 / error factor", 2 / off, "×", 1.0)


if __name__ == "__main__":
    main()
