"""python -m workloads.prepare NAME: downloads a data set and writes it as array_record files, once."""

import argparse
import contextlib
import difflib
import gzip
import io
import logging
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from workloads.datasets import tfds_images
from workloads.workload import DataAbsent

Rows = Iterator[tuple[int, dict[str, Any]]]  # as TFDS wants them: key and features


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the door; returns its exit code: 0 done, 1 could not be done, 2 no such data set, 130 interrupted."""
    asked = _parser().parse_args(argv)
    if asked.name not in tfds_images.SOURCES:
        return _nothing_to_prepare(asked.name)
    within = (asked.data_dir or tfds_images.data_dir()).expanduser()
    try:
        return _prepare(asked.name, within)
    except KeyboardInterrupt:
        print("interrupted; what was downloaded stays, and the same command goes on from there", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    sizes = "\n".join(
        f"  {name:14} {_count(source):,} images, {_sizes(source)} on disk"
        for name, source in tfds_images.SOURCES.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m workloads.prepare",
        description="Downloads a data set with TensorFlow Datasets (checksums included) and writes it as array_record\n"
        "files; neither needs TensorFlow. A data set that is already there is left alone.",
        epilog=f"NAME is one of\n{sizes}\nAll other data sets need no preparation.\n\n"
        "A machine without network: put the downloaded files into DIR/downloads/manual/NAME, under their own names.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="the data set")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=Path,
        help="where to write; $TFDS_DATA_DIR or ~/tensorflow_datasets if it is not said, where training looks too",
    )
    return parser


def _count(source: tfds_images.Source) -> int:
    return source.train_examples + source.validation_examples + source.test_examples


def _sizes(source: tfds_images.Source) -> str:
    return f"{source.download_bytes / 1e6:.0f} MB to download, about {source.stored_bytes / 1e6:.0f} MB"


def _nothing_to_prepare(name: str) -> int:
    """Says of a name that TFDS does not have whether it is a data set at all."""
    from workloads.registry import DATASETS  # imports JAX

    if name in DATASETS:
        print(f"{name} needs no preparation")
        return 0
    close = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    print(f"error: unknown data set {name!r}; {hint}choices: {', '.join(sorted(DATASETS))}", file=sys.stderr)
    return 2


def _prepare(name: str, within: Path) -> int:
    source, place = tfds_images.SOURCES[name], tfds_images.folder(name, within)
    try:
        tfds_images.check(name, within)
        print(f"{name} is already there: {place}")
        return 0
    except DataAbsent as absent:
        if place.exists():  # TFDS would take it for the data set, whatever it holds
            return _failed(str(absent) if "tfrecord" in str(absent) else f"{place} is in the way and holds no {name}")
    print(f"{name}: {_count(source):,} images, {_sizes(source)} in {place}", flush=True)
    manual = within / "downloads" / "manual" / name
    try:
        _write(name, within, manual)
        tfds_images.check(name, within)
    except _failures() as error:
        return _failed(
            f"{name} could not be prepared: {_reason(error)}; try again, or put the downloaded files into {manual}"
        )
    stored = sum(file.stat().st_size for file in place.iterdir())
    print(f"{name} is ready: {stored / 1e6:.0f} MB in {place}")
    return 0


def _failed(line: str) -> int:
    print(f"error: {line}", file=sys.stderr)
    return 1


def _failures() -> tuple[type[Exception], ...]:
    """What network, disk and checksums can do to us."""
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError
    from tensorflow_datasets.core.download.util import DownloadError

    return OSError, DownloadError, NonMatchingChecksumError


def _reason(error: BaseException) -> str:
    """One line of what went wrong, with the address where there is one."""
    address = getattr(getattr(error, "request", None), "url", None)
    if address:
        return f"{type(error).__name__} at {address}"
    return " ".join(f"{type(error).__name__}: {error}".split())


def _write(name: str, within: Path, manual: Path) -> None:
    """Downloads and writes; TFDS writes beside the final place and renames at the end."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader

    downloader.MAX_RETRIES = 4  # its 10 tries take minutes where there is no network
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # which would tell of every one of them
    config = tfds.download.DownloadConfig(manual_dir=manual, try_download_gcs=False, force_checksums_validation=True)
    with contextlib.redirect_stdout(io.StringIO()):  # where TFDS says that sizes are unknown; its progress is on stderr
        builder(name, within).download_and_prepare(download_config=config, file_format="array_record")


def builder(name: str, within: Path) -> Any:
    """TFDS's builder of a data set, except that it unpacks, reads and encodes images without TensorFlow.

    Addresses, checksums, keys (and so the order of examples) and features are TFDS's own.
    """
    from tensorflow_datasets.core import registered
    from tensorflow_datasets.image_classification import cifar, mnist

    real, split_generators = {
        "mnist": (mnist.MNIST, _mnist_splits),
        "fashion_mnist": (mnist.FashionMNIST, _mnist_splits),
        "cifar10": (cifar.Cifar10, _cifar_splits),
    }[name]
    parts = {"name": name, "__module__": real.__module__, "_split_generators": split_generators}
    with registered.skip_registration():
        return type(real.__name__, (real,), parts)(data_dir=str(within), version=tfds_images.SOURCES[name].version)


def _mnist_splits(self: Any, dl_manager: Any) -> dict[str, Rows]:
    """Of MNIST and its likes: two idx files per split."""
    files = {
        (split, kind): f"{self.URL}{stem}-{kind}-ubyte.gz"
        for split, stem in (("train", "train"), ("test", "t10k"))
        for kind in ("images-idx3", "labels-idx1")
    }
    paths = dict(zip(files, dl_manager.download(list(files.values())), strict=True))
    return {split: _mnist_rows(paths[split, "images-idx3"], paths[split, "labels-idx1"]) for split in ("train", "test")}


def _mnist_rows(images: Path, labels: Path) -> Rows:
    for index, (image, label) in enumerate(zip(_idx(images), _idx(labels), strict=True)):
        yield index, {"image": _png(image), "label": int(label)}


def _idx(path: Path) -> np.ndarray:
    """A gzipped idx file of bytes: two zeros, type 8, number of axes, big-endian sizes, uint8 data."""
    data = gzip.decompress(path.read_bytes())
    axes = data[3]
    shape = np.frombuffer(data, ">u4", axes, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _cifar_splits(self: Any, dl_manager: Any) -> dict[str, Rows]:
    """Of CIFAR-10: batches of 3,073 bytes per example in a tar, a label before 3×32×32 pixels."""
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


def _cifar_rows(archive: Path, folder: PurePosixPath, batches: Sequence[str], prefix: str) -> Rows:
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
        raise tarfile.ReadError(f"{path} is no file")
    return file.read()


def _png(image: np.ndarray) -> bytes:
    """PNG of uint8[H, W] or uint8[H, W, 3]."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "png")
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main())
