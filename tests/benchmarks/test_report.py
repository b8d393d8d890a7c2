import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = """
import sys
sys.path.insert(0, {folder!r})
from report import open_report
with open_report("about") as report:
    report.add("free", 1.0, "s")
    report.add("bound", {value}, "×", 2.0)
"""


@pytest.mark.parametrize(("value", "code"), [(2.0, 0), (1.9, 1), (float("nan"), 1)])
def test_a_missed_target_is_an_exit_code_and_stands_in_the_file(tmp_path: Path, value: float, code: int) -> None:
    folder = str(Path(__file__).parents[2] / "benchmarks")
    program = BENCHMARK.format(folder=folder, value=f"float('{value}')")
    command = [sys.executable, "-c", program, "--json", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [(row["name"], row["unit"], row["target"], row["met"]) for row in rows] == [
        ("free", "s", None, True),
        ("bound", "×", 2.0, code == 0),
    ]
    assert ("MISSED" in done.stdout) == bool(code)
