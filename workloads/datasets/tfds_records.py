"""Records of TFDS's array_record files with random access, for streams; read without TFDS, TensorFlow or JAX."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


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
