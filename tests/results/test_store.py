import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.run import Record
from harness.trials import search
from harness.trials.scheduler import TrialOutcome
from results import durable, store
from results.bad_input import BadInput
from results.catalog import contents
from results.durable import Damaged
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.factorization import METAPARAMETERS
from results.rules.ledger import Ledger
from results.storage.claims import Claim, TakenOver
from sweeps import study_run
from workloads import registry
from workloads.optimizers import TUNED_DECAY


def tables(study: BatchStudy, ids: list[int], ended: TrialOutcome, loss: float = 1.0) -> dict[str, pa.Table]:
    """A run of two evaluations per trial, as the engine would have recorded it."""
    trial = np.repeat(np.array(ids, np.int32), 2)
    record = Record(
        trials=search.draw(study, ids),
        outcomes=dict.fromkeys(ids, ended),
        trial=trial,
        step=np.tile(np.array([1, 2], np.int32), len(ids)),
        metrics={"validation_loss": np.full(len(trial), loss, np.float32)},
        lanes=1,
        lane_strategy="map",
        compile_seconds=0.0,
        train_seconds=1.0,
        evaluate_seconds=1.0,
        run_seconds=2.0,
        trial_steps=2 * len(ids),
        steps_per_epoch=None,
    )
    return study_run.tables(study, record, {})


def run_and_commit(folder: Path, study: BatchStudy, ids: list[int], ended: TrialOutcome, loss: float = 1.0) -> None:
    with store.claim(folder, study.name) as claim:
        claim.write(tables(study, ids, ended, loss))
        claim.commit(study)


def test_runs_add_up_and_come_back(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(trials=4)
    store.ask(tmp_path, study)
    assert store.settled_ids(tmp_path, study.name) == set()
    run_and_commit(tmp_path, study, [0, 2], TrialOutcome("COMPLETE", None, 2))
    assert store.settled_ids(tmp_path, study.name) == {0, 2}
    run_and_commit(tmp_path, study, [1, 3], TrialOutcome("INFEASIBLE", None, 2))
    read = store.read(tmp_path)
    assert read.trials["trial"].tolist() == [0, 1, 2, 3]
    assert read.trials["run"].tolist() == [1, 3, 1, 3]
    assert read.trials["status"].tolist() == ["COMPLETE", "INFEASIBLE"] * 2
    assert read.measurements["step"].tolist() == [1, 2] * 4
    assert read.measurements["validation_loss"].dtype == np.float32
    assert read.studies["run"].tolist() == [1, 3]
    drawn = [trial.metaparameters["learning_rate"] for trial in search.draw(study, range(4))]
    assert read.trials["learning_rate"].tolist() == drawn


def test_timed_out_trial_is_requested_again_and_replaced(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(trials=2)
    store.ask(tmp_path, study)
    run_and_commit(tmp_path, study, [0, 1], TrialOutcome("INCOMPLETE", "time_limit", 2), loss=9.0)
    assert store.settled_ids(tmp_path, study.name) == set()
    run_and_commit(tmp_path, study, [1], TrialOutcome("COMPLETE", None, 2), loss=0.5)
    assert store.settled_ids(tmp_path, study.name) == {1}
    read = store.read(tmp_path)
    assert read.trials["status"].tolist() == ["INCOMPLETE", "COMPLETE"]
    assert read.measurements["validation_loss"].tolist() == [9.0, 9.0, 0.5, 0.5]


def test_parts_are_seen_by_readers_once_committed(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(trials=3)
    store.ask(tmp_path, study)
    with store.claim(tmp_path, study.name) as claim:
        claim.write(tables(study, [2], TrialOutcome("COMPLETE", None, 2)))
    assert store.catalogue(tmp_path) == []
    assert len(store.read(tmp_path).trials) == 0
    assert store.progress(tmp_path, study) == (False, Ledger(3, 1, 0, 0, 0, 0, 0, 0, 2), 2)
    assert store.settled_ids(tmp_path, study.name) == {2}
    with store.claim(tmp_path, study.name) as claim:
        assert claim.settled == {2}
        claim.write(tables(study, [0, 1], TrialOutcome("COMPLETE", None, 2)))
        claim.commit(study)
        assert claim.visible
    assert store.read(tmp_path).trials["trial"].tolist() == [0, 1, 2]
    (commit,) = store.catalogue(tmp_path)
    assert commit.ledger == Ledger(3, 3, 0, 0, 0, 0, 0, 0, 0)
    assert commit.study == study


def test_a_study_claimed_by_another_is_given_up(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(trials=2)
    store.ask(tmp_path, study)
    slow, quick = Claim(tmp_path, study.name), Claim(tmp_path, study.name)
    slow.write(tables(study, [0], TrialOutcome("COMPLETE", None, 2)))
    with pytest.raises(TakenOver, match=f"{study.name} was taken over by process {os.getpid()}"):
        quick.write(tables(study, [0], TrialOutcome("COMPLETE", None, 2)))


def test_asking_for_more_trials_keeps_the_plan(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    for trials in (4, 12, 8):
        store.ask(tmp_path, make_study(trials=trials))
    name = make_study().name
    assert store.names(tmp_path) == [name]
    assert store.stored_plan(tmp_path, name) == make_study(trials=12)


def test_the_same_name_with_another_plan_is_refused(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study = make_study()
    store.ask(tmp_path, study)
    (path,) = (tmp_path / study.name).glob("plan-*.json")
    record = durable.unseal(path.read_bytes(), path)
    record["plan"]["budget_steps"] = 7
    path.write_bytes(durable.seal(record))
    with pytest.raises(BadInput, match=r"budget_steps: stored 7, asked 150"):
        store.ask(tmp_path, study)


def test_a_lock_empties_nothing_and_follows_no_link(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study, precious = make_study(trials=2), tmp_path / "precious"
    precious.write_text("what nobody has twice")
    lock = tmp_path / "store" / study.name / ".lock"
    store.ask(tmp_path / "store", study)
    lock.write_text("a note")
    run_and_commit(tmp_path / "store", study, [0], TrialOutcome("COMPLETE", None, 2))
    assert lock.read_text() == "a note"
    for make in (lambda: lock.symlink_to(precious), lambda: lock.symlink_to("nowhere"), lambda: os.mkfifo(lock)):
        lock.unlink()
        make()
        with pytest.raises(Damaged, match="Remove it"), store.lock(tmp_path / "store", study.name):
            pass
    assert precious.read_text() == "what nobody has twice"
    assert not (lock.parent / "nowhere").exists()
    with pytest.raises(Damaged, match="Remove it"):
        store.is_running(tmp_path / "store", study.name)


def test_a_plan_that_is_no_file_is_damage(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study = make_study()
    store.ask(tmp_path, study)
    (path,) = (tmp_path / study.name).glob("plan-*.json")
    path.unlink()
    path.mkdir()
    with pytest.raises(Damaged, match="is not a regular file"):
        store.stored_plan(tmp_path, study.name)


@pytest.mark.parametrize("asked", [1, 2], ids=["finished", "unfinished"])
def test_progress_notices_every_changed_byte_of_trials(
    tmp_path: Path, make_study: Callable[..., BatchStudy], asked: int
) -> None:
    study = make_study(trials=1)
    store.ask(tmp_path, study)
    run_and_commit(tmp_path, study, [0], TrialOutcome("COMPLETE", None, 2))
    study = make_study(trials=asked)
    (path,) = (tmp_path / study.name).glob("trials-*.parquet")
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(Damaged, match=r"trials-.* is not what was written"):
            store.progress(tmp_path, study)
    path.write_bytes(whole[:-1])
    with pytest.raises(Damaged, match=r"trials-.* is not what was written"):
        store.progress(tmp_path, study)
    path.unlink()
    with pytest.raises(Damaged, match=r"trials-.* is missing"):
        store.progress(tmp_path, study)
    path.write_bytes(whole)
    missing = asked - 1
    assert store.progress(tmp_path, study) == (True, Ledger(asked, 1, 0, 0, 0, 0, 0, 0, missing), missing)


def test_a_newer_schema_is_refused(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(trials=1)
    store.ask(tmp_path, study)
    run_and_commit(tmp_path, study, [0], TrialOutcome("COMPLETE", None, 2))
    (path,) = (tmp_path / study.name).glob("commit-*.json")
    record = durable.unseal(path.read_bytes(), path)
    path.write_bytes(durable.seal(record | {"schema": 99}))
    for read in (store.read, store.check_is_store):
        with pytest.raises(BadInput, match="schema 99"):
            read(tmp_path)


def test_every_column_has_a_meaning_and_a_distinct_name() -> None:
    for columns in (schema.STUDIES, schema.TRIALS, schema.MEASUREMENTS):
        assert all(column.meaning for column in columns)
        assert len({column.name for column in columns}) == len(columns)


def test_every_metaparameter_has_its_own_meaning() -> None:
    tuned = {name for optimizer in registry.OPTIMIZERS.values() for name in (*optimizer.tuned, *optimizer.defaults)}
    tuned = {*tuned - {"nesterov"}, *TUNED_DECAY, *METAPARAMETERS, "label_smoothing"}
    assert contents.METAPARAMETERS.keys() == tuned
    assert len(set(contents.METAPARAMETERS.values())) == len(tuned)
    chosen = contents._meaning("b1", {"lamb", "adam"}, contents.POINTS)
    assert chosen.startswith("metaparameter of the selected trial: ") and chosen.endswith("Used by adam and lamb")
    assert "range in the study's plan" in contents._meaning("b1", {"adam"}, "trials")


def test_study_keeps_the_older_name_of_its_folder(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    study, older = make_study(), make_study(digits=8)
    assert store.with_stored_name(tmp_path, study) == study
    store.ask(tmp_path, older)
    assert store.with_stored_name(tmp_path, study) == store.with_stored_name(tmp_path, older) == older
    store.ask(tmp_path, store.with_stored_name(tmp_path, make_study(trials=99)))
    assert store.names(tmp_path) == [older.name]
    assert store.stored_plan(tmp_path, older.name) == make_study(trials=99, digits=8)
    other = make_study(seed=1)
    assert store.with_stored_name(tmp_path, other) == other


def test_an_older_name_of_another_plan_is_not_taken(
    tmp_path: Path, make_study: Callable[..., BatchStudy], colliding_seeds: Callable[[BatchStudy], tuple[int, int]]
) -> None:
    one, two = (make_study(seed=seed) for seed in colliding_seeds(make_study()))
    older = dataclasses.replace(one, digits=8)
    store.ask(tmp_path, older)
    assert older.name == dataclasses.replace(two, digits=8).name
    assert store.with_stored_name(tmp_path, one) == older
    for asked in (two, dataclasses.replace(two, digits=8)):
        assert store.with_stored_name(tmp_path, asked) == two
