"""ImageNet, halves of it, and Open Images from TFDS's array_record files, streamed: they do not fit in memory.

``python -m workloads.prepare imagenet2012`` and ``… open_images_v4/200k`` write the files.
"""

import functools
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from results import durable
from results.bad_input import BadInput
from workloads import streams, workload
from workloads.datasets import array_records, jpeg, tfds_records
from workloads.streams import Draws, Source, Stream
from workloads.workload import ArrayShape, Examples, Splits

POSITIVE = 5  # tenths of confidence from which an object of Open Images is there


class StreamedImages(NamedTuple):
    """A data set of photographs.

    Attributes:
      files: TFDS's name of the data set that they are from, with its configuration.
      version: of TFDS.
      train_examples: the first so many records of training, in TFDS's order, which is shuffled.
      validation_examples: of TFDS's split ``validation``.
      classes: values of a label, or, where an image has several, how many it may have.
      every: only images of classes whose number is divisible by this, and numbered anew.
      many: whether an image has several labels.
    """

    files: str
    version: str
    train_examples: int
    validation_examples: int
    classes: int
    every: int = 1
    many: bool = False


SOURCES: dict[str, StreamedImages] = {
    "imagenet": StreamedImages("imagenet2012", "5.1.0", 1_281_167, 50_000, 1000),
    "imagenet_half_images": StreamedImages("imagenet2012", "5.1.0", 640_583, 50_000, 1000),
    "imagenet_half_classes": StreamedImages("imagenet2012", "5.1.0", 630_000, 25_000, 500, every=2),
    "open_images_v4": StreamedImages("open_images_v4/200k", "2.0.0", 1_743_042, 41_620, 7186, many=True),
}
SPLITS = ("train", "validation")


def load(name: str) -> Splits:
    """Decodes the images that are evaluated: uint8[N, 224, 224, 3] and int32[N], or uint8[N, classes] if many.

    Raises:
      BadInput: the files are not there, or do not have as many records as they should.
    """
    check(name)
    of = SOURCES[name]
    array_records.check_count(of.files, folder(name), "train", of.train_examples)
    _check_rows(of, folder(name))
    found = streams.decoded(source(name, folder(name), "validation"), of.validation_examples)
    return Splits(train=None, validation=found, test=None)


def feed(name: str, seed: int, step: int, batch_size: int, positions: range) -> Examples:
    """``Dataset.feed`` of a data set."""
    return _stream(name, folder(name))(seed, step, batch_size, positions)


def version(name: str) -> str:
    """The version of the data, and what of them this is."""
    of = SOURCES[name]
    classes = "" if of.every == 1 else f" classes[::{of.every}]"
    return f"tfds:{of.version} {jpeg.SIDE}×{jpeg.SIDE} train[:{of.train_examples}]{classes}"


def shapes(name: str) -> Splits:
    """The shapes of what is fed and of what ``load`` gives; reads nothing."""
    of = SOURCES[name]
    label = ArrayShape((of.classes,), np.dtype(np.uint8)) if of.many else ArrayShape((), np.dtype(np.int32))
    image = ArrayShape((jpeg.SIDE, jpeg.SIDE, 3), np.dtype(np.uint8))
    return workload.shapes((of.train_examples, of.validation_examples, None), image, label)


def folder(name: str, within: Path | None = None) -> Path:
    """The folder of one data set's files, in ``within`` or where TFDS looks."""
    return array_records.folder(SOURCES[name].files, SOURCES[name].version, within)


def check(name: str, within: Path | None = None) -> None:
    """Raises BadInput unless all files are there; looks at their names alone."""
    of = SOURCES[name]
    array_records.check(of.files, folder(name, within), SPLITS)
    for split in SPLITS if of.every > 1 else ():
        array_records.check_file(of.files, rows_file(folder(name, within), of.every, split))


def source(name: str, place: Path, split: str) -> Source:
    """The records of a split, which are in a folder, and how they are decoded."""
    of = SOURCES[name]
    count = of.train_examples if split == "train" else of.validation_examples
    rows = None if of.every == 1 else str(rows_file(place, of.every, split))
    records = functools.partial(tfds_records.open_records, str(place), of.files.split("/")[0], split, rows, count)
    decode = _several_labels if of.many else functools.partial(_one_label, of.every)
    return Source(records, decode, 3 * jpeg.SIDE**2 + (of.classes if of.many else 4))


def rows_file(place: Path, every: int, split: str) -> Path:
    """The file with the numbers of the records whose label is divisible by ``every``, beside the others."""
    return place / f"rows-{every}-{split}.npy"


def write_rows(place: Path, name: str) -> None:
    """Writes which records halves of the classes have; reads all records."""
    for of in SOURCES.values():
        for split in SPLITS if of.files == name and of.every > 1 else ():
            if (file := rows_file(place, of.every, split)).exists():
                continue
            records = tfds_records.open_records(str(place), name, split)
            labels = (tfds_records.features(records[row])["label"].int64_list.value[0] for row in range(len(records)))
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
    features = tfds_records.features(record)
    label = features["label"].int64_list.value[0] // every
    return jpeg.example(features["image"].bytes_list.value[0], draws), np.asarray(label, np.int32)


def _several_labels(record: bytes, draws: Draws | None) -> tuple[np.ndarray, np.ndarray]:
    """An image of Open Images, and 1 for each trainable class that people or, surely enough, machines saw in it."""
    features = tfds_records.features(record)
    labels = np.asarray(features["objects_trainable/label"].int64_list.value, np.int64)
    confidence = np.asarray(features["objects_trainable/confidence"].int64_list.value, np.int64)
    there = np.zeros(SOURCES["open_images_v4"].classes, np.uint8)
    there[labels[confidence >= POSITIVE]] = 1
    return jpeg.example(features["image"].bytes_list.value[0], draws), there
