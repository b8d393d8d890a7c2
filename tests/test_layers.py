"""The folders import one way only; the contracts are in pyproject.toml."""

import subprocess
import sys
from pathlib import Path


def test_imports_point_down() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout
