"""First contact runs on a CPU, says what it did not measure, and survives a check that does not end."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from harness.processes import processors

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "first_contact.py"
LARGE = ("speed:transformer_base", "speed:resnet_50")
FAST = ("device", "precision", *LARGE)


@pytest.fixture(scope="module")
def first_contact() -> ModuleType:
    sys.path.insert(0, str(PROGRAM.parent))  # where it finds its checks
    spec = importlib.util.spec_from_file_location("first_contact", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(PROGRAM.parent))
    return module


@pytest.mark.slow
@pytest.mark.parametrize("only", [FAST, ()], ids=["fast", "all"])
def test_every_check_runs(only: tuple[str, ...], first_contact: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    command = [sys.executable, str(PROGRAM), "--smoke", "--json", str(file), *(["--only", *only] if only else [])]
    environment = os.environ | {"SCALING_LIMITS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert (report["accelerators"], report["backend"], report["smoke"]) == ("cpu", "cpu", True)
    assert report["package_versions"]["jax"]
    checks = {check["name"]: check for check in report["checks"]}
    assert list(checks) == list(only or first_contact.CHECKS)
    for name, check in checks.items():
        if name in LARGE:
            assert (check["outcome"], check["why"], check["numbers"]) == ("not measured", "no accelerator", [])
        else:
            assert check["outcome"] in ("pass", "fail", "measured") and check["numbers"]
            assert all(set(number) == set(first_contact.Number._fields) for number in check["numbers"])
    assert checks["device"]["outcome"] == checks["precision"]["outcome"] == "pass"
    assert checks["device"]["numbers"][0]["name"] == "JAX computes on cpu"


def test_check_that_does_not_end_is_an_error_alone(first_contact: ModuleType) -> None:
    check = first_contact.measured("device", 0.01, True)
    assert (check["outcome"], check["why"], check["numbers"]) == ("error", "not done after 0 s", [])


def test_an_outcome_follows_from_the_goals(first_contact: ModuleType) -> None:
    checks = sys.modules[first_contact.Number.__module__]
    assert json.dumps([checks.at_most("a", np.float64(1), 2), checks.at_least("b", np.float64(1), 2)])
    number, judged = checks.Number, lambda *numbers: checks.Finding(numbers).judged()
    met, missed = checks.at_least("ratio", 21.0, 20.0), checks.at_most("error", 1e-3, 1e-6)
    assert (met.goal, met.met, missed.goal, missed.met) == ("≥ 20", True, "≤ 1e-06", False)
    assert judged(number("rate", 1.0)) == judged(checks.at_least("ratio", 1.0, None)) == "measured"
    assert (judged(number("rate", 1.0), met), judged(met, missed)) == ("pass", "fail")
    assert judged(checks.at_most("error", float("nan"), 1.0)) == "fail"


def test_an_unknown_check_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--only", "speeds"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "speeds" in done.stderr.splitlines()[-1]


def test_nothing_is_measured_if_jax_uses_another_device(
    first_contact: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processors, "accelerators", lambda: ("gpu", 2))
    monkeypatch.setattr(sys, "argv", ["first_contact.py", "--smoke"])
    assert first_contact.main() == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("error: this machine has 2 GPUs, and JAX computes on cpu: ")
