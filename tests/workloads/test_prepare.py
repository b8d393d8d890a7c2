"""Prepares data sets from files in the original formats, where a machine without network finds them."""

import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads import streamed
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
    assert "is already prepared" in capsys.readouterr().out
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

    def write_all_but_some(what: prepare.Preparable, within: Path, planned: prepare.Conversion) -> None:
        write(what, within, planned)
        for file in what.folder(within).glob("mnist-test*"):
            file.unlink()

    monkeypatch.setattr(prepare, "_write", write_all_but_some)
    assert prepare.main(["mnist", "--data-dir", str(tmp_path)]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: mnist could not be prepared: mnist is not prepared: ")
    assert line.endswith(f"put the downloaded files into {tmp_path}/downloads/manual/mnist.")


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
    assert line.endswith(f"or put the downloaded files into {tmp_path}/downloads/manual/cifar10.")
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


def write_streamed_originals(name: str, manual: Path) -> None:
    """Small files in the forms in which the originals are published: 8 training and 4 further examples."""
    manual.mkdir(parents=True)
    if name == "imagenet2012":
        classes = {
            f"{wnid}.tar": streamed.tar({f"{wnid}_{i}.JPEG": streamed.jpeg(i) for i in range(4)}) for wnid in WNIDS
        }
        (manual / "ILSVRC2012_img_train.tar").write_bytes(streamed.tar(classes))
        names = [f"ILSVRC2012_val_{i + 1:08}.JPEG" for i in range(4)]
        images = {one: streamed.jpeg(i) for i, one in reversed([*enumerate(names)])}
        (manual / "ILSVRC2012_img_val.tar").write_bytes(streamed.tar(images))
    elif name == "lm1b":
        streamed.write_lm1b(manual, 8, 4)
    elif name == "open_images_v4/200k":
        write_open_images(manual)
    else:
        for split, count in (("train", 8), ("validation", 4)):
            pages = [
                {"text": streamed.text(i), "url": f"https://example.org/{i}", "timestamp": "2019-04-25T12:57:54Z"}
                for i in range(count)
            ]
            for part in range(2):
                lines = "\n".join(json.dumps(page) for page in pages[part::2])
                (manual / f"c4-{split}.{part:05}-of-00002.json.gz").write_bytes(gzip.compress(lines.encode()))


def write_open_images(manual: Path) -> None:
    """Images 0 … 7 for training, two each in four of sixteen archives, 8 … 11 for validation; labels as in SAID."""
    ids = {"train": [f"{digit}{i:015x}" for i, digit in enumerate("0077aaff")], "test": []}
    ids["validation"] = [f"{i:016x}" for i in range(8, 12)]
    for split, own in ids.items():
        images = {f"{split}/{one}.jpg": streamed.jpeg(int(one[1:], 16), (1000, 800)) for one in own}
        for digit in "0123456789abcdef" if split == "train" else [""]:
            part = {path: image for path, image in images.items() if path.startswith(f"{split}/{digit}")}
            archive = f"train_{digit}" if digit else split
            (manual / f"{archive}.tar.gz").write_bytes(streamed.tar(part, "w:gz"))
        for who, source in (("human", "verification"), ("machine", "machine")):
            lines = ["ImageID,Source,LabelName,Confidence"]
            lines += [f"{one},{source},{label},{sure}" for one in own for by, label, sure in SAID if by == who]
            (manual / f"{split}-annotations-{who}-imagelabels.csv").write_text("\n".join(lines) + "\n")
        boxes = ["ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,Occluded,Truncated,GroupOf,Depiction,Inside"]
        boxes += [f"{one},xclick,/m/011k07,1,0.1,0.3,0.2,0.6,0,1,0,-1,0" for one in own]
        (manual / f"{split}-annotations-bbox.csv").write_text("\n".join(boxes) + "\n")


# Of each image who said what how surely; the third is a class that is not trainable.
SAID = (
    ("human", "/m/0108_09c", 1.0),
    ("human", "/m/010dmf", 0.0),
    ("human", "/m/0100nhbf", 1.0),
    ("machine", "/m/010jjr", 0.7),
    ("machine", "/m/010l12", 0.4),
)
WNIDS = ("n01440764", "n01443537")


@pytest.mark.parametrize("name", ["imagenet2012", "open_images_v4/200k", "lm1b", "c4/en"])
def test_streamed_originals_become_files_that_load(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download.download_manager import DownloadManager

    from workloads import preparable
    from workloads.datasets import streamed_images, streamed_text

    pytest.importorskip("sentencepiece")
    monkeypatch.setattr(DownloadManager, "_register_or_validate_checksums", lambda self, **known: None)
    monkeypatch.setitem(preparable._STREAMED_BYTES, name, (1000, 1000))
    for module in (streamed_images, streamed_text):
        for user, of in module.SOURCES.items():
            sizes: dict[str, Any] = {"train_examples": 8, "validation_examples": 4}
            sizes["splits"] = {split: 8 if split == "train" else 4 for split in of.splits}
            sizes["splits"] |= {split: 2 for split in of.splits if split.startswith("heldout")}
            sizes |= {"held_out": 3} if getattr(of, "held_out", 0) else {}
            sizes |= {"vocabulary": 325, "learned_from": 8} if module is streamed_text else {}
            monkeypatch.setitem(module.SOURCES, user, of._replace(**sizes))
    write_streamed_originals(name, tmp_path / "downloads" / "manual" / name)
    assert prepare.main([name, "--data-dir", str(tmp_path)]) == 0
    assert f"{name} is ready" in capsys.readouterr().out
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    users = [u for m in (streamed_images, streamed_text) for u, of in m.SOURCES.items() if of.files == name]
    rows = [*tfds.data_source(name, split="train", data_dir=tmp_path)]
    assert len(rows) == 8
    if name == "imagenet2012":
        labels = {one["file_name"].decode(): int(one["label"]) for one in rows}
        assert labels == {f"{wnid}_{i}.JPEG": at for at, wnid in enumerate(WNIDS) for i in range(4)}
        held = {
            one["file_name"].decode(): int(one["label"])
            for one in tfds.data_source(name, split="validation", data_dir=tmp_path)
        }
        first = {f"ILSVRC2012_val_{i + 1:08}.JPEG": label for i, label in enumerate((65, 970, 230, 809))}
        assert held == first  # sea snake, alp, Shetland sheepdog, soup bowl
        assert sorted(np.load(tmp_path / "imagenet2012" / "5.1.0" / "rows-2-train.npy")) == [
            row for row, one in enumerate(rows) if one["label"] % 2 == 0
        ]
    elif name == "open_images_v4/200k":
        check_open_images(rows)
    else:
        text = streamed.sentence if name == "lm1b" else streamed.text
        assert sorted(one["text"].decode() for one in rows) == sorted(map(text, range(8)))
        heldout = tfds.data_source(name, split="test" if name == "lm1b" else "validation", data_dir=tmp_path)
        held = range(8, 12) if name == "lm1b" else range(4)
        assert sorted(one["text"].decode() for one in heldout) == sorted(map(text, held))
        for split, part in {"heldout_00000": range(8, 10), "heldout_00001": range(10, 12)}.items():
            if name == "lm1b":
                own = tfds.data_source(name, split=split, data_dir=tmp_path)
                assert sorted(one["text"].decode() for one in own) == sorted(map(text, part))
    assert prepare.main([users[0]]) == 0
    assert "is already prepared" in capsys.readouterr().out
    for made in [*(tmp_path / name).rglob("*.model"), *(tmp_path / name).rglob("rows*")]:
        before = made.read_bytes()
        made.unlink()
        assert prepare.main([name]) == 0
        assert made.read_bytes() == before


def test_validation_image_has_the_label_of_its_number(tmp_path: Path) -> None:
    """Packed with its folder, and without its second image: neither moves the labels of the others."""
    from results.bad_input import BadInput
    from workloads.datasets import streamed_originals

    names = [f"val/ILSVRC2012_val_{number:08}.JPEG" for number in (4, 1, 3)]
    packed = io.BytesIO(streamed.tar(dict.fromkeys(names, b"")))
    with tarfile.open(fileobj=packed, mode="a") as archive:
        folder = tarfile.TarInfo("val")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    (tmp_path / "val.tar").write_bytes(packed.getvalue())
    rows = dict(streamed_originals._imagenet_validation(tmp_path / "val.tar"))
    found = {str(name)[-7:-5]: row["label"] for name, row in rows.items()}
    assert found == {"04": "n04263257", "01": "n01751748", "03": "n02105855"}  # soup bowl, sea snake, sheepdog
    for odd in ("ILSVRC2012_val_00050001.JPEG", "ILSVRC2012_val_00000000.JPEG", "notes.txt"):
        (tmp_path / "odd.tar").write_bytes(streamed.tar({odd: b""}))
        with pytest.raises(BadInput, match=f"odd.tar holds {odd}, which is not an image of ImageNet's validation set"):
            list(streamed_originals._imagenet_validation(tmp_path / "odd.tar"))


def test_every_split_is_counted_against_its_publisher() -> None:
    """Numbers of records as the publishers and TFDS's catalog state them."""
    from workloads import preparable

    known = {name: dict(preparable.preparable(name).examples) for name in preparable.names()}
    assert {name: known[name] for name in known if not name.startswith(("web_graph", "movielens", "streamed_"))} == {
        "mnist": {"train": 60_000, "test": 10_000},
        "fashion_mnist": {"train": 60_000, "test": 10_000},
        "cifar10": {"train": 50_000, "test": 10_000},
        "imagenet2012": {"train": 1_281_167, "validation": 50_000},
        "open_images_v4/200k": {"train": 1_743_042, "validation": 41_620},
        "lm1b": {"train": 30_301_028, "test": 306_688, "heldout_00000": 6_075, "heldout_00001": 6_206},
        "c4/en": {"train": 364_868_892, "validation": 364_608},
    }
    assert all({*known[name]} == {"train", "train_t", "test"} for name in known if name.startswith("web_graph"))
    assert all({*known[name]} == {"train"} for name in known if name.startswith("movielens"))


def check_open_images(rows: list[dict[str, Any]]) -> None:
    """What TFDS and training read of ``write_open_images``."""
    from workloads.datasets import streamed_records

    names = {one["image/filename"].decode() for one in rows}
    assert names == {f"{digit}{i:015x}.jpg" for i, digit in enumerate("0077aaff")}
    for one in rows:
        assert one["image"].shape == (400, 500, 3)
        assert [*one["objects"]["confidence"]] == [10, 0, 10, 7, 4]
        assert [*one["objects_trainable"]["confidence"]] == [10, 0, 7, 4]
        np.testing.assert_allclose(one["bobjects"]["bbox"], [[0.2, 0.1, 0.6, 0.3]])
        brightest = int(one["image"].mean((0, 1)).argmax())
        assert brightest == int(one["image/filename"][1:16], 16) % 3
    labels = streamed_records.load("open_images_v4").validation.labels
    assert [[*np.flatnonzero(label)] for label in labels] == 4 * [trainable("/m/0108_09c", "/m/010jjr")]


def trainable(*names: str) -> list[int]:
    """The numbers of classes of Open Images."""
    import tensorflow_datasets as tfds

    lines = Path(tfds.core.tfds_path("object_detection/open_images_classes_trainable.txt")).read_text().split()
    return sorted(lines.index(name) for name in names)


def test_manual_downloads_are_named_and_sizes_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from workloads import preparable

    free = prepare.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(prepare.shutil, "disk_usage", lambda folder: free._replace(free=10**9))
    assert prepare.main(["open_images_v4", "--data-dir", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out.startswith("open_images_v4/200k: 1,743,042 images, 607 GB to download, about 80.0 GB")
    assert "needs 767 GB of disk" in told.err
    sparse(tmp_path / "downloads" / "manual" / "imagenet2012" / "ILSVRC2012_img_train.tar", 147_897_477_120)
    assert prepare.main(["imagenet_half_images", "--data-dir", str(tmp_path)]) == 1
    assert "needs 317 GB of disk in addition to the 148 GB already downloaded" in capsys.readouterr().err
    (tmp_path / "downloads" / "manual" / "imagenet2012" / "ILSVRC2012_img_train.tar").unlink()
    monkeypatch.setitem(preparable._STREAMED_BYTES, "imagenet2012", (1000, 1000))
    assert prepare.main(["imagenet_half_images", "--data-dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "ILSVRC2012_img_train.tar" in error and "egister on image-net.org" in error


def sparse(file: Path, size: int) -> None:
    """A file of zeros that takes no space."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb") as opened:
        opened.truncate(size)


def test_leftovers_of_a_kill_need_no_space_and_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched = tmp_path / "downloads" / "open_images_v4"
    finished, unfinished = "open-image_train_0abc=.tar.gz", f"open-image_train_1def=.tar.gz.tmp.{'0a' * 16}"
    sparse(fetched / finished, 500_000_000_000)
    (fetched / f"{finished}.INFO").write_text("{}")
    sparse(fetched / unfinished / "train_1.tar.gz", 10_000_000_000)
    half = tmp_path / "open_images_v4" / "200k" / "incomplete.AB12CD_2.0.0"
    sparse(half / "open_images_v4-train.array_record", 20_000_000_000)
    others = [fetched / "notes.tmp.old", half.with_name("incomplete.AB12CD_1.0.0"), tmp_path / "downloads" / "lm1b"]
    for other in others:
        other.mkdir()
    free = prepare.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(prepare.shutil, "disk_usage", lambda folder: free._replace(free=266 * 10**9))
    assert prepare.main(["open_images_v4", "--data-dir", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "needs 267 GB of disk in addition to the 500 GB already downloaded, but" in told and told.count("\n") == 1
    assert (fetched / finished).exists() and all(other.exists() for other in others)
    assert not half.exists() and not (fetched / unfinished).exists()
    monkeypatch.setattr(prepare.shutil, "disk_usage", lambda folder: free._replace(free=267 * 10**9))
    monkeypatch.setattr(prepare, "_write", lambda *arguments: prepare._fail("writes"))
    assert prepare.main(["open_images_v4", "--data-dir", str(tmp_path)]) == 1
    assert "error: writes" in capsys.readouterr().err
    sparse(half.with_name("partial_2.0.0") / "train" / "chunk-000000", 40_000_000_000)
    monkeypatch.setattr(prepare.shutil, "disk_usage", lambda folder: free._replace(free=226 * 10**9))
    assert prepare.main(["open_images_v4/200k", "--data-dir", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "needs 227 GB of disk in addition to the 500 GB already downloaded and the 40.0 GB already converted" in told


def test_what_another_process_is_at_is_left_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:

    half = tmp_path / "mnist" / "incomplete.AB12CD_3.0.1"
    half.mkdir(parents=True)
    with prepare.alone("mnist", tmp_path) as is_alone:
        assert is_alone
        assert prepare.main(["mnist", "--data-dir", str(tmp_path)]) == 1
    assert "mnist could not be prepared: another process is preparing it in " in capsys.readouterr().err
    assert half.exists()


def test_a_download_that_failed_leaves_nothing_after_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import requests
    from tensorflow_datasets.core.download import downloader

    def refuse(url: str, **options: Any) -> None:
        raise requests.ConnectionError("refused", request=requests.Request("GET", url).prepare())

    fetched, found = tmp_path / "downloads" / "cifar10", []
    monkeypatch.setattr(downloader, "_open_url", refuse)
    for _ in range(2):
        assert prepare.main(["cifar10", "--data-dir", str(tmp_path)]) == 1
        found.append([path.name for path in fetched.iterdir()])
    assert len(found[0]) == len(found[1]) == 1 and found[0] != found[1]
    assert capsys.readouterr().err.count("could not be prepared") == 2


def test_images_of_open_images_are_made_smaller() -> None:
    from PIL import Image

    from workloads.datasets import streamed_originals

    for size in ((1000, 800), (300, 200)):
        with Image.open(io.BytesIO(streamed_originals.smaller(streamed.jpeg(1, size)))) as image:
            assert abs(image.width * image.height - min(200_000, size[0] * size[1])) < 1000
            assert image.width / image.height == pytest.approx(size[0] / size[1], rel=0.01)
