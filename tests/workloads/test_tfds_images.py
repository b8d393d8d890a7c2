"""Reads what TFDS's real builders write, of synthetic images."""

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from results.bad_input import BadInput
from workloads import registry
from workloads.datasets import array_records, tfds_images

SHAPES = {"mnist": (28, 28, 1), "fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Writes 320 training and 70 test images under a real name; returns them by index, which is in the last pixels."""
    from tensorflow_datasets.core import registered
    from tensorflow_datasets.image_classification import cifar, mnist

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    real = {"mnist": mnist.MNIST, "fashion_mnist": mnist.FashionMNIST, "cifar10": cifar.Cifar10}

    def write(name: str) -> dict[str, Any]:
        random = np.random.default_rng(7)
        images = {}
        for split, count in (("train", 320), ("test", 70)):
            images[split] = random.integers(0, 256, (count, *SHAPES[name]), dtype=np.uint8)
            images[split][:, -1, -1, 0] = np.arange(count) % 256
            images[split][:, -1, -2, 0] = np.arange(count) // 256

        def rows(split: str) -> Iterator[tuple[int, dict[str, Any]]]:
            for index, image in enumerate(images[split]):
                png = io.BytesIO()
                Image.fromarray(image.squeeze()).save(png, "png")
                extra = {"id": f"{split}_{index:05d}"} if name == "cifar10" else {}
                yield index, {"image": io.BytesIO(png.getvalue()), "label": index % 10, **extra}

        def split_generators(self: Any, dl_manager: Any) -> dict[str, Any]:
            return {split: rows(split) for split in images}

        parts = {"name": name, "_split_generators": split_generators}
        with registered.skip_registration():
            builder = type(real[name].__name__, (real[name],), parts)(data_dir=str(tmp_path))
        builder.download_and_prepare(file_format="array_record")
        sizes = {"train_examples": 250, "validation_examples": 70, "test_examples": 70}
        monkeypatch.setitem(tfds_images.SOURCES, name, tfds_images.SOURCES[name]._replace(**sizes))
        return images

    return write


@pytest.mark.parametrize("name", list(SHAPES))
def test_images_and_labels_come_back_as_they_were_written(
    name: str, written: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    import tensorflow_datasets as tfds

    images = written(name)
    row = registry.DATASETS[name]
    row.check()
    splits = row.load()
    assert splits.train is not None and splits.test is not None
    seen = []
    for split, count, of in (("train", 250, "train"), ("validation", 70, "train"), ("test", 70, "test")):
        examples = getattr(splits, split)
        assert examples.inputs.shape == (count, *SHAPES[name])
        assert (examples.inputs.dtype, examples.labels.dtype) == (np.uint8, np.int32)
        indices = examples.inputs[:, -1, -1, 0].astype(int) + 256 * examples.inputs[:, -1, -2, 0].astype(int)
        np.testing.assert_array_equal(examples.inputs, images[of][indices])
        np.testing.assert_array_equal(examples.labels, indices % 10)
        seen.append(indices)
    assert sorted(np.concatenate(seen[:2])) == list(range(320))
    source = tfds.data_source(name, split="train[250:]", data_dir=tmp_path)
    np.testing.assert_array_equal(splits.validation.inputs, np.stack([example["image"] for example in source]))


def test_data_sets_are_split_as_in_the_paper() -> None:
    from tensorflow_datasets.image_classification import cifar, mnist

    for name, (train, real) in {
        "mnist": (55_000, mnist.MNIST),
        "fashion_mnist": (55_000, mnist.FashionMNIST),
        "cifar10": (45_000, cifar.Cifar10),
    }.items():
        row, source = registry.DATASETS[name], tfds_images.SOURCES[name]
        assert (row.train_examples, row.evaluation_examples, source.test_examples) == (train, 5_000, 10_000)
        assert row.version() == f"tfds:{real.VERSION} train[:{train}]"
        assert sum(info.size for info in real.url_infos.values()) == source.download_bytes


def test_absent_data_name_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    row = registry.DATASETS["mnist"]
    for refuses in (row.check, row.load):
        with pytest.raises(BadInput, match=re.escape(f"{tmp_path}/mnist/3.0.1 does not exist")) as raised:
            refuses()
        assert str(raised.value).endswith("Run python -m workloads.prepare mnist.")
        assert "\n" not in str(raised.value)
    monkeypatch.delenv("TFDS_DATA_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert array_records.data_dir() == tmp_path / "tensorflow_datasets"


def test_other_files_in_the_place_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    place = tmp_path / "cifar10" / "3.0.2"
    place.mkdir(parents=True)
    with pytest.raises(BadInput, match="no complete array_record files"):
        tfds_images.check("cifar10")
    (place / "cifar10-train.tfrecord-00000-of-00001").touch()
    with pytest.raises(BadInput, match=r"tfrecord files.*--data-dir DIR"):
        tfds_images.check("cifar10")


def test_a_data_set_of_another_size_is_refused(
    written: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    written("mnist")
    monkeypatch.setitem(tfds_images.SOURCES, "mnist", tfds_images.SOURCES["mnist"]._replace(test_examples=71))
    with pytest.raises(BadInput, match="'test': 70} examples, not"):
        registry.DATASETS["mnist"].load()
