"""What the attack shares: programs that fork, run and read; and one small source of every kind that is imported."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..results.importers import test_algoperf, test_mlperf_rcp
from . import test_archives

ROOT = Path(__file__).parents[2]

Program = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def program() -> Program:
    """Runs a program of this folder, given its name and words; the lines of JSON that it prints."""

    def run(name: str, *words: object) -> list[dict[str, Any]]:
        command = [sys.executable, str(Path(__file__).with_name(name)), *map(str, words)]
        # Arrow's own allocator can be locked for ever in a process that was forked; that of the system cannot.
        alone = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | alone, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what each importer takes, under the name by which it is asked for."""
    folder = tmp_path_factory.mktemp("sources")
    studies = (test_archives.study(test_archives.GOOD), test_archives.study("mnist/fc_64/sgd/64"))
    test_archives.tarred(folder / "shallue2018", *map(test_archives.files, studies))
    records = [test_mlperf_rcp.record(BS=size) for size in (4096, 8192)]
    test_mlperf_rcp.write(folder / "mlperf-rcp", "training_2.0.0", *records)
    for trial in (1, 2):
        test_algoperf.write(folder / "algoperf-logs" / test_algoperf.STUDY / test_algoperf.OGBG / f"trial_{trial}")
    return folder
