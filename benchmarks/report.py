"""Benchmark reports, which consist of figures with units and targets and determine the exit code. Timing helpers.

With --smoke, a benchmark uses tiny inputs, just to check that it runs, and ignores targets.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from harness.processes import provenance
from results import durable

ROOT = Path(__file__).parents[1]
# For programs run by ``python``: defines a function for the peak memory of the process in MB.
PEAK = """
def peak():
    return next(int(line.split()[1]) / 1e3 for line in open("/proc/self/status") if line.startswith("VmHWM"))
"""


class BenchmarkReport:
    """The figures of a benchmark, printed as they are added.

    Attributes:
      options: command-line options.
      smoke: whether to use tiny inputs.
      folder: temporary folder, which is removed at the end.
      rows: figures in the format of --json.
    """

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.smoke, self.folder = options, options.smoke, folder
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, value: float, unit: str, target: float | None = None) -> None:
        """Adds a figure. ``target`` is the smallest value that passes."""
        value = float(value)  # JSON does not support NumPy types
        target = None if self.smoke else target
        met = target is None or value >= target
        self.rows.append({"name": name, "value": value, "unit": unit, "target": target, "met": met})
        against = "" if target is None else f"  (target {target:g}: {'met' if met else 'MISSED'})"
        print(f"{name:<64} {value:>12,.2f} {unit}{against}", flush=True)


@contextlib.contextmanager
def open_report(
    about: str | None, arguments: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[BenchmarkReport]:
    """Yields a report. Afterwards, prints the machine, writes --json, and exits with code 1 if a target is missed.

    Args:
      about: description for --help.
      arguments: command-line arguments in addition to --json and --smoke, as names and keywords of ``add_argument``.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, keywords in (arguments or {}).items():
        parser.add_argument(name, **keywords)
    parser.add_argument("--json", type=Path, help="write an array of {name, value, unit, target, met} to this file")
    parser.add_argument("--smoke", action="store_true", help="use tiny input, only to check that it runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = BenchmarkReport(options, Path(folder))
        yield report
    about = provenance.software() | provenance.device()
    print(f"measured on {about['device_kind']} × {about['device_count']}, {about['physical_cores']} cores, "
          f"python {about['python_version']}, {about['package_versions']}")  # fmt: skip
    if options.json is not None:
        durable.replace(options.json, json.dumps(report.rows, indent=1).encode())
    sys.exit(0 if all(row["met"] for row in report.rows) else 1)


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Returns the seconds that a call takes."""
    began = clock()
    work()
    return clock() - began


class Cost(NamedTuple):
    """Seconds of a command: CPU time including that of its child processes, and wall-clock time."""

    cpu: float
    wall: float


def run(
    command: Sequence[object], codes: Collection[int] = (0,), cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command. Exits with its error output unless it ends with one of ``codes``."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    if done.returncode not in codes:
        sys.exit(done.stderr)
    return done


def cost(
    command: Sequence[object], codes: Collection[int] = (0,), cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> tuple[Cost, str]:
    """Runs a command. Returns its cost and output. Exits with its error output unless it ends with one of ``codes``."""
    before, began = os.times(), time.perf_counter()
    done = run(command, codes, cwd, env)
    wall, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(used, wall), done.stdout


def study_of(*words: str) -> Any:
    """Returns the only study of a sweep's command line."""
    from sweeps import overrides, planning  # these import the configuration

    (study,) = planning.request(overrides.command_line(list(words))).studies
    return study


def in_turn(work: Mapping[str, Callable[[], Any]], rounds: int, label: str) -> dict[str, list[Any]]:
    """Alternates between all pieces of work, round by round. Returns the results of each piece."""
    results: dict[str, list[Any]] = {name: [] for name in work}
    for _ in tqdm(range(rounds), desc=label, disable=None):
        for name, piece in work.items():
            results[name].append(piece())
    return results


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Returns the median of the ratios of values from the same round."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def python(*arguments: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs Python in the root of the repository. If it fails, exits with its error output."""
    return run([sys.executable, *arguments], env=env)
