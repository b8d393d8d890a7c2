"""What is imported: folders import one way only, and a command nothing that it does not need.

The contracts between folders are in pyproject.toml. Help, mistakes, plans and finished sweeps start without JAX.
"""

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.processes import provenance
from harness.run import unmeasured
from harness.trials import search
from harness.trials.scheduler import TrialOutcome
from results import store
from sweeps import overrides, planning
from sweeps.rows import tables

ROOT = Path(__file__).parents[1]
SLOW = {"jax", "jaxlib", "flax", "optax", "scipy", "sklearn", "pandas", "matplotlib", "tensorflow_datasets"}
WITH_TABLES = SLOW | {"pyarrow"}
# Runs a command as python -m does, and writes the names of all packages that were imported when it ended.
PROGRAM = """
import atexit, json, runpy, sys

def write(path=sys.argv[1]):
    with open(path, "w") as file:
        json.dump(sorted({name.partition(".")[0] for name in sys.modules}), file)

atexit.register(write)
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
# First lines of help, by command.
HELP = {
    "sweeps": "python -m sweeps: runs a study, or with -m a sweep of studies. Stored trials are not repeated.",
    "sweeps.plan": "python -m sweeps.plan …: shows what `python -m sweeps …` would run, how much is stored,",
    "sweeps.manifest": "python -m sweeps.manifest …: writes one JobSet for each study of `python -m sweeps …`, to",
    "sweeps.status": "usage: python -m sweeps.status [-h]",
    "analysis": "usage: python -m analysis [-h]",
    **{
        f"analysis {name}": f"usage: python -m analysis {name} [-h]"
        for name in ("steps", "fit", "coverage", "epochs", "layouts", "compare", "figures", "report", "all")
    },
    "results": "usage: python -m results [-h]",
    **{
        f"results {name}": f"usage: python -m results {name} [-h]"
        for name in ("verify", "repair", "import", "export", "merge")
    },
    "workloads.prepare": "usage: python -m workloads.prepare [-h]",
}
MISTAKES = {
    "taks=digits_fc": "error: unknown key 'taks'; did you mean 'task'?",
    "optimizer=adm": "error: unknown optimizer 'adm'; did you mean 'adam'?",
    "batch_sizes=3": "error: unknown key 'batch_sizes'; did you mean 'batch_size'?",
    "batch_size=many": "error: batch_size=many: 'many' is not an integer",
    "lanes=0": "error: lanes must be at least 1, not 0",
    "task.model.widths=64": "error: task.model: widths must be a list of integers of at least 1, such as [64], not 64",
    "task.targets=0.18": "error: task.targets=0.18: targets must be a list of metrics and values, such as "
    "'task.targets=[{metric: validation_error, value: 0.1}]', in quotes",
    "task=webgraph_synthetic als.solver=qrr": "error: unknown solver 'qrr'; did you mean 'qr'?",
}
FINISHED = ["optimizer=sgd,momentum", "batch_size=8,64", "trials=2", "-m"]


@pytest.mark.slow  # make check does the same
def test_imports_point_down() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def start(folder: Path, *words: str) -> tuple[int, str, set[str]]:
    """The exit code of a command, its first line, and the packages that it imported."""
    imported = folder / "imported.json"
    command = [sys.executable, "-c", PROGRAM, str(imported), *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    first = (done.stderr or done.stdout).splitlines()[0]
    return done.returncode, first, set(json.loads(imported.read_text()))


# One command of each parser, and one of each kind of mistake; the others are slow.
QUICK = {"sweeps", "sweeps.plan", "sweeps.status", "analysis", "analysis fit", "results", "workloads.prepare"}
QUICK |= {"taks=digits_fc", "batch_size=many", "task.model.widths=64", "task=webgraph_synthetic als.solver=qrr"}


def few(lines: Iterable[str]) -> list[Any]:
    """Returns command lines as cases; those that are not quick are slow."""
    return [pytest.param(line, marks=() if line in QUICK else pytest.mark.slow) for line in lines]


@pytest.mark.parametrize("command", few(HELP))
def test_help(command: str, tmp_path: Path) -> None:
    code, first, imported = start(tmp_path, *command.split(), "--help")
    assert code == 0 and first.startswith(HELP[command])
    assert not imported & WITH_TABLES


@pytest.mark.parametrize("words", few(MISTAKES))
def test_a_mistake(words: str, tmp_path: Path) -> None:
    code, first, imported = start(tmp_path, "sweeps", *words.split())
    assert code == 2 and first.startswith(MISTAKES[words])
    assert not imported & SLOW


@pytest.mark.parametrize(
    "words",
    ["optimizer=muon batch_size=1,4 -m", "task=pydoc_lstm", "task=webgraph_synthetic cores=1 als.kernel=fused"],
)
def test_a_plan(words: str, tmp_path: Path) -> None:
    code, first, imported = start(tmp_path, "sweeps.plan", *words.split(), f"store={tmp_path / 'store'}")
    assert code == 0 and first.split()[0] in ("counting", "study")
    assert not imported & SLOW


def test_a_finished_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    words = [*FINISHED, f"store={folder}"]
    for study in planning.request(overrides.command_line(words)).studies:
        store.ask(folder, study)
        now = datetime.datetime.now(datetime.UTC).isoformat()
        trials = search.draw(study, range(study.trials))
        ended = unmeasured(trials, TrialOutcome("COMPLETE", None, study.budget_steps))
        with store.claim(folder, study.name) as claim:
            claim.write(tables(study, ended, provenance.software() | {"started_at": now}))
            claim.commit(study)
    code, first, imported = start(tmp_path, "sweeps", *words)
    assert (code, first) == (0, f"nothing to train: 4 studies with 8 trials already stored in {folder}")
    assert not imported & SLOW
    code, first, imported = start(tmp_path, "sweeps.status", f"store={folder}")
    assert code == 0 and first.split()[:2] == ["study", "state"]
    assert not imported & SLOW
