"""Do commands start quickly, and how does their run time grow with the size of a sweep or store?

    python benchmarks/commands.py [--studies N] [--json FILE] [--smoke]

Each command runs in a separate process. Its CPU time, including the start-up of Python, is the minimum of three runs.
The commands are help, invalid input, plans, finished sweeps, the ledger, verification and compositions. Stores contain
300, 1,200 and N (by default 10,000) finished studies of two trials, each measured eight times. `sweeps.status` reads
all stores, a finished sweep requests the first 500 of 1,200 studies, and the two smaller stores are verified with all
envelopes rebuilt. Compositions have points with different optimizers, batch sizes and seeds. Each point is read,
checked and looked up in a store. An exponent describes how CPU time grows from the smallest to the largest size,
excluding start-up time, which is measured with the same command on eight studies.
"""

import datetime
import math
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from report import BenchmarkReport, cost, open_report
from tqdm import tqdm

from harness.processes import provenance
from harness.run import Record
from harness.trials import search
from harness.trials.scheduler import TrialOutcome
from results import store
from results.plans.batch_study import BatchStudy
from sweeps import overrides, planning
from sweeps.rows import tables

RUNS = 3
START = 1.0  # limit in CPU seconds for help, invalid input or a plan
SIZES, STUDIES = (8, 300, 1200), 10_000  # numbers of studies in stores
ASKED, POINTS = 500, (300, 5000)
MEASURED = 8  # evaluations of a trial
FINISHED, COMPOSED, VERIFIED = 3.0, 15.0, 15.0  # CPU seconds of a finished sweep, of 5,000 points, of 1,200 studies
STATUS = {1200: 2.0, 10_000: 15.0}  # CPU seconds, by number of studies
EXPONENT = 1.1
RESOLUTION = 0.01  # resolution of the system's CPU clock, in seconds
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
    """Returns the CPU time of a command in a separate process. The command must end with one of the exit codes."""
    return cost([sys.executable, "-m", *words], codes)[0].cpu


def line(folder: Path, points: int) -> list[str]:
    """Returns the command line of a sweep with ``points`` points, rounded up to a multiple of eight."""
    axes = ["optimizer=sgd,momentum", "batch_size=4,16,64,256", f"seed={','.join(map(str, range(-(-points // 8))))}"]
    return [*axes, "pruning=off", "trials=2", f"store={folder}", "-m"]


def write(folder: Path, studies: int) -> list[str]:
    """Writes finished studies with plans, claims, commit records and envelopes. Returns their names by seed."""
    about = provenance.software() | {"started_at": datetime.datetime.now(datetime.UTC).isoformat()}
    plans = planning.request(overrides.command_line(line(folder, studies))).studies
    with mock.patch.object(os, "fsync"):  # durability is not needed here
        for study in tqdm(plans, desc="writing studies", disable=None):
            store.ask(folder, study)
            with store.claim(folder, study.name) as claim:
                claim.write(tables(study, measured(study), about))
                claim.commit(study)
    return [study.name for study in sorted(plans, key=lambda study: study.seed)]


def link(folder: Path, names: Sequence[str], to: Path) -> Path:
    """Creates a store with some studies of another store, using hard links to the other store's files."""
    for name in names:
        shutil.copytree(folder / name, to / name, copy_function=os.link)
    return to


def measured(study: BatchStudy) -> Record:
    """Returns the record of a study with synthetic numbers, in which each trial has a few evaluations."""
    trials, steps = search.draw(study, range(study.trials)), study.evaluations[:MEASURED]
    trial = np.repeat(np.array([trial.id for trial in trials], np.int32), len(steps))
    values = np.random.default_rng(study.seed).random(len(trial), np.float32)
    outcome = TrialOutcome("COMPLETE", None, int(steps[-1]))
    metrics = dict.fromkeys(("validation_loss", "validation_error", "test_loss", "test_error"), values)
    return Record(trials, {trial.id: outcome for trial in trials}, trial, np.tile(steps, len(trials)), metrics)


def composing(folder: Path, points: int) -> float:
    """Returns the CPU time of composing and checking a sweep, excluding imports."""
    words = overrides.command_line(line(folder, points))
    began = time.process_time()
    assert len(planning.request(words).studies) == -(-points // 8) * 8
    return time.process_time() - began


def exponent(times: Mapping[int, float], start: float) -> float:
    """Returns the exponent with which ``times - start`` grows from the smallest to the largest size."""
    shortest, longest = min(times), max(times)
    grown = [max(times[size] - start, RESOLUTION) for size in (shortest, longest)]
    return math.log(grown[1] / grown[0]) / math.log(longest / shortest)


def add(report: BenchmarkReport, what: str, allowed: float | None, taken: float) -> None:
    """Adds the limit divided by the CPU seconds, or just the CPU seconds if there is no limit."""
    if allowed is None:
        report.add(f"{what}: CPU seconds", taken, "s")
    else:
        report.add(f"{what}: {allowed:g} s / CPU seconds ({taken:.2f})", allowed / taken, "×", 1)


def main(report: BenchmarkReport) -> None:
    """Adds all figures for commands to a report."""
    runs = 1 if report.smoke else RUNS
    for words in COMMANDS[:4] if report.smoke else COMMANDS:
        add(report, words, START, min(cpu_seconds(words.split(), (0, 2)) for _ in range(runs)))
    sizes, asked, points = (
        ((8, 16, 32, 64), 8, (64, 128)) if report.smoke else ((*SIZES, report.options.studies), ASKED, POINTS)
    )
    names = write(report.folder / "whole", sizes[-1])
    stores = {size: link(report.folder / "whole", names[:size], report.folder / f"of-{size}") for size in sizes}
    small, *larger = sizes
    taken = min(cpu_seconds(["sweeps", *line(stores[larger[-2]], asked)]) for _ in range(runs))
    add(report, f"a finished sweep of {asked} of {larger[-2]:,} studies", FINISHED, taken)
    for words, targets, among in (
        (["sweeps.status"], STATUS, larger),
        (["results", "verify"], {1200: VERIFIED}, larger[:-1]),
    ):
        times = {}
        for size in (small, *among):
            store_words = [f"store={stores[size]}"] if words[0] == "sweeps.status" else ["--store", str(stores[size])]
            times[size] = min(cpu_seconds([*words, *store_words]) for _ in range(runs))
            add(report, f"{' '.join(words)}: {size:,} studies", targets.get(size), times[size])
        start = times.pop(small)
        add_exponent(report, f"{' '.join(words)}: {among[0]:,} to {among[-1]:,} studies", exponent(times, start))
    times = {n: min(composing(stores[small], n) for _ in range(runs)) for n in points}
    add(report, f"{points[-1]:,} points", COMPOSED, times[points[-1]])
    add_exponent(report, f"{points[0]:,} to {points[-1]:,} points", exponent(times, 0.0))


def add_exponent(report: BenchmarkReport, what: str, grows: float) -> None:
    """Adds the difference between an exponent's limit and the exponent."""
    report.add(f"{what}: {EXPONENT:g} - exponent ({grows:.2f})", EXPONENT - grows, "", 0)


if __name__ == "__main__":
    with open_report(__doc__, {"--studies": {"type": int, "default": STUDIES}}) as report:
        main(report)
