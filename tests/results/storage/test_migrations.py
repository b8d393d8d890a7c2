"""Stores, releases and plans of 0.1 are refused in one line, which names the version that reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import results.__main__ as cli
from results import durable, store
from results.bad_input import LAST_READER, BadInput, TooOld
from results.catalog import overview
from results.durable import Damaged
from results.plans import kinds, schema
from results.plans.batch_study import BatchStudy
from results.release import release
from results.storage import migrations

READS = f"scaling-limits {LAST_READER} is the last version that reads it."


def with_version(version: bytes) -> pa.Table:
    return schema.build(schema.TRIALS, {}, {}).replace_schema_metadata({schema.VERSION_KEY: version})


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (b"99", "has schema 99, but this software reads up to 5. Upgrade it."),
        (b"0", "not a table"),
        (b"-1", "not a table"),
        (b"x", "not a table"),
        *((str(n).encode(), f"has schema {n}, which scaling-limits 0.1 wrote. {READS}") for n in (1, 2, 3)),
    ],
)
def test_a_table_of_another_kind_is_refused(version: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        migrations.upgrade("trials", with_version(version), Path("trials.parquet"))
    with pytest.raises(Damaged, match="not a table"):
        migrations.upgrade("trials", with_version(version).replace_schema_metadata(None), Path("trials.parquet"))


def test_a_table_of_today_stays_as_it_is() -> None:
    table = schema.build(schema.TRIALS, {}, {})
    assert migrations.upgrade("trials", table, "trials.parquet") is table


def _of_schema_1(folder: Path) -> None:
    run = folder / "digits-x" / "000001"
    run.mkdir(parents=True)
    (run / "studies.parquet").touch()
    (run.parent / "plan-000000003.json").write_text("{}")


def _reseal(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = durable.read_sealed(path, durable.LIST_BYTES)
    change(record)
    path.write_bytes(durable.seal(record))


def _refused(command: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err and captured.err.count("\n") == 1


def _everywhere(folder: Path, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command refuses it in one line, and every reader."""
    other = folder.parent / "other"
    for command in (
        ["verify", "--store", str(folder)],
        ["merge", str(folder), "--store", str(other)],
        ["export", "--store", str(folder), "--out", str(other)],
    ):
        _refused(command, f"{words}. {READS}", capsys)
    for read in (store.read, store.catalogue, overview.survey):
        with pytest.raises(TooOld, match=words):
            read(folder)


def test_a_store_of_schema_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _of_schema_1(tmp_path / "store")
    words = "is a store of schema 1, without hashes"
    _everywhere(tmp_path / "store", words, capsys)
    _refused(["repair", "--store", str(tmp_path / "store")], words, capsys)
    for check in (store.check_is_store, store.names):
        with pytest.raises(TooOld, match=words):
            check(tmp_path / "store")


@pytest.mark.parametrize("older", range(1, schema.OLDEST_SCHEMA))
def test_a_store_of_an_older_schema(
    older: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make_study: Callable[..., BatchStudy],
    fill: Callable[..., None],
) -> None:
    study = make_study(trials=1)
    fill(tmp_path / "store", study)
    (path,) = (tmp_path / "store" / study.name).glob("commit-*.json")
    _reseal(path, lambda record: record.update(schema=older))
    next(path.parent.glob("envelope-*")).unlink()  # one of an older schema is not read
    words = f"has schema {older}, which scaling-limits 0.1 wrote"
    _everywhere(tmp_path / "store", words, capsys)
    _refused(["repair", "--store", str(tmp_path / "store")], words, capsys)


def test_a_plan_of_0_1(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make_study: Callable[..., BatchStudy],
    fill: Callable[..., None],
) -> None:
    plan = make_study().plan() | {"comparable": "0.1"}
    with pytest.raises(TooOld, match=f"is a study of scaling-limits 0.1. {READS}"):
        kinds.from_plan(plan, 3)
    study = make_study(trials=1)
    fill(tmp_path / "store", study)
    (path,) = (tmp_path / "store" / study.name).glob("plan-*.json")
    _reseal(path, lambda record: record.update(plan=plan))
    _refused(["verify", "--store", str(tmp_path / "store")], "is a study of scaling-limits 0.1", capsys)


def test_a_release_of_0_1(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make_study: Callable[..., BatchStudy],
    fill: Callable[..., None],
) -> None:
    fill(tmp_path / "made", make_study(trials=1))
    assert release.export(tmp_path / "made", tmp_path / "release", lambda line: None) == 0
    _reseal(tmp_path / "release" / "manifest.json", lambda record: record.pop("files"))
    words = "is a release of scaling-limits 0.1, in which each study has files of its own"
    _everywhere(tmp_path / "release", words, capsys)


def test_schema_4_has_no_mesh_and_no_layout() -> None:
    today = schema.build(schema.STUDIES, {"study": ["a"], "run": [1], "shards": [2]}, {})
    older = today.drop_columns(["mesh", "layout"]).replace_schema_metadata({schema.VERSION_KEY: b"4"})
    assert migrations.upgrade("studies", older, "studies.parquet").equals(today, check_metadata=True)
    trials = schema.build(schema.TRIALS, {}, {})
    assert migrations.upgrade("trials", trials.replace_schema_metadata({schema.VERSION_KEY: b"4"}), "x").equals(trials)
