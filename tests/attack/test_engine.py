"""The real engine and the real sweep, killed on the way and run again: no result changes."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run import Settings
from results import store
from results.checks import verify
from results.plans.batch_study import BatchStudy
from sweeps.launchers import local
from sweeps.launchers.launcher import Launch
from sweeps.schema import LauncherConfig
from sweeps.study_run import run_study

ONE_WORKER = dataclasses.asdict(LauncherConfig(workers=1))


def reached(folder: Path, moment: str) -> bool:
    """Whether a study's folder holds something of this name."""
    return any(folder.glob(moment))


def assert_same(one: Path, other: Path, study: BatchStudy) -> None:
    """Two stores hold the same trials and measurements, to the bit, and nothing is wrong with the first."""
    assert [fault.line for findings in verify.examine(one, print) for fault in findings.faults] == []
    a, b = store.read(one, study.name), store.read(other, study.name)
    assert len(a.measurements) > len(a.trials) == study.trials
    assert a.trials.drop(columns="run").equals(b.trials.drop(columns="run"))
    assert a.measurements.equals(b.measurements)
    assert store.progress(one, study).to_run == 0


@pytest.mark.attack
@pytest.mark.parametrize(("pruning", "moment"), [("exact", "claim-000002.json"), ("off", "part-000001-*")])
def test_a_killed_worker_of_the_engine_changes_no_result(
    tmp_path: Path,
    make_study: Callable[..., BatchStudy],
    children: Callable[[int], list[int]],
    pruning: str,
    moment: str,
) -> None:
    """Killed when all trials are stored and about to be committed, or when some are stored and others under way."""
    study = make_study(pruning=pruning, batch_size=16, budget_steps=1500, trials=6)
    settings = Settings(lanes=2, flush_seconds=0.0)
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    done: list[local.StudyOutcome] = []
    for folder in (killed, calm):
        store.ask(folder, study)
    launcher = threading.Thread(
        target=lambda: done.extend(local.run_all(ONE_WORKER, Launch(killed, [study], settings)))
    )
    launcher.start()
    while not reached(killed / study.name, moment) and launcher.is_alive():
        time.sleep(0.001)
    (worker,) = children(os.getpid())
    os.kill(worker, signal.SIGKILL)
    too_late = reached(killed / study.name, "commit-*")  # on a machine that is busy
    run_study(calm, study, settings)
    launcher.join()
    assert [outcome.failure for outcome in done] == [None]
    assert_same(killed, calm, study)
    assert too_late or len(list((killed / study.name).glob("claim-*"))) >= 3


@pytest.mark.attack
@pytest.mark.parametrize("pruning", ["off", "exact"])
@pytest.mark.parametrize(
    "moment", [".lock", ".tmp-heartbeat", "claim-000001.json", "part-000000-*", "part-000002-*", "trials-*", "commit-*"]
)
def test_a_killed_sweep_goes_on_with_the_same_command(tmp_path: Path, pruning: str, moment: str) -> None:
    line = f"task=digits_fc optimizer=sgd batch_size=16 trials=6 pruning={pruning} lanes=2 task.budget.steps=3000"
    command = [sys.executable, "-m", "sweeps", *line.split(), "flush_seconds=0", "launcher.workers=1"]
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    sweep = subprocess.Popen(
        [*command, f"store={killed}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not reached(killed, f"*/{moment}") and sweep.poll() is None:
        time.sleep(0.001)
    os.killpg(sweep.pid, signal.SIGKILL)
    sweep.wait()
    assert [fault.line for findings in verify.examine(killed, print) for fault in findings.faults] == []
    for folder in (killed, calm):
        subprocess.run([*command, f"store={folder}"], check=True, capture_output=True)
    (name,) = store.names(calm)
    study = store.stored_plan(calm, name)
    assert isinstance(study, BatchStudy)
    assert_same(killed, calm, study)
