"""MNIST, Fashion MNIST and CIFAR-10 from TensorFlow Datasets' array_record files, read without TensorFlow.

``python -m workloads.prepare NAME`` writes the files to TFDS's folder, ``$TFDS_DATA_DIR`` or
``~/tensorflow_datasets``.
"""

import functools
import io
import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads import workload
from workloads.base import BadInput
from workloads.datasets import array_records
from workloads.workload import ArrayShape, Examples, Splits


class TfdsImages(NamedTuple):
    """A TFDS data set and its splits.

    Attributes:
      version: TFDS's version of the data.
      train_examples, validation_examples: sizes of the two parts that TFDS's training split is divided into, as in
        Shallue et al. (2018). The validation examples come last.
      test_examples: size of TFDS's test split.
      download_bytes: size of the download.
      stored_bytes: approximate size of the array_record files.
      image: shape of an image, [H, W, C].
    """

    version: str
    train_examples: int
    validation_examples: int
    test_examples: int
    download_bytes: int
    stored_bytes: int
    image: tuple[int, int, int]


SOURCES = {
    "mnist": TfdsImages("3.0.1", 55_000, 5_000, 10_000, 11_594_722, 25_000_000, (28, 28, 1)),
    "fashion_mnist": TfdsImages("3.0.1", 55_000, 5_000, 10_000, 30_878_645, 40_000_000, (28, 28, 1)),
    "cifar10": TfdsImages("3.0.2", 45_000, 5_000, 10_000, 170_052_171, 145_000_000, (32, 32, 3)),
}
# Data sets that use the first training images of another one, in TFDS's order, with the same validation and test
# splits.
SUBSETS = {f"mnist_{n}": ("mnist", n) for n in (55_000, 27_500, 13_750, 6_875)}


def load(name: str) -> Splits:
    """Reads a data set into memory.

    Args:
      name: a key of SOURCES or SUBSETS.

    Returns:
      Splits with inputs uint8[N, H, W, C] and labels int32[N], in TFDS's shuffled order.

    Raises:
      BadInput: the files do not exist or have the wrong number of records.
    """
    stored, source = _of(name)
    check(stored)
    splits = _read(stored, folder(stored), SOURCES[stored])
    assert splits.train is not None
    return splits._replace(train=Examples(*(array[: source.train_examples] for array in splits.train)))


def version(name: str) -> str:
    """Returns TFDS's version of the data, and the size of the training split."""
    source = _of(name)[1]
    return f"tfds:{source.version} train[:{source.train_examples}]"


def shapes(name: str) -> Splits:
    """Returns the shapes of the splits that ``load`` returns, without reading files."""
    source = _of(name)[1]
    image = ArrayShape(source.image, np.dtype(np.uint8))
    label = ArrayShape((), np.dtype(np.int32))
    return workload.shapes((source.train_examples, source.validation_examples, source.test_examples), image, label)


def folder(name: str, parent: Path | None = None) -> Path:
    """Returns the folder of a data set's files, in ``parent`` or TFDS's default folder."""
    return array_records.folder(name, SOURCES[name].version, parent)


def check(name: str, parent: Path | None = None) -> None:
    """Raises BadInput unless both splits have array_record files. Only file names are checked."""
    stored, _ = _of(name)
    array_records.check(stored, folder(stored, parent), ("train", "test"))


def _of(name: str) -> tuple[str, TfdsImages]:
    """Returns the data set whose files a name uses, and the splits of that name."""
    stored, count = SUBSETS.get(name, (name, SOURCES[name].train_examples if name in SOURCES else 0))
    return stored, SOURCES[stored]._replace(train_examples=count)


@functools.lru_cache(maxsize=1)  # a worker runs many studies of one data set in a row
def _read(name: str, place: Path, source: TfdsImages) -> Splits:
    images = {split: _images(name, place, split) for split in ("train", "test")}
    cut = source.train_examples
    expected = {"train": cut + source.validation_examples, "test": source.test_examples}
    counts = {split: len(examples.labels) for split, examples in images.items()}
    if counts != expected:
        raise BadInput(f"{place} holds {counts} examples, not {expected}. {array_records.remedy(name, place)}")
    inputs, labels = images["train"]
    return Splits(
        train=Examples(inputs[:cut], labels[:cut]),
        validation=Examples(inputs[cut:], labels[cut:]),
        test=images["test"],
    )


def _images(name: str, place: Path, split: str) -> Examples:
    """Reads a split: uint8[N, H, W, C] and int32[N]."""
    from PIL import Image

    count = len(array_records.Records(place, name, split))
    inputs = np.empty((count, *SOURCES[name].image), np.uint8)
    labels = np.empty(count, np.int32)
    records = itertools.chain.from_iterable(array_records.batches(name, place, split))
    for index, record in enumerate(records):
        with Image.open(io.BytesIO(record["image"].bytes_list.value[0])) as image:
            inputs[index] = np.asarray(image).reshape(inputs.shape[1:])
        labels[index] = record["label"].int64_list.value[0]
    inputs.setflags(write=False)
    labels.setflags(write=False)
    return Examples(inputs, labels)
