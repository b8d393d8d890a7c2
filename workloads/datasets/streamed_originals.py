"""TFDS's builders of streamed data sets, modified to read and encode without TensorFlow or Apache Beam.

URLs, keys, features and (if TFDS has them) checksums are those of TFDS.
"""

import gzip
import io
import json
import math
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from workloads.base import BadInput
from workloads.datasets import array_records, embedded_originals
from workloads.datasets.array_records import KeyedExamples, KeyedSplits

# Approximate seconds to write a record on one core: a copied photograph, a re-encoded photograph, a text.
SECONDS_PER_PHOTOGRAPH = 1e-3
SECONDS_PER_ENCODED = 1.2e-2
SECONDS_PER_TEXT = 1e-4
PIXELS = 200_000  # Open Images, as in TFDS's configuration 200k
QUALITY = 72  # of their JPEGs, likewise
LM1B_FILES = ("00000", "00001")  # files of held-out text that are also splits


def imagenet_builder(parent: Path, manual: Path) -> Any:
    """Returns the builder of ``imagenet2012``. You must download the two archives from image-net.org."""
    from tensorflow_datasets.datasets.imagenet2012 import imagenet2012_dataset_builder as original

    def split_generators(self: Any, dl_manager: Any) -> KeyedSplits:
        train, validation = (_by_hand(manual, f"ILSVRC2012_img_{split}.tar") for split in ("train", "val"))
        return {"train": _imagenet_train(train), "validation": _imagenet_validation(validation)}

    return array_records.builder(original.Builder, "imagenet2012", split_generators, parent)


def _imagenet_train(archive: Path) -> KeyedExamples:
    """Yields training images. Each class is a nested archive."""
    for folder, packed in _members(archive):
        for name, image in _members(io.BytesIO(packed)):
            yield name, {"file_name": name, "image": _rgb_jpeg(name, image), "label": folder.removesuffix(".tar")}


def _imagenet_validation(archive: Path) -> KeyedExamples:
    """Yields validation images. The first of TFDS's labels belongs to ``ILSVRC2012_val_00000001.JPEG``."""
    import tensorflow_datasets as tfds

    labels = Path(tfds.core.tfds_path("datasets/imagenet2012/validation_labels.txt")).read_text().split()
    for name, image in _members(archive):
        number = re.fullmatch(r"(?:.*/)?ILSVRC2012_val_(\d{8})\.JPEG", name)
        if number is None or not 1 <= int(number[1]) <= len(labels):
            raise BadInput(f"{archive} holds {name}, which is not an image of ImageNet's validation set")
        yield name, {"file_name": name, "image": io.BytesIO(image), "label": labels[int(number[1]) - 1]}


def _rgb_jpeg(name: str, image: bytes) -> io.BytesIO:
    """Returns an ImageNet image as an RGB JPEG. A few originals are CMYK or PNG."""
    from PIL import Image
    from tensorflow_datasets.datasets.imagenet2012 import imagenet2012_dataset_builder as original

    if name not in original.CMYK_IMAGES and name not in original.PNG_IMAGES:
        return io.BytesIO(image)
    encoded = io.BytesIO()
    with Image.open(io.BytesIO(image)) as opened:
        opened.convert("RGB").save(encoded, "jpeg", quality=100)
    return io.BytesIO(encoded.getvalue())


def lm1b_builder(parent: Path, manual: Path) -> Any:
    """Returns the builder of ``lm1b``. Each of the ``LM1B_FILES`` is also a separate split."""
    from tensorflow_datasets.datasets.lm1b import lm1b_dataset_builder as original

    def split_generators(self: Any, dl_manager: Any) -> KeyedSplits:
        archive = Path(dl_manager.download(original._DOWNLOAD_URL))
        patterns = {"train": original._TRAIN_FILE_FORMAT, "test": original._HELDOUT_FILE_FORMAT}
        patterns |= {f"heldout_{file}": f"news.en.heldout-{file}-of-00050" for file in LM1B_FILES}
        return {split: _lm1b_lines(archive, pattern) for split, pattern in patterns.items()}

    return array_records.builder(original.Builder, "lm1b", split_generators, parent)


def _lm1b_lines(archive: Path, pattern: str) -> KeyedExamples:
    """Yields the lines of a split's files. Lines end at ``\\n`` and ``\\r``, as in TFDS."""
    for path, lines in _members(archive):
        if PurePosixPath(path).match(pattern):
            for number, line in enumerate(io.TextIOWrapper(io.BytesIO(lines), encoding="utf-8")):
                yield f"{PurePosixPath(path).name}_{number}", {"text": line.strip()}


def c4_builder(parent: Path, manual: Path) -> Any:
    """Returns the builder of ``c4/en`` for the gzipped JSON lines published by the Allen Institute for AI."""
    from tensorflow_datasets.text import c4

    def split_generators(self: Any, dl_manager: Any) -> KeyedSplits:
        return {split: _c4_pages(_c4_files(manual, split)) for split in ("train", "validation")}

    return array_records.builder(c4.C4, "c4", split_generators, parent, config="en")


def _c4_files(manual: Path, split: str) -> list[Path]:
    files = sorted(manual.glob(f"c4-{split}.*.json.gz"))
    expected = int(files[0].name.split(".")[1].rpartition("-")[2]) if files else 0
    if not files or len(files) != expected:
        raise BadInput(
            f"{manual} holds {len(files)} of the files c4-{split}.*.json.gz. Download all of them into that folder."
        )
    return files


def _c4_pages(files: Sequence[Path]) -> KeyedExamples:
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                page = json.loads(line)
                fields = {name: page[name] for name in ("text", "url", "timestamp")}
                yield f"{file.name}_{number}", fields | {"content-length": "", "content-type": ""}


def open_images_builder(parent: Path, manual: Path) -> Any:
    """Returns the builder of ``open_images_v4/200k``. Images are scaled by Pillow, not by OpenCV."""
    from tensorflow_datasets.datasets.open_images_v4 import open_images_v4_dataset_builder as original

    def split_generators(self: Any, dl_manager: Any) -> KeyedSplits:
        urls = dict(original._URLS)
        for name, resource in urls.items():
            urls[name] = (
                [file.url for file in resource] if isinstance(resource, list) else getattr(resource, "url", resource)
            )
        paths = dl_manager.download(urls)
        trainable = set(self.info.features["objects_trainable"]["label"].names)
        return {split: _open_images(paths, split, trainable) for split in ("train", "validation")}

    return array_records.builder(original.Builder, "open_images_v4", split_generators, parent, config="200k")


def _open_images(paths: Mapping[str, Any], split: str, trainable: set[str]) -> KeyedExamples:
    from tensorflow_datasets.datasets.open_images_v4 import open_images_v4_dataset_builder as original

    archives = paths[f"{split}_images"]
    archives = archives if isinstance(archives, list) else [archives]
    labels = [paths[f"{split}_{who}_labels"] for who in ("human", "machine")]
    # Archives and labels have the same order, so the labels of each archive are read along with it.
    places = [0, 0]
    box_places = [0]
    prefixes = "0123456789abcdef" if len(archives) > 1 else [None]
    for archive, prefix in zip(archives, prefixes, strict=True):
        objects = original._load_objects(labels, places, prefix)
        boxes = original._load_bboxes(paths[f"{split}-annotations-bbox"], box_places, prefix)
        for path, image in _members(Path(archive)):
            name = PurePosixPath(path).name
            number = int(PurePosixPath(path).stem, 16)
            labelled = [label_row._asdict() for label_row in objects.get(number, [])]
            yield (
                name,
                {
                    "image": io.BytesIO(smaller(image)),
                    "image/filename": name,
                    "objects": labelled,
                    "objects_trainable": [label_row for label_row in labelled if label_row["label"] in trainable],
                    "bobjects": [label_row._asdict() for label_row in boxes.get(number, [])],
                },
            )


def smaller(image: bytes) -> bytes:
    """Encodes an image as a JPEG with at most about ``PIXELS`` pixels."""
    from PIL import Image

    encoded = io.BytesIO()
    with Image.open(io.BytesIO(image)) as opened:
        factor = math.sqrt(PIXELS / (opened.width * opened.height))
        size = (round(factor * opened.width), round(factor * opened.height))
        opened.draft("RGB", size)
        scaled = opened.convert("RGB")
        if factor < 1:
            scaled = scaled.resize(size, Image.Resampling.BOX)
        scaled.save(encoded, "jpeg", quality=QUALITY)
    return encoded.getvalue()


def _members(archive: Path | io.BytesIO) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of all files in a tar (compressed or not) in a single pass."""
    source = {"fileobj": archive} if isinstance(archive, io.BytesIO) else {"name": archive}
    with tarfile.open(mode="r|*", **source) as tar:
        for member in tar:
            if member.isfile():
                opened = tar.extractfile(member)
                assert opened is not None
                yield member.name, opened.read()


def _by_hand(manual: Path, name: str) -> Path:
    if not (manual / name).is_file():
        raise BadInput(f"{manual / name} does not exist. Register on image-net.org and download it into that folder.")
    return manual / name


BUILDERS = {
    "imagenet2012": imagenet_builder,
    "open_images_v4/200k": open_images_builder,
    "lm1b": lm1b_builder,
    "c4/en": c4_builder,
    "streamed_digits": embedded_originals.digits_builder,
    embedded_originals.PYDOC: embedded_originals.pydoc_builder,
}
