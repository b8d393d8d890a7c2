import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from results import store
from results.bad_input import BadInput
from results.catalog import overview, scan
from results.checks import verify
from results.durable import Damaged
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.release import merge, release
from results.rules import answers
from results.storage import migrations

Stored = Callable[[str], Path]
COLUMNS = {"studies": schema.STUDIES, "trials": schema.TRIALS, "measurements": schema.MEASUREMENTS}
OLDER = range(1, schema.SCHEMA_VERSION)


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("name", COLUMNS)
def test_an_older_table_has_todays_columns_and_its_own_values(version: int, name: str, stored: Stored) -> None:
    paths = [path for path in stored(f"schema-{version}").rglob("*.parquet") if path.stem.split("-")[0] == name]
    assert paths, "files of every older version are kept to test with"
    for path in paths:
        old = pq.read_table(path)
        new = migrations.upgrade(name, old, path)
        assert schema.version(new.schema) == schema.SCHEMA_VERSION
        columns = COLUMNS[name]
        assert [(f.name, f.type) for f in list(new.schema)[: len(columns)]] == [(c.name, c.type) for c in columns]
        assert new.select(old.column_names).equals(old)


def test_a_store_of_schema_1_comes_out_with_the_same_values(tmp_path: Path, stored: Stored) -> None:
    old = stored("schema-1")
    (name,) = migrations.studies_of_1(old)
    raw = {
        table: [pq.read_table(old / name / run / f"{table}.parquet") for run in ("000001", "000003")]
        for table in COLUMNS
    }
    lines: list[str] = []
    assert merge.merge([old], tmp_path, lines.append) == 0
    assert lines == [f"{tmp_path}: studies: 1 new, 0 grown, 0 already there"]
    found = store.read(tmp_path)
    # Run 2 ended trial 2 as lost; run 3 ran it again. The runs keep their numbers, and what became of each is kept.
    assert found.trials["trial"].tolist() == [0, 1, 2]
    assert found.trials["run"].tolist() == [1, 1, 3]
    assert found.studies["run"].tolist() == [1, 2, 3]
    for table in ("trials", "measurements"):
        frames = [each.to_pandas() for each in raw[table]]
        expected = pd.concat(frames, ignore_index=True).assign(study=name)
        own = getattr(found, table)[expected.columns]
        pd.testing.assert_frame_equal(own, expected, check_dtype=False)
    assert found.measurements["validation_loss"].dtype == "float32"
    (commit,) = store.catalogue(tmp_path)
    assert commit.ledger.adds_up and (commit.ledger.planned, commit.ledger.complete) == (3, 3)
    assert verify.run(tmp_path, lambda line: None) == 0
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert merge.merge([old], tmp_path, lines.append) == 0
    assert lines[1] == f"{tmp_path}: studies: 0 new, 0 grown, 1 already there"
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_store_of_schema_2_is_read_and_grown_as_one_of_today(tmp_path: Path, stored: Stored) -> None:
    """Its three committed trials, and two in a part that no commit lists yet, are all of the search."""
    folder = tmp_path / "store"
    shutil.copytree(stored("schema-2"), folder)
    (name,) = store.names(folder)
    study = store.stored_plan(folder, name)
    assert isinstance(study, BatchStudy) and (study.trials, study.confirm) == (5, 0)
    assert store.read(folder).trials["role"].tolist() == ["search"] * 3
    assert verify.run(folder, lambda line: None) == 0
    found = overview.survey(folder)
    assert list(found.envelopes) == [name], "an envelope of schema 2 says what one of today says"
    (answer,) = found.answers(study.targets[0], {name}).values()
    assert answer == answers.best(scan.intervals(store.catalogue(folder), study.targets[0]))[name]
    asked = dataclasses.replace(study, confirm=2)
    assert store.progress(folder, asked).to_run == 2
    store.ask(folder, asked)
    with store.claim(folder, name) as claim:
        claim.commit(asked)
    assert store.read(folder).trials["role"].tolist() == ["search"] * 5
    (commit,) = store.catalogue(folder)
    assert (commit.ledger.planned, commit.ledger.complete, commit.ledger.missing) == (7, 5, 2)
    assert verify.run(folder, lambda line: None) == 0


def test_a_study_of_schema_2_is_copied_byte_for_byte_and_exported_value_for_value(
    tmp_path: Path, same_values: Callable[[Path, Path], None], stored: Stored
) -> None:
    old = stored("schema-2")
    assert merge.merge([old], tmp_path / "store", lambda line: None) == 0
    assert release.export(old, tmp_path / "release", lambda line: None) == 0
    for folder in (tmp_path / "store", tmp_path / "release"):
        assert verify.run(folder, lambda line: None) == 0
        same_values(folder, old)
    (ours,), (theirs,) = store.catalogue(tmp_path / "store"), store.catalogue(old)
    assert {t: f.sha256 for t, f in ours.files.items()} == {t: f.sha256 for t, f in theirs.files.items()}


def test_older_runs_come_to_a_study_that_has_grown_since(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Callable[..., None], stored: Stored
) -> None:
    old = stored("schema-1")
    study = migrations.plan_of_1(old, *migrations.studies_of_1(old))
    fill(tmp_path, study, [2], reason="lost")
    assert merge.merge([old], tmp_path, lambda line: None) == 0
    trials = store.read(tmp_path).trials
    assert trials["status"].tolist() == ["COMPLETE"] * 3
    assert store.read(tmp_path).measurements["trial"].value_counts().to_dict() == {0: 10, 1: 8, 2: 10}


def test_a_store_of_schema_1_is_not_read_as_one_of_today(tmp_path: Path, stored: Stored) -> None:
    old = stored("schema-1")
    for read in (store.read, store.catalogue, store.check_is_store):
        with pytest.raises(BadInput, match="has schema 1, without hashes; convert it with `python -m results merge"):
            read(old)
    with pytest.raises(BadInput, match="has schema 1"):
        merge.merge([old], old, lambda line: None)


def with_version(table: pa.Table, version: bytes) -> pa.Table:
    return table.replace_schema_metadata({schema.VERSION_KEY: version})


@pytest.mark.parametrize(
    ("version", "words"),
    [(b"99", "has schema 99"), (b"0", "not a table"), (b"-1", "not a table"), (b"x", "not a table")],
)
def test_a_table_of_another_kind_is_refused(version: bytes, words: str, stored: Stored) -> None:
    table = pq.read_table(next(stored("schema-1").rglob("*.parquet")))
    with pytest.raises(BadInput, match=words):
        migrations.upgrade("trials", with_version(table, version), Path("trials.parquet"))
    with pytest.raises(Damaged, match="not a table"):
        migrations.upgrade("trials", table.replace_schema_metadata(None), Path("trials.parquet"))


def _plan(folder: Path, text: str) -> None:
    (folder / "plan-000000003.json").write_text(text)


def _edit_plan(folder: Path, **changes: object) -> None:
    record = json.loads((folder / "plan-000000003.json").read_text())
    _plan(folder, json.dumps(record | {"plan": record["plan"] | changes}))


BROKEN: list[tuple[str, Callable[[Path], object]]] = [
    ("a plan cut short", lambda f: _plan(f, '{"plan": {')),
    ("a plan of nothing", lambda f: _plan(f, "[]")),
    ("a nested plan", lambda f: _plan(f, "[" * 100_000)),
    ("a plan of another study", lambda f: _edit_plan(f, seed=7)),
    ("a plan with a space of nothing", lambda f: _edit_plan(f, space=[1])),
    ("no plan", lambda f: [path.unlink() for path in f.glob("plan-*")]),
    ("a table cut short", lambda f: (f / "000001/trials.parquet").write_bytes(b"PAR1")),
    ("a table missing", lambda f: (f / "000001/measurements.parquet").unlink()),
    ("a folder for a table", lambda f: [(f / "000001/trials.parquet").unlink(), (f / "000001/trials.parquet").mkdir()]),
    ("a table of another", lambda f: shutil.copy(f / "000001/studies.parquet", f / "000001/measurements.parquet")),
    (
        "a newer table",
        lambda f: pq.write_table(
            with_version(pq.read_table(f / "000003/trials.parquet"), b"99"), f / "000003/trials.parquet"
        ),
    ),
    (
        "rows twice",
        lambda f: pq.write_table(
            pa.concat_tables([pq.read_table(f / "000001/trials.parquet")] * 2), f / "000001/trials.parquet"
        ),
    ),
    (
        "no column trial",
        lambda f: pq.write_table(
            pq.read_table(f / "000001/measurements.parquet").drop_columns(["trial"]), f / "000001/measurements.parquet"
        ),
    ),
]


@pytest.mark.parametrize(("what", "break_it"), BROKEN, ids=[what for what, _ in BROKEN])
def test_a_broken_store_of_schema_1_is_refused_in_a_line(
    what: str, break_it: Callable[[Path], object], tmp_path: Path, stored: Stored
) -> None:
    shutil.copytree(stored("schema-1"), tmp_path / "old")
    (folder,) = (tmp_path / "old").iterdir()
    break_it(folder)
    with pytest.raises(BadInput) as refused:
        merge.merge([tmp_path / "old"], tmp_path / "store", lambda line: None)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "store").exists()
