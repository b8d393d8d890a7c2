"""TFDS's builders of ``web_graph`` and ``movielens``, modified to work without TensorFlow and Apache Beam.

URLs, keys, features and (if TFDS has them) checksums are those of TFDS.
"""

import functools
import io
import tempfile
import types
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workloads.datasets import array_records, movielens, web_graph
from workloads.datasets.array_records import KeyedExamples, KeyedSplits

# Seconds to write a record, measured with TFDS 4.9.10 on one core of an AMD EPYC (Zen 4).
SECONDS_PER_ROW = 1e-4
SECONDS_PER_LINK = 2.5e-6
SECONDS_PER_RATING = 1e-4

ADDRESS = "https://storage.googleapis.com/gresearch/web_graph"
STEMS = {"train": "train", "train_t": "train.transpose", "test": "test"}
MOVIELENS_FILES = ("ratings.csv", "movies.csv", "ratings.dat", "movies.dat", "users.dat", "u.data", "u.item", "u.user")


def web_graph_builder(variant: str, parent: Path, manual: Path) -> Any:
    """Returns the builder of a variant of ``web_graph``.

    Args:
      variant: a key of ``web_graph.VARIANTS``.
      parent: folder to write to.
      manual: folder with manually downloaded originals. Missing originals are downloaded.
    """
    from tensorflow_datasets.structured.web_graph.web_graph import WebGraph

    def split_generators(self: Any, dl_manager: Any) -> KeyedSplits:
        return {split: _web_graph_rows(_originals(variant, split, manual, dl_manager)) for split in STEMS}

    options = {"config": variant, "version": web_graph.VERSION}
    return array_records.builder(WebGraph, "web_graph", split_generators, parent, **options)


def _originals(variant: str, split: str, manual: Path, dl_manager: Any) -> list[Path]:
    row = web_graph.VARIANTS[variant]
    names = [f"{STEMS[split]}.tfr-{shard:05}-of-{row.shards:05}" for shard in range(row.shards)]
    absent = [name for name in names if not (manual / name).is_file()]
    downloads = dl_manager.download([f"{ADDRESS}/{row.subfolder}/{name}" for name in absent])
    return [manual / name for name in names if name not in set(absent)] + [Path(path) for path in downloads]


def _web_graph_rows(files: Sequence[Path]) -> KeyedExamples:
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    for file in files:
        for record in tf_records(file):
            try:
                features = tf_example_pb2.Example.FromString(record).features.feature
                row = web_graph.row_tag(features)
            except (DecodeError, ValueError):
                raise OSError(f"{file} holds a record that is not a row") from None
            tags = {tag: np.array(features[tag].int64_list.value, np.int64) for tag in ("col_tag", "gt_tag")}
            yield row, {"row_tag": row, **tags}


def tf_records(file: Path) -> Iterator[bytes]:
    """Yields the records of a TFRecord file. Raises OSError if a record is corrupt.

    A record consists of its length (8 bytes), the checksum of the length (4 bytes), the data, and their checksum (4
    bytes). Numbers are little-endian.
    """
    size = file.stat().st_size
    with open(file, "rb", buffering=1 << 20) as opened:
        while head := opened.read(12):
            length = int.from_bytes(head[:8], "little")
            if len(head) < 12 or _checksum(head[:8]) != head[8:]:
                raise OSError(f"{file} is not a TFRecord file, or is damaged")
            if length > size:
                raise OSError(f"{file} is damaged or truncated")
            record = opened.read(length)
            if _checksum(record) != opened.read(4):
                raise OSError(f"{file} is damaged or truncated")
            yield record


def _shift(remainder: int, bit: int) -> int:
    return remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)


_CRC_TABLE = tuple(functools.reduce(_shift, range(8), byte) for byte in range(256))  # of CRC-32C


def _checksum(data: bytes) -> bytes:
    """Returns CRC-32C, rotated and shifted as in TFRecord files."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def movielens_builder(size: str, parent: Path) -> Any:
    """Returns the builder of the ratings for a key of ``movielens.SIZES``. It writes to ``parent``."""
    from tensorflow_datasets.structured import movielens_parsing
    from tensorflow_datasets.structured.movielens import Movielens

    # TFDS's parsers use TensorFlow only to open files.
    movielens_parsing.tf = types.SimpleNamespace(io=types.SimpleNamespace(gfile=types.SimpleNamespace(GFile=io.open)))

    def split_generators(self: Any, dl_manager: Any) -> KeyedSplits:
        return {"train": _movielens_rows(self.builder_config, dl_manager.download(self.builder_config.download_url))}

    options = {"config": f"{size}-ratings", "version": movielens.VERSION}
    return array_records.builder(Movielens, "movielens", split_generators, parent, **options)


def _movielens_rows(config: Any, archive: Path) -> KeyedExamples:
    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(archive) as packed:
        folder = f"ml-{config.format_version}"
        for name in MOVIELENS_FILES:
            if f"{folder}/{name}" in packed.namelist():
                packed.extract(f"{folder}/{name}", place)
        yield from config.parsing_fn(f"{place}/{folder}")
