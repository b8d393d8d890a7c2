"""Does the work of an import grow with its input, and not faster? Measures imports of n, 2 n and 4 n of everything.

    python benchmarks/imports.py [--json FILE] [--smoke]

    rows      rows of one log
    columns   columns of one log, most of which the map does not use
    tags      rows of a JSON Lines log that each have a tag of their own
    runs      runs in one file
    files     files with one run each, without seeds, of one study; imported a second time with one run more
    copies    files with copies of the same run
    studies   studies, imported a second time

CPU seconds are those of importing in this process, less those of an import of one row, column, ... Each size is
measured twice, and the shorter time counts. The target is at most 5 times the seconds at 4 n, where less than 0.05 s
at n count as 0.05 s, since such times cannot be measured well.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import BenchmarkReport, open_report

from results.importers.runs import importer, run_map

TARGET = 5.0
SMOKE_SIZE = 8  # of n
ROUNDS = 2
SHORTEST = 0.05  # seconds
COMMON = """
dataset: d
optimizer: adamw
metrics: {validation_loss: loss}
"""
ONE = "format: csv\nfiles: '*.csv'\nmodel: m\nbatch_size: 8\n"
CURVE = [f"{10 * step},{2 * 0.95**step}" for step in range(1, 41)]
LOG = "\n".join(["step,loss", *CURVE, ""])


def rows(logs: Path, n: int) -> str:
    """Writes a log with n rows, and returns a map."""
    lines = (f"{step},{1 + 1 / step}\n" for step in range(1, n + 1))
    (logs / "a.csv").write_text("step,loss\n" + "".join(lines))
    return ONE


def columns(logs: Path, n: int) -> str:
    """Writes a log with n columns."""
    lines = [",".join(["step", "loss", *(f"m{i}" for i in range(n))])]
    lines += [",".join([row, *("0.5" for _ in range(n))]) for row in CURVE * 20]
    (logs / "a.csv").write_text("\n".join(lines) + "\n")
    return ONE


def tags(logs: Path, n: int) -> str:
    """Writes a log in which each of n rows has a tag of its own."""
    lines = (f'{{"step": {step}, "m{step}": 1}}\n' for step in range(n))
    (logs / "a.jsonl").write_text("".join(lines) + f'{{"step": {n}, "loss": 0.4}}\n')
    return ONE.replace("csv", "jsonl")


def runs(logs: Path, n: int) -> str:
    """Writes a log with n runs."""
    lines = (f"{run},{2 ** (run % 8 + 3)},{run},{row}\n" for run in range(n) for row in CURVE)
    (logs / "a.csv").write_text("run,b,seed,step,loss\n" + "".join(lines))
    return ONE.replace("batch_size: 8", "batch_size: column:b") + "run: column:run\nseed: column:seed\n"


def files(logs: Path, n: int) -> str:
    """Writes n logs that all start with the same row."""
    for i in range(n):
        lines = (f"{10 * step},{(2 + i / n) * 0.95**step}\n" for step in range(1, 41))
        (logs / f"{i}.csv").write_text("step,loss\n0,5.0\n" + "".join(lines))
    return ONE


def copies(logs: Path, n: int) -> str:
    """Writes n logs, each of which is the start of one curve."""
    for i in range(n):
        (logs / f"{i}.csv").write_text("\n".join(["step,loss", *CURVE[: i % 40 + 1], ""]))
    return ONE


def studies(logs: Path, n: int) -> str:
    """Writes n logs of different models and batch sizes."""
    for i in range(n):
        (logs / f"m{i // 8}-bs{2 ** (i % 8 + 3)}.csv").write_text(LOG)
    return "format: csv\nfiles: '{model}-bs{batch_size}.csv'\nmodel: path:model\nbatch_size: path:batch_size\n"


KINDS: dict[str, tuple[Callable[[Path, int], str], int]] = {
    "rows": (rows, 150_000),
    "columns": (columns, 1_000),
    "tags": (tags, 1_000),
    "runs": (runs, 500),
    "files": (files, 100),
    "copies": (copies, 100),
    "studies": (studies, 50),
}
AGAIN = ("files", "studies")  # kinds that are imported twice, of which the second import counts


def seconds(kind: str, n: int) -> float:
    """Returns the CPU seconds of an import of n rows, columns, tags, runs, files or studies."""
    write = KINDS[kind][0]
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder, "logs")
        logs.mkdir()
        for repetition in range(1 + (kind in AGAIN)):
            parsed_map = run_map.parse(write(logs, n) + COMMON, "map")
            if repetition and kind == "files":
                (logs / "more.csv").write_text(LOG)
            began = time.process_time()
            importer.run(
                logs,
                Path(folder, "store"),
                parsed_map,
                raw=False,
                dry_run=False,
                replace=False,
                report=lambda line: None,
            )
        return time.process_time() - began


def main(report: BenchmarkReport) -> None:
    """Adds all figures for imports to a report."""
    for kind, (_, size) in KINDS.items():
        n = SMOKE_SIZE if report.smoke else size
        seconds(kind, 1)  # imports modules
        baseline = seconds(kind, 1)
        rounds = [[seconds(kind, multiple * n) for multiple in (1, 2, 4)] for _ in range(ROUNDS)]
        shortest = [max(min(times) - baseline, 0.0) for times in zip(*rounds, strict=True)]
        for multiple, duration in zip((1, 2, 4), shortest, strict=True):
            report.add(f"{multiple * n:,} {kind}: CPU seconds", duration, "s")
        ratio = shortest[2] / max(shortest[0], SHORTEST)
        report.add(f"{kind}: {TARGET:g} - 4 n / n ({ratio:.1f})", TARGET - ratio, "", 0)


if __name__ == "__main__":
    with open_report(__doc__) as report:
        main(report)
