import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from analysis import release_points
from results import durable, store
from results.bad_input import BadInput
from results.checks import release_checks, verify
from results.durable import Folder
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.recorded import Recorded
from results.plans.study import Target
from results.release import release, shards
from results.storage import commits
from results.storage.shared import SharedFile

from .. import by_hand


@pytest.fixture(scope="module")
def filled(
    tmp_path_factory: pytest.TempPathFactory,
    make_study: Callable[..., BatchStudy],
    make_recorded: Callable[..., Recorded],
    fill: Callable[..., None],
) -> Path:
    """A store with two studies of ours, one by somebody else, and one that may not be passed on."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    fill(folder, make_study(trials=3), [0, 2], started_at="2026-03-02T05:06:07+00:00")
    fill(folder, make_study(trials=3), [1])
    fill(folder, make_study(trials=2, batch_size=256, pruning="exact"))
    fill(folder, make_recorded())
    fill(folder, make_recorded(source="shallue2018", details={}))
    return folder


@pytest.fixture(scope="module")
def released(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("released") / "release"
    assert release.export(filled, out, lambda line: None) == 0
    return out


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ours(filled: Path) -> list[commits.Commit]:
    return [commit for commit in store.catalogue(filled) if commit.plan.get("source") != "shallue2018"]


def test_release_holds_the_values_of_the_store(
    filled: Path, released: Path, tmp_path: Path, same_values: Callable[[Path, Path], None]
) -> None:
    held, kept = ours(filled), store.catalogue(released)
    same_values(released, with_only(filled, held, tmp_path / "store"))
    assert {commit.parts for commit in kept} == {0}, "parts stay behind"
    whole = store.read(filled)
    for table, frame in store.read(released)._asdict().items():
        own = getattr(whole, table)
        own = own[own["study"].isin([commit.name for commit in held])].reset_index(drop=True)
        pd.testing.assert_frame_equal(frame, own[frame.columns])
    name = held[0].name
    assert set(store.read(released, name).trials["study"]) == {name}
    assert store.names(released) == [commit.name for commit in held]
    assert sorted(path.suffix for path in released.iterdir()).count(".parquet") == 3


def with_only(folder: Path, kept: list[commits.Commit], copy: Path) -> Path:
    """A copy of a store with some of its studies."""
    for commit in kept:
        shutil.copytree(folder / commit.name, copy / commit.name)
    return copy


def test_release_tables_have_all_columns_and_sorted_row_groups(released: Path) -> None:
    for table in ("studies", "trials", "measurements"):
        file = pq.ParquetFile(released / f"{table}.parquet")
        rows = file.read()
        assert rows["study"].to_pylist() == sorted(rows["study"].to_pylist())
        assert rows.schema.field("batch_size").type == pa.int32()
        assert set(rows["batch_size"].to_pylist()) == {32, 64, 256}
        assert not [field for field in rows.schema if pa.types.is_dictionary(field.type)]
    groups = [set(file.read_row_group(i)["study"].to_pylist()) for i in range(file.num_row_groups)]
    assert [len(group) for group in groups] == [1] * 3


def test_every_reader_knows_the_encodings(released: Path) -> None:
    """Those of the first version of the format; not every reader has learned the later ones."""
    for path in released.glob("*.parquet"):
        file = pq.ParquetFile(path).metadata
        groups = [file.row_group(number) for number in range(file.num_row_groups)]
        used = {
            each for group in groups for number in range(file.num_columns) for each in group.column(number).encodings
        }
        assert used and used <= {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY"}, path
        codecs = {group.column(number).compression for group in groups for number in range(file.num_columns)}
        assert codecs == {"ZSTD"}, path
        names = [file.schema.column(each.column_index).name for each in groups[0].sorting_columns]
        rows = pq.read_table(path).select(names).to_pylist()
        assert names[0] == "study" and len(names) > 1 and rows == sorted(rows, key=lambda row: tuple(row.values()))


def test_large_tables_are_files_of_bounded_size_and_read_alike(
    filled: Path, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_values: Callable
) -> None:
    monkeypatch.setattr(shards, "MOST_BYTES", 1500)
    monkeypatch.setattr(shards, "GROUP_ROWS", dict.fromkeys(shards.GROUP_ROWS, 1))
    assert release.export(filled, tmp_path / "release", lambda line: None) == 0
    names = {path.name for path in (tmp_path / "release").glob("*.parquet")}
    assert {"measurements-00001.parquet", "measurements-00002.parquet"} <= names
    assert "measurements.parquet" not in names
    same_values(tmp_path / "release", released)
    assert verify.run(tmp_path / "release", lambda line: None) == 0
    assert release.export(tmp_path / "release", tmp_path / "again", lambda line: None) == 0
    assert files(tmp_path / "again") == files(tmp_path / "release")
    rows = pl.read_parquet(tmp_path / "release" / "measurements*.parquet")
    assert len(rows) == len(store.read(released).measurements)


def test_the_same_studies_give_the_same_bytes(filled: Path, released: Path, tmp_path: Path) -> None:
    for place, source in (("again", filled), ("of-a-release", released)):
        assert release.export(source, tmp_path / place, lambda line: None) == 0
        assert files(tmp_path / place) == files(released)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "of-a-release"]


def test_the_examples_of_the_card_read_every_column(released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of readers that are installed here; tests/readers has each alone, and the others."""
    monkeypatch.chdir(released)
    card = Path("README.md").read_text()
    rows = store.read(Path())
    for reader, module in (("polars", pl), ("pandas", pd), ("duckdb", duckdb)):
        (line,) = re.findall(rf"^    ({reader}\..*?)(?:  #.*)?$", card, re.M)
        table = eval(line, {reader: module})
        assert len(table) == len(rows.measurements)
        assert set(table.columns) == {*rows.measurements.columns, "dataset", "model", "optimizer", "batch_size"}
    published = table.filter("dataset = 'solution_quality/mnist'").df()
    assert set(published["batch_size"]) == {32} and set(published["model"]) == {"cnn+pool"}
    assert published["test_error"].notna().all() and published["validation_loss"].isna().all()
    (ours,) = re.findall(r"^    from pathlib import Path\n(?:    .*\n)+", card, re.M)
    found: dict = {}
    exec("\n".join(line[4:] for line in ours.splitlines()), found)
    pd.testing.assert_frame_equal(found["trials"], rows.trials)


def test_the_documents_tell_of_every_column_licence_and_source(released: Path) -> None:
    _, front, card = (released / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["license"] == ["apache-2.0", "cc-by-4.0"]
    assert {each["config_name"]: each["data_files"][0]["path"] for each in about["configs"]} == {
        table: [f"{table}.parquet"] for table in ("studies", "trials", "measurements")
    }
    dictionary = (released / "DICTIONARY.md").read_text()
    for table, frame in store.read(released)._asdict().items():
        section = dictionary.split(f"\n## {table}\n")[1].split("\n## ")[0]
        for column in frame.columns:
            assert f"\n| `{column}` | " in section
    assert "| `test_error` | float64 | fraction of examples classified wrongly; on the test split |" in dictionary
    assert "| scaling-limits | CC-BY-4.0 | 2 | 5 | " in card
    held = [commit for commit in store.catalogue(released) if commit.plan["dataset"] == "digits"]
    counts = [sum(commit.ledger.planned for commit in held), sum(commit.ledger.infeasible for commit in held)]
    (row,) = [line for line in card.splitlines() if line.startswith("| digits | ")]
    assert row.split(" | ")[2:] == [str(len(held)), str(counts[0]), f"{counts[1]} |"]
    licences = (released / "LICENCES.md").read_text()
    assert "| `measurements` | mlperf-rcp | [Apache-2.0](" in licences and "github.com/mlcommons/logging" in licences
    assert "Apache License" in (released / "LICENCE-Apache-2.0.txt").read_text()
    citation = yaml.safe_load((released / "CITATION.cff").read_text())
    assert citation["type"] == "dataset" and str(citation["date-released"]) == "2026-03-04"
    manifest = hashlib.sha256((released / "manifest.json").read_bytes()).hexdigest()
    assert citation["identifiers"][0]["value"] == f"sha256:{manifest}"


# rdflib, which mlcroissant stands on, deprecates parts of itself.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_mlcroissant_validates_and_reads_the_release(released: Path) -> None:
    import mlcroissant

    dataset = mlcroissant.Dataset(str(released / "croissant.json"))
    assert (dataset.metadata.issues.errors, dataset.metadata.issues.warnings) == (set(), set())
    by_id = {each.uuid: each for each in dataset.metadata.record_sets}
    assert list(by_id) == ["studies", "trials", "measurements"]
    tables = store.read(released)
    for table, frame in tables._asdict().items():
        records = list(dataset.records(table))
        assert len(records) == len(frame)
        assert sorted(r[f"{table}/study"].decode() for r in records) == sorted(frame["study"])
    rows = list(dataset.records("measurements"))
    losses = [r["measurements/validation_loss"] for r in rows if r["measurements/validation_loss"] is not None]
    losses = [value for value in losses if value == value]
    assert sorted(losses) == sorted(tables.measurements["validation_loss"].dropna().tolist())


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum here")
def test_sha256sum_accepts_the_list_with_its_own_hash(released: Path) -> None:
    checked = subprocess.run(
        ["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=released, capture_output=True, text=True
    )
    assert checked.returncode == 0 and not checked.stderr
    lines = (released / "SHA256SUMS").read_bytes().splitlines(keepends=True)
    assert lines[-1].decode() == f"# sha256 {hashlib.sha256(b''.join(lines[:-1])).hexdigest()}\n"
    listed = {line.decode().rstrip("\n").split("  ")[1] for line in lines[:-1]}
    assert listed == files(released).keys() - {"SHA256SUMS"}


def test_every_flipped_byte_of_the_lists_is_seen(released: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(released, copy)
    assert release_checks.lists(copy).documents.keys() == files(copy).keys() - {"SHA256SUMS"}
    assert not release_checks.lists(copy).around.faults
    for name in ("SHA256SUMS", "manifest.json"):
        data = (copy / name).read_bytes()
        for at in range(0, len(data), len(data) // 40):
            (copy / name).write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
            assert release_checks.lists(copy).around.faults
        (copy / name).write_bytes(data)
    (copy / "manifest.json").unlink()
    (fault,) = release_checks.lists(copy).around.faults
    assert fault.path == copy / "manifest.json" and fault.what.startswith("is missing")


def test_what_may_not_be_passed_on_is_left_out_and_named(
    filled: Path, tmp_path: Path, make_recorded: Callable[..., Recorded], fill: Callable[..., None]
) -> None:
    lines: list[str] = []
    assert release.export(filled, tmp_path / "out", lines.append) == 0
    assert lines[0] == "left out: shallue2018 (1 study): without a licence it may not be redistributed"
    assert b"shallue2018" not in b"".join(files(tmp_path / "out").values())
    fill(tmp_path / "store", make_recorded(source="shallue2018", details={"licence": "CC0-1.0"}))
    fill(tmp_path / "store", make_recorded(source="somebody", details={}))
    assert release.export(tmp_path / "store", tmp_path / "none", lines.append) == 1
    assert [line.split(" (")[0] for line in lines[2:4]] == ["left out: shallue2018", "left out: somebody"]
    assert not (tmp_path / "none").exists()


def refusal(folder: Path, out: Path) -> str:
    with pytest.raises(BadInput) as refused:
        release.export(folder, out, lambda line: None)
    return str(refused.value)


def test_nothing_is_overwritten_and_nothing_half_written_stays(filled: Path, released: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for out in (tmp_path / "full", tmp_path / "full" / "file", released):
        assert "already exists" in refusal(filled, out)
    assert "lies in" in refusal(filled, filled / "release")
    copy = tmp_path / "copy"
    shutil.copytree(filled, copy)
    last = ours(copy)[-1].files["measurements"].path
    data = bytearray(last.read_bytes())
    data[100] ^= 1
    last.write_bytes(data)
    assert f"{last} is not what was written" in refusal(copy, tmp_path / "out")
    last.unlink()
    assert f"{last} is missing" in refusal(copy, tmp_path / "out")
    if Path("/proc").is_dir():
        assert "cannot be written" in refusal(filled, Path("/proc/release"))
    (tmp_path / "empty").mkdir()
    assert release.export(filled, tmp_path / "empty", lambda line: None) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "empty", "full"]


def rewrite(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Changes the trials of the only study of a store, and lists them as if that had been written."""
    (path,) = folder.glob("*/trials-*.parquet")
    pq.write_table(change(pq.read_table(path)), path)
    (record_path,) = folder.glob("*/commit-*.json")
    record = durable.unseal(record_path.read_bytes(), record_path)
    data = path.read_bytes()
    record["files"]["trials"] |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    record_path.write_bytes(durable.seal(record))


def test_a_newer_schema_is_refused(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Callable[..., None]
) -> None:
    fill(tmp_path / "store", make_study(trials=1))
    rewrite(tmp_path / "store", lambda table: table.replace_schema_metadata({schema.VERSION_KEY: b"99"}))
    assert "has schema 99" in refusal(tmp_path / "store", tmp_path / "out")
    with pytest.raises(BadInput, match="has schema 99"):
        store.read(tmp_path / "store")


def test_tables_that_do_not_hold_together_are_not_published(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Callable[..., None]
) -> None:
    fill(tmp_path / "store", make_study(trials=2))
    rewrite(tmp_path / "store", lambda table: table.slice(1))
    assert "trials-" in refusal(tmp_path / "store", tmp_path / "out")
    rewrite(tmp_path / "store", lambda table: table.drop_columns(["trial"]))
    assert "has other columns than trials" in refusal(tmp_path / "store", tmp_path / "out")


def test_a_release_in_memory_is_read_like_one_on_disk(
    filled: Path, released: Path, same_values: Callable[[Folder, Path], None]
) -> None:
    out = durable.location("memory://test-release/release")
    assert release.export(filled, out, lambda line: None) == 0
    same_values(out, released)
    for one, other in zip(store.read(out), store.read(released), strict=True):
        pd.testing.assert_frame_equal(one, other)
    assert release_checks.lists(out).documents == release_checks.lists(released).documents
    written = sorted((entry.modified, entry.name) for entry in durable.system(out).entries(out))
    assert [name for _, name in written[-2:]] == ["manifest.json", "SHA256SUMS"]
    assert "already exists" in refusal(filled, out)


def test_url_without_its_library_names_the_extra(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(BadInput, match=r"pip install 'scaling-limits\[buckets\]'") as refused:
        store.catalogue("gs://bucket/store")
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match=r"\[buckets\]"):
        release.export(filled, "gs://bucket/release", lambda line: None)


def nested(depth: int) -> list:
    return [nested(depth - 1)] if depth else []


RECORDS: list[tuple[str, Callable[[dict], object]]] = [
    ("a name that leaves the folder", lambda record: record.update(name="../../outside")),
    ("a path that leaves the folder", lambda record: record["files"]["trials"].update(file="../../outside")),
    ("a path from the root", lambda record: record["files"]["trials"].update(file="/etc/passwd")),
    ("a URL for a path", lambda record: record["files"]["trials"].update(file="memory://outside")),
    (
        "a kind of file that leaves the folder",
        lambda record: record["files"].update({"../x": record["files"]["trials"]}),
    ),
    ("a file that is no table", lambda record: record["files"]["trials"].update(file="trials/commit.json")),
    ("a negative number", lambda record: record.update(number=-1)),
    ("another ledger", lambda record: record["ledger"].update(complete=0, lost=2)),
    ("other metrics", lambda record: record.update(metrics={"train_loss": "float"})),
    ("no file", lambda record: record["files"].pop("trials")),
    ("no number", lambda record: record.pop("number")),
    ("text for a number", lambda record: record.update(number="two")),
    ("a list for a plan", lambda record: record.update(plan=[])),
    ("a plan of nothing", lambda record: record.update(plan={"kind": "batch"})),
    ("a plan of another study", lambda record: record["plan"].update(seed=1)),
    ("a space of nothing", lambda record: record["plan"].update(space=None)),
    ("a ledger of nothing", lambda record: record.update(ledger={})),
    ("a newer schema", lambda record: record.update(schema=99)),
    ("a schema before all", lambda record: record.update(schema=-5)),
    ("more parts than there are names for", lambda record: record.update(parts=10**8)),
    ("a claim of a number without a name", lambda record: record.update(number=10**6)),
    ("a plan of more trials than any", lambda record: record.update(trials=10**6 + 1)),
    ("repeats without end", lambda record: record.update(confirm=10**9)),
    ("a count that is none", lambda record: record["files"]["trials"].update(rows=True)),
    ("a file more", lambda record: record["files"].update({"x": record["files"]["trials"]})),
    ("a plan of any depth", lambda record: record["plan"].update(model_options={"widths": nested(80)})),
    ("text for a schema", lambda record: record.update(schema="new")),
]


@pytest.mark.parametrize(("what", "change"), RECORDS, ids=[what for what, _ in RECORDS])
def test_a_record_of_nobodys_making_is_refused_in_a_line(
    what: str, change: Callable[[dict], object], released: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(released, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest["studies"][0])
    del manifest["sha256"]
    (copy / "manifest.json").write_bytes(durable.seal(manifest))
    assert "\n" not in refusal(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_targets_alike_in_six_digits_are_on_curves_of_their_own(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Callable[..., None]
) -> None:
    targets = (
        Target("validation_loss", 0.5000001),
        Target("validation_loss", 0.5000002),
        Target("validation_loss", 0.5),
    )
    fill(tmp_path / "store", make_study(trials=2, targets=targets))
    assert release.export(tmp_path / "store", tmp_path / "release", lambda line: None, release_points.table) == 0
    rows = pq.read_table(tmp_path / "release" / "points.parquet").to_pylist()
    assert [row["curve"].partition(" ≤ ")[2] for row in rows] == ["0.5", "0.5000001", "0.5000002"]
    assert verify.run(tmp_path / "release", lambda line: None) == 0


@pytest.mark.parametrize("rows", [[], [(1, 0.5)]])
def test_a_release_with_an_empty_table_has_no_faults(tmp_path: Path, rows: list) -> None:
    nothing = by_hand.Ran("INFEASIBLE", rows)
    about = by_hand.study(trials=1, details={"licence": "Apache-2.0"})
    by_hand.publish(tmp_path / "store", about, {0: nothing})
    assert release.export(tmp_path / "store", tmp_path / "release", lambda line: None, release_points.table) == 0
    assert pq.read_table(tmp_path / "release" / "measurements.parquet").num_rows == len(rows)
    assert verify.run(tmp_path / "release", lambda line: None) == 0


def test_no_file_is_above_64_mb_with_its_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A footer grows with every row group, and measurements have one for each study."""
    monkeypatch.setattr(shards, "MOST_BYTES", 100_000)
    columns = pa.schema([("study", pa.string()), *((name, pa.int32()) for name in ("trial", "step"))])
    written: dict[str, int] = {}

    def put(name: str, data: bytes | memoryview, rows: int) -> SharedFile:
        written[name] = len(data)
        return SharedFile(tmp_path / name, "", len(data), rows)

    table = shards.Shards("measurements", columns, put)
    for study in range(400):
        table.add(pa.table([[f"study {study:06d}"], [0], [study]], schema=columns))
    table.close()
    assert len(written) > 1
    assert max(written.values()) <= 100_000
    assert min(list(written.values())[:-1]) > 60_000


def test_points_are_of_the_tables_of_their_release(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Callable[..., None]
) -> None:
    study = make_study(trials=4)
    fill(tmp_path / "store", study, [1])

    def late(*where: Any) -> pa.Table:
        fill(tmp_path / "store", study)
        fill(tmp_path / "store", make_study(trials=1, batch_size=256))
        return release_points.table(*where)

    assert release.export(tmp_path / "store", tmp_path / "release", lambda line: None, late) == 0
    assert verify.run(tmp_path / "release", lambda line: None) == 0
    (row,) = pq.read_table(tmp_path / "release" / "points.parquet").to_pylist()
    assert (row["study"], row["trials"], row["trial"]) == (study.name, 1, 1)
