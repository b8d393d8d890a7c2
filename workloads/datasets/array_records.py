"""TFDS's array_record files: folders, builders, checks, hashes, and sequential and random access to records.

This module parses records itself because decoding them with TFDS takes six times as long. TensorFlow is not needed.
Streams read records without importing TFDS or JAX.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads import caches
from workloads.base import BadInput, durable

BATCH = 4096  # records read at once
KeyedExamples = Iterator[tuple[int | str, dict[str, Any]]]  # keys and features, as yielded by a TFDS builder
KeyedSplits = dict[str, KeyedExamples]  # by split


def data_dir() -> Path:
    """Returns the folder that contains all data sets. Raises BadInput if the user has no home folder."""
    try:
        return durable.local(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    except BadInput:
        raise BadInput("this user has no home folder. Choose a data set folder with TFDS_DATA_DIR=DIR.") from None


def folder(name: str, version: str, parent: Path | None = None) -> Path:
    """Returns the folder of a data set (``web_graph/in-dense``), in ``parent`` or TFDS's default folder."""
    return (parent or data_dir()) / name / version


def builder(
    original: type,
    name: str,
    split_generators: Callable[[Any, Any], KeyedSplits],
    parent: Path,
    **options: Any,
) -> Any:
    """Returns TFDS's builder ``original`` with this project's split generators. The builder writes to ``parent``."""
    from tensorflow_datasets.core import registered

    members = {"name": name, "__module__": original.__module__, "_split_generators": split_generators}
    with registered.skip_registration():
        return type(original.__name__, (original,), members)(data_dir=str(parent), **options)


def check(name: str, place: Path, splits: Sequence[str]) -> None:
    """Raises BadInput unless all splits have array_record files. Only file names are checked."""
    if (place / "dataset_info.json").is_file() and all(_files(place, name, split) for split in splits):
        return
    if any(place.glob("*.tfrecord*")):
        raise BadInput(
            f"{place} holds {name} as tfrecord files, which only TensorFlow can read. Run python -m workloads.prepare "
            f"{name} --data-dir DIR to write array_record files elsewhere, and set TFDS_DATA_DIR=DIR to use them."
        )
    what = "holds no complete array_record files" if place.exists() else "does not exist"
    raise BadInput(f"{name} is not prepared: {place} {what}. {remedy(name)}")


def remedy(name: str, place: Path | None = None) -> str:
    """Returns a sentence that asks the user to prepare a data set (and to delete ``place`` first, if it is given)."""
    command = f"python -m workloads.prepare {name}"
    return f"Delete {place} and run {command}." if place else f"Run {command}."


def check_file(name: str, file: Path) -> None:
    """Raises BadInput unless a derived file of a data set exists."""
    if not file.is_file():
        raise BadInput(f"{file} does not exist yet. {remedy(name)}")


def check_counts(name: str, place: Path, counts: Mapping[str, int]) -> None:
    """Like ``check``, but also raises BadInput if the numbers of records in TFDS's description are unexpected."""
    check(name, place, tuple(counts))
    info = place / "dataset_info.json"
    try:
        splits = json.loads(info.read_text())["splits"]
        stored = {row["name"]: sum(int(length) for length in row["shardLengths"]) for row in splits}
    except (ValueError, TypeError, LookupError, OSError):
        raise BadInput(f"{info} cannot be read. {remedy(name, place)}") from None
    for split, count in counts.items():
        if stored.get(split, 0) != count:
            raise BadInput(
                f"{place} holds {stored.get(split, 0):,} examples of {split}, not {count:,}. {remedy(name, place)}"
            )


def digest(name: str, place: Path, splits: Sequence[str]) -> str:
    """Returns the hashes of all files of some splits."""
    return " ".join(caches.file_digest(file) for split in splits for file in _files(place, name, split))


def stored_bytes(name: str, place: Path, splits: Sequence[str]) -> int:
    """Returns the total size of the files of some splits."""
    return sum(file.stat().st_size for split in splits for file in _files(place, name, split))


def batches(name: str, place: Path, split: str) -> Iterator[list[Any]]:
    """Yields the records of a split in batches, each record as a mapping from names to ``tf.train.Feature``.

    Raises:
      BadInput: a record is damaged.
    """
    try:
        records = Records(place, name, split)
        for start in range(0, len(records), BATCH):
            yield list(map(features, records.batch(range(start, min(start + BATCH, len(records))))))
    except Exception as error:  # libraries used by TFDS raise various types
        reason = " ".join(str(error).split())[:160]
        raise BadInput(f"{place} cannot be read ({reason}). {remedy(name, place)}") from None


def _files(place: Path, name: str, split: str) -> list[Path]:
    return sorted(place.glob(f"{name.split('/')[0]}-{split}.array_record*"))


class Part(NamedTuple):
    """The part of a TFDS split that forms a split.

    Attributes:
      split: name of TFDS's split.
      limits: index of the first record that may be used, and the index after the last one, if not all may be used.
      examples: number of examples to use, starting with the first.
    """

    split: str
    limits: tuple[int, int] | None
    examples: int


class Records(Sequence[bytes]):
    """Records of a split, or a subset of them, in the order of the files.

    Args:
      folder: folder of the array_record files.
      name: name of the data set.
      split: name of TFDS's split.
      rows: NumPy file with the indices of the records to use, in increasing order, or None for all records.
      count: number of these records to use, starting with the first, or None for all of them.
      limits: index of the first record that may be used, and the index after the last one. By default, all records may
        be used.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        split: str,
        rows: str | None = None,
        count: int | None = None,
        limits: tuple[int, int] | None = None,
    ):
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        self._source = ArrayRecordDataSource(list(map(str, _files(folder, name, split))))
        self._rows: Sequence[int] = range(len(self._source)) if rows is None else np.load(rows, mmap_mode="r")
        if limits is not None:
            first, last = np.searchsorted(self._rows, limits) if rows else limits
            self._rows = self._rows[first:last]
        available = len(self._rows)
        self._count = available if count is None else min(count, available)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < self._count:
            raise IndexError(row)
        return self._source[int(self._rows[row])]

    def batch(self, rows: range) -> list[bytes]:
        """Returns several records, which takes less time than reading them one by one."""
        return self._source.__getitems__([int(self._rows[row]) for row in rows])


def features(record: bytes) -> Any:
    """Returns the features of a record by name, each a ``tf.train.Feature``."""
    from tensorflow_datasets.proto import tf_example_pb2

    return tf_example_pb2.Example.FromString(record).features.feature
