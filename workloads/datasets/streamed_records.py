"""Streams photographs and texts from TFDS's array_record files. They do not fit in memory.

For tiny studies, data that come with Python and its packages are streamed in the same formats. ``python -m
workloads.prepare NAME`` writes the files.
"""

import functools
from pathlib import Path

from workloads import data_stream
from workloads.data_stream import Source, Stream
from workloads.datasets import array_records, streamed_images, streamed_text
from workloads.datasets.streamed_images import StreamedImages
from workloads.datasets.streamed_text import StreamedText
from workloads.workload import Examples, Splits


def sources() -> dict[str, StreamedImages | StreamedText]:
    """Returns all streamed data sets by name."""
    return {**streamed_images.SOURCES, **streamed_text.SOURCES}


def load(name: str) -> Splits:
    """Decodes the evaluated splits.

    Returns:
      Splits with inputs uint8[N, side, side, 3] and labels int32[N], or uint8[N, classes] for several labels. Inputs
        and labels of texts are int32[N, length].

    Raises:
      BadInput: the files do not exist or have the wrong number of records.
    """
    check(name)
    place = folder(name)
    row = sources()[name]
    row.check_derived(place)
    evaluated = {split: part.examples for split, part in row.parts.items() if split != "train"}
    splits = {split: data_stream.decoded(source(name, place, split), count) for split, count in evaluated.items()}
    return Splits(train=None, validation=splits["validation"], test=splits.get("test"))


def feed(name: str, seed: int, step: int, batch_size: int, positions: range) -> Examples:
    """Returns some positions of a batch. See ``Dataset.feed``."""
    return _stream(name, folder(name))(seed, step, batch_size, positions)


def version(name: str) -> str:
    """Returns TFDS's version of the data, and a description of the part in use and how it is decoded."""
    row = sources()[name]
    content = f" {row.content()}" if row.content else ""
    return f"tfds:{row.version}{content} {row.description()}"


def shapes(name: str) -> Splits:
    """Returns the shapes of streamed and loaded splits without reading files."""
    return sources()[name].shapes()


def folder(name: str, parent: Path | None = None) -> Path:
    """Returns the folder of a data set's files, in ``parent`` or TFDS's default folder."""
    row = sources()[name]
    return array_records.folder(row.files, row.version, parent)


def check(name: str, parent: Path | None = None) -> None:
    """Raises BadInput unless all files exist with the expected numbers of records. Records are not read."""
    row = sources()[name]
    place = folder(name, parent)
    array_records.check_counts(row.files, place, row.splits)
    for file in row.derived_files(place):
        array_records.check_file(row.files, file)


def source(name: str, place: Path, split: str) -> Source:
    """Returns the records of a split in a folder, and their decoder."""
    row = sources()[name]
    stored, limits, count = row.parts[split]
    rows = row.rows(place, split)
    records = functools.partial(array_records.Records, place, row.files, stored, rows, count, limits)
    return Source(records, *row.decoder(place, split))


@functools.lru_cache(maxsize=4)
def _stream(name: str, place: Path) -> Stream:
    return Stream(source(name, place, "train"))
