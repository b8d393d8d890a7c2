"""What benchmarks/results.py measures of a store: answers, commits, verifying."""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import imports
import numpy as np
import pyarrow as pa
import synthetic_store
from report import Report
from tqdm import tqdm

from results import durable, store
from results.plans.recorded import Recorded

PAIRS = 3
METRIC, VALUE = "validation_error", 0.05
SCAN_SECONDS, SCAN_MB, ENVELOPE_MS, FASTER = 2.0, 300, 50.0, 10.0
VERIFY_GB_PER_S = 0.5
PANDAS_BYTES_A_ROW = 130  # that reading everything takes at its peak, about
COMMITS = 15
VERIFIED = 5
SMOKE_STUDIES, SMOKE_SHARE = 4, 1e-3

SCAN = """
began = time.perf_counter()
held = store.catalogue(Path(folder))
found = answers.best(scan.intervals(held, Target(metric, value)))
took = time.perf_counter() - began
found = {name: answer.steps_high for name, answer in found.items()}
"""
ENVELOPES = """
def table():
    return steps.table(*steps.load(Path(folder), (metric, value), rule))
def seconds():
    began = time.perf_counter()
    table()
    return time.perf_counter() - began
found = table().dropna(subset=["steps_high"])  # for the first time
took = min(seconds() for _ in range(20))
found = dict(zip(found["study"], map(int, found["steps_high"])))
"""
PANDAS = """
began = time.perf_counter()
paths = {path.parent.name: path for path in sorted(Path(folder).glob("*/measurements-*.parquet"))[::every]}
rows = pd.concat([pd.read_parquet(path).assign(study=i) for i, path in enumerate(paths.values())], ignore_index=True)
first = rows[rows[metric] <= value].groupby(["study", "trial"])["step"].min().groupby("study").min()
took = every * (time.perf_counter() - began)
found = {name: int(first[i]) if i in first.index else None for i, name in enumerate(paths)}
"""
PROGRAM = """
import json, sys, time
from pathlib import Path
{imports}
folder, metric, value, every = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
{work}
print(json.dumps([took, peak(), found]))
"""
OF_SCAN = """
from results import store
from results.plans.study import Target
from results.reading import scan
from results.rules import answers
"""
OF_ENVELOPES = "from analysis.trials import steps\nfrom results.rules.answers import MINIMUM, Rule\nrule = "
WAYS = {
    "scan": (OF_SCAN, SCAN),
    "envelopes": (f"{OF_ENVELOPES}MINIMUM", ENVELOPES),
    "envelopes, rule released": (f"{OF_ENVELOPES}Rule('released', 100)", ENVELOPES),
    "pandas": ("import pandas as pd", PANDAS),
}


class Run(NamedTuple):
    """What one way of answering took, and its answers: steps to target by name of the study; None: not reached."""

    seconds: float
    megabytes: float
    answers: dict[str, int | None]


def main(report: Report, folder: Path, share: float) -> None:
    """Adds all figures of stores to a report.

    Args:
      folder: of the synthetic store; written if it is not there.
      share: of its 70 million rows.
    """
    share, most = (SMOKE_SHARE, SMOKE_STUDIES) if report.smoke else (share, None)
    write(report, folder, synthetic_store.studies(share, most=most))
    whole = share >= 1
    rows = sum(commit.files["measurements"].rows for commit in store.catalogue(folder))
    report.add("rows of measurements", rows / 1e6, "million")
    answers(report, folder, rows, whole)
    with tempfile.TemporaryDirectory(dir=folder.parent) as spare:
        commits(report, Path(spare))
    if importlib.util.find_spec("results.checks.verify"):
        verify(report, folder, whole)


def write(report: Report, folder: Path, made: Sequence[synthetic_store.Made]) -> None:
    """Makes the synthetic store, or what is missing of it."""
    began = time.perf_counter()
    written = list(tqdm(synthetic_store.write(folder, made), "store", len(made), disable=not sys.stderr.isatty()))
    if written:
        report.add("seconds to write the store", time.perf_counter() - began, "s")


def answers(report: Report, folder: Path, rows: int, whole: bool) -> None:
    """First step at a target for every workload and batch size, in every way."""
    every = -(-rows * PANDAS_BYTES_A_ROW // _free_memory())
    runs: dict[str, list[Run]] = {way: [] for way in WAYS}
    for _ in tqdm(range(1 if report.smoke else PAIRS), desc="answers", disable=not sys.stderr.isatty()):
        for way in WAYS:
            runs[way].append(_run(way, folder, every))
    seconds = {way: statistics.median(run.seconds for run in own) for way, own in runs.items()}
    peaks = {way: max(run.megabytes for run in own) for way, own in runs.items()}
    extrapolated = f" (every {every}th study, times {every})" if every > 1 else ""
    report.add("first step at target, pandas" + extrapolated, seconds["pandas"], "s")
    report.add("first step at target, pandas: peak memory", peaks["pandas"], "MB")
    report.add("first step at target, scan", seconds["scan"], "s")
    report.add(f"first step at target: {SCAN_SECONDS:g} s / scan", SCAN_SECONDS / seconds["scan"], "×", _if(whole, 1))
    report.add("first step at target, scan: peak memory", peaks["scan"], "MB")
    report.add(f"first step at target: {SCAN_MB} MB / scan", SCAN_MB / peaks["scan"], "×", _if(whole, 1))
    report.add("first step at target: pandas / scan", _ratio(runs, "pandas", "scan"), "×", _if(whole, FASTER))
    for way in ("envelopes", "envelopes, rule released"):
        report.add(f"first step at target, {way}", 1e3 * seconds[way], "ms")
    within = ENVELOPE_MS / 1e3 / seconds["envelopes"]
    report.add(f"first step at target: {ENVELOPE_MS:g} ms / envelopes", within, "×", 1)
    report.add("first step at target: pandas / envelopes", _ratio(runs, "pandas", "envelopes"), "×", _if(whole, FASTER))
    sizes = [commit.files["envelope"].bytes / 1e3 for commit in store.catalogue(folder)]
    report.add("size of an envelope, median", statistics.median(sizes), "kB")
    report.add("size of an envelope, largest", max(sizes), "kB")
    report.add("answers that are the same in every way", _agreement(runs), "of 1", 1)


def commits(report: Report, folder: Path) -> None:
    """What durability costs, against one fsync, in turn."""
    costs: dict[str, list[float]] = {"fsync": [], "create": [], "commit": []}
    small = synthetic_store.studies(1e-3, most=SMOKE_STUDIES if report.smoke else COMMITS)
    made = [(m.study, synthetic_store.tables(m, np.random.default_rng(0))) for m in small]
    for i, (study, content) in enumerate(made):
        costs["fsync"].append(_timed(lambda i=i: _write_and_flush(folder / f"flushed-{i}")))
        costs["create"].append(_timed(lambda i=i: durable.create(folder / f"created-{i}", b"x" * 4096)))
        costs["commit"].append(_timed(lambda s=study, c=content: _store(folder, s, c)))
    medians = {what: statistics.median(own) for what, own in costs.items()}
    report.add("write and fsync of a small file", 1e3 * medians["fsync"], "ms")
    for what, name in (
        ("create", "creating a small file"),
        ("commit", "claiming, writing and committing a small study"),
    ):
        report.add(name, 1e3 * medians[what], "ms")
        ratios = [a / b for a, b in zip(costs[what], costs["fsync"], strict=True)]
        report.add(f"{name} / fsync", statistics.median(ratios), "×")


def verify(report: Report, folder: Path, whole: bool) -> None:
    """Bytes that one core verifies in a second; with several, each lets others wait for the interpreter's lock.

    The fastest of five: a rate has nothing beside it that would be slowed, too, by whatever else the machine does.
    """
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    program = (
        "import os, sys, time\nfrom pathlib import Path\nfrom results.checks import verify\n"
        "if hasattr(os, 'sched_setaffinity'):\n    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "began = time.process_time()\n"
        "code = verify.run(Path(sys.argv[1]), lambda line: None)\n"
        "print(time.process_time() - began)\nsys.exit(code)"
    )
    runs = 1 if report.smoke else VERIFIED
    rates = [size / 1e9 / float(_python(program, folder).splitlines()[-1]) for _ in range(runs)]
    report.add("verify, on one core, fastest of five", max(rates), "GB/s", _if(whole, VERIFY_GB_PER_S))
    report.add("verify, on one core, median of five", statistics.median(rates), "GB/s")


def _run(way: str, folder: Path, every: int) -> Run:
    program = imports.PEAK + PROGRAM.format(imports=WAYS[way][0], work=WAYS[way][1])
    return Run(*json.loads(_python(program, folder, METRIC, VALUE, every if way == "pandas" else 1)))


def _python(program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    root = Path(__file__).parents[1]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=root).stdout


def _ratio(runs: dict[str, list[Run]], slow: str, fast: str) -> float:
    return statistics.median(a.seconds / b.seconds for a, b in zip(runs[slow], runs[fast], strict=True))


def _agreement(runs: dict[str, list[Run]]) -> float:
    """Of the studies that pandas read, the share that has the same answer by the scan and by its envelope."""
    (truth, *_), (scan, *_), (enveloped, *_) = (runs[way] for way in ("pandas", "scan", "envelopes"))
    same = [scan.answers.get(name) == enveloped.answers.get(name) == steps for name, steps in truth.answers.items()]
    return float(np.mean(same)) if scan.answers.keys() == enveloped.answers.keys() else 0.0


def _if(condition: bool, target: float) -> float | None:
    return target if condition else None


def _free_memory() -> int:
    """Bytes that may be used without harm."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024 * 3 // 4
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _write_and_flush(path: Path) -> None:
    with open(path, "xb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())


def _store(folder: Path, study: Recorded, content: Mapping[str, pa.Table]) -> None:
    store.ask(folder, study)
    with store.claim(folder, study.name) as claim:
        claim.write(content)
        claim.commit(study)
