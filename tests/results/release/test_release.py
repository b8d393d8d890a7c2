import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import yaml
from upath import UPath

from results import durable, store
from results.bad_input import BadInput
from results.durable import Damaged
from results.plans import schema
from results.plans.batch_study import BatchStudy
from results.plans.recorded import Recorded
from results.reading import release_lists
from results.release import release
from results.storage import commits

STORED = Path(__file__).parents[1] / "stored"


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


def without_paths(held: list[commits.Commit]) -> list[commits.Commit]:
    return [c._replace(files={t: f._replace(path=Path()) for t, f in c.files.items()}) for c in held]


def ours(filled: Path) -> list[commits.Commit]:
    return [commit for commit in store.catalogue(filled) if commit.plan.get("source") != "shallue2018"]


def test_a_release_holds_the_bytes_of_the_store_and_is_read_like_it(filled: Path, released: Path) -> None:
    held, kept = ours(filled), store.catalogue(released)
    assert without_paths(kept) == without_paths([commit._replace(parts=0) for commit in held]), "parts stay behind"
    for one, other in zip(held, kept, strict=True):
        for table in one.files:
            assert one.files[table].path.read_bytes() == other.files[table].path.read_bytes()
    whole = store.read(filled)
    for table, frame in store.read(released)._asdict().items():
        own = getattr(whole, table)
        own = own[own["study"].isin([commit.name for commit in held])].reset_index(drop=True)
        pd.testing.assert_frame_equal(frame, own[frame.columns])
    name = held[0].name
    assert set(store.read(released, name).trials["study"]) == {name}
    assert store.names(released) == [commit.name for commit in held]
    assert list(released.glob("trials/dataset=solution_quality%2Fmnist/model=cnn%2Bpool/optimizer=sgd/batch_size=32/*"))


def test_the_same_studies_give_the_same_bytes(filled: Path, released: Path, tmp_path: Path) -> None:
    for place, source in (("again", filled), ("of-a-release", released)):
        assert release.export(source, tmp_path / place, lambda line: None) == 0
        assert files(tmp_path / place) == files(released)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "of-a-release"]


def test_the_examples_of_the_card_read_every_column(released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(released)
    examples = re.findall(r"\n\n((?:    .*\n|\n(?=    ))+)", Path("README.md").read_text())
    of_polars, of_arrow, of_ours = ("\n".join(line[4:] for line in text.splitlines()) for text in examples[:3])
    found: dict = {}
    exec(of_polars, found)
    measured = found["table"].collect()
    assert isinstance(measured, pl.DataFrame)
    rows = store.read(Path())
    assert len(measured) == len(rows.measurements)
    assert set(measured.columns) == {*rows.measurements.columns, "dataset", "model", "optimizer", "batch_size"}
    published = measured.filter(pl.col("dataset") == "solution_quality/mnist")
    assert set(published["batch_size"]) == {32} and set(published["model"]) == {"cnn+pool"}
    assert published["test_error"].null_count() == 0 and published["validation_loss"].null_count() == len(published)
    exec(of_arrow, found)
    trials = found["table"].to_table().to_pandas()
    assert trials["learning_rate"].notna().sum() == 5 and len(trials) == len(rows.trials) == 8
    assert set(trials["dataset"]) == {"digits", "solution_quality/mnist"}
    exec(of_ours, found)
    pd.testing.assert_frame_equal(found["trials"], rows.trials)


def test_readers_that_know_hive_folders_need_no_help_where_studies_have_the_same_columns(released: Path) -> None:
    scanned = pl.scan_parquet(released / "trials/dataset=digits/**/*.parquet", hive_partitioning=True).collect()
    assert sorted(scanned["batch_size"].unique()) == [64, 256]
    studies = pyarrow.dataset.dataset(released / "studies", partitioning="hive").to_table()
    assert studies.num_rows == pq.read_metadata(released / "studies.parquet").num_rows == 4
    assert studies["dataset"].unique().to_pylist() == ["digits", "solution_quality/mnist"]


def test_the_documents_tell_of_every_column_licence_and_source(released: Path) -> None:
    _, front, card = (released / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["license"] == ["apache-2.0", "cc-by-4.0"]
    assert {each["config_name"]: each["data_files"] for each in about["configs"]} == {
        "studies": "studies.parquet",
        "trials": "trials/**/*.parquet",
        "measurements": "measurements/**/*.parquet",
    }
    features = {each["config_name"]: [f["name"] for f in each["features"]] for each in about["dataset_info"]}
    dictionary = (released / "DICTIONARY.md").read_text()
    for table, frame in store.read(released)._asdict().items():
        assert set(features[table]) == set(frame.columns)
        section = dictionary.split(f"\n## {table}\n")[1].split("\n## ")[0]
        for column in frame.columns:
            assert f"\n| `{column}` | " in section
    assert "| `test_error` | float64 | fraction of examples classified wrongly; on the test split |" in dictionary
    assert "| scaling-limits | CC-BY-4.0 | 2 | 5 | " in card
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
    assert [name for name in by_id if "-" not in name] == ["studies", "trials", "measurements"]
    tables = store.read(released)
    for table, frame in tables._asdict().items():
        records = list(dataset.records(table))
        assert len(records) == len(frame)
        assert sorted(r[f"{table}/study"].decode() for r in records) == sorted(frame["study"])
    rows = [r for n in by_id if n.startswith("measurements-") for r in dataset.records(n)]
    losses = [value for r in rows for name, value in r.items() if name.endswith("/validation_loss")]
    assert sorted(losses) == sorted(tables.measurements["validation_loss"].dropna().tolist())


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum here")
def test_sha256sum_takes_the_list_and_the_list_ends_in_its_own_hash(released: Path) -> None:
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
    assert release_lists.check_lists(copy).keys() == files(copy).keys() - {"SHA256SUMS"}
    for name in ("SHA256SUMS", "manifest.json"):
        data = (copy / name).read_bytes()
        for at in range(0, len(data), len(data) // 40):
            (copy / name).write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
            with pytest.raises(Damaged):
                release_lists.check_lists(copy)
        (copy / name).write_bytes(data)
    (copy / "manifest.json").unlink()
    with pytest.raises(Damaged, match=r"manifest\.json is not what SHA256SUMS lists"):
        release_lists.check_lists(copy)


def test_what_may_not_be_passed_on_is_left_out_and_named(
    filled: Path, tmp_path: Path, make_recorded: Callable[..., Recorded], fill: Callable[..., None]
) -> None:
    lines: list[str] = []
    assert release.export(filled, tmp_path / "out", lines.append) == 0
    assert lines[0] == "left out: shallue2018 (1 study): it states no licence, so it may not be redistributed"
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
        assert "there already" in refusal(filled, out)
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


def test_a_newer_or_an_older_schema_is_refused(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Callable[..., None]
) -> None:
    fill(tmp_path / "store", make_study(trials=1))
    rewrite(tmp_path / "store", lambda table: table.replace_schema_metadata({schema.VERSION_KEY: b"99"}))
    assert "has schema 99" in refusal(tmp_path / "store", tmp_path / "out")
    with pytest.raises(BadInput, match="has schema 99"):
        store.read(tmp_path / "store")
    assert "results merge" in refusal(STORED / "schema-1", tmp_path / "out")


def test_tables_that_do_not_hold_together_are_not_published(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Callable[..., None]
) -> None:
    fill(tmp_path / "store", make_study(trials=2))
    rewrite(tmp_path / "store", lambda table: table.slice(1))
    assert "trials-" in refusal(tmp_path / "store", tmp_path / "out")
    rewrite(tmp_path / "store", lambda table: table.drop_columns(["trial"]))
    assert "holds 1 rows but is listed with 2" in refusal(tmp_path / "store", tmp_path / "out")


def test_a_release_in_memory_is_read_like_one_on_disk(filled: Path, released: Path) -> None:
    out = UPath("memory://test-release/release")
    assert release.export(filled, out, lambda line: None) == 0
    assert without_paths(store.catalogue(out)) == without_paths(store.catalogue(released))
    for one, other in zip(store.read(out), store.read(released), strict=True):
        pd.testing.assert_frame_equal(one, other)
    assert release_lists.check_lists(out) == release_lists.check_lists(released)
    written = [path for path in out.fs.store if path.startswith(out.path)]
    assert [path.rpartition("/")[2] for path in written[-2:]] == ["manifest.json", "SHA256SUMS"]
    assert "there already" in refusal(filled, out)


@pytest.mark.skipif(importlib.util.find_spec("gcsfs") is not None, reason="gcsfs is installed")
def test_a_url_whose_file_system_is_not_installed_is_one_line_that_names_the_extra(filled: Path) -> None:
    with pytest.raises(BadInput, match=r"pip install scaling-limits\[gcs\]") as refused:
        store.catalogue("gs://bucket/store")
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match=r"\[gcs\]"):
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
