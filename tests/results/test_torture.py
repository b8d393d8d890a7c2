import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WRITER = Path(__file__).with_name("writer.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("seed", "rounds"), [(0, 8), pytest.param(1, 200, marks=pytest.mark.slow)])
def test_four_writers_without_a_lock_killed_and_stopped_at_random(tmp_path: Path, seed: int, rounds: int) -> None:
    """Only fencing protects them: after every round the tables are the truth, each trial's rows of one attempt."""
    command = [sys.executable, str(WRITER), "torture", str(tmp_path), str(seed), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each for each in told if each["wrong"]] == []
    assert len(told) == rounds
    assert sum(each["kill"] for each in told) >= 2 * rounds
    assert sum(each["stop"] for each in told) >= 2 * rounds
    assert sum(each["late"] for each in told) >= rounds // 4
