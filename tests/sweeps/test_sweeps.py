"""Sweeps through the real cli, with real worker processes."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.processes import processors
from harness.run import Settings
from results import store
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from sweeps import __main__ as sweeps_cli, overrides, planning, status
from sweeps.launchers import local
from sweeps.launchers.launcher import Launch, cost
from sweeps.schema import LauncherConfig
from sweeps.study_run import run_study

from ..same import assert_same

ONE_WORKER = dataclasses.asdict(LauncherConfig(workers=1))


def run(*overrides: str) -> int:
    return sweeps_cli.main(list(overrides))


def test_the_ci_preset_and_its_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("+experiment=ci", "-m", f"store={tmp_path}")
    assert run(*line) == 0
    assert "next: python -m analysis" in capsys.readouterr().out
    tables = store.read(tmp_path)
    assert len(tables.studies) == 5
    assert len(tables.trials) == 15
    about = tables.studies.set_index("dataset").loc["pydoc"]
    assert about["backend"] == "cpu"
    assert not about["emulated"]
    assert about["device_count"] == 1
    assert about["physical_cores"] == 1
    assert about["seconds_per_epoch"] > about["seconds_per_step"] > 0
    before = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    assert run(*line) == 0
    assert "nothing to train" in capsys.readouterr().out
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == before
    assert status.main([f"store={tmp_path}"]) == 0
    total = capsys.readouterr().out.strip().splitlines()[-1].split()
    assert total == ["total", "15", "15", "0", "0", "0", "0", "0", "0", "0"]


@pytest.mark.parametrize("pruning", ["off", "exact"])
def test_trials_added_later_equal_trials_run_at_once(tmp_path: Path, pruning: str) -> None:
    for name, trials in (("grown", 16), ("grown", 32), ("at_once", 32)):
        line = ["task.budget.steps=60", f"pruning={pruning}", "batch_size=256", f"trials={trials}"]
        request = planning.request(overrides.command_line([*line, f"store={tmp_path}/{name}"]))
        (study,) = request.studies
        store.ask(request.store, study)
        assert run_study(request.store, study, request.settings).ran in (16, 32)
    assert store.read(tmp_path / "grown").studies["run"].tolist() == [1, 3]
    assert_same(tmp_path / "grown", tmp_path / "at_once")


def test_a_study_of_an_older_name_grows_in_its_folder(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    """A worker is sent the plan alone."""
    older = make_study(trials=2, budget_steps=3, digits=8)
    store.ask(tmp_path, older)
    for trials in (2, 3):
        assert run_study(tmp_path, make_study(trials=trials, budget_steps=3), Settings()).study == older.name
    assert [path.name for path in tmp_path.iterdir()] == [older.name]
    assert set(store.read(tmp_path).trials["study"]) == {older.name}
    assert store.settled_ids(tmp_path, older.name) >= {0, 1, 2}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_worker_killed_in_mid_study_changes_no_result(tmp_path: Path, children: Callable[[int], list[int]]) -> None:
    line = [
        "optimizer=sgd",
        "batch_size=2,4",
        "trials=8",
        "pruning=off",
        "task.budget.steps=12000",
        "task.targets=[]",
        "lanes=2",
        "flush_seconds=0",
        "-m",
    ]
    command = [sys.executable, "-m", "sweeps", *line, "launcher.workers=2"]
    killed = subprocess.Popen([*command, f"store={tmp_path}/killed"], stderr=subprocess.PIPE, text=True)
    while killed.poll() is None and not list((tmp_path / "killed").glob("*/part-*")):
        time.sleep(0.01)
    victims = children(killed.pid)
    assert len(victims) == 2
    for victim in victims:  # some trials are stored, others are under way
        os.kill(victim, signal.SIGKILL)
    assert not list((tmp_path / "killed").glob("*/commit-*")), "studies ended before their workers could be killed"
    _, err = killed.communicate()
    assert killed.returncode == 0, err
    subprocess.run([*command, f"store={tmp_path}/calm"], check=True, capture_output=True)
    assert_same(tmp_path / "killed", tmp_path / "calm")
    assert max(store.read(tmp_path / "killed").trials["run"]) > 1


def test_failed_study_stops_no_other_and_is_retried(
    tmp_path: Path, make_study: Callable[..., BatchStudy], capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = make_study(trials=2, budget_steps=3), make_study(trials=2, budget_steps=3, dataset="none_such")
    for study in (good, bad):
        store.ask(tmp_path, study)
    outcomes = {o.summary.study: o for o in local.run_all(ONE_WORKER, Launch(tmp_path, [bad, good], Settings()))}
    assert outcomes[good.name].failure is None
    failure = outcomes[bad.name].failure
    assert failure is not None
    assert "none_such" in failure
    trials = store.read(tmp_path, bad.name).trials
    assert trials["status"].tolist() == ["INCOMPLETE", "INCOMPLETE"]
    assert trials["reason"].tolist() == ["failed", "failed"]
    assert store.settled_ids(tmp_path, bad.name) == set()
    assert store.settled_ids(tmp_path, good.name) == {0, 1}
    assert status.main([f"store={tmp_path}"]) == 0
    assert "unfinished" in capsys.readouterr().out


def test_a_worker_that_always_dies_loses_its_study_only(
    tmp_path: Path, make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(trials=2, budget_steps=3)
    store.ask(tmp_path, study)
    # An XLA flag that does not exist makes the process abort as soon as JAX starts.
    monkeypatch.setattr(local, "slots", lambda workers, shards: [((), {"XLA_FLAGS": "--xla_no_such_flag=1"})])
    (outcome,) = local.run_all(ONE_WORKER, Launch(tmp_path, [study], Settings()))
    assert outcome.failure is not None
    assert "died 2 times" in outcome.failure
    assert store.read(tmp_path, study.name).trials["reason"].tolist() == ["lost", "lost"]
    monkeypatch.undo()
    (outcome,) = local.run_all(ONE_WORKER, Launch(tmp_path, [study], Settings()))
    assert outcome.failure is None
    assert store.read(tmp_path, study.name).trials["status"].tolist() == ["COMPLETE", "COMPLETE"]


def test_workers_have_a_core_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "accelerators", lambda: ("cpu", 0))
    monkeypatch.setattr(processors, "physical_cores", lambda: [(0, 4), (1, 5)])
    assert local.slots(None) == [((0, 4), {}), ((1, 5), {})]
    assert [cpus for cpus, _ in local.slots(3)] == [(0, 4), (1, 5), (0, 4)]
    monkeypatch.setattr(processors, "accelerators", lambda: ("gpu", 2))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [env["CUDA_VISIBLE_DEVICES"] for _, env in local.slots(None)] == ["3", "5"]
    assert [env["XLA_PYTHON_CLIENT_MEM_FRACTION"] for _, env in local.slots(4)] == ["0.450"] * 4
    assert [env["CUDA_VISIBLE_DEVICES"] for _, env in local.slots(None, 2)] == ["3,5"]
    with pytest.raises(BadInput, match=r"divided over 3 devices, but this machine has 2 GPUs. Use at most 2"):
        local.slots(None, 3)


@pytest.mark.slow
def test_shards_and_microbatches_agree_within_rounding(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    space = SearchSpace({"learning_rate": Range("LOG", 0.01, 0.1), "momentum": Range("LINEAR", 0.0, 0.5)})
    study = make_study(trials=2, budget_steps=12, batch_size=30, space=space, targets=())
    found = []
    for name, settings in (("whole", Settings()), ("divided", Settings(shards=4, microbatches=2))):
        (outcome,) = local.run_all(ONE_WORKER, Launch(tmp_path / name, [study], settings))
        assert outcome.failure is None
        found.append(store.read(tmp_path / name))
    whole, divided = found
    columns = ["device_count", "shards", "microbatches", "emulated"]
    assert whole.studies[columns].to_numpy().tolist() == [[1, 1, 1, False]]
    assert divided.studies[columns].to_numpy().tolist() == [[4, 4, 2, True]]
    assert divided.measurements["step"].tolist() == whole.measurements["step"].tolist()
    for metric in ("train_loss", "validation_loss"):
        assert np.allclose(divided.measurements[metric], whole.measurements[metric], rtol=1e-4)


def test_largest_studies_start_first_on_unclaimed_programs(
    make_study: Callable[..., BatchStudy],
) -> None:
    studies = [make_study(optimizer=o, batch_size=b) for o in ("sgd", "nesterov") for b in (64, 256)]
    queue = sorted(studies, key=cost)
    first = local._next(queue, set())
    second = local._next(queue, {local._programs(first)})
    assert (first.batch_size, second.batch_size) == (256, 64)
    assert local._next(queue, {local._programs(s) for s in (first, second)}).batch_size == 256
