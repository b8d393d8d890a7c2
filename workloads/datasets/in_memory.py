"""Data sets that come inside Python packages: scikit-learn's handwritten digits."""

import functools
import gzip
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from results.bad_input import BadInput
from workloads import workload
from workloads.workload import ArrayShape, Examples, Splits, content

VALIDATION_EXAMPLES = 386  # the first three forms: of 130, 126 and 130 images
TRAIN_EXAMPLES = 1411  # the other eleven


def digits() -> Splits:
    """1,797 handwritten digits of 8×8 pixels, scaled to [0, 1], split by writers.

    They are the test part of UCI's optical digits, by writers none of whom wrote for its training part (Alpaydin &
    Kaynak 1998, doi 10.24432/C50P49), in the order in which these filled in 14 forms of 122 to 130 digits each: a form
    starts with three times 0 … 9, and its further labels are those of every other form. Neighbours in the file are
    mostly of one hand, so an image whose neighbours are in training is easier than one by a new writer.

    The first three forms are validation; no form is cut. A form names no writer, and 13 writers are said to have filled
    in the 14: the two forms most alike, the first two, are on one side. Training images are ordered in strides, so that
    the first of them, on which an evaluation looks, are by all of its writers.

    Returns:
      Splits with inputs float32[N, 8, 8, 1] and labels int32[N].
    """
    with gzip.open(_file(), "rt") as lines:  # 64 pixels of 0…16 and the label
        table = np.loadtxt(lines, np.float32, delimiter=",")
    inputs = (table[:, :64] / 16).reshape(-1, 8, 8, 1)
    labels = table[:, 64].astype(np.int32)
    train = np.arange(VALIDATION_EXAMPLES, len(labels))
    strides = train[np.argsort(np.arange(len(train)) % -(-len(train) // VALIDATION_EXAMPLES), kind="stable")]
    return Splits(
        train=Examples(inputs[strides], labels[strides]),
        validation=Examples(inputs[:VALIDATION_EXAMPLES], labels[:VALIDATION_EXAMPLES]),
        test=None,
    )


class Subset(NamedTuple):
    """A part of ``digits``, as Shallue et al. (2018) train on parts of MNIST and ImageNet.

    Attributes:
      train_examples: the first so many training images of the classes.
      validation_examples: all of them.
      classes: the digits there are; labels count them.
    """

    train_examples: int
    validation_examples: int = VALIDATION_EXAMPLES
    classes: tuple[int, ...] = tuple(range(10))


SUBSETS: dict[str, Subset] = {
    **{f"digits_{count}": Subset(count) for count in (1411, 705, 352, 176)},
    "digits_even": Subset(699, 192, (0, 2, 4, 6, 8)),
}


def subset(name: str) -> Splits:
    """The images of one of SUBSETS."""
    of = SUBSETS[name]
    train, validation, _ = digits()
    assert train is not None
    first = Examples(*(array[: of.train_examples] for array in _only(train, of.classes)))
    return Splits(first, _only(validation, of.classes), None)


def _only(examples: Examples, classes: Sequence[int]) -> Examples:
    chosen = np.isin(examples.labels, classes)
    labels = np.searchsorted(classes, examples.labels[chosen]).astype(np.int32)
    return Examples(examples.inputs[chosen], labels)


def subset_shapes(name: str) -> Splits:
    """The shapes of what ``subset`` gives."""
    of = SUBSETS[name]
    image, label = ArrayShape((8, 8, 1), np.dtype(np.float32)), ArrayShape((), np.dtype(np.int32))
    return workload.shapes((of.train_examples, of.validation_examples, None), image, label)


@functools.cache
def subset_version(name: str) -> str:
    """The version of the images and their split."""
    return content(subset(name))


TAGS = {"loop": (0, 4, 6, 8, 9), "odd": (1, 3, 5, 7, 9), "above four": (5, 6, 7, 8, 9), "prime": (2, 3, 5, 7)}


def digit_tags() -> Splits:
    """The images of ``digits`` with as many labels as there are TAGS, uint8[N, TAGS]: 1 where the digit has a tag."""
    have = np.array([[digit in those for those in TAGS.values()] for digit in range(10)], np.uint8)
    train, validation, _ = digits()
    assert train is not None
    return Splits(
        Examples(train.inputs, have[train.labels]), Examples(validation.inputs, have[validation.labels]), None
    )


def tag_shapes() -> Splits:
    """The shapes of what ``digit_tags`` gives."""
    image, label = ArrayShape((8, 8, 1), np.dtype(np.float32)), ArrayShape((len(TAGS),), np.dtype(np.uint8))
    return workload.shapes((TRAIN_EXAMPLES, VALIDATION_EXAMPLES, None), image, label)


@functools.cache
def tag_version() -> str:
    """The version of the images, their tags and their split."""
    return content(digit_tags())


def shapes() -> Splits:
    """The shapes of what ``digits`` gives."""
    image, label = ArrayShape((8, 8, 1), np.dtype(np.float32)), ArrayShape((), np.dtype(np.int32))
    return workload.shapes((TRAIN_EXAMPLES, VALIDATION_EXAMPLES, None), image, label)


@functools.cache
def version() -> str:
    """The version of the images and their split."""
    return content(digits())


def check() -> None:
    """Raises BadInput unless scikit-learn's file is there."""
    _file()


def _file() -> Path:
    """scikit-learn's file, found without importing scikit-learn, which takes seconds."""
    package = importlib.util.find_spec("sklearn")
    for folder in package.submodule_search_locations or () if package else ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return file
    raise BadInput("digits are not available: scikit-learn has no datasets/data/digits.csv.gz; reinstall it")
