"""Whatever goes wrong before a study's first evaluation is one line with its cause, and the sweep goes on."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from harness.run import Settings
from results import store
from results.bad_input import first_line
from results.checks import verify
from results.plans.batch_study import BatchStudy
from results.plans.study import Target
from sweeps import __main__ as sweeps_cli
from sweeps.launchers import local
from sweeps.launchers.launcher import Launch
from sweeps.schema import LauncherConfig
from sweeps.study_run import record_failure, run_study

ROOT = Path(__file__).parents[2]
ONE_WORKER = dataclasses.asdict(LauncherConfig(workers=1))
SHORT = ("trials=1", "task.budget.steps=2", "launcher.workers=1", "-m")
ON_STANDARD_INPUT = """
import sys
from sweeps import __main__
sys.exit(__main__.main(sys.argv[1:]))
"""
# For every process, workers as well, as Python runs a file of this name.
WITH_A_MISTAKE = """
import jax.numpy as jnp
from workloads import registry
from workloads.workload import Model

fully_connected = registry.MODELS["fully_connected"]

def mistaken(classes, widths):
    right = fully_connected(classes, widths)
    def apply(params, state, x, keys, train):
        logits, state = right.apply(params, state, x, keys, train)
        return (logits @ jnp.zeros((logits.shape[-1] + 1, classes)) if len(x) == 32 else logits), state
    return Model(right.init, apply)

registry.MODELS["fully_connected"] = mistaken
"""


def lines_of(err: str, failed: int, of: int, cause: str) -> None:
    """Nothing of a traceback, one line with its cause for every study that failed, and how many did."""
    assert "Traceback" not in err
    told = [line for line in err.splitlines() if "] " in line and ": failed: " in line]
    assert len(told) == failed
    assert all(cause in line and len(line) < 500 for line in told)
    assert err.splitlines()[-1] == f"{failed} of {of} studies failed. Run the same command to retry them."


def ends(folder: Path) -> list[tuple[str, str | None]]:
    """Status and reason of all trials of a store in which nothing is wrong."""
    assert verify.run(folder, lambda line: None) == 0
    trials = store.read(folder).trials.sort_values("study")
    return [(status, reason) for status, reason in zip(trials["status"], trials["reason"].fillna(""), strict=True)]


@pytest.mark.parametrize("pruning", ["exact", "off"])
def test_a_study_without_an_evaluation_is_stored_and_run_later(
    tmp_path: Path, make_study: Callable[..., BatchStudy], pruning: str
) -> None:
    targets = (Target("validation_loss", 0.6), Target("validation_error", 0.1))
    study = make_study(pruning=pruning, targets=targets, trials=3, confirm=2, budget_steps=3)
    store.ask(tmp_path, study)
    assert record_failure(tmp_path, study, "failed").incomplete == 3
    assert ends(tmp_path) == [("INCOMPLETE", "failed")] * 3
    assert run_study(tmp_path, study, Settings()).ran >= 3
    assert not store.progress(tmp_path, study).ledger.unfinished
    assert verify.run(tmp_path, lambda line: None) == 0


def test_an_accelerator_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    folder = tmp_path / "store"
    assert sweeps_cli.main(["optimizer=sgd,momentum", *SHORT, f"store={folder}"]) == 1
    lines_of(capfd.readouterr().err, 2, 2, "cuda")
    assert ends(folder) == [("INCOMPLETE", "failed")] * 2


@pytest.mark.slow
def test_a_model_with_a_mistake_in_its_shapes(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITH_A_MISTAKE)
    command = [sys.executable, "-m", "sweeps", "batch_size=32,64", *SHORT, f"store={tmp_path}/store"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1, done.stderr
    lines_of(done.stderr, 1, 2, "TypeError: dot_general")
    assert "harness/step/programs.py:" in done.stderr
    assert sorted(ends(tmp_path / "store")) == [("COMPLETE", ""), ("INCOMPLETE", "failed")]


@pytest.mark.slow
def test_a_script_on_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-", "optimizer=sgd,momentum", *SHORT, f"store={tmp_path}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, input=ON_STANDARD_INPUT, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert ends(tmp_path) == [("COMPLETE", "")] * 2


def test_a_failure_that_cannot_be_stored_stops_no_other_study(
    tmp_path: Path, make_study: Callable[..., BatchStudy]
) -> None:
    good, bad = make_study(trials=1, budget_steps=2), make_study(trials=1, budget_steps=2, seed=1)
    for study in (good, bad):
        store.ask(tmp_path, study)
    (tmp_path / bad.name / "claim-000001.json").write_text("{}")
    (tmp_path / bad.name / "part-000000-000001.arrows").write_text("")
    outcomes = {o.summary.study: o for o in local.run_all(ONE_WORKER, Launch(tmp_path, [bad, good], Settings()))}
    assert outcomes[good.name].failure is None
    failure = outcomes[bad.name].failure
    assert failure and "claim-000001.json is not what was written" in failure and "storing this failed too: " in failure


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "with exit code 1"),
        (-15, "by signal 15 (Terminated)"),
        (-9, "by signal 9 (Killed): by you, by the system, or for lack of memory"),
    ],
)
def test_how_a_process_ended(code: int, words: str) -> None:
    assert local.exit_description(code) == words


@pytest.mark.parametrize(("text", "line"), [("", "ArrowInvalid"), (" \n", "ArrowInvalid"), ("\n a\nb", "a")])
def test_an_error_without_a_text_is_one_line(text: str, line: str) -> None:
    assert first_line(pa.ArrowInvalid(text)) == line
