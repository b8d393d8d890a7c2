"""TFDS's builders of image data sets, modified to unpack, read and encode images without TensorFlow.

URLs, checksums, features and keys are those of TFDS. The keys determine the order of the examples.
"""

import gzip
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from workloads.datasets import array_records, tfds_images
from workloads.datasets.array_records import KeyedExamples, KeyedSplits


def builder(name: str, parent: Path) -> Any:
    """Returns the builder for a key of ``tfds_images.SOURCES``. It writes to ``parent``."""
    from tensorflow_datasets.image_classification import cifar, mnist

    original, split_generators = {
        "mnist": (mnist.MNIST, _mnist_splits),
        "fashion_mnist": (mnist.FashionMNIST, _mnist_splits),
        "cifar10": (cifar.Cifar10, _cifar_splits),
    }[name]
    version = tfds_images.SOURCES[name].version
    return array_records.builder(original, name, split_generators, parent, version=version)


def _mnist_splits(self: Any, dl_manager: Any) -> KeyedSplits:
    """Returns the splits of MNIST or Fashion MNIST, which consist of two idx files each."""
    files = {
        (split, kind): f"{self.URL}{stem}-{kind}-ubyte.gz"
        for split, stem in (("train", "train"), ("test", "t10k"))
        for kind in ("images-idx3", "labels-idx1")
    }
    paths = dl_manager.download(files)
    return {split: _mnist_rows(paths[split, "images-idx3"], paths[split, "labels-idx1"]) for split in ("train", "test")}


def _mnist_rows(images: Path, labels: Path) -> KeyedExamples:
    for index, (image, label) in enumerate(zip(_idx(images), _idx(labels), strict=True)):
        yield index, {"image": _png(image), "label": int(label)}


def _idx(path: Path) -> np.ndarray:
    """Reads a gzipped idx file of bytes: two zeros, type 8, number of axes, big-endian sizes, and uint8 data."""
    data = gzip.decompress(path.read_bytes())
    axes = data[3]
    shape = np.frombuffer(data, ">u4", axes, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _cifar_splits(self: Any, dl_manager: Any) -> KeyedSplits:
    """Returns the splits of CIFAR-10: a tar of batches with 3,073 bytes per example (a label and 3×32×32 pixels)."""
    source = self._cifar_info
    archive = dl_manager.download(source.url)
    folder = PurePosixPath(source.prefix)
    with tarfile.open(archive) as tar:
        names = _member(tar, folder / source.label_files[0]).decode().split()
    self.info.features["label"].names = names
    return {
        "train": _cifar_rows(archive, folder, source.train_files, "train_"),
        "test": _cifar_rows(archive, folder, source.test_files, "test_"),
    }


def _cifar_rows(archive: Path, folder: PurePosixPath, batches: Sequence[str], prefix: str) -> KeyedExamples:
    index = 0
    with tarfile.open(archive) as tar:
        for batch in batches:
            for row in np.frombuffer(_member(tar, folder / batch), np.uint8).reshape(-1, 1 + 3 * 32 * 32):
                image = row[1:].reshape(3, 32, 32).transpose(1, 2, 0)
                yield index, {"id": f"{prefix}{index:05d}", "image": _png(image), "label": int(row[0])}
                index += 1


def _member(tar: tarfile.TarFile, path: PurePosixPath) -> bytes:
    file = tar.extractfile(str(path))
    if file is None:
        raise tarfile.ReadError(f"{path} is not a file")
    return file.read()


def _png(image: np.ndarray) -> bytes:
    """Encodes uint8[H, W] or uint8[H, W, 3] as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "png")
    return buffer.getvalue()
