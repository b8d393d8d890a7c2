"""Prepares data sets from files in the original formats, where a machine without network finds them."""

import gzip
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads import prepare
from workloads.datasets import tfds_images

ROOT = Path(prepare.__file__).parents[1]


def idx(array: np.ndarray) -> bytes:
    """Gzipped idx file of uint8."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def write_originals(name: str, within: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Puts 80 training and 30 test examples where ``prepare`` looks for them; returns images and labels."""
    random = np.random.default_rng(3)
    manual = within / "downloads" / "manual" / name
    manual.mkdir(parents=True)
    shape = (32, 32, 3) if name == "cifar10" else (28, 28, 1)
    written = {
        split: (random.integers(0, 256, (count, *shape), dtype=np.uint8), random.integers(0, 10, count, dtype=np.uint8))
        for split, count in (("train", 80), ("test", 30))
    }
    if name != "cifar10":
        for split, stem in (("train", "train"), ("test", "t10k")):
            images, labels = written[split]
            (manual / f"{stem}-images-idx3-ubyte.gz").write_bytes(idx(images[..., 0]))
            (manual / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx(labels))
        return written
    files = {"batches.meta.txt": b"\n".join(b"class%d" % i for i in range(10)) + b"\n\n"}
    for split, batches in (("train", [f"data_batch_{i}.bin" for i in range(1, 6)]), ("test", ["test_batch.bin"])):
        images, labels = written[split]
        rows = np.concatenate([labels[:, None], images.transpose(0, 3, 1, 2).reshape(len(labels), -1)], axis=1)
        files |= {batch: part.tobytes() for batch, part in zip(batches, np.split(rows, len(batches)), strict=True)}
    with tarfile.open(manual / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for file, data in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return written


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the small originals pass: their sizes are what is expected, and their checksums are not looked at."""
    from tensorflow_datasets.core.download.download_manager import DownloadManager

    sizes = {"train_examples": 60, "validation_examples": 20, "test_examples": 30}
    for name, source in tfds_images.SOURCES.items():
        monkeypatch.setitem(tfds_images.SOURCES, name, source._replace(**sizes))
    monkeypatch.setattr(DownloadManager, "_register_or_validate_checksums", lambda self, **known: None)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", list(tfds_images.SOURCES))
def test_originals_become_files_that_load(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = write_originals(name, tmp_path)
    assert prepare.main([name, "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: 110 images, ")
    assert f"{name} is ready" in out
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    splits = tfds_images.load(name)
    assert splits.train is not None and splits.test is not None
    train = (
        np.concatenate([splits.train.inputs, splits.validation.inputs]),
        np.concatenate([splits.train.labels, splits.validation.labels]),
    )
    for loaded, original in ((train, written["train"]), (splits.test, written["test"])):
        assert len(splits.train.labels) == 60
        expected = {(image.tobytes(), int(label)) for image, label in zip(*original, strict=True)}
        assert {(image.tobytes(), int(label)) for image, label in zip(*loaded, strict=True)} == expected
    assert prepare.main([name]) == 0
    assert "already there" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == [tfds_images.SOURCES[name].version]


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_files_with_other_checksums_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_originals(name, tmp_path)
    assert prepare.main([name, "--data-dir", str(tmp_path)]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: {name} could not be prepared: NonMatchingChecksumError")
    assert list((tmp_path / name).iterdir()) == []


@pytest.mark.usefixtures("small")
def test_files_that_are_not_all_there_in_the_end_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_originals("mnist", tmp_path)
    write = prepare._write

    def write_all_but_some(what: prepare.Preparable, within: Path, manual: Path) -> None:
        write(what, within, manual)
        for file in what.folder(within).glob("mnist-test*"):
            file.unlink()

    monkeypatch.setattr(prepare, "_write", write_all_but_some)
    assert prepare.main(["mnist", "--data-dir", str(tmp_path)]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: mnist could not be prepared: mnist is not here: ")
    assert line.endswith(f"put the downloaded files into {tmp_path}/downloads/manual/mnist")


def test_no_network_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import requests
    from tensorflow_datasets.core.download import downloader

    def refuse(url: str, **options: Any) -> None:
        raise requests.ConnectionError("refused\nfor a reason", request=requests.Request("GET", url).prepare())

    monkeypatch.setattr(downloader, "_open_url", refuse)
    assert prepare.main(["cifar10", "--data-dir", str(tmp_path)]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.match(r"error: cifar10 could not be prepared: ConnectionError at https://www\.cs\.toronto\.edu/", line)
    assert line.endswith(f"or put the downloaded files into {tmp_path}/downloads/manual/cifar10")
    assert not tfds_images.folder("cifar10", tmp_path).exists()
    assert list((tmp_path / "cifar10").iterdir()) == []


def test_files_in_the_way_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "mnist" / "3.0.1"
    place.mkdir(parents=True)
    assert prepare.main(["mnist", "--data-dir", str(tmp_path)]) == 1
    assert f"{place} exists but does not hold" in capsys.readouterr().err
    (place / "mnist-train.tfrecord-00000-of-00001").touch()
    assert prepare.main(["mnist", "--data-dir", str(tmp_path)]) == 1
    assert "tfrecord" in capsys.readouterr().err


def test_names_that_need_nothing_and_names_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("digits", "pydoc"):
        assert prepare.main([name]) == 0
        assert capsys.readouterr().out == f"{name} needs no preparation\n"
    assert prepare.main(["fashion-mnist"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "error: unknown data set 'fashion-mnist'; did you mean 'fashion_mnist'?\n"


def test_help_teaches_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in tfds_images.SOURCES)
    assert "TFDS_DATA_DIR" in text


PREPARE_AND_LOAD = """
import sys
from tensorflow_datasets.core.download.download_manager import DownloadManager
from workloads import prepare, registry
from workloads.datasets import tfds_images

DownloadManager._register_or_validate_checksums = lambda self, **known: None
sizes = {"train_examples": 60, "validation_examples": 20, "test_examples": 30}
tfds_images.SOURCES["mnist"] = tfds_images.SOURCES["mnist"]._replace(**sizes)
assert prepare.main(["mnist"]) == 0
assert len(registry.DATASETS["mnist"].load().train.labels) == 60
assert "tensorflow" not in sys.modules
"""


def test_tensorflow_is_never_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_originals("mnist", tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    command = [sys.executable, "-W", "error", "-c", PREPARE_AND_LOAD]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    for file in (ROOT / "workloads").rglob("*.py"):
        assert not re.search(r"^\s*(import|from) tensorflow\b", file.read_text(), re.MULTILINE), file


def test_looking_for_data_imports_neither_tfds_nor_jax() -> None:
    code = "import sys; from workloads.datasets import tfds_images as t; t.version('mnist'); t.folder('mnist')\n"
    code += "print([m for m in ('tensorflow_datasets', 'jax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
