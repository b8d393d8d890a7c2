"""How long does `make quickstart` take? Measures CPU and wall-clock time of each command, with cold caches.

    python benchmarks/quickstart.py [--against DIR] [--json FILE] [--smoke]

The commands are those of the Makefile after installation, with a new store and a new cache folder. CPU time is the user
and system time of a command and all processes that it starts. --against first measures another checkout with the
packages installed for this Python.
"""

import os
import shlex
import sys
from pathlib import Path

from report import ROOT, BenchmarkReport, Cost, cost, open_report, run

LESS = 2.0  # target for the CPU time of the other checkout relative to this one


def commands(checkout: Path, folder: Path) -> list[list[str]]:
    """Returns the commands of `make quickstart` after installation, with the store and figures in ``folder``."""
    where = [f"STORE={folder / 'store'}", f"FIGURES={folder / 'figures'}", f"BIN={Path(sys.executable).parent}"]
    lines = run(["make", "--no-print-directory", "-n", "quickstart", *where], cwd=checkout).stdout.splitlines()
    return [
        words for words in map(shlex.split, lines) if words[1:2] == ["-m"] and words[2].startswith(("sweeps", "an"))
    ]


def measure(report: BenchmarkReport, checkout: Path, folder: Path, label: str) -> Cost:
    """Adds the costs of all commands of a checkout to the report, and returns their sum."""
    costs = []
    environment = os.environ | {"SCALING_LIMITS_CACHE": str(folder / "cache"), "PYTHONPATH": str(checkout)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    for words in commands(checkout, folder):
        if report.smoke:
            words = [*words[:2], "sweeps.plan", *words[3:]] if words[2] == "sweeps" else [*words[:3], "--help"]
        costs.append(cost(words, cwd=checkout, env=environment)[0])
        name = " ".join(words[2:4])
        report.add(f"{label}{name}: CPU", costs[-1].cpu, "s")
        report.add(f"{label}{name}: wall", costs[-1].wall, "s")
    total = Cost(*map(sum, zip(*costs, strict=True)))
    report.add(f"{label}all: CPU", total.cpu, "s")
    report.add(f"{label}all: wall", total.wall, "s")
    return total


def main(report: BenchmarkReport) -> None:
    """Adds all figures for the quickstart to a report."""
    against: Path | None = report.options.against
    before = measure(report, against.resolve(), report.folder / "before", "before: ") if against else None
    total = measure(report, ROOT, report.folder / "here", "")
    if before is not None:
        report.add("CPU of the other checkout / CPU of this one", before.cpu / total.cpu, "×", LESS)


if __name__ == "__main__":
    with open_report(__doc__, {"--against": {"type": Path, "metavar": "DIR", "help": "another checkout"}}) as report:
        main(report)
