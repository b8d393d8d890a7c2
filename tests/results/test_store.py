import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import search
from harness.engine import Record
from harness.frontier import Ended
from results import schema, store
from results.bad_input import BadInput
from results.study import Study
from sweeps import run


def tables(study: Study, ids: list[int], ended: Ended, loss: float = 1.0) -> dict[str, pa.Table]:
    """A run of two evaluations per trial, as the engine would have recorded it."""
    trial = np.repeat(np.array(ids, np.int32), 2)
    record = Record(
        ended=dict.fromkeys(ids, ended),
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
    )
    return run.tables(study, search.draw(study, ids), record, {})


def test_runs_add_up_and_come_back(tmp_path: Path, make_study: Callable[..., Study]) -> None:
    study = make_study(trials=4)
    store.ask(tmp_path, study)
    assert store.missing(tmp_path, study) == [0, 1, 2, 3]
    store.publish(tmp_path, study.name, tables(study, [0, 2], Ended("COMPLETE", None, 2)))
    assert store.missing(tmp_path, study) == [1, 3]
    store.publish(tmp_path, study.name, tables(study, [1, 3], Ended("INFEASIBLE", None, 2)))
    read = store.read(tmp_path)
    assert read.trials["trial"].tolist() == [0, 1, 2, 3]
    assert read.trials["status"].tolist() == ["COMPLETE", "INFEASIBLE"] * 2
    assert read.measurements["step"].tolist() == [1, 2] * 4
    assert read.measurements["validation_loss"].dtype == np.float32
    assert read.studies["run"].tolist() == [1, 2]
    drawn = [trial.metaparameters["learning_rate"] for trial in search.draw(study, range(4))]
    assert read.trials["learning_rate"].tolist() == drawn


def test_a_trial_that_ran_out_of_time_is_wanted_again_and_then_replaced(
    tmp_path: Path, make_study: Callable[..., Study]
) -> None:
    study = make_study(trials=2)
    store.ask(tmp_path, study)
    store.publish(tmp_path, study.name, tables(study, [0, 1], Ended("INCOMPLETE", "time_limit", 2), loss=9.0))
    assert store.missing(tmp_path, study) == [0, 1]
    store.publish(tmp_path, study.name, tables(study, [1], Ended("COMPLETE", None, 2), loss=0.5))
    assert store.missing(tmp_path, study) == [0]
    read = store.read(tmp_path)
    assert read.trials["status"].tolist() == ["INCOMPLETE", "COMPLETE"]
    assert read.measurements["validation_loss"].tolist() == [9.0, 9.0, 0.5, 0.5]


def test_a_run_is_visible_whole_or_not_at_all(
    tmp_path: Path, make_study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(trials=2)
    store.ask(tmp_path, study)
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError("killed here")))
    with pytest.raises(OSError, match="killed here"):
        store.publish(tmp_path, study.name, tables(study, [0, 1], Ended("COMPLETE", None, 2)))
    monkeypatch.setattr(os, "rename", rename)
    assert store.missing(tmp_path, study) == [0, 1]
    assert not list((tmp_path / study.name).glob(".run-*"))
    (tmp_path / study.name / ".run-left-by-a-kill").mkdir()
    assert store.missing(tmp_path, study) == [0, 1]


def test_asking_for_more_trials_keeps_the_plan(tmp_path: Path, make_study: Callable[..., Study]) -> None:
    for trials in (4, 12, 8):
        store.ask(tmp_path, make_study(trials=trials))
    name = make_study().name
    assert store.names(tmp_path) == [name]
    assert store.planned(tmp_path, name) == make_study(trials=12)


def test_the_same_name_with_another_plan_is_refused(tmp_path: Path, make_study: Callable[..., Study]) -> None:
    study = make_study()
    store.ask(tmp_path, study)
    (path,) = (tmp_path / study.name).glob("plan-*.json")
    record = json.loads(path.read_text())
    record["plan"]["budget_steps"] = 7
    path.write_text(json.dumps(record))
    with pytest.raises(BadInput, match=r"budget_steps: stored 7, asked 150"):
        store.ask(tmp_path, study)


def test_a_newer_schema_is_refused(tmp_path: Path, make_study: Callable[..., Study]) -> None:
    study = make_study(trials=1)
    store.ask(tmp_path, study)
    folder = store.publish(tmp_path, study.name, tables(study, [0], Ended("COMPLETE", None, 2)))
    table = pq.read_table(folder / "trials.parquet")
    newer = {**table.schema.metadata, schema.VERSION_KEY: b"99"}
    pq.write_table(table.replace_schema_metadata(newer), folder / "trials.parquet")
    for read in (store.read, store.check_schema):
        with pytest.raises(BadInput, match="schema 99"):
            read(tmp_path)


def test_every_column_has_a_meaning_and_every_metaparameter_its_own_name() -> None:
    for columns in (schema.STUDIES, schema.TRIALS, schema.MEASUREMENTS):
        assert all(column.meaning for column in columns)
        assert len({column.name for column in columns}) == len(columns)
