"""The best trials of a study, run again on fresh seeds, through the commands of a sweep."""

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from harness.run import Settings
from results import store
from results.checks import verify
from results.plans.batch_study import BatchStudy
from results.plans.study import Target
from results.rules.confirmation import APART
from sweeps import __main__ as sweeps_cli, overrides, plan, planning, status
from sweeps.study_run import record_failure, run_study

FEW = Settings(lanes=3)
SEED = 4  # with which the best of twelve trials is not among the first four
TARGETS = (Target("validation_loss", 0.6), Target("validation_error", 0.12))


@pytest.fixture
def study(make_study: Callable[..., BatchStudy]) -> BatchStudy:
    return make_study(targets=TARGETS, trials=6, confirm=3, budget_steps=60)


def ran(folder: Path, study: BatchStudy, settings: Settings = FEW) -> int:
    store.ask(folder, study)
    return run_study(folder, study, settings).ran


def assert_same(one: Path, other: Path) -> list[int]:
    """Compares what is asked for in two stores; the extra repeats of the first."""
    a, b = store.read(one), store.read(other)
    extra = a.trials.loc[a.trials["role"] == "extra", "trial"].tolist()
    asked = a.trials[~a.trials["trial"].isin(extra)].reset_index(drop=True)
    measured = a.measurements[~a.measurements["trial"].isin(extra)].reset_index(drop=True)
    pd.testing.assert_frame_equal(asked.drop(columns="run"), b.trials.drop(columns="run"), check_exact=True)
    pd.testing.assert_frame_equal(measured, b.measurements, check_exact=True)
    assert "confirm" in asked["role"].tolist()
    return extra


def test_best_trial_is_rerun_with_its_metaparameters(tmp_path: Path, study: BatchStudy) -> None:
    assert ran(tmp_path, study) == 9
    trials = store.read(tmp_path).trials.set_index("trial")
    repeats = trials[trials["role"] == "confirm"]
    (best,) = set(repeats.index % APART)
    assert repeats.index.tolist() == [APART + best, 2 * APART + best, 3 * APART + best]
    for name in study.space:
        assert set(repeats[name]) == {trials.loc[best, name]}
    assert trials["seed"].nunique() == 9
    assert (trials["run"] == 1).all()
    (commit,) = store.catalogue(tmp_path)
    assert commit.ledger.adds_up and commit.ledger.planned == 9
    assert verify.run(tmp_path, lambda line: None) == 0
    assert ran(tmp_path, study) == 0


def test_pruning_changes_no_confirmed_trial_and_no_repeat(tmp_path: Path, study: BatchStudy) -> None:
    found = {}
    for pruning in ("off", "exact"):
        ran(tmp_path / pruning, dataclasses.replace(study, pruning=pruning))
        tables = store.read(tmp_path / pruning)
        repeats = tables.trials[tables.trials["role"] == "confirm"].drop(columns=["study", "run"])
        rows = tables.measurements[tables.measurements["trial"] >= APART].drop(columns="study")
        found[pruning] = [repeats.reset_index(drop=True), rows.reset_index(drop=True)]
        assert set(repeats["status"]) <= {"COMPLETE", "INFEASIBLE"}
    for off, exact in zip(found["off"], found["exact"], strict=True):
        pd.testing.assert_frame_equal(off, exact, check_exact=True)


@pytest.mark.parametrize("pruning", ["off", "exact"])
def test_growth_interruptions_and_lanes_change_nothing(tmp_path: Path, study: BatchStudy, pruning: str) -> None:
    study = dataclasses.replace(study, pruning=pruning, trials=12, seed=SEED)
    ran(tmp_path / "at_once", study)
    grown = tmp_path / "grown"
    assert ran(grown, dataclasses.replace(study, trials=4, confirm=0)) == 4
    assert ran(grown, dataclasses.replace(study, trials=4, confirm=1)) == 1  # only what is missing
    assert ran(grown, dataclasses.replace(study, trials=4, confirm=2)) == 1
    before = [at for at in store.settled_ids(grown, study.name) if at >= APART]
    assert ran(grown, study, Settings(lanes=1, time_limit_seconds=1e-6)) == 8  # in the midst of the search
    assert record_failure(grown, study, "lost").ran > 0
    assert "lost" in store.read(grown).trials["reason"].tolist()
    ran(grown, study, Settings(lanes=1))
    extra = assert_same(grown, tmp_path / "at_once")
    assert extra == sorted(before), "repeats of the best of four trials"
    (commit,) = store.catalogue(grown)
    assert commit.ledger.adds_up and commit.ledger.missing == 0
    assert verify.run(grown, lambda line: None) == 0


def test_repeats_that_were_lost_are_run_again(tmp_path: Path, study: BatchStudy) -> None:
    ran(tmp_path / "calm", study)
    ran(tmp_path / "lost", dataclasses.replace(study, confirm=0))
    store.ask(tmp_path / "lost", study)
    assert record_failure(tmp_path / "lost", study, "failed").ran == 3
    trials = store.read(tmp_path / "lost").trials
    assert trials["reason"].tolist()[6:] == ["failed"] * 3
    assert ran(tmp_path / "lost", study, Settings(time_limit_seconds=1e-6)) == 3
    assert ran(tmp_path / "lost", study) in (1, 2, 3)  # a short one may end within its first round
    assert assert_same(tmp_path / "lost", tmp_path / "calm") == []


DYING = """
import json, os, signal, sys
from pathlib import Path
from harness.run import Settings
from results.plans.trial_request import TrialRequest, Repeats
from results.plans.batch_study import BatchStudy
from sweeps.study_run import run_study

def told(progress):
    if progress.trials_ended == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

study = BatchStudy.from_plan(json.loads(sys.argv[2]), TrialRequest(6, Repeats(confirm=int(sys.argv[3]))))
run_study(Path(sys.argv[1]), study, Settings(lanes=1, flush_seconds=0), told)
"""


def test_a_process_killed_among_the_repeats_changes_no_result(tmp_path: Path, study: BatchStudy) -> None:
    ran(tmp_path / "calm", study)
    store.ask(tmp_path / "killed", study)
    command = [sys.executable, "-c", DYING, str(tmp_path / "killed"), study.plan_json, "3", "8"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert store.catalogue(tmp_path / "killed") == []
    assert store.progress(tmp_path / "killed", study).to_run in (1, 2)  # the eighth may not have been stored
    assert ran(tmp_path / "killed", study) in (1, 2)
    assert_same(tmp_path / "killed", tmp_path / "calm")


@pytest.mark.slow
def test_the_commands_count_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["task=digits_fc", "optimizer=sgd", "batch_size=256", "trials=4", "task.budget.steps=40"]
    line += ["launcher.workers=1", f"store={tmp_path}"]
    assert plan.main([*line, "confirm=2"]) == 0
    assert "6 trials to run" in capsys.readouterr().out
    assert sweeps_cli.main(line) == 0
    assert sweeps_cli.main([*line, "confirm=2"]) == 0
    assert "1 study, 2 trials to run (4 trials already stored)" in capsys.readouterr().err
    assert sweeps_cli.main([*line, "confirm=2"]) == 0
    assert "nothing to train" in capsys.readouterr().out
    assert status.main([f"store={tmp_path}"]) == 0
    (row,) = [text.split() for text in capsys.readouterr().out.splitlines() if text.startswith("digits")]
    assert row[1:4] == ["done", "examples", "6"]


def test_a_study_asked_for_twice_has_the_most_repeats() -> None:
    (study,) = planning.request(overrides.command_line(["confirm=1,3,2", "-m"])).studies
    assert isinstance(study, BatchStudy) and study.confirm == 3


@pytest.mark.parametrize(
    ("line", "top"),
    [
        ("confirm=4", 1),
        ("confirm=4 pruning=off", 5),
        ("confirm=4 pruning=off confirm_top=2", 2),
        ("pruning=off", 1),
    ],
)
def test_candidates_are_five_where_whole_curves_tell_them(line: str, top: int) -> None:
    (study,) = planning.request(overrides.command_line(line.split())).studies
    assert isinstance(study, BatchStudy) and study.confirm_top == top


@pytest.mark.slow
def test_a_contest_of_candidates_is_the_same_however_it_ran(tmp_path: Path, study: BatchStudy) -> None:
    contest = dataclasses.replace(study, pruning="off", confirm=4, confirm_top=3)
    assert ran(tmp_path / "at_once", contest, Settings(lanes=32)) == 6 + 3 * 2 + 2
    trials = store.read(tmp_path / "at_once").trials
    repeats = trials.loc[trials["role"] == "confirm", "trial"]
    assert sorted((repeats // APART).tolist()) == [1, 1, 1, 2, 2, 2, 3, 4]
    assert len(set(repeats % APART)) == 3
    assert trials["seed"].nunique() == len(trials)
    slow = tmp_path / "slow"
    ran(slow, contest, Settings(lanes=1, time_limit_seconds=1e-6))
    ran(slow, dataclasses.replace(contest, confirm=0), Settings(lanes=2))
    ran(slow, contest, Settings(lanes=1, time_limit_seconds=1e-6))  # in the midst of the choosing ones
    assert record_failure(slow, contest, "lost").ran > 0
    ran(slow, contest, Settings(lanes=1))
    assert_same(slow, tmp_path / "at_once")
    for folder in (slow, tmp_path / "at_once"):
        (commit,) = store.catalogue(folder)
        assert commit.ledger.adds_up and not commit.ledger.unfinished
        assert verify.run(folder, lambda line: None) == 0
