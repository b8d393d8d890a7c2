"""Killed conversions keep their finished shards, and write the bytes that TFDS itself writes."""

import contextlib
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results import progress
from results.bad_input import BadInput
from tests.workloads import streamed
from tests.workloads.test_prepare import write_originals, write_streamed_originals
from workloads import prepare
from workloads.datasets import conversion, sorted_chunks, streamed_originals
from workloads.datasets.conversion import Conversion

ROOT = Path(prepare.__file__).parents[1]
WORK = "encoding|sorting|checksum of|reading"
PROGRESS = rf"({WORK}) \S+: \S+( \w+)? \(\d+%\)(, \d\d:\d\d left)?"


def killed(folder: Path, kills: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An uninterrupted run of the command, and what came of others that were killed and run again."""
    command = [sys.executable, "-m", "tests.workloads.killed_conversions", str(folder), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    whole, *others = map(json.loads, done.stdout.splitlines())
    assert whole["code"] == 0
    assert [each for each in others if not each["same"] or each["code"]] == []
    # Threads of TFDS's downloads are not alike in every run, so the last moments may not come.
    assert all(each["killed"] == -9 for each in others[:-1])
    return whole, others


def check_lines(said: str) -> None:
    """Lines without a terminal: those of the start and the end, and progress."""
    assert "\r" not in said and "%|" not in said and "\x1b" not in said
    lines = said.splitlines()
    at = [line.startswith("Learning its subwords takes") for line in lines].index(True)
    for line in lines[at + 1 : -1]:
        known = re.fullmatch(rf"{PROGRESS}|resumes at .+|learning 340 subwords from 50 texts", line)
        assert known, line
    assert lines[-1].startswith("lm1b is ready: ")


def test_a_killed_command_resumes_and_writes_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    whole, others = killed(tmp_path, 8)
    assert sum(".array_record-" in name for name in whole["files"]) > 4 and len(others) == 8
    assert whole["files"][0] == "1.1.0/dataset_info.json"  # the only folder that is left
    for each in (whole, *others):
        check_lines(each["said"])
    shards = [int(number) for each in others for number in re.findall(r"resumes at shard (\d+) of", each["said"])]
    assert all(shard > 1 for shard in shards)


@pytest.mark.slow
def test_a_command_that_is_killed_at_any_moment_resumes(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    whole, others = killed(tmp_path, 0)
    assert len(others) == len(whole["moments"]) >= 200


def small(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int = 12_000) -> None:
    """Several chunks and shards of originals whose checksums are not looked at."""
    from tensorflow_datasets.core.download.download_manager import DownloadManager
    from tensorflow_datasets.core.utils.shard_utils import ShardConfig

    monkeypatch.setattr(DownloadManager, "_register_or_validate_checksums", lambda self, **known: None)
    monkeypatch.setattr(ShardConfig, "min_shard_size", 12_000)
    monkeypatch.setattr(sorted_chunks, "CHUNK_BYTES", chunk_bytes)


def convert(name: str, within: Path, manual: Path, lines: list[str] | None = None, *, resumable: bool = True) -> Path:
    """Converts originals with TFDS's own code, or with ours; returns the folder of the files."""
    import tensorflow_datasets as tfds

    builder = streamed_originals.BUILDERS[name](within, manual)
    config = tfds.download.DownloadConfig(manual_dir=manual, try_download_gcs=False)
    place = Path(builder.data_dir)
    report = [].append if lines is None else lines.append
    if resumable:
        conversion.make_resumable(builder, Conversion(conversion.folder(place), manual, 0, {}, report))
    builder.download_and_prepare(download_config=config, file_format="array_record")
    return place


LARGE = ("streamed_digits",)  # which takes seconds


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LARGE else ()) for n in streamed_originals.BUILDERS]
)
def test_files_are_those_of_tfds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TFDS writes the features of a record in an order that differs between processes; ours is that of their names."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.example_serializer import ExampleSerializer

    def in_order(self: ExampleSerializer, example: Any) -> bytes:
        return bytes(self.get_tf_example(example).SerializeToString(deterministic=True))

    monkeypatch.setattr(ExampleSerializer, "serialize_example", in_order)
    small(monkeypatch)
    manual = tmp_path / "manual"
    if name == "lm1b":
        streamed.write_lm1b(manual, 400, 40)
    else:
        write_streamed_originals(name, manual)
    theirs = convert(name, tmp_path / "theirs", manual, resumable=False)
    ours = convert(name, tmp_path / "ours", manual)
    assert len([*ours.glob(f"{name.split('/')[0]}-train*")]) > (name == "lm1b")
    assert {file.name: file.read_bytes() for file in ours.iterdir()} == {
        file.name: file.read_bytes() for file in theirs.iterdir()
    }
    rows = [tfds.builder_from_directory(place).as_data_source("train") for place in (ours, theirs)]
    for own, their in zip(*rows, strict=True):
        np.testing.assert_equal(own, their)


class Stopped(Exception):
    """Stops a conversion at some shard."""


def stop_at(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """Stops a conversion before shard ``count``, and returns the list of the shards that are written."""
    write_shard = conversion._write_shard
    written: list[str] = []

    def some(builder: Any, file: Path, values: Iterator[bytes], length: int) -> None:
        if len(written) == count:
            raise Stopped
        written.append(file.name)
        write_shard(builder, file, values, length)

    monkeypatch.setattr(conversion, "_write_shard", some)
    return written


@pytest.fixture
def manual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a small LM1B, which takes several chunks and shards."""
    small(monkeypatch)
    streamed.write_lm1b(tmp_path / "manual", 400, 40)
    return tmp_path / "manual"


def stopped(count: int, within: Path, manual: Path) -> list[str]:
    """Converts LM1B until ``count`` shards are written, and returns the lines of progress."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, count)
        with pytest.raises(Stopped):
            convert("lm1b", within, manual, lines)
    return beginnings(lines)


def beginnings(lines: list[str]) -> list[str]:
    """Lines on what a conversion does with files that exist, without those of progress."""
    return [line for line in lines if line.startswith(("resumes", "starts"))]


def test_finished_shards_are_kept(manual: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = convert("lm1b", tmp_path / "whole", manual)
    assert stopped(1, tmp_path, manual) == []
    assert stopped(1, tmp_path, manual) == ["resumes at shard 2 of train"]
    written = stop_at(monkeypatch, -1)
    lines: list[str] = []
    place = convert("lm1b", tmp_path, manual, lines)
    assert beginnings(lines) == [] and not [name for name in written if name.startswith("lm1b-train")]
    assert not [*(tmp_path / "lm1b" / "partial_1.1.0").rglob("chunk-*")]
    assert {file.name: file.read_bytes() for file in place.iterdir()} == {
        file.name: file.read_bytes() for file in expected.iterdir()
    }


def test_shards_of_other_originals_are_removed(manual: Path, tmp_path: Path) -> None:
    assert stopped(2, tmp_path, manual) == []
    (archive,) = manual.iterdir()
    os.utime(archive, ns=(1, 1))
    again = ["starts again, because the originals or the versions of packages changed"]
    assert stopped(2, tmp_path, manual) == again


def test_a_damaged_chunk_is_one_line(manual: Path, tmp_path: Path) -> None:
    stopped(0, tmp_path, manual)
    chunk = tmp_path / "lm1b" / "partial_1.1.0" / "train" / "chunk-000000"
    for size in (chunk.stat().st_size - 1, 5):
        os.truncate(chunk, size)
        with pytest.raises(BadInput, match=rf"{chunk} is damaged. Delete the folder {chunk.parent}.$"):
            convert("lm1b", tmp_path, manual)
    os.truncate(chunk, 0)
    with pytest.raises(OSError, match="examples after"):
        convert("lm1b", tmp_path, manual)


def test_a_full_disk_is_one_error_of_the_disk(manual: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from array_record.python import array_record_module

    class Full(array_record_module.ArrayRecordWriter):
        def write(self, record: bytes) -> None:
            raise RuntimeError("write() failed: No space left on device")

    with monkeypatch.context() as full:
        full.setattr(array_record_module, "ArrayRecordWriter", Full)
        with pytest.raises(OSError, match="No space left on device"):
            convert("lm1b", tmp_path, manual)
    place = convert("lm1b", tmp_path, manual)
    assert (place / "dataset_info.json").exists()


def test_records_are_sorted_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_chunks, "CHUNK_BYTES", 30_000)
    keys = [int.from_bytes(hashlib.md5(b"%d" % index).digest(), "big") for index in range(3000)]
    records = {key: b"%d" % index * (index % 7) for index, key in enumerate(keys)}
    sorted_chunks.write(tmp_path, itertools.starmap(sorted_chunks.record, records.items()))
    assert len([*tmp_path.iterdir()]) > 2
    assert [*sorted_chunks.values(tmp_path)] == [records[key] for key in sorted(keys)]
    (tmp_path / "chunk-again").write_bytes(sorted_chunks.record(keys[5], b"again"))
    with pytest.raises(BadInput, match="two examples have the same key"):
        list(sorted_chunks.values(tmp_path))


def test_downloads_print_plain_lines_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorflow_datasets.core.download import downloader

    from workloads.datasets import tfds_images

    small(monkeypatch)
    sizes = {"train_examples": 60, "validation_examples": 20, "test_examples": 30}
    monkeypatch.setitem(tfds_images.SOURCES, "mnist", tfds_images.SOURCES["mnist"]._replace(**sizes))
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    write_originals("mnist", tmp_path / "web")
    web = tmp_path / "web" / "downloads" / "manual" / "mnist"

    class Response:
        def __init__(self, url: str):
            self.url = url
            self.headers: dict[str, str] = {}

    @contextlib.contextmanager
    def serve(url: str, **options: Any) -> Iterator[Any]:
        yield Response(url), [(web / url.rsplit("/", 1)[1]).read_bytes(), b"\0" * (1 << 20)]

    monkeypatch.setattr(downloader, "_open_url", serve)
    assert prepare.main(["mnist", "--data-dir", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "\r" not in told.err and "%|" not in told.err
    lines = told.err.splitlines()
    assert any(re.fullmatch(r"downloading: \d\.\d\dMB \(\d+%\)(, \d\d:\d\d left)?", line) for line in lines)
    assert "sorting test: 30 examples (100%), 00:00 left" in lines
