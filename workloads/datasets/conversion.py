"""Converts originals to the same array_record files as TFDS. An interrupted conversion keeps its finished shards.

Each split is converted in two steps. First, its examples are encoded in the order of the originals and written as
sorted chunks. Then, the chunks are merged into shards, which are moved to TFDS's folder when all splits are done. All
files are created atomically in a folder that later runs can find. A split that was not completely encoded starts again.
Encodings, key hashes, shard counts and files are the same as in TFDS.
"""

import collections
import contextlib
import importlib.metadata
import inspect
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from workloads.base import FIRST_SECONDS, BadInput, Report, durable, show_progress
from workloads.datasets import sorted_chunks
from workloads.datasets.array_records import KeyedExamples
from workloads.datasets.download_progress import show_downloads

FORMAT = 2  # of the files in the folder of a conversion
ORIGIN = "origin.json"  # what the files in the folder were made from
ENCODED = "encoded.json"  # in the folder of a split of which all chunks have been written
PACKAGES = ("tensorflow-datasets", "array_record", "pillow")  # their versions may change the files
STEP = 64  # examples between updates of the progress

T = TypeVar("T")


class Conversion(NamedTuple):
    """A conversion.

    Attributes:
      folder: folder of its files, on the disk of the data set. It may contain files of an interrupted conversion.
      manual: folder of manually downloaded originals.
      download_bytes: approximate number of bytes that must still be downloaded, for progress messages.
      examples: expected number of examples by split, for progress messages.
      report: called with progress messages.
    """

    folder: Path
    manual: Path
    download_bytes: int
    examples: Mapping[str, int]
    report: Report


def folder(place: Path) -> Path:
    """Returns the folder for the conversion of a data set, which is next to the data set's folder."""
    return place.with_name(f"partial_{place.name}")


def make_resumable(builder: Any, conversion: Conversion) -> None:
    """Replaces the conversion step of a TFDS builder's ``download_and_prepare``.

    The new conversion raises BadInput if a split is empty or contains two examples with the same key.
    """

    def generate_splits(downloads: Any, config: Any) -> list[Any]:
        show_downloads(downloads, conversion.download_bytes, conversion.report)
        splits = builder._split_generators(downloads)
        _make_folder(conversion, _origin(builder, conversion.manual))
        return [_converted(builder, split, examples, conversion) for split, examples in splits.items()]

    builder._generate_splits = generate_splits


def _origin(builder: Any, manual: Path) -> dict[str, Any]:
    """Returns the code, the versions and the originals that determine a conversion. Downloads have fixed contents."""
    code = inspect.getsourcefile(type(builder)._split_generators)
    files = sorted(file for file in manual.glob("*") if file.is_file())
    return {
        "format": FORMAT,
        "name": builder.info.full_name,
        "reader": durable.sha256(Path(str(code))),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "originals": [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files],
    }


def _make_folder(conversion: Conversion, origin: dict[str, Any]) -> None:
    """Makes the folder of a conversion, without files from another origin."""
    record = conversion.folder / ORIGIN
    with contextlib.suppress(FileNotFoundError, durable.Damaged):
        if durable.read_sealed(record) == origin:
            return
        conversion.report("starts again, because the originals or the versions of packages changed")
    record.unlink(missing_ok=True)
    shutil.rmtree(conversion.folder, ignore_errors=True)
    durable.make_folder(conversion.folder)
    durable.replace(record, durable.seal(origin))


def _converted(builder: Any, split: str, examples: KeyedExamples, conversion: Conversion) -> Any:
    """Converts a split, or resumes its conversion. Returns TFDS's description of the split."""
    from tensorflow_datasets.core.splits import SplitInfo
    from tensorflow_datasets.core.utils.shard_utils import ShardConfig, get_shard_boundaries

    place = conversion.folder / split
    record = place / ENCODED
    if not record.exists():
        shutil.rmtree(place, ignore_errors=True)
        durable.make_folder(place)
        durable.replace(record, durable.seal(_encode(builder, split, examples, conversion)))
    sizes = durable.read_sealed(record)
    number = ShardConfig().get_number_shards(sizes["bytes"], sizes["examples"])
    lengths = np.diff([0, *get_shard_boundaries(sizes["examples"], number)]).tolist()
    template = builder._get_filename_template(split_name=split)
    names = [template.sharded_filepath(shard_index=shard, num_shards=number).name for shard in range(number)]
    _write_shards(builder, split, dict(zip(names, lengths, strict=True)), conversion)
    for name in names:
        _link(place / name, Path(builder.data_dir) / name)
    return SplitInfo(name=split, shard_lengths=lengths, num_bytes=sizes["bytes"], filename_template=template)


def _encode(builder: Any, split: str, examples: KeyedExamples, conversion: Conversion) -> dict[str, int]:
    """Encodes the examples of a split and writes them as chunks. Returns their number and size."""
    from tensorflow_datasets.core.example_serializer import ExampleSerializer
    from tensorflow_datasets.core.hashing import Hasher

    features = builder.info.features
    serializer, hasher = ExampleSerializer(features.get_serialized_info()), Hasher(split)
    sizes = {"examples": 0, "bytes": 0}

    def records() -> Iterator[bytes]:
        total = conversion.examples.get(split, 0)
        for key, example in _tracked(examples, f"encoding {split}", total, conversion.report):
            encoded = serializer.get_tf_example(features.encode_example(example))
            value = encoded.SerializeToString(deterministic=True)  # of features in the order of their names
            sizes["examples"] += 1
            sizes["bytes"] += len(value)
            yield sorted_chunks.record(hasher.hash_key(key), value)

    sorted_chunks.write(conversion.folder / split, records())
    if not sizes["examples"]:
        raise BadInput(f"the originals hold no examples of {split}")
    return sizes


def _write_shards(builder: Any, split: str, lengths: Mapping[str, int], conversion: Conversion) -> None:
    """Writes the shards of a split that do not exist yet, given the number of examples in each."""
    place = conversion.folder / split
    finished = sum((place / name).exists() for name in lengths)
    if finished < len(lengths):
        if finished:
            conversion.report(f"resumes at shard {finished + 1:,} of {split}")
        values = _tracked(sorted_chunks.values(place), f"sorting {split}", sum(lengths.values()), conversion.report)
        for name, length in lengths.items():
            shard = itertools.islice(values, length)
            if not (place / name).exists():
                _write_shard(builder, place / name, shard, length)
            collections.deque(shard, maxlen=0)  # skips an existing shard
        collections.deque(values, maxlen=0)
    sorted_chunks.remove(place)


def _tracked(values: Iterator[T], what: str, total: int, report: Report) -> Iterator[T]:
    """Yields values, and shows the number of finished ones if they take long."""
    with show_progress(what, total, " examples", report, delay=FIRST_SECONDS, with_rest=True) as move:
        done = 0
        for done, value in enumerate(values, 1):
            yield value
            if done % STEP == 0:
                move(done)
        move(done)


def _write_shard(builder: Any, file: Path, values: Iterator[bytes], count: int) -> None:
    """Writes a shard atomically and durably. Raises OSError if the disk is full or examples are missing."""
    from tensorflow_datasets.core.file_adapters import ADAPTER_FOR_FORMAT

    temporary = file.with_name(f"{durable.TEMPORARY}{file.name}")
    try:
        builder._example_writer().write(temporary, ((0, value) for value in values))
    except RuntimeError as error:  # raised by array_record if the disk is full
        raise OSError(str(error)) from None
    written = ADAPTER_FOR_FORMAT[builder.info.file_format].num_examples(temporary)
    if written != count:
        raise OSError(f"{temporary} has {written} examples after {count} were written")
    durable.sync(temporary)
    os.rename(temporary, file)
    durable.sync(file.parent)


def _link(file: Path, name: Path) -> None:
    """Hard-links a file to a second name, or copies it if the file system does not support links."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)
