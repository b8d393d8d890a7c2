"""ImageNet, halves of it, and Open Images from TFDS's array_record files, streamed: they do not fit in memory.

``python -m workloads.prepare imagenet2012`` and ``… open_images_v4/200k`` write the files. Photographs are decoded,
cropped, resized and, in training, augmented, without TensorFlow.
"""

import base64
import functools
import hashlib
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from results import durable
from results.bad_input import BadInput
from workloads import data_stream, workload
from workloads.data_stream import Draws, Source, Stream
from workloads.datasets import array_records
from workloads.workload import ArrayShape, Examples, Splits

POSITIVE = 5  # tenths of confidence from which an object of Open Images is there
SIDE = 224  # pixels of an example
KEPT = 0.875  # of the shorter side of a photograph, in an evaluation
AREA = (0.08, 1.0)  # of a photograph that is seen in training
RATIO = (3 / 4, 4 / 3)  # of its width to its height
TRIES = 10  # to find such a box
# A small JPEG; the pixels that it is decoded to tell decoders apart.
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
      files: TFDS's name of the data set that they are from, with its configuration.
      version: of TFDS.
      splits: the number of records of each of TFDS's splits that are read, as their publisher states it.
      train_examples: the first so many records of training, in TFDS's order, which is shuffled.
      validation_examples: of TFDS's split ``validation``.
      classes: values of a label, or, where an image has several, how many it may have.
      every: only images of classes whose number is divisible by this, and numbered anew.
      many: whether an image has several labels.
    """

    files: str
    version: str
    splits: Mapping[str, int]
    train_examples: int
    validation_examples: int
    classes: int
    every: int = 1
    many: bool = False


_IMAGENET = {"train": 1_281_167, "validation": 50_000}
_OPEN_IMAGES = {"train": 1_743_042, "validation": 41_620}
SOURCES: dict[str, StreamedImages] = {
    "imagenet": StreamedImages("imagenet2012", "5.1.0", _IMAGENET, 1_281_167, 50_000, 1000),
    "imagenet_half_images": StreamedImages("imagenet2012", "5.1.0", _IMAGENET, 640_583, 50_000, 1000),
    "imagenet_half_classes": StreamedImages("imagenet2012", "5.1.0", _IMAGENET, 630_000, 25_000, 500, every=2),
    "open_images_v4": StreamedImages("open_images_v4/200k", "2.0.0", _OPEN_IMAGES, 1_743_042, 41_620, 7186, many=True),
}
SPLITS = ("train", "validation")


def load(name: str) -> Splits:
    """Decodes the images that are evaluated: uint8[N, 224, 224, 3] and int32[N], or uint8[N, classes] if many.

    Raises:
      BadInput: the files are not there, or do not have as many records as they should.
    """
    check(name)
    of = SOURCES[name]
    _check_rows(of, folder(name))
    found = data_stream.decoded(source(name, folder(name), "validation"), of.validation_examples)
    return Splits(train=None, validation=found, test=None)


def feed(name: str, seed: int, step: int, batch_size: int, positions: range) -> Examples:
    """``Dataset.feed`` of a data set."""
    return _stream(name, folder(name))(seed, step, batch_size, positions)


def version(name: str) -> str:
    """The version of the data, what of them this is, and the pixels that decoding makes of a photograph."""
    of = SOURCES[name]
    classes = "" if of.every == 1 else f" classes[::{of.every}]"
    return f"tfds:{of.version} {SIDE}×{SIDE} train[:{of.train_examples}]{classes} pixels:{_pixels()}"


def shapes(name: str) -> Splits:
    """The shapes of what is fed and of what ``load`` gives; reads nothing."""
    of = SOURCES[name]
    label = ArrayShape((of.classes,), np.dtype(np.uint8)) if of.many else ArrayShape((), np.dtype(np.int32))
    image = ArrayShape((SIDE, SIDE, 3), np.dtype(np.uint8))
    return workload.shapes((of.train_examples, of.validation_examples, None), image, label)


def folder(name: str, within: Path | None = None) -> Path:
    """The folder of one data set's files, in ``within`` or where TFDS looks."""
    return array_records.folder(SOURCES[name].files, SOURCES[name].version, within)


def check(name: str, within: Path | None = None) -> None:
    """Raises BadInput unless all files are there, with as many records as they should have; reads none of them."""
    of = SOURCES[name]
    array_records.check(of.files, folder(name, within), SPLITS)
    array_records.check_counts(of.files, folder(name, within), of.splits)
    for split in SPLITS if of.every > 1 else ():
        array_records.check_file(of.files, rows_file(folder(name, within), of.every, split))


def source(name: str, place: Path, split: str) -> Source:
    """The records of a split, which are in a folder, and how they are decoded."""
    of = SOURCES[name]
    count = of.train_examples if split == "train" else of.validation_examples
    rows = None if of.every == 1 else str(rows_file(place, of.every, split))
    records = functools.partial(array_records.open_records, str(place), of.files.split("/")[0], split, rows, count)
    decode = _several_labels if of.many else functools.partial(_one_label, of.every)
    return Source(records, decode, 3 * SIDE**2 + (of.classes if of.many else 4))


def rows_file(place: Path, every: int, split: str) -> Path:
    """The file with the numbers of the records whose label is divisible by ``every``, beside the others."""
    return place / f"rows-{every}-{split}.npy"


def write_rows(place: Path, name: str) -> None:
    """Writes which records halves of the classes have; reads all records."""
    for of in SOURCES.values():
        for split in SPLITS if of.files == name and of.every > 1 else ():
            if (file := rows_file(place, of.every, split)).exists():
                continue
            records = array_records.open_records(str(place), name, split)
            labels = (array_records.features(records[row])["label"].int64_list.value[0] for row in range(len(records)))
            rows = [row for row, label in enumerate(labels) if label % of.every == 0]
            durable.replace(file, _npy(np.asarray(rows, np.int64)))


def _check_rows(of: StreamedImages, place: Path) -> None:
    """Raises BadInput if the files of ``write_rows`` name fewer records than are wanted."""
    wanted = {"train": of.train_examples, "validation": of.validation_examples}
    for split in SPLITS if of.every > 1 else ():
        file = rows_file(place, of.every, split)
        count = len(np.load(file, mmap_mode="r"))
        if count < wanted[split]:
            raise BadInput(
                f"{file} names {count} examples of {split}, not {wanted[split]}; delete it and run python -m "
                f"workloads.prepare {of.files}"
            )


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@functools.lru_cache(maxsize=4)
def _stream(name: str, place: Path) -> Stream:
    return Stream(source(name, place, "train"))


def _one_label(every: int, record: bytes, draws: Draws | None) -> tuple[np.ndarray, np.ndarray]:
    features = array_records.features(record)
    label = features["label"].int64_list.value[0] // every
    return example(features["image"].bytes_list.value[0], draws), np.asarray(label, np.int32)


def _several_labels(record: bytes, draws: Draws | None) -> tuple[np.ndarray, np.ndarray]:
    """An image of Open Images, and 1 for each trainable class that people or, surely enough, machines saw in it."""
    features = array_records.features(record)
    labels = np.asarray(features["objects_trainable/label"].int64_list.value, np.int64)
    confidence = np.asarray(features["objects_trainable/confidence"].int64_list.value, np.int64)
    there = np.zeros(SOURCES["open_images_v4"].classes, np.uint8)
    there[labels[confidence >= POSITIVE]] = 1
    return example(features["image"].bytes_list.value[0], draws), there


def example(encoded: bytes, draws: Draws | None, side: int = SIDE) -> np.ndarray:
    """A photograph as uint8[side, side, 3].

    In training a random box of it, flipped or not (Szegedy et al. 2015, arXiv 1409.4842); in an evaluation a square
    in its middle. JPEG is decoded at the smallest of libjpeg's scales that has as many pixels as are needed.

    Args:
      encoded: in any format of Pillow's; read as RGB.
      draws: of the example; None in an evaluation.
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
    """The first digits of the hash of one photograph, decoded for an evaluation and for training.

    They differ where another Pillow or libjpeg decodes or resizes in another way, or where ``example`` does.
    """
    encoded = base64.b64decode(_PHOTOGRAPH)
    decoded = [example(encoded, draws, side=16) for draws in (None, *(Draws(0, 0, at) for at in range(4)))]
    return hashlib.sha256(np.stack(decoded).tobytes()).hexdigest()[:8]


def middle(width: int, height: int) -> Box:
    """The square in the middle of an image, of ``KEPT`` of its shorter side."""
    size = KEPT * min(width, height)
    left, top = (width - size) / 2, (height - size) / 2
    return left, top, left + size, top + size


def random_box(width: int, height: int, draws: Draws) -> Box:
    """A box of an image of a random area, ratio and place; the middle of the image if ``TRIES`` of them do not fit."""
    for _ in range(TRIES):
        area = width * height * (AREA[0] + (AREA[1] - AREA[0]) * draws.uniform())
        ratio = math.exp(math.log(RATIO[0]) + (math.log(RATIO[1]) - math.log(RATIO[0])) * draws.uniform())
        own_width, own_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        across, down = draws.uniform(), draws.uniform()
        if 0 < own_width <= width and 0 < own_height <= height:
            left = math.floor(across * (width - own_width + 1))
            top = math.floor(down * (height - own_height + 1))
            return left, top, left + own_width, top + own_height
    return middle(width, height)


def _drafted(photograph: Any, box: Box, side: int) -> tuple[Any, Box]:
    """A photograph to be decoded at a fraction of its size, if it is JPEG, and the box in it."""
    width, height = photograph.size
    across, down = side / (box[2] - box[0]), side / (box[3] - box[1])
    photograph.draft("RGB", (math.ceil(width * across), math.ceil(height * down)))
    scaled_width, scaled_height = photograph.size
    x, y = scaled_width / width, scaled_height / height
    return photograph, (box[0] * x, box[1] * y, box[2] * x, box[3] * y)
