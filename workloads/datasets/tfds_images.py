"""MNIST, Fashion MNIST and CIFAR-10 from TensorFlow Datasets' array_record files, read without TensorFlow.

``python -m workloads.prepare NAME`` writes the files. They lie where TFDS looks for them: in ``$TFDS_DATA_DIR``, or
``~/tensorflow_datasets``.
"""

import functools
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from results.bad_input import BadInput
from workloads import workload
from workloads.datasets import array_records
from workloads.datasets.array_records import BATCH
from workloads.workload import ArrayShape, Examples, Splits


class TfdsImages(NamedTuple):
    """A data set of TFDS and how it is split here.

    Attributes:
      version: of TFDS.
      train_examples, validation_examples: TFDS's training split is cut in two, as Shallue et al. (2018) did; validation
        is its end.
      test_examples: TFDS's test split.
      download_bytes: what TFDS fetches.
      stored_bytes: of the array_record files, about.
      image: shape of an image, [H, W, C].
    """

    version: str
    train_examples: int
    validation_examples: int
    test_examples: int
    download_bytes: int
    stored_bytes: int
    image: tuple[int, int, int]


SOURCES: dict[str, TfdsImages] = {
    "mnist": TfdsImages("3.0.1", 55_000, 5_000, 10_000, 11_594_722, 25_000_000, (28, 28, 1)),
    "fashion_mnist": TfdsImages("3.0.1", 55_000, 5_000, 10_000, 30_878_645, 40_000_000, (28, 28, 1)),
    "cifar10": TfdsImages("3.0.2", 45_000, 5_000, 10_000, 170_052_171, 145_000_000, (32, 32, 3)),
}
# The first images of another data set's training split, in TFDS's order; validation and test are the same.
SUBSETS: dict[str, tuple[str, int]] = {f"mnist_{n}": ("mnist", n) for n in (55_000, 27_500, 13_750, 6_875)}


def load(name: str) -> Splits:
    """Reads a data set into memory.

    Args:
      name: a key of SOURCES or SUBSETS.

    Returns:
      Splits with inputs uint8[N, H, W, C] and labels int32[N], in TFDS's order, which is shuffled.
    """
    of, source = _of(name)
    check(of)
    whole = _read(of, folder(of), SOURCES[of])
    assert whole.train is not None
    return whole._replace(train=Examples(*(array[: source.train_examples] for array in whole.train)))


def version(name: str) -> str:
    """The version of the data, and the cut of their training split."""
    source = _of(name)[1]
    return f"tfds:{source.version} train[:{source.train_examples}]"


def sizes(name: str) -> tuple[int, int]:
    """How many examples there are of training and of validation."""
    source = _of(name)[1]
    return source.train_examples, source.validation_examples


def shapes(name: str) -> Splits:
    """The shapes of what ``load`` gives; reads nothing."""
    source = _of(name)[1]
    image, label = ArrayShape(source.image, np.dtype(np.uint8)), ArrayShape((), np.dtype(np.int32))
    return workload.shapes((source.train_examples, source.validation_examples, source.test_examples), image, label)


def folder(name: str, within: Path | None = None) -> Path:
    """The folder of one data set's files, in ``within`` or where TFDS looks."""
    return array_records.folder(name, SOURCES[name].version, within)


def check(name: str, within: Path | None = None) -> None:
    """Raises BadInput unless array_record files of both splits are there; looks at names of files alone."""
    of, _ = _of(name)
    array_records.check(of, folder(of, within), ("train", "test"))


def _of(name: str) -> tuple[str, TfdsImages]:
    """The data set whose files a name is read from, and how it is split."""
    of, count = SUBSETS.get(name, (name, SOURCES[name].train_examples if name in SOURCES else 0))
    return of, SOURCES[of]._replace(train_examples=count)


@functools.lru_cache(maxsize=1)  # a worker runs many studies of one data set in a row
def _read(name: str, place: Path, source: TfdsImages) -> Splits:
    import tensorflow_datasets as tfds  # a second to import

    builder = tfds.builder_from_directory(place)
    images = {split: _images(builder, split) for split in ("train", "test")}
    cut = source.train_examples
    expected = {"train": cut + source.validation_examples, "test": source.test_examples}
    counts = {split: len(examples.labels) for split, examples in images.items()}
    if counts != expected:
        raise BadInput(
            f"{place} holds {counts} examples, not {expected}; delete it and run python -m workloads.prepare {name}"
        )
    inputs, labels = images["train"]
    return Splits(
        train=Examples(inputs[:cut], labels[:cut]),
        validation=Examples(inputs[cut:], labels[cut:]),
        test=images["test"],
    )


def _images(builder: Any, split: str) -> Examples:
    """All of a split: uint8[N, H, W, C] and int32[N]."""
    import tensorflow_datasets as tfds
    from PIL import Image

    # TFDS would decode with Pillow too, but first logs a warning that it could not find OpenCV.
    source = builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
    inputs = np.empty((len(source), *builder.info.features["image"].shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    for start in range(0, len(source), BATCH):
        indices = range(start, min(start + BATCH, len(source)))
        for index, example in zip(indices, source.__getitems__(list(indices)), strict=True):
            with Image.open(io.BytesIO(example["image"])) as image:
                inputs[index] = np.asarray(image).reshape(inputs.shape[1:])
            labels[index] = example["label"]
    inputs.setflags(write=False)
    labels.setflags(write=False)
    return Examples(inputs, labels)
