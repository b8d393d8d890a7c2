"""Converts originals to the same array_record files as TFDS, but can be interrupted and resumed.

Each split is converted in two steps. First, its examples are encoded in the order of the originals and written as
sorted chunks. Then, the chunks are merged into shards, which are moved to TFDS's folder when all splits are done. All
files are created atomically in a folder that later runs can find, so a killed process loses at most one chunk or shard.
Encodings, key hashes, shard counts and files are the same as in TFDS.
"""

import contextlib
import importlib.metadata
import inspect
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from results import durable
from results.bad_input import BadInput
from results.printing import Report
from results.progress import FIRST_SECONDS, show_progress
from workloads.datasets import sorted_chunks
from workloads.datasets.array_records import KeyedExamples
from workloads.datasets.download_progress import show_downloads
from workloads.datasets.sorted_chunks import Chunk

FORMAT = 1  # of the files in the folder of a conversion
ORIGIN = "origin.json"  # what the files in the folder were made from
ENCODED = "encoded.json"  # in the folder of a split of which all chunks exist
WRITTEN = "written.json"  # in the folder of a split of which all shards exist
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
        used = list(conversion.manual.glob("*"))
        download = downloads.download

        def noted(addresses: Any) -> Any:
            found = download(addresses)
            used.extend(_paths(found))
            return found

        downloads.download = noted
        splits = builder._split_generators(downloads)
        if _continue(conversion, _origin(builder, used)):
            conversion.report(f"resumes at {_position(conversion.folder, list(splits))}")
        return [_converted(builder, split, examples, conversion) for split, examples in splits.items()]

    builder._generate_splits = generate_splits


def _paths(found: Any) -> list[Path]:
    """Returns the paths in a result of TFDS's ``download``, which is a path or nested lists and dicts of paths."""
    if isinstance(found, Mapping):
        found = list(found.values())
    if isinstance(found, list | tuple):
        return [path for each in found for path in _paths(each)]
    return [Path(found)]


def _origin(builder: Any, used: Sequence[Path]) -> dict[str, Any]:
    """Returns everything that determines the files of a conversion: code, versions and originals."""
    code = inspect.getsourcefile(type(builder)._split_generators)
    files = sorted({file for file in used if file.is_file()})
    return {
        "format": FORMAT,
        "name": builder.info.full_name,
        "reader": durable.sha256(Path(str(code))),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "originals": [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files],
    }


def _continue(conversion: Conversion, origin: dict[str, Any]) -> bool:
    """Returns whether there is a conversion to resume. Removes unfinished files, and files from another origin."""
    place, record = conversion.folder, conversion.folder / ORIGIN
    before = None
    with contextlib.suppress(FileNotFoundError, durable.Damaged):
        before = durable.read_sealed(record)
    if before == origin:
        for unfinished in place.rglob(f"{durable.TEMPORARY}*"):
            unfinished.unlink()
        return True
    if before is not None:
        conversion.report("starts again, because the originals or the versions of packages changed")
    record.unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    durable.make_folder(place)
    durable.replace(record, durable.seal(origin))
    return False


def _position(place: Path, splits: Sequence[str]) -> str:
    """Returns a message for the user: the position from which a conversion resumes."""
    for split in splits:
        within = place / split
        if (within / ENCODED).exists() and not (within / WRITTEN).exists():
            return f"shard {len(_shards(within)) + 1:,} of {split}"
        if not (within / WRITTEN).exists():
            return f"example {_count(sorted_chunks.found(within)) + 1:,} of {split}"
    return "the end"


def _converted(builder: Any, split: str, examples: KeyedExamples, conversion: Conversion) -> Any:
    """Converts a split, or resumes its conversion. Returns TFDS's description of the split."""
    from tensorflow_datasets.core.splits import SplitInfo

    within = conversion.folder / split
    durable.make_folder(within)
    if not (within / WRITTEN).exists():
        chunks = _encoded(builder, split, examples, conversion)
        lengths = _written(builder, split, chunks, conversion)
        size = sum(chunk.value_bytes() for chunk in chunks)
        durable.replace(within / WRITTEN, durable.seal({"lengths": lengths, "bytes": size}))
    sorted_chunks.remove(within)
    written = durable.read_sealed(within / WRITTEN)
    lengths, size = written["lengths"], written["bytes"]
    for name in _names(builder, split, len(lengths)):
        _link(within / name, Path(builder.data_dir) / name)
    template = builder._get_filename_template(split_name=split)
    return SplitInfo(name=split, shard_lengths=lengths, num_bytes=size, filename_template=template)


def _encoded(builder: Any, split: str, examples: KeyedExamples, conversion: Conversion) -> list[Chunk]:
    """Encodes and writes those examples of a split that are not in a chunk yet. Returns all chunks."""
    from tensorflow_datasets.core.example_serializer import ExampleSerializer
    from tensorflow_datasets.core.hashing import Hasher

    within = conversion.folder / split
    chunks = sorted_chunks.found(within)
    if (within / ENCODED).exists():
        return chunks
    first = _count(chunks)
    _skip(examples, first, split, conversion)
    features = builder.info.features
    serializer, hasher = ExampleSerializer(features.get_serialized_info()), Hasher(split)
    records: list[bytes] = []
    size = 0
    total = conversion.examples.get(split, 0)
    with _shown(f"encoding {split}", total, conversion, first) as move:
        for key, example in _counted(examples, first, move):
            encoded = serializer.get_tf_example(features.encode_example(example))
            value = encoded.SerializeToString(deterministic=True)  # of features in the order of their names
            records.append(sorted_chunks.record(hasher.hash_key(key), value))
            size += len(records[-1])
            if size >= sorted_chunks.CHUNK_BYTES:
                chunks.append(sorted_chunks.write(within, len(chunks), records))
                records, size = [], 0
        if records:
            chunks.append(sorted_chunks.write(within, len(chunks), records))
        move(_count(chunks))
    if not chunks:
        raise BadInput(f"the originals hold no examples of {split}")
    durable.replace(within / ENCODED, durable.seal({"examples": _count(chunks)}))
    return chunks


def _skip(examples: KeyedExamples, count: int, split: str, conversion: Conversion) -> None:
    """Reads past the examples that are already in chunks, because originals can only be read from the start."""
    with _shown(f"skipping the encoded part of {split}", count, conversion, 0) as move:
        for _ in _counted(itertools.islice(examples, count), 0, move):
            pass


def _written(builder: Any, split: str, chunks: Sequence[Chunk], conversion: Conversion) -> list[int]:
    """Writes the shards of a split that do not exist yet. Returns the number of examples in each shard."""
    from tensorflow_datasets.core.utils.shard_utils import ShardConfig, get_shard_boundaries

    within = conversion.folder / split
    count = _count(chunks)
    number = ShardConfig().get_number_shards(sum(chunk.value_bytes() for chunk in chunks), count)
    limits = [0, *get_shard_boundaries(count, number)]
    names = _names(builder, split, number)
    done = len(_shards(within))
    first = limits[done]
    with _shown(f"sorting {split}", count, conversion, first) as move:
        values = _counted(sorted_chunks.values(chunks, first), first, move)
        for shard in range(done, number):
            length = limits[shard + 1] - limits[shard]
            _write_shard(builder, within / names[shard], itertools.islice(values, length), length)
        move(count)
    return [limits[shard + 1] - limits[shard] for shard in range(number)]


def _shown(
    what: str, total: int, conversion: Conversion, first: int
) -> contextlib.AbstractContextManager[Callable[[int], None]]:
    """Shows progress if processing takes long. Yields a function to call with the number of examples done so far."""
    return show_progress(what, total, " examples", conversion.report, delay=FIRST_SECONDS, first=first)


def _counted(values: Iterator[T], first: int, move: Callable[[int], None]) -> Iterator[T]:
    for done, value in enumerate(values, first):
        if done % STEP == 0:
            move(done)
        yield value


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


def _names(builder: Any, split: str, number: int) -> list[str]:
    """Returns TFDS's file names for a given number of shards of a split."""
    template = builder._get_filename_template(split_name=split)
    return [template.sharded_filepath(shard_index=shard, num_shards=number).name for shard in range(number)]


def _shards(within: Path) -> list[Path]:
    """Returns the existing shards of a split. Shards are written in order."""
    return list(within.glob("[!.]*.array_record-*"))


def _count(chunks: Sequence[Chunk]) -> int:
    return sum(int(chunk.ranks[-1]) for chunk in chunks)
