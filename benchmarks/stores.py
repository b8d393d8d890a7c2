"""Is the store fast? Times queries over 70 million measurements, commits, verification and imports.

    python benchmarks/stores.py [--store FOLDER] [--share SHARE] [--json FILE] [--smoke]

The store contains the 454 published studies with 168,000 synthetic trials and 70 million measurements (1.8 GB). Missing
studies are written to FOLDER, or to a temporary folder without --store. --share 0.01 uses a hundredth of the
measurements, and drops targets that depend on their number. Files are in the page cache, and the start-up of Python is
not timed. The runs of part 1 are separate processes that alternate. Ratios are medians over pairs of runs.

1. Finding the first step at a target for every workload and batch size in three ways: scanning with commit records,
   `analysis steps` from envelopes by both rules (the fastest of twenty runs), and reading everything into pandas. All
   answers must agree.
2. Creating a file, and claiming, writing and committing a study of a few rows, relative to an fsync.
3. `python -m results verify` on one core, in CPU time.
4. The figures of benchmarks/published_imports.py.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import published_imports
import synthetic_store
from report import PEAK, BenchmarkReport, in_turn, median_ratio, open_report, python, seconds
from tqdm import tqdm

from results import durable, store
from workloads import memory

PAIRS = 3
METRIC, VALUE = "validation_error", 0.05
SCAN_SECONDS, SCAN_MB, ENVELOPE_MS, FASTER = 2.0, 300, 50.0, 10.0
VERIFY_ROWS_PER_S = 19e6  # equals 0.5 GB/s for the files of 20 November 2026, which had 26 bytes per row
PANDAS_BYTES_A_ROW = 130  # approximate peak when reading everything
COMMITS = 15
VERIFIED = 5
SMOKE_STUDIES, SMOKE_SHARE = 4, 1e-3

SCAN = """
began = time.perf_counter()
commits = store.catalogue(Path(folder))
answers = {commit.name: scan.reached(commit, Target(metric, value)).answer() for commit in commits}
duration = time.perf_counter() - began
steps = {name: answer.steps_high for name, answer in answers.items() if answer}
"""
ENVELOPES = """
def table():
    return steps_to_target.table(*steps_to_target.load(Path(folder), (metric, value), rule))
def seconds():
    began = time.perf_counter()
    table()
    return time.perf_counter() - began
rows = table().dropna(subset=["steps_high"])  # for the first time
duration = min(seconds() for _ in range(20))
steps = dict(zip(rows["study"], map(int, rows["steps_high"])))
"""
PANDAS = """
began = time.perf_counter()
paths = {path.parent.name: path for path in sorted(Path(folder).glob("*/measurements-*.parquet"))[::every]}
rows = pd.concat([pd.read_parquet(path).assign(study=i) for i, path in enumerate(paths.values())], ignore_index=True)
first = rows[rows[metric] <= value].groupby(["study", "trial"])["step"].min().groupby("study").min()
duration = every * (time.perf_counter() - began)
steps = {name: int(first[i]) if i in first.index else None for i, name in enumerate(paths)}
"""
PROGRAM = """
import json, sys, time
from pathlib import Path
{imports}
folder, metric, value, every = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
{work}
print(json.dumps([duration, peak(), steps]))
"""
OF_SCAN = """
from results import store
from results.plans.study import Target
from results.catalog import scan
"""
OF_ENVELOPES = "from analysis.trials import steps_to_target\nfrom results.rules.answers import MINIMUM, Rule\nrule = "
WAYS = {
    "scan": (OF_SCAN, SCAN),
    "envelopes": (f"{OF_ENVELOPES}MINIMUM", ENVELOPES),
    "envelopes, rule released": (f"{OF_ENVELOPES}Rule('released', 100)", ENVELOPES),
    "pandas": ("import pandas as pd", PANDAS),
}


class TimedAnswers(NamedTuple):
    """The cost of a method, and its answers: the steps to the target by study, or None if the target is not reached."""

    seconds: float
    megabytes: float
    answers: dict[str, int | None]


def main(report: BenchmarkReport) -> None:
    """Adds all figures for stores to a report. Writes the synthetic store if it does not exist."""
    folder = report.options.store or report.folder / "store"
    share, limit = (SMOKE_SHARE, SMOKE_STUDIES) if report.smoke else (report.options.share, None)
    write(report, folder, synthetic_store.studies(share, most=limit))
    complete = share >= 1
    rows = sum(commit.files["measurements"].rows for commit in store.catalogue(folder))
    report.add("rows of measurements", rows / 1e6, "million")
    answers(report, folder, rows, complete)
    with tempfile.TemporaryDirectory(dir=folder.parent) as spare:
        commits(report, Path(spare))
    verify(report, folder, rows, complete)


def write(report: BenchmarkReport, folder: Path, studies: Sequence[synthetic_store.SyntheticStudy]) -> None:
    """Writes the missing studies of the synthetic store."""
    began = time.perf_counter()
    if list(tqdm(synthetic_store.write(folder, studies), "store", len(studies), disable=None)):
        report.add("seconds to write the store", time.perf_counter() - began, "s")


def answers(report: BenchmarkReport, folder: Path, rows: int, complete: bool) -> None:
    """Adds the time that each method needs to find the first step at a target for every workload and batch size."""
    stride = -(-rows * PANDAS_BYTES_A_ROW // _free_memory())
    work = {way: lambda way=way: _run(way, folder, stride) for way in WAYS}
    runs = in_turn(work, 1 if report.smoke else PAIRS, "answers")
    durations = {way: [run.seconds for run in results] for way, results in runs.items()}
    medians = {way: statistics.median(way_seconds) for way, way_seconds in durations.items()}
    peaks = {way: max(run.megabytes for run in results) for way, results in runs.items()}
    ratios = {way: median_ratio(durations["pandas"], durations[way]) for way in ("scan", "envelopes")}
    extrapolated = f" (every {stride}th study, times {stride})" if stride > 1 else ""
    what = "first step at target"
    report.add(f"{what}, pandas{extrapolated}", medians["pandas"], "s")
    report.add(f"{what}, pandas: peak memory", peaks["pandas"], "MB")
    report.add(f"{what}, scan", medians["scan"], "s")
    report.add(f"{what}: {SCAN_SECONDS:g} s / scan", SCAN_SECONDS / medians["scan"], "×", _if(complete, 1))
    report.add(f"{what}, scan: peak memory", peaks["scan"], "MB")
    report.add(f"{what}: {SCAN_MB} MB / scan", SCAN_MB / peaks["scan"], "×", _if(complete, 1))
    report.add(f"{what}: pandas / scan", ratios["scan"], "×", _if(complete, FASTER))
    for way in ("envelopes", "envelopes, rule released"):
        report.add(f"{what}, {way}", 1e3 * medians[way], "ms")
    report.add(f"{what}: {ENVELOPE_MS:g} ms / envelopes", ENVELOPE_MS / 1e3 / medians["envelopes"], "×", 1)
    report.add(f"{what}: pandas / envelopes", ratios["envelopes"], "×", _if(complete, FASTER))
    sizes = [commit.files["envelope"].bytes / 1e3 for commit in store.catalogue(folder)]
    report.add("size of an envelope, median", statistics.median(sizes), "kB")
    report.add("size of an envelope, largest", max(sizes), "kB")
    report.add("answers that agree between all methods", _agreement(runs), "of 1", 1)


def commits(report: BenchmarkReport, folder: Path) -> None:
    """Adds the cost of durability relative to an fsync. Measurements alternate between the two."""
    costs: dict[str, list[float]] = {"fsync": [], "create": [], "commit": []}
    small = synthetic_store.studies(1e-3, most=SMOKE_STUDIES if report.smoke else COMMITS)
    tables = [(synthetic.study, synthetic_store.tables(synthetic, np.random.default_rng(0))) for synthetic in small]
    for i, (study, content) in enumerate(tables):
        costs["fsync"].append(seconds(lambda i=i: _write_and_flush(folder / f"flushed-{i}")))
        costs["create"].append(seconds(lambda i=i: durable.create(folder / f"created-{i}", b"x" * 4096)))
        costs["commit"].append(seconds(lambda s=study, c=content: synthetic_store.save(folder, s, c)))
    medians = {what: statistics.median(way_seconds) for what, way_seconds in costs.items()}
    report.add("write and fsync of a small file", 1e3 * medians["fsync"], "ms")
    for what, name in (
        ("create", "creating a small file"),
        ("commit", "claiming, writing and committing a small study"),
    ):
        report.add(name, 1e3 * medians[what], "ms")
        report.add(f"{name} / fsync", median_ratio(costs[what], costs["fsync"]), "×")


def verify(report: BenchmarkReport, folder: Path, rows: int, complete: bool) -> None:
    """Adds the number of measurements that one core verifies per second. Additional cores would contend for the GIL.

    Only the fastest of five runs counts, because other load on the machine can only slow a run down.
    """
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    program = (
        "import os, sys, time\nfrom pathlib import Path\nfrom results.checks import verify\n"
        "import pandas  # PyArrow imports it when it first converts an array to NumPy\n"
        "if hasattr(os, 'sched_setaffinity'):\n    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "began = time.process_time()\n"
        "code = verify.run(Path(sys.argv[1]), lambda line: None)\n"
        "print(time.process_time() - began)\nsys.exit(code)"
    )
    runs = 1 if report.smoke else VERIFIED
    durations = [float(python("-c", program, folder).stdout.splitlines()[-1]) for _ in range(runs)]
    shortest, median = min(durations), statistics.median(durations)
    what = "verify, on one core"
    report.add(f"{what}, fastest of five", rows / 1e6 / shortest, "M rows/s", _if(complete, VERIFY_ROWS_PER_S / 1e6))
    report.add(f"{what}, median of five", rows / 1e6 / median, "M rows/s")
    report.add(f"{what}, fastest of five", size / 1e9 / shortest, "GB/s")


def _run(way: str, folder: Path, stride: int) -> TimedAnswers:
    program = PEAK + PROGRAM.format(imports=WAYS[way][0], work=WAYS[way][1])
    done = python("-c", program, folder, METRIC, VALUE, stride if way == "pandas" else 1)
    return TimedAnswers(*json.loads(done.stdout))


def _agreement(runs: dict[str, list[TimedAnswers]]) -> float:
    """Returns for which fraction of the studies read by pandas the scan and the envelopes give the same answer."""
    (truth, *_), (scan, *_), (enveloped, *_) = (runs[way] for way in ("pandas", "scan", "envelopes"))
    equal = [scan.answers.get(name) == enveloped.answers.get(name) == steps for name, steps in truth.answers.items()]
    return float(np.mean(equal)) if scan.answers.keys() == enveloped.answers.keys() else 0.0


def _if(condition: bool, target: float) -> float | None:
    return target if condition else None


def _free_memory() -> int:
    """Returns three quarters of the free memory in bytes."""
    return (memory.available() or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")) * 3 // 4


def _write_and_flush(path: Path) -> None:
    with open(path, "xb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    with open_report(__doc__, synthetic_store.ARGUMENTS) as report:
        main(report)
        published_imports.main(report)
