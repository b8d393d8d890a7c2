"""Data sets that ``workloads.prepare`` can prepare, and the time, disk space and memory that they require."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workloads.base import BadInput, say
from workloads.datasets import (
    array_records,
    embedded_originals,
    image_originals,
    movielens,
    rating_originals,
    streamed_originals,
    streamed_records,
    tfds_images,
    web_graph,
)
from workloads.datasets.streamed_text import StreamedText
from workloads.memory import size_text


class Preparable(NamedTuple):
    """A data set that can be prepared.

    Attributes:
      content: description of the data set for the user.
      download_bytes: size of the original files.
      stored_bytes: approximate size of the array_record files.
      folder: function that returns the folder of these files, given the folder that contains all data sets.
      check: function that raises BadInput unless all files exist.
      builder: function that returns TFDS's builder, given the folder that contains all data sets and the folder of
        manually downloaded originals.
      examples: expected number of examples by split.
      checksums: whether TFDS has checksums for the originals.
      notes: additional lines for the user about time, disk space and memory.
      finish: function that creates missing derived files, such as subword vocabularies, in the data set's folder.
      is_finished: function that returns whether the derived files exist, given the folder that contains all data sets.
    """

    content: str
    download_bytes: int
    stored_bytes: int
    folder: Callable[[Path], Path]
    check: Callable[[Path], None]
    builder: Callable[[Path, Path], Any]
    examples: Mapping[str, int]
    checksums: bool = True
    notes: tuple[str, ...] = ()
    finish: Callable[[Path], None] = lambda place: None
    is_finished: Callable[[Path], bool] = lambda parent: True

    def sizes(self) -> str:
        return f"{size_text(self.download_bytes)} to download, about {size_text(self.stored_bytes)}"


def names() -> tuple[str, ...]:
    """Returns the names of all data sets that can be prepared."""
    graphs = tuple(f"web_graph/{variant}" for variant in web_graph.VARIANTS)
    ratings = (*(f"movielens/{size}" for size in movielens.SIZES), *graphs)
    return (*tfds_images.SOURCES, *streamed_originals.BUILDERS, *ratings)


def prepared_as(name: str) -> str:
    """Returns the name under which a task's data set is prepared."""
    if name in tfds_images.SUBSETS:
        return tfds_images.SUBSETS[name][0]
    streamed = streamed_records.sources()
    return streamed[name].files if name in streamed else name


def preparable(name: str) -> Preparable:
    """Returns the description of a data set of ``names``."""
    kind, _, part = name.partition("/")
    if kind == "web_graph":
        return _web_graph(part)
    if kind == "movielens":
        return _movielens(part)
    return _streamed(name) if name in streamed_originals.BUILDERS else _images(name)


def _images(name: str) -> Preparable:
    source = tfds_images.SOURCES[name]
    return Preparable(
        f"{source.train_examples + source.validation_examples + source.test_examples:,} images",
        source.download_bytes,
        source.stored_bytes,
        functools.partial(tfds_images.folder, name),
        functools.partial(tfds_images.check, name),
        lambda parent, manual: image_originals.builder(name, parent),
        {"train": source.train_examples + source.validation_examples, "test": source.test_examples},
    )


# Approximate bytes of the originals and of the array_record files of each streamed data set.
_STREAMED_BYTES = {
    "imagenet2012": (154_642_401_280, 155_000_000_000),
    "open_images_v4/200k": (606_785_000_000, 80_000_000_000),
    "lm1b": (1_792_209_805, 6_000_000_000),
    "c4/en": (305_000_000_000, 830_000_000_000),
    "streamed_digits": (0, 2_000_000),
    embedded_originals.PYDOC: (0, 1_000_000),
}


def _streamed(name: str) -> Preparable:
    rows = {user: row for user, row in streamed_records.sources().items() if row.files == name}
    first = next(iter(rows))
    texts = isinstance(rows[first], StreamedText)
    counts = {split: count for row in rows.values() for split, count in row.splits.items()}
    download, stored = _STREAMED_BYTES[name]
    seconds = streamed_originals.SECONDS_PER_TEXT if texts else streamed_originals.SECONDS_PER_ENCODED
    if name == "imagenet2012":
        seconds = streamed_originals.SECONDS_PER_PHOTOGRAPH
    notes = [f"This takes about {_duration(counts['train'] * seconds)} on one core."]
    if name in ("imagenet2012", "c4/en"):
        notes += ["You must download its originals by hand."]
    if not download:
        notes = ["This takes a few seconds. The originals are part of Python packages."]
    elif texts:
        notes += ["Learning its subwords takes a few more minutes, and a few GB of memory."]

    def check(parent: Path) -> None:
        array_records.check_counts(name, streamed_records.folder(first, parent), counts)

    def finish(place: Path) -> None:
        for row in rows.values():
            row.write_derived(place, say)

    def is_finished(parent: Path) -> bool:
        try:
            for user in rows:
                streamed_records.check(user, parent)
        except BadInput:
            return False
        return True

    return Preparable(
        f"{counts['train']:,} {'texts' if texts else 'images'}",
        download,
        stored,
        functools.partial(streamed_records.folder, first),
        check,
        streamed_originals.BUILDERS[name],
        counts,
        checksums=name in ("lm1b", "open_images_v4/200k"),
        notes=tuple(notes),
        finish=finish,
        is_finished=is_finished,
    )


def _movielens(size: str) -> Preparable:
    row = movielens.SIZES[size]
    return Preparable(
        f"{row.ratings:,} ratings",
        row.download_bytes,
        row.stored_bytes,
        functools.partial(movielens.folder, size),
        functools.partial(movielens.check_files, size),
        lambda parent, manual: rating_originals.movielens_builder(size, parent),
        {"train": row.ratings},
        notes=(f"This takes about {_duration(row.ratings * rating_originals.SECONDS_PER_RATING)} on one core.",),
    )


def _web_graph(variant: str) -> Preparable:
    row = web_graph.VARIANTS[variant]
    seconds = sum(row.rows.values()) * rating_originals.SECONDS_PER_ROW
    seconds += 2 * row.links * rating_originals.SECONDS_PER_LINK  # train and train_t
    notes = [
        f"This takes about {_duration(seconds)} on one core and {size_text(row.stored_bytes)} of temporary disk.",
        "TFDS has no checksums of these originals. Checksums parent the files and the number of rows are verified.",
        f"A study with als.dim=128 in float32 takes about {size_text(web_graph.study_bytes(variant))} of memory.",
    ]
    if seconds > 24 * 3600:
        notes += [
            "Several machines are faster: with TensorFlow, Apache Beam and a runner for it, "
            f"tfds build web_graph/{variant} --file_format=array_record --data_dir=DIR --beam_pipeline_options=…",
        ]
    return Preparable(
        f"about {row.links:,} links from {row.rows['train'] + row.rows['test']:,} pages",
        row.stored_bytes,
        row.stored_bytes,
        functools.partial(web_graph.folder, variant),
        functools.partial(web_graph.check_files, variant),
        functools.partial(rating_originals.web_graph_builder, variant),
        row.rows,
        checksums=False,
        notes=tuple(notes),
    )


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} minutes" if seconds < 2 * 3600 else f"{seconds / 3600:.0f} hours"
