"""Every benchmark runs, on tiny input: nothing that it imports, and nothing it calls, has another name by now."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FAST = ("quickstart", "fits", "figures")
SLOW = (
    "checkpoints",
    "commands",
    "stores",
    "engine",
    "training",
    "lanes",
    "input",
    "plan",
    "workers",
    "launchers",
    "published_imports",
    "als",
    "als_evaluation",
)  # stores has published_imports, too


def test_every_benchmark_is_run() -> None:
    with_a_report = {path.stem for path in BENCHMARKS.glob("*.py") if "with open_report(" in path.read_text()}
    assert with_a_report == {*FAST, *SLOW}


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--smoke", "--json", str(tmp_path / "out.json")]
    environment = os.environ | {"SCALING_LIMITS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())
    assert rows and all(row["target"] is None for row in rows)
