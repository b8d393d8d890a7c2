"""WebGraph: what TFDS's real builder writes is read, and originals in their own format are prepared, offline."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.bad_input import BadInput
from workloads import memory, preparable, prepare
from workloads.datasets import array_records, rating_originals, web_graph
from workloads.factorization import prepared
from workloads.factorization.links import Links

ROOT = Path(prepare.__file__).parents[1]
PAGES = 90

Graph = dict[str, dict[int, tuple[list[int], list[int]]]]  # by split and row_tag: col_tag and gt_tag


def graph(seed: int = 0) -> Graph:
    """Pages link to pages; every fifth is of the test split, a few have no links, and one link is there twice."""
    random = np.random.default_rng(seed)
    rows: Graph = {"train": {}, "train_t": {}, "test": {}}
    for page in range(PAGES):
        links = random.choice(PAGES, random.integers(0, 12), replace=False).tolist()
        if page % 5:
            rows["train"][page] = (links, [])
        else:
            links += [int(random.choice(np.setdiff1d(range(PAGES), links)))]
            rows["test"][page] = (links[:-1], links[-1:])
    rows["train"][1] = ([7, 3, 7], [])
    for page in range(PAGES):
        back = [row for row, (links, _) in rows["train"].items() if page in links]
        rows["train_t"][page] = (back, [])
    return rows


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Graph]:
    """Writes a small graph under the real name of a variant."""
    from tensorflow_datasets.core import registered
    from tensorflow_datasets.structured.web_graph import web_graph as real

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "cache"))

    def made(variant: str, rows: Graph | None = None) -> Graph:
        rows = rows or graph()

        def examples(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
            for row, (links, sought) in rows[split].items():
                tags = {"col_tag": np.array(links, np.int64), "gt_tag": np.array(sought, np.int64)}
                yield row, {"row_tag": row, **tags}

        def split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
            return {split: examples(split) for split in rows}

        parts = {"name": "web_graph", "_split_generators": split_generators}
        with registered.skip_registration():
            builder = type("WebGraph", (real.WebGraph,), parts)(data_dir=str(tmp_path), config=variant)
        builder.download_and_prepare(file_format="array_record")
        counts = {split: len(rows[split]) for split in rows}
        monkeypatch.setitem(web_graph.VARIANTS, variant, web_graph.VARIANTS[variant]._replace(rows=counts))
        return rows

    return made


def as_sets(links: Links) -> list[set[int]]:
    return [
        set(links.columns[first:last].tolist()) for first, last in zip(links.starts, links.starts[1:], strict=False)
    ]


def assert_read(rows: Graph, variant: str) -> None:
    ratings = prepared.load(web_graph.source(variant))
    ids = [id for split in ("train", "test") for row, lists in rows[split].items() for id in (*lists[0], *lists[1])]
    largest = max(max(rows["train"]), max(rows["test"]))
    assert (ratings.train.row_count, ratings.train.column_count) == (largest + 1, max(ids) + 1)
    expected = [set(rows["train"].get(row, ([], []))[0]) for row in range(largest + 1)]
    assert as_sets(ratings.train) == expected
    test = [rows["test"][row] for row in sorted(rows["test"])]
    assert as_sets(ratings.history) == [set(links) for links, _ in test]
    assert as_sets(ratings.heldout) == [set(sought) for _, sought in test]
    without = sum(bool(sought and not links) for links, sought in test)
    rows_have = "row with held-out links has" if without == 1 else "rows with held-out links have"
    left_out = [f"{without} {rows_have} no history and cannot be evaluated"] if without else []
    assert ratings.lines() == ("1 duplicate link was merged", *left_out)


@pytest.mark.parametrize("variant", ["in-dense", "de-sparse"])
def test_what_tfds_writes_is_read(variant: str, write: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_records, "BATCH", 7)
    monkeypatch.setattr(array_records, "BATCH", 11)
    assert_read(write(variant), variant)


def test_the_variants_are_those_of_tfds() -> None:
    from tensorflow_datasets.structured.web_graph.web_graph import WebGraph

    assert str(WebGraph.VERSION) == web_graph.VERSION
    real = {config.name: (config.subfolder, config.num_shards) for config in WebGraph.BUILDER_CONFIGS}
    assert {name: (row.subfolder, row.shards) for name, row in web_graph.VARIANTS.items()} == real


def test_content_decides_the_version(write: Callable[..., Graph], tmp_path: Path) -> None:
    write("in-dense")
    versions = [web_graph.source("in-dense").version()]
    file = next(web_graph.folder("in-dense").glob("*-test.array_record*"))
    file.write_bytes(file.read_bytes() + b"\0")
    versions.append(web_graph.source("in-dense").version())
    assert re.fullmatch("sha256:[0-9a-f]{16}", versions[0])
    assert versions[0] != versions[1]


def test_held_out_links_that_are_known_are_left_out(write: Callable[..., Graph]) -> None:
    rows = graph()
    rows["test"][0] = ([4, 6], [6, 8])
    rows["test"][5] = ([4, 6], [4])
    write("in-dense", rows)
    ratings = prepared.load(web_graph.source("in-dense"))
    assert ratings.heldout.row_count == len(rows["test"]) - 1
    assert as_sets(ratings.heldout)[0] == {8}
    assert ratings.remarks == ("2 held-out links also occur in training or history and are ignored",)


def test_absent_data_name_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    source = web_graph.source("in-dense")
    for refuses in (source.check, source.version):
        with pytest.raises(BadInput, match=r"in-dense/1\.0\.0 does not exist\. Run python -m workloads\.prepare web"):
            refuses()
    place = web_graph.folder("in-dense")
    place.mkdir(parents=True)
    with pytest.raises(BadInput, match="holds no complete array_record files"):
        source.check()
    (place / "web_graph-train.tfrecord-00000-of-00001").touch()
    with pytest.raises(BadInput, match=r"tfrecord files.*--data-dir DIR"):
        source.check()
    with pytest.raises(BadInput, match="unknown variant 'tiny' of web_graph; choices: sparse, dense, de-sparse"):
        web_graph.source("tiny")


def test_damaged_data_are_one_line(write: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    write("in-dense")
    monkeypatch.setitem(web_graph.VARIANTS["in-dense"].rows, "test", 1)
    source = web_graph.source("in-dense")
    with pytest.raises(BadInput, match=r"'test': 18} rows, not .*'test': 1}\. Delete .* and run"):
        source.build()
    file = next(web_graph.folder("in-dense").glob("*-train.array_record*"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(
        BadInput, match=r"cannot be read \(.*\)\. Delete .* and run python -m workloads.prepare"
    ) as raised:
        source.build()
    assert "\n" not in str(raised.value)
    (web_graph.folder("in-dense") / "dataset_info.json").write_text("{")
    with pytest.raises(BadInput, match="cannot be read"):
        source.build()


@pytest.mark.parametrize("numbers", [[], [3, 4]])
def test_a_record_that_is_no_row_is_one_line(write: Callable[..., Graph], numbers: list[int]) -> None:
    from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
    from tensorflow_datasets.proto import tf_example_pb2

    write("in-dense")
    (file,) = web_graph.folder("in-dense").glob("*-train.array_record*")
    records = ArrayRecordReader(str(file)).read_all()
    example = tf_example_pb2.Example.FromString(records[5])
    example.features.feature["row_tag"].int64_list.value[:] = numbers
    records[5] = example.SerializeToString()
    writer = ArrayRecordWriter(str(file), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()
    with pytest.raises(
        BadInput, match=r"record 5 of train is not a row\)\. Delete .* and run python -m workloads.prep"
    ):
        web_graph.source("in-dense").build()


def test_too_little_memory_is_told_before_reading(write: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    write("in-dense")
    monkeypatch.setattr(memory, "available", lambda: 1000)
    monkeypatch.setattr(array_records, "batches", lambda *args: pytest.fail("read"))
    with pytest.raises(BadInput, match=r"^reading web_graph/in-dense, .* are free\. Choose a smaller variant\.$"):
        web_graph.source("in-dense").check()


def test_what_studies_need_is_told() -> None:
    assert 1.5e9 < web_graph.study_bytes("in-dense") < 4e9
    assert 0.6e12 < web_graph.study_bytes("sparse") < 1.2e12  # tables of 100 billion parameters are 0.4 TB


def test_checksums_of_tfrecord_files() -> None:
    # CRC-32C of these nine digits is the check value of the standard, here masked as TensorFlow does.
    crc = 0xE3069283
    assert rating_originals._checksum(b"123456789") == (((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32).to_bytes(
        4, "little"
    )


def framed(record: bytes) -> bytes:
    """A record as it lies in a TFRecord file."""
    length = len(record).to_bytes(8, "little")
    return length + rating_originals._checksum(length) + record + rating_originals._checksum(record)


def write_originals(rows: Graph, folder: Path, shards: int) -> None:
    """Writes TFRecord files as they lie at gs://gresearch/web_graph; only the test split has a gt_tag."""
    from tensorflow_datasets.proto import tf_example_pb2

    folder.mkdir(parents=True)
    for split, stem in (("train", "train"), ("train_t", "train.transpose"), ("test", "test")):
        for shard in range(shards):
            data = b""
            for row in list(rows[split])[shard::shards]:
                example = tf_example_pb2.Example()
                features = example.features.feature
                features["row_tag"].int64_list.value.append(row)
                features["col_tag"].int64_list.value.extend(rows[split][row][0])
                if split == "test":
                    features["gt_tag"].int64_list.value.extend(rows[split][row][1])
                data += framed(example.SerializeToString())
            (folder / f"{stem}.tfr-{shard:05}-of-{shards:05}").write_bytes(data)


@pytest.fixture
def originals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The originals of a small graph, where ``prepare`` looks for them."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "cache"))
    rows = graph(1)
    write_originals(rows, tmp_path / "downloads" / "manual" / "web_graph" / "in-dense", 10)
    counts = {split: len(rows[split]) for split in rows}
    row = web_graph.VARIANTS["in-dense"]._replace(rows=counts)
    monkeypatch.setitem(web_graph.VARIANTS, "in-dense", row)
    return rows


def test_originals_are_prepared(originals: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(["web_graph/in-dense"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("web_graph/in-dense: about 120,000,000 links from 90 pages, 752 MB to download, ")
    assert "of temporary disk" in out and "als.dim=128 in float32 takes about 1.7 GB of memory" in out
    assert_read(originals, "in-dense")
    assert prepare.main(["web_graph/in-dense"]) == 0
    assert "is already prepared" in capsys.readouterr().out


def test_damaged_originals_are_refused(originals: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "downloads" / "manual" / "web_graph" / "in-dense" / "train.tfr-00003-of-00010"
    data = file.read_bytes()
    for wrong, reason in (
        (data[:-1], "is damaged or truncated"),
        (data[:40] + bytes([data[40] ^ 1]) + data[41:], "is damaged or truncated"),
        (b"no TFRecord file", "is not a TFRecord file"),
        (data[:5], "is not a TFRecord file"),
        (b"", "the originals hold {'train': "),
        (framed(b"\xff no example"), "holds a record that is not a row"),
        (framed(b""), "holds a record that is not a row"),
    ):
        file.write_bytes(wrong)
        assert prepare.main(["web_graph/in-dense"]) == 1
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith("error: web_graph/in-dense could not be prepared: OSError: ")
        assert reason in line
        assert not web_graph.folder("in-dense").exists()


def test_what_is_not_there_is_downloaded(originals: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manual, elsewhere = tmp_path / "downloads" / "manual" / "web_graph" / "in-dense", tmp_path / "bucket"
    manual.rename(elsewhere)
    manual.mkdir()
    (elsewhere / "test.tfr-00004-of-00010").rename(manual / "test.tfr-00004-of-00010")
    asked = []

    class Manager:
        def download(self, addresses: list[str]) -> list[Path]:
            asked.extend(addresses)
            return [elsewhere / address.rsplit("/", 1)[1] for address in addresses]

    found = [rating_originals._originals("in-dense", split, manual, Manager()) for split in web_graph.SPLITS]
    assert [len(files) for files in found] == [10, 10, 10] and all(file.is_file() for files in found for file in files)
    assert len(asked) == 29
    start = "https://storage.googleapis.com/gresearch/web_graph/web_graph_tld_in_min_50/"
    assert asked[0] == f"{start}train.tfr-00000-of-00010"
    assert f"{start}train.transpose.tfr-00009-of-00010" in asked


def test_too_little_disk_is_told_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10**9}))
    assert prepare.main(["web_graph/sparse", "--data-dir", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert (
        told.err == f"error: web_graph/sparse needs 881 GB of disk, but {tmp_path} has 1.0 GB left. Use --data-dir.\n"
    )
    assert "tfds build web_graph/sparse --file_format=array_record" in told.out
    assert re.search(r"takes about \d\d hours on one core", told.out)


def test_a_name_without_a_variant_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(["web_graph"]) == 2
    assert capsys.readouterr().err.startswith("error: web_graph comes in parts; choices: web_graph/sparse, ")
    assert prepare.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in preparable.names())


READ = """
import sys
from workloads.datasets import web_graph
ratings = web_graph.source("in-dense")._replace(check=None).version()
web_graph.VARIANTS["in-dense"] = web_graph.VARIANTS["in-dense"]._replace(rows={"train": 72, "test": 18})
assert len(web_graph.build("in-dense").train.columns)
assert not {"tensorflow", "apache_beam", "jax"} & set(sys.modules)
"""


def test_neither_tensorflow_nor_beam_nor_jax_is_imported(write: Callable[..., Graph]) -> None:
    write("in-dense")
    done = subprocess.run([sys.executable, "-W", "error", "-c", READ], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
