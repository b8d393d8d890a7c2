"""Every benchmark runs, on tiny input: nothing that it imports, and nothing it calls, has another name by now.

A target that is missed is an exit code, and the made-up store that speed is measured on is of the published size.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FAST = ("fits",)
SLOW = (
    "quickstart",
    "figures",
    "checkpoints",
    "commands",
    "stores",
    "engine",
    "training",
    "lanes",
    "divisions",
    "attention",
    "input",
    "plan",
    "plan --planning",
    "workers",
    "launchers",
    "imports",
    "published_imports",
    "als",
    "als --evaluation",
)  # stores has published_imports, too
BENCHMARK = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
from report import open_report
with open_report("about") as report:
    report.add("free", np.float32(1.0), "s")
    report.add("bound", {value}, "×", 2.0)
"""
STORE = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from pathlib import Path
import numpy as np
import synthetic_store
from results import store
from results.catalog import overview, scan
from results.rules import answers
from results.plans.study import Target

made = synthetic_store.studies()
assert len(made) == 454
assert abs(sum(m.study.trials for m in made) - synthetic_store.TRIALS) < 454
assert abs(sum(len(synthetic_store.tables(m, np.random.default_rng(0))["measurements"]) for m in made[:4])
           / sum(m.study.trials for m in made[:4]) - synthetic_store.ROWS / synthetic_store.TRIALS) < 80

folder = Path(sys.argv[1])
for m in synthetic_store.studies(0.05)[:2]:
    assert synthetic_store._write((folder, m, 0)) > 1000
held, target = overview.survey(folder), Target("validation_error", 0.3)
found = held.answers(target, held.descriptions)
assert len(found) == len(held.envelopes) == 2
for commit in store.catalogue(folder):
    assert found[commit.name] == scan.reached(commit, target).answer()

precise = [m for m in synthetic_store.studies(0.05) if m.path.startswith("open_images_v4")]
for m in precise[:2]:
    assert synthetic_store._write((folder / "precise", m, 0)) > 1000
held = overview.survey(folder / "precise")
found = held.answers(Target("validation_average_precision_error", 0.69), held.descriptions)
assert len(found) == 2
"""


def test_every_benchmark_is_run() -> None:
    with_a_report = {path.stem for path in BENCHMARKS.glob("*.py") if "with open_report(" in path.read_text()}
    assert with_a_report == {name.split()[0] for name in (*FAST, *SLOW)}


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def check(name: str, tmp_path: Path) -> None:
    """A benchmark ends, and writes its figures."""
    stem, *mode = name.split()
    command = [sys.executable, f"{BENCHMARKS / stem}.py", *mode, "--smoke", "--json", str(tmp_path / "out.json")]
    environment = os.environ | {"SCALING_LIMITS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())
    assert rows and all(row["target"] is None for row in rows)


@pytest.mark.parametrize(("value", "code"), [("2.0", 0), ("1.9", 1), ("float('nan')", 1), ("np.float64(2.0)", 0)])
def test_a_missed_target_is_an_exit_code_and_stands_in_the_file(tmp_path: Path, value: str, code: int) -> None:
    """Whatever type of number NumPy makes of a figure."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    program = BENCHMARK.format(folder=folder, value=value)
    command = [sys.executable, "-c", program, "--json", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [(row["name"], row["unit"], row["target"], row["met"]) for row in rows] == [
        ("free", "s", None, True),
        ("bound", "×", 2.0, code == 0),
    ]
    assert ("MISSED" in done.stdout) == bool(code)


def test_synthetic_store_has_the_published_size_and_answers(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STORE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
