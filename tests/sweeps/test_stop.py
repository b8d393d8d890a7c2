"""What ends a trial: with stop=target its targets, with stop=budget the budget alone, and nothing else differs."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import analysis.__main__ as analysis_cli
from harness.run import Settings
from results import store
from results.catalog import overview
from results.checks import verify
from results.plans.batch_study import BatchStudy
from results.plans.kinds import from_plan
from results.plans.study import Target
from sweeps.study_run import run_study

EASY, HARD = Target("validation_loss", 1.2), Target("validation_loss", 0.7)


@pytest.fixture(scope="module")
def both(make_study: Callable[..., BatchStudy], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store for each value of ``stop``, of the same trials."""
    folders = {}
    for stop in ("target", "budget"):
        folders[stop] = tmp_path_factory.mktemp(stop)
        study = make_study(targets=(EASY,), trials=4, stop=stop)
        store.ask(folders[stop], study)
        run_study(folders[stop], study, Settings(lanes=2))
    return folders


def test_trial_is_equal_to_the_bit_up_to_its_target(both: dict[str, Path]) -> None:
    ended, whole = (store.read(both[stop]) for stop in ("target", "budget"))
    columns = ["trial", "seed", "learning_rate", "momentum"]
    pd.testing.assert_frame_equal(ended.trials[columns], whole.trials[columns], check_exact=True)
    keys = ["trial", "step"]
    rows = ended.measurements.drop(columns="study")
    shared = rows[keys].merge(whole.measurements.drop(columns="study"), on=keys, how="left")
    pd.testing.assert_frame_equal(rows.reset_index(drop=True), shared, check_exact=True)
    (study,) = (commit.study for commit in store.catalogue(both["budget"]))
    complete = whole.trials["status"] == "COMPLETE"
    assert set(whole.trials.loc[complete, "steps"]) == {study.budget_steps}
    reached = ended.trials.loc[ended.trials["status"] == "COMPLETE", "steps"]
    assert (reached < study.budget_steps).any()
    for folder in both.values():
        assert verify.run(folder, lambda line: None) == 0


def test_a_harder_target_is_read_from_whole_curves_alone(
    both: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    notes, answers = {}, {}
    for stop, folder in both.items():
        line = ["steps", "--store", str(folder), "--metric", HARD.metric, "--value", str(HARD.value)]
        assert analysis_cli.main(line) == 0
        told = capsys.readouterr()
        notes[stop] = "trials stopped once they had decided their targets" in told.out + told.err
        answers[stop] = overview.survey(folder).answers(HARD, set(store.names(folder)))
    assert notes == {"target": True, "budget": False}
    assert len(answers["budget"]) == 1 and answers["target"] == {}


def test_what_stops_trials_is_no_part_of_what_is_drawn(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study()
    whole = dataclasses.replace(study, stop="budget")
    assert (whole.name != study.name, whole.stream == study.stream) == (True, True)
    assert from_plan(whole.plan(), whole.trials) == whole
