"""TFDS's array_record files: their folders, builders, checks, hashes and records, one by one or with random access.

Records are parsed here and not by TFDS, whose decoding takes six times as long; neither needs TensorFlow. Streams read
them without TFDS and JAX.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from results import durable
from results.bad_input import BadInput
from workloads.factorization.ratings import file_digest

BATCH = 4096  # records read at once
KeyedExamples = Iterator[tuple[int | str, dict[str, Any]]]  # as a builder of TFDS yields them: key and features


def data_dir() -> Path:
    """The folder of all data sets; BadInput if it is in the home folder of a user who has none."""
    try:
        return durable.local(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    except BadInput:
        raise BadInput("this user has no home folder; say where data sets are by TFDS_DATA_DIR=DIR") from None


def folder(name: str, version: str, within: Path | None = None) -> Path:
    """The folder of a data set (``web_graph/in-dense``), in ``within`` or where TFDS looks."""
    return (within or data_dir()) / name / version


def builder(
    original: type,
    name: str,
    split_generators: Callable[[Any, Any], dict[str, KeyedExamples]],
    within: Path,
    **options: Any,
) -> Any:
    """TFDS's builder ``original`` with split generators of ours, which writes into the folder ``within``."""
    from tensorflow_datasets.core import registered

    members = {"name": name, "__module__": original.__module__, "_split_generators": split_generators}
    with registered.skip_registration():
        return type(original.__name__, (original,), members)(data_dir=str(within), **options)


def check(name: str, place: Path, splits: Sequence[str]) -> None:
    """Raises BadInput unless array_record files of all splits are there; looks at names of files alone."""
    if (place / "dataset_info.json").is_file() and all(_files(place, name, split) for split in splits):
        return
    if any(place.glob("*.tfrecord*")):
        raise BadInput(
            f"{place} holds {name} as tfrecord files, which only TensorFlow can read; run python -m workloads.prepare "
            f"{name} --data-dir DIR to write array_record files elsewhere, and set TFDS_DATA_DIR=DIR to use them"
        )
    what = "holds no complete array_record files" if place.exists() else "does not exist"
    raise BadInput(f"{name} is not here: {place} {what}; run python -m workloads.prepare {name}")


def check_file(name: str, file: Path) -> None:
    """Raises BadInput unless a file that is made beside those of a data set is there."""
    if not file.is_file():
        raise BadInput(f"{file} is not there yet; run python -m workloads.prepare {name}")


def check_counts(name: str, place: Path, counts: Mapping[str, int]) -> None:
    """Raises BadInput unless splits have as many records as they should; reads TFDS's description of the files."""
    info = place / "dataset_info.json"
    again = f"delete {{}} and run python -m workloads.prepare {name}"
    try:
        splits = json.loads(info.read_text())["splits"]
        there = {one["name"]: sum(int(length) for length in one["shardLengths"]) for one in splits}
    except (ValueError, TypeError, LookupError, OSError):
        raise BadInput(f"{info} cannot be read; {again.format(place)}") from None
    for split, count in counts.items():
        if there.get(split, 0) != count:
            raise BadInput(
                f"{place} holds {there.get(split, 0):,} examples of {split}, not {count:,}; {again.format('it')}"
            )


def digest(name: str, place: Path, splits: Sequence[str]) -> str:
    """The hashes of the files of some splits."""
    return " ".join(file_digest(file) for split in splits for file in _files(place, name, split))


def stored_bytes(name: str, place: Path, splits: Sequence[str]) -> int:
    """Size of the files of some splits."""
    return sum(file.stat().st_size for split in splits for file in _files(place, name, split))


def records(name: str, place: Path, split: str) -> Iterator[Any]:
    """All records of a split, mappings from names to ``tf.train.Feature``; raises BadInput if one is damaged."""
    import tensorflow_datasets as tfds  # a second to import
    from tensorflow_datasets.proto import tf_example_pb2

    try:
        builder = tfds.builder_from_directory(place)
        source = builder.as_data_source(split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES)
        for start in range(0, len(source), BATCH):
            for record in source.__getitems__(list(range(start, min(start + BATCH, len(source))))):
                yield tf_example_pb2.Example.FromString(record).features.feature
    except Exception as error:  # the libraries under TFDS raise what they like
        reason = " ".join(str(error).split())[:160]
        raise BadInput(
            f"{place} cannot be read ({reason}); delete it and run python -m workloads.prepare {name}"
        ) from None


def _files(place: Path, name: str, split: str) -> list[Path]:
    return sorted(place.glob(f"{name.split('/')[0]}-{split}.array_record*"))


class Records(Sequence[bytes]):
    """The records of a split, or some of them, in the order of the files.

    Args:
      files: array_record files, in order.
      rows: which records of them, in which order: a file of NumPy with whole numbers; None: all.
      count: how many of those, from the first; None: all.
    """

    def __init__(self, files: Sequence[str], rows: str | None = None, count: int | None = None):
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        self._source = ArrayRecordDataSource(list(files))
        self._rows = None if rows is None else np.load(rows, mmap_mode="r")
        there = len(self._source) if self._rows is None else len(self._rows)
        self._count = there if count is None else min(count, there)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < self._count:
            raise IndexError(row)
        return self._source[int(row if self._rows is None else self._rows[row])]


def features(record: bytes) -> Any:
    """The features of a record by name, each a ``tf.train.Feature``."""
    from tensorflow_datasets.proto import tf_example_pb2

    return tf_example_pb2.Example.FromString(record).features.feature


def open_records(folder: str, name: str, split: str, rows: str | None = None, count: int | None = None) -> Records:
    """The records of a split of a data set in a folder."""
    files = sorted(str(file) for file in Path(folder).glob(f"{name}-{split}.array_record*"))
    return Records(files, rows, count)
