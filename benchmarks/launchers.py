"""How much overhead does each launcher add to a study?

    python benchmarks/launchers.py [--also slurm] [--also ray] [--json FILE] [--smoke]

Runs `python -m sweeps` with few and with many small studies (one trial of two steps each) that share a program, using
new stores. The cost of a study is the difference per additional study, including the study's two steps. The cost of the
same command with --dry-run, which only composes and checks the studies, is subtracted. --also slurm requires a cluster
that sbatch can reach from this machine, and --also ray requires the ray extra. With either, each study is a separate
process that starts JAX.
"""

import statistics
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

from report import BenchmarkReport, Cost, cost, open_report
from tqdm import tqdm

STUDY = ("task=digits_fc", "trials=1", "task.budget.steps=2", "checkpoint_seconds=null")
MOST_SECONDS = 0.15  # per study with the local pool, without composition
ROUNDS = 3


class Launcher(NamedTuple):
    """A launcher: its label, the number of studies in a short and a long sweep, and the arguments that select it."""

    name: str
    few: int
    many: int
    words: tuple[str, ...]


LOCAL = Launcher("the local pool, one worker", 2, 42, ("launcher.workers=1",))
OTHERS = {
    "slurm": Launcher(
        "SLURM, one at once", 1, 5, ("launcher=slurm", "launcher.at_once=1", "launcher.poll_seconds=0.2")
    ),
    "ray": Launcher("Ray, one at once", 1, 5, ("launcher=ray", "launcher.at_once=1")),
}


def run(words: tuple[str, ...], studies: int, folder: Path) -> Cost:
    """Runs a sweep with the given number of studies, and returns the cost of the command."""
    axis = "seed=" + ",".join(map(str, range(1, studies + 1)))
    command = [sys.executable, "-m", "sweeps", *STUDY, *words, axis, f"store={folder / uuid.uuid4().hex}", "-m"]
    return cost(command)[0]


def measure(report: BenchmarkReport, launcher: Launcher, rounds: int) -> None:
    """Adds the cost per study of a launcher."""
    few, long_sweep = (1, 2) if report.smoke else (launcher.few, launcher.many)
    costs: dict[tuple[bool, int], list[Cost]] = {}
    run(launcher.words, few, report.folder)  # compiles
    for _ in tqdm(range(rounds), desc=launcher.name, disable=None):
        for dry in (False, True):
            for studies in (few, long_sweep):
                words = (*launcher.words, "--dry-run") if dry else launcher.words
                costs.setdefault((dry, studies), []).append(run(words, studies, report.folder))

    def of_one(dry: bool, field: str) -> float:
        long, short = ([getattr(run_cost, field) for run_cost in costs[dry, studies]] for studies in (long_sweep, few))
        return statistics.median(a - b for a, b in zip(long, short, strict=True)) / (long_sweep - few)

    total, composing = of_one(False, "wall"), of_one(True, "wall")
    report.add(f"{launcher.name}: per study, including composition", total, "s")
    report.add(f"{launcher.name}: composing it", composing, "s")
    target = 1.0 if launcher is LOCAL else None
    seconds = max(total - composing, 1e-9)
    report.add(f"{launcher.name}: per study, without composition", seconds, "s")
    if target is not None:
        report.add(f"{launcher.name}: {MOST_SECONDS:g} s / the latter", MOST_SECONDS / seconds, "×", target)
        processor = of_one(False, "cpu") - of_one(True, "cpu")
        report.add(f"{launcher.name}: the latter in CPU seconds", processor, "s")


if __name__ == "__main__":
    choices = {"action": "append", "choices": sorted(OTHERS), "default": [], "help": "another launcher, too"}
    with open_report(__doc__, {"--also": choices}) as report:
        rounds = 1 if report.smoke else ROUNDS
        for launcher in (LOCAL, *(OTHERS[name] for name in report.options.also)):
            measure(report, launcher, rounds)
