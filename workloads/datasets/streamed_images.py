"""ImageNet, its halves and Open Images, and scikit-learn's digits in the same formats. See ``streamed_records``.

Photographs are decoded, cropped, resized and (for training) augmented without TensorFlow.
"""

import base64
import functools
import hashlib
import io
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads import workload
from workloads.base import BadInput, Report, durable, track
from workloads.data_stream import Decode, Draws
from workloads.datasets import array_records, embedded_originals, in_memory
from workloads.datasets.array_records import Part
from workloads.workload import ArrayShape, Splits

POSITIVE = 5  # minimum confidence, in tenths, for an object of Open Images to count as present
SIDE = 224  # side of a photograph as an example, in pixels
KEPT = 0.875  # fraction of a photograph's shorter side that an evaluation uses
AREA = (0.08, 1.0)  # range of a training box's area as a fraction of the photograph
RATIO = (3 / 4, 4 / 3)  # range of the box's aspect ratio, width over height
TRIES = 10  # attempts to fit a box
# A small JPEG. The hash of its pixels identifies the decoder.
_PHOTOGRAPH = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNiUFVtVkVGZIhlbXd7"
    "gYKBTmCNl4x9lnN+gXz/2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8"
    "fHx8fHx8fHz/wAARCAAwAEADASIAAhEBAxEB/8QAGAABAQEBAQAAAAAAAAAAAAAAAwIEAQb/xAAfEAADAAICAgMAAAAAAAAAAAAA"
    "AQIDERITBFExUqH/xAAYAQADAQEAAAAAAAAAAAAAAAADBAUGAf/EACIRAAIDAAEEAgMAAAAAAAAAAAACAQMRBBITITIFIzFh4f/a"
    "AAwDAQACEQMRAD8A86oLUCqC1BpHsAI4SgtQaMWOXvkti9ceifby1VumStTS7rDQZVBagfhPopQn8C88iGnIGoRkjZBUFqBlBagC"
    "9gdHMSgtQMoNIfkcrt543TExb0mNTo6awbxXVtpbRO7vdaZwu/Hc9X+pozI/O/v+hC4Z3s50ZPr+j+NhueXNa3rR3cKdtqSk5MHV"
    "BagVQWoF3sBI5iUHTQoLUDV/vnkxStpkHxTuEx1BagVjEGqfWdCUFqBVBagC9hSRwlBagVQIoFXsHUc//9k="
)
Box = tuple[float, float, float, float]  # left, top, right, bottom


class StreamedImages(NamedTuple):
    """A data set of photographs.

    Attributes:
      files: TFDS's name of the data set, with its configuration.
      version: TFDS's version of the data.
      splits: published number of records in each TFDS split.
      train_examples: number of training records to use, starting with the first in TFDS's shuffled order.
      validation_examples: number of validation records to use.
      classes: number of classes.
      every: a divisor. Only classes whose number is divisible by it are used, and they are renumbered.
      many: whether an image can have several labels.
      held_out: number of records at the end of TFDS's ``train`` split that form the test split. With 0, there is no
        test split. TFDS's ``validation`` split is always used for validation.
      test_examples: number of test records to use.
      side: width and height of an example, in pixels.
      content: function that returns a hash of the originals, if they come with Python or its packages.
      padding: label that marks padding, which images do not have.
    """

    files: str
    version: str
    splits: Mapping[str, int]
    train_examples: int
    validation_examples: int
    classes: int
    every: int = 1
    many: bool = False
    held_out: int = 0
    test_examples: int | None = None
    side: int = SIDE
    content: Callable[[], str] | None = None
    padding: int | None = None

    @property
    def parts(self) -> Mapping[str, Part]:
        """The records of each split."""
        total = self.splits["train"]
        cut = total - self.held_out
        parts = {
            "train": Part("train", (0, cut), self.train_examples),
            "validation": Part("validation", (0, self.splits["validation"]), self.validation_examples),
        }
        if self.held_out:
            parts["test"] = Part("train", (cut, total), self.test_examples or 0)
        return parts

    def description(self) -> str:
        """Returns the subset in use, and a hash of some decoded pixels."""
        classes = "" if self.every == 1 else f" classes[::{self.every}]"
        held_out = f" test:train[-{self.held_out}:][:{self.test_examples}]" if self.held_out else ""
        return f"{self.side}×{self.side} train[:{self.train_examples}]{held_out}{classes} pixels:{_pixels()}"

    def shapes(self) -> Splits:
        """Returns the shapes of all splits."""
        label = ArrayShape((self.classes,), np.dtype(np.uint8)) if self.many else ArrayShape((), np.dtype(np.int32))
        image = ArrayShape((self.side, self.side, 3), np.dtype(np.uint8))
        return workload.shapes((self.train_examples, self.validation_examples, self.test_examples), image, label)

    def decoder(self, place: Path, split: str) -> tuple[Decode, int]:
        """Returns the function that decodes an example, and the size of an example in bytes."""
        pixels = 3 * self.side**2
        if self.many:
            return functools.partial(_several_labels, self.side, self.classes), pixels + self.classes
        return functools.partial(_one_label, self.side, self.every), pixels + 4

    def rows(self, place: Path, split: str) -> str | None:
        """Returns the file that lists the indices of the records in use, unless all classes are used."""
        return None if self.every == 1 else str(rows_file(place, self.every, self.parts[split].split))

    def derived_files(self, place: Path) -> list[Path]:
        """Returns the files that ``write_derived`` writes."""
        return [] if self.every == 1 else [rows_file(place, self.every, split) for split in SPLITS]

    def write_derived(self, place: Path, report: Report = lambda line: None) -> None:
        """Writes the derived files that do not exist. This reads all records.

        Args:
          place: folder of the files.
          report: called with progress messages.
        """
        for split, file in zip(SPLITS, self.derived_files(place), strict=False):
            if not file.exists():
                records = array_records.Records(place, self.files, split)
                every_row = track(range(len(records)), f"reading labels of {split}", " images", report)
                labels = (array_records.features(records[row])["label"].int64_list.value[0] for row in every_row)
                rows = [row for row, label in enumerate(labels) if label % self.every == 0]
                buffer = io.BytesIO()
                np.save(buffer, np.asarray(rows, np.int64))
                durable.replace(file, buffer.getvalue())

    def check_derived(self, place: Path) -> None:
        """Raises BadInput if a derived file lists too few records."""
        for split, (_, limits, wanted) in self.parts.items():
            file = self.rows(place, split)
            if file is not None and limits is not None:
                first, last = np.searchsorted(np.load(file, mmap_mode="r"), limits)
                if last - first < wanted:
                    remedy = array_records.remedy(self.files, Path(file))
                    raise BadInput(f"{file} names {last - first} examples of {split}, not {wanted}. {remedy}")


def _digits(train: int, **fields: Any) -> StreamedImages:
    """Returns scikit-learn's digits data set in the format of ImageNet or Open Images."""
    row = StreamedImages("streamed_digits", "1.0.0", embedded_originals.DIGITS, train, 200, 10, side=DIGITS_SIDE)
    return row._replace(content=functools.partial(in_memory.version, "digits"), **fields)


_PUBLISHED = tomllib.loads(Path(__file__).with_name("streamed_images.toml").read_text())
DIGITS_SIDE = 16  # of scikit-learn's digits as examples
SOURCES = {
    **{name: StreamedImages(**row) for name, row in _PUBLISHED.items()},
    "shallue2018_digits": _digits(1_297, held_out=300, test_examples=300),
    "shallue2018_digits_half_images": _digits(648, held_out=300, test_examples=300),
    "streamed_digit_tags": _digits(1_597, classes=len(in_memory.TAGS), many=True),
}
SPLITS = ("train", "validation")


def rows_file(place: Path, divisor: int, split: str) -> Path:
    """Returns the file that lists the indices of the records whose label is divisible by ``divisor``."""
    return place / f"rows-{divisor}-{split}.npy"


def _one_label(side: int, divisor: int, record: bytes, draws: Draws | None) -> tuple[np.ndarray, np.ndarray]:
    features = array_records.features(record)
    label = features["label"].int64_list.value[0] // divisor
    return example(features["image"].bytes_list.value[0], draws, side), np.asarray(label, np.int32)


def _several_labels(side: int, classes: int, record: bytes, draws: Draws | None) -> tuple[np.ndarray, np.ndarray]:
    """Decodes an image of Open Images. The labels are 1 for trainable classes with sufficient confidence."""
    features = array_records.features(record)
    labels = np.asarray(features["objects_trainable/label"].int64_list.value, np.int64)
    confidence = np.asarray(features["objects_trainable/confidence"].int64_list.value, np.int64)
    present = np.zeros(classes, np.uint8)
    present[labels[confidence >= POSITIVE]] = 1
    return example(features["image"].bytes_list.value[0], draws, side), present


def example(encoded: bytes, draws: Draws | None, side: int = SIDE) -> np.ndarray:
    """Decodes a photograph as uint8[side, side, 3].

    Training uses a random crop, randomly flipped (Szegedy et al. 2015, arXiv 1409.4842). Evaluation uses a central
    square. JPEGs are decoded at the smallest libjpeg scale that has enough pixels.

    Args:
      encoded: image in any format that Pillow reads, converted to RGB.
      draws: random numbers of the example, or None during evaluation.
      side: width and height of the result, in pixels.
    """
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as photograph:
        box = middle(*photograph.size) if draws is None else random_box(*photograph.size, draws)
        flipped = draws is not None and draws.uniform() < 0.5
        scaled, box = _drafted(photograph, box, side)
        resized = scaled.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, box)
    pixels = np.asarray(resized)
    return np.ascontiguousarray(pixels[:, ::-1]) if flipped else pixels


@functools.cache
def _pixels() -> str:
    """Returns the first digits of a hash of a photograph, decoded both for evaluation and for training.

    The hash changes if a new version of Pillow, libjpeg or ``example`` decodes or resizes images differently.
    """
    encoded = base64.b64decode(_PHOTOGRAPH)
    decoded = [example(encoded, draws, side=16) for draws in (None, *(Draws(0, 0, position) for position in range(4)))]
    return hashlib.sha256(np.stack(decoded).tobytes()).hexdigest()[:8]


def middle(width: int, height: int) -> Box:
    """Returns the central square of an image. Its side is the fraction ``KEPT`` of the image's shorter side."""
    size = KEPT * min(width, height)
    left = (width - size) / 2
    top = (height - size) / 2
    return left, top, left + size, top + size


def random_box(width: int, height: int, draws: Draws) -> Box:
    """Returns a box with random area, aspect ratio and position, or the center if ``TRIES`` boxes do not fit."""
    for _ in range(TRIES):
        area = width * height * (AREA[0] + (AREA[1] - AREA[0]) * draws.uniform())
        ratio = math.exp(math.log(RATIO[0]) + (math.log(RATIO[1]) - math.log(RATIO[0])) * draws.uniform())
        own_width = round(math.sqrt(area * ratio))
        own_height = round(math.sqrt(area / ratio))
        across = draws.uniform()
        down = draws.uniform()
        if 0 < own_width <= width and 0 < own_height <= height:
            left = math.floor(across * (width - own_width + 1))
            top = math.floor(down * (height - own_height + 1))
            return left, top, left + own_width, top + own_height
    return middle(width, height)


def _drafted(photograph: Any, box: Box, side: int) -> tuple[Any, Box]:
    """Returns the photograph, which is decoded at a smaller scale if it is a JPEG, and the box at that scale."""
    width, height = photograph.size
    across = side / (box[2] - box[0])
    down = side / (box[3] - box[1])
    photograph.draft("RGB", (math.ceil(width * across), math.ceil(height * down)))
    scaled_width, scaled_height = photograph.size
    x = scaled_width / width
    y = scaled_height / height
    return photograph, (box[0] * x, box[1] * y, box[2] * x, box[3] * y)
