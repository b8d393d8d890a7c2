"""Do commands start at once? CPU seconds of help, mistakes, plans, finished sweeps, the ledger and compositions.

    python benchmarks/commands.py [--studies N] [--json FILE] [--smoke]

Each command is a process of its own, and what is told is its processor time, that of Python's own start included, the
least of three runs. The store holds N finished studies of two trials without measurements (1,200 unless told; the first
500 of them are also asked for as a sweep). A composition is of points over optimizers, batch sizes and seeds, each
read, checked and looked for in a store. Exponents are how the time of status and of compositions grows from the
first quarter to all, without the start of Python.
"""

import datetime
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from report import ROOT, BenchmarkReport, open_report

from harness import provenance, search
from harness.record import Record
from harness.scheduler import TrialOutcome
from results import store
from results.plans.batch_study import BatchStudy
from sweeps import overrides, planning
from sweeps.rows import tables

RUNS = 3
START = 1.0  # CPU seconds that help, a mistake or a plan may take
STUDIES, ASKED, POINTS = 1200, 500, 5000
MEASURED = 8  # evaluations of a trial
FINISHED, STATUS, COMPOSED = 3.0, 2.0, 15.0  # CPU seconds of these
EXPONENT = 1.1
COMMANDS = (
    "sweeps --help",
    "sweeps taks=digits_fc",
    "sweeps optimizer=adm",
    "sweeps batch_size=many",
    "sweeps.plan --help",
    "sweeps.plan task=digits_fc",
    "sweeps.status --help",
    "analysis --help",
    *(f"analysis {name} --help" for name in ("steps", "fit", "coverage", "epochs", "compare", "figures", "report")),
    "results --help",
    *(f"results {name} --help" for name in ("verify", "repair", "import", "export", "merge")),
)


def cpu_seconds(words: Sequence[str], codes: Sequence[int] = (0,)) -> float:
    """Processor time of a command in a process of its own, which must end with one of the exit codes."""
    before = os.times()
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False, cwd=ROOT)
    after = os.times()
    if done.returncode not in codes:
        sys.exit(done.stderr)
    return after.children_user + after.children_system - before.children_user - before.children_system


def line(folder: Path, points: int) -> list[str]:
    """The command line of a sweep of so many points, rounded up to eights."""
    seeds = ",".join(map(str, range(-(-points // 8))))
    return ["optimizer=sgd,momentum", "batch_size=4,16,64,256", f"seed={seeds}", "trials=2", f"store={folder}", "-m"]


def write(folder: Path, studies: int) -> None:
    """Writes finished studies, with real plans, claims, commit records and envelopes."""
    about = provenance.software() | {"started_at": datetime.datetime.now(datetime.UTC).isoformat()}
    for study in planning.request(overrides.command_line(line(folder, studies))).studies:
        store.ask(folder, study)
        with store.claim(folder, study.name) as claim:
            claim.write(tables(study, measured(study), about))
            claim.commit(study)


def measured(study: BatchStudy) -> Record:
    """The record of a study whose trials were all measured a few times, with made-up numbers."""
    trials, steps = search.draw(study, range(study.trials)), study.evaluations[:MEASURED]
    trial = np.repeat(np.array([each.id for each in trials], np.int32), len(steps))
    values = np.random.default_rng(study.seed).random(len(trial), np.float32)
    outcome = TrialOutcome("COMPLETE", None, int(steps[-1]))
    metrics = dict.fromkeys(("validation_loss", "validation_error", "test_loss", "test_error"), values)
    return Record(trials, {each.id: outcome for each in trials}, trial, np.tile(steps, len(trials)), metrics)


def composing(folder: Path, points: int) -> float:
    """Processor time of composing and checking a sweep, once everything is imported."""
    words = overrides.command_line(line(folder, points))
    began = time.process_time()
    assert len(planning.request(words).studies) == -(-points // 8) * 8
    return time.process_time() - began


def exponent(few: float, many: float) -> float:
    """The power of the size by which a time grows, from a quarter to all."""
    return math.log(many / few) / math.log(4)


def main(report: BenchmarkReport) -> None:
    """Adds all figures of commands to a report."""
    runs = 1 if report.smoke else RUNS
    for words in COMMANDS[:4] if report.smoke else COMMANDS:
        least = min(cpu_seconds(words.split(), (0, 2)) for _ in range(runs))
        report.add(f"{words}: {START:g} s / CPU seconds ({least:.2f})", START / least, "×", 1)
    studies, asked, points = (16, 8, 64) if report.smoke else (report.options.studies, ASKED, POINTS)
    few, many = report.folder / "few", report.folder / "many"
    write(few, studies // 4)
    write(many, studies)
    least = min(cpu_seconds(["sweeps", *line(many, asked)]) for _ in range(runs))
    report.add(f"a finished sweep of {asked}: {FINISHED:g} s / CPU seconds ({least:.2f})", FINISHED / least, "×", 1)
    start = min(cpu_seconds(["sweeps.status", "--help"]) for _ in range(runs))
    quarter, whole = (min(cpu_seconds(["sweeps.status", f"store={f}"]) for _ in range(runs)) for f in (few, many))
    allowed = STATUS * max(1.0, 0.75 * studies / STUDIES)  # 15 s for 10,000, of which more is not start
    report.add(f"status of {studies}: {allowed:g} s / CPU seconds ({whole:.2f})", allowed / whole, "×", 1)
    report.add("status: exponent, from a quarter to all", exponent(quarter - start, whole - start), "")
    quarter, whole = (min(composing(few, n) for _ in range(runs)) for n in (points // 4, points))
    report.add(f"{points} points: {COMPOSED:g} s / CPU seconds ({whole:.2f})", COMPOSED / whole, "×", 1)
    grows = exponent(quarter, whole)
    report.add(f"{points} points: {EXPONENT:g} - exponent ({grows:.2f})", EXPONENT - grows, "", 0)


if __name__ == "__main__":
    with open_report(__doc__, {"--studies": {"type": int, "default": STUDIES}}) as report:
        main(report)
