"""Data sets that come with Python packages: scikit-learn's handwritten digits data set."""

import functools
import gzip
import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads import workload
from workloads.base import BadInput
from workloads.workload import ArrayShape, Examples, Splits, content

VALIDATION_EXAMPLES = 386  # the first three forms: 130, 126 and 130 images
TRAIN_EXAMPLES = 1411  # the other eleven forms
TAGS = {"loop": (0, 4, 6, 8, 9), "odd": (1, 3, 5, 7, 9), "above four": (5, 6, 7, 8, 9), "prime": (2, 3, 5, 7)}


class Subset(NamedTuple):
    """A subset of ``digits``, analogous to the subsets of MNIST and ImageNet in Shallue et al. (2018).

    Attributes:
      train_examples: number of training images of these classes to use, starting with the first.
      validation_examples: number of validation images of these classes.
      classes: digits in the subset. The label of a digit is its position in this tuple.
    """

    train_examples: int
    validation_examples: int = VALIDATION_EXAMPLES
    classes: tuple[int, ...] = tuple(range(10))


SUBSETS = {
    **{f"digits_{count}": Subset(count) for count in (1411, 705, 352, 176)},
    "digits_even": Subset(699, 192, (0, 2, 4, 6, 8)),
}


def load(name: str) -> Splits:
    """Returns ``digits``, ``digit_tags`` or one of SUBSETS."""
    if name == "digits":
        return digits()
    return digit_tags() if name == "digit_tags" else _subset(SUBSETS[name])


def digits() -> Splits:
    """Returns 1,797 images of handwritten digits, 8×8 pixels, scaled to [0, 1] and split by writer.

    They are the test part of UCI's optical digits data set. The writers of this part did not contribute to the training
    part (Alpaydin & Kaynak 1998, doi 10.24432/C50P49). The file preserves the order in which the writers filled in 14
    forms of 122 to 130 digits each. Each form starts with 0 … 9 three times, and its other labels are the same on every
    second form. Adjacent images in the file are mostly by the same writer, so images next to training images are easier
    than images by a new writer.

    The first three forms are the validation split. A form is never divided between splits. Forms do not identify
    writers: the 14 forms are reported to be from 13 writers. The two most similar forms are the first two, which are in
    the same split. Training images are in strided order, so the first images, which are used for evaluation, come from
    all writers.

    Returns:
      Splits with inputs float32[N, 8, 8, 1] and labels int32[N].
    """
    inputs, labels = all_digits()
    train = np.arange(VALIDATION_EXAMPLES, len(labels))
    strides = train[np.argsort(np.arange(len(train)) % -(-len(train) // VALIDATION_EXAMPLES), kind="stable")]
    return Splits(
        train=Examples(inputs[strides], labels[strides]),
        validation=Examples(inputs[:VALIDATION_EXAMPLES], labels[:VALIDATION_EXAMPLES]),
        test=None,
    )


def all_digits() -> Examples:
    """Returns all images in the order of the file: inputs float32[1797, 8, 8, 1] and labels int32[1797]."""
    with gzip.open(_file(), "rt") as lines:  # 64 pixels of 0…16 and the label
        table = np.loadtxt(lines, np.float32, delimiter=",")
    return Examples((table[:, :64] / 16).reshape(-1, 8, 8, 1), table[:, 64].astype(np.int32))


def digit_tags() -> Splits:
    """Returns the images of ``digits`` with labels uint8[N, TAGS], which are 1 for each tag of the digit."""
    have = np.array([[digit in digits_of_tag for digits_of_tag in TAGS.values()] for digit in range(10)], np.uint8)
    train, validation = (Examples(examples.inputs, have[examples.labels]) for examples in digits()[:2] if examples)
    return Splits(train, validation, None)


def _subset(subset: Subset) -> Splits:
    parts = []
    for examples, count in zip(digits(), (subset.train_examples, subset.validation_examples), strict=False):
        assert examples is not None
        chosen = np.flatnonzero(np.isin(examples.labels, subset.classes))[:count]
        labels = np.searchsorted(subset.classes, examples.labels[chosen]).astype(np.int32)
        parts.append(Examples(examples.inputs[chosen], labels))
    return Splits(parts[0], parts[1], None)


def shapes(name: str) -> Splits:
    """Returns the shapes of the splits that ``load`` returns."""
    subset = SUBSETS.get(name, Subset(TRAIN_EXAMPLES))
    image = ArrayShape((8, 8, 1), np.dtype(np.float32))
    label = ArrayShape((), np.dtype(np.int32))
    if name == "digit_tags":
        label = ArrayShape((len(TAGS),), np.dtype(np.uint8))
    return workload.shapes((subset.train_examples, subset.validation_examples, None), image, label)


@functools.cache
def version(name: str) -> str:
    """Returns the hash of the images, their labels and their split."""
    return content(load(name))


def check(name: str) -> None:
    """Raises BadInput unless scikit-learn's file exists."""
    del name
    _file()


def _file() -> Path:
    """Returns the path of scikit-learn's file. Importing scikit-learn would take seconds."""
    package = importlib.util.find_spec("sklearn")
    for folder in package.submodule_search_locations or () if package else ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return file
    raise BadInput("digits are not available: scikit-learn has no datasets/data/digits.csv.gz. Reinstall scikit-learn.")
