"""WebGraph, the links of a web crawl (ALX, arXiv 2112.02194), from TFDS's ``web_graph``, read without TensorFlow.

Rows are pages, and columns are the pages that they link to. Both are numbered as in TFDS, and the largest numbers
determine the sizes. The evaluation rows are the rows of the ``test`` split, which have no links in ``train``. Their
links in ``col_tag`` are history, and those in ``gt_tag`` are held out. The ``train_t`` split repeats the links of
``train`` by column and is not read.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads import memory
from workloads.base import BadInput
from workloads.datasets import array_records
from workloads.factorization.links import BYTES_PER_LINK, BYTES_PER_ROW, Pairs, common_shape
from workloads.factorization.ratings import Ratings, RatingsSource, Size, evaluation, left_out, short

VERSION = "1.0.0"  # TFDS's version of the data
READER = 1  # version of this module; part of the data's identity
SPLITS = ("train", "train_t", "test")
READ = ("train", "test")
BYTES_OF_A_LINK = 3  # minimum size of a stored link


class Variant(NamedTuple):
    """A variant in TFDS's catalog.

    Attributes:
      subfolder: folder of the original files in gs://gresearch/web_graph.
      shards: number of original files per split.
      links: approximate number of links.
      stored_bytes: approximate size of all splits, and of the original files.
      rows: number of rows by split.
    """

    subfolder: str
    shards: int
    links: int
    stored_bytes: int
    rows: dict[str, int]


_TABLE = tomllib.loads(Path(__file__).with_name("web_graph.toml").read_text())
VARIANTS = {name: Variant(**row) for name, row in _TABLE.items()}


def source(variant: str) -> RatingsSource:
    """Returns the data set for a key of VARIANTS. Raises BadInput for any other key."""
    if variant not in VARIANTS:
        raise BadInput(f"unknown variant {variant!r} of web_graph; choices: {', '.join(VARIANTS)}")
    return RatingsSource.of(f"web_graph-{variant}", variant, version, check, build, size)


def folder(variant: str, parent: Path | None = None) -> Path:
    """Returns the folder of a variant's files."""
    return array_records.folder(f"web_graph/{variant}", VERSION, parent)


def check_files(variant: str, parent: Path | None = None) -> None:
    """Raises BadInput unless all splits exist."""
    array_records.check(f"web_graph/{variant}", folder(variant, parent), SPLITS)


def version(variant: str) -> str:
    """Returns the hash of the files that are read."""
    check_files(variant)
    return short(READER, array_records.digest(f"web_graph/{variant}", folder(variant), READ))


def size(variant: str) -> Size:
    """Returns the size of a variant according to TFDS's catalog."""
    row = VARIANTS[variant]
    return Size(row.rows["train"], row.rows["train_t"], row.links)


def needed_bytes(links: int, rows: int) -> int:
    """Returns the approximate peak memory needed for reading, in bytes."""
    return links * BYTES_PER_LINK + 2 * rows * BYTES_PER_ROW


def study_bytes(variant: str) -> int:
    """Returns the approximate bytes that a study with 128 dimensions in float32 needs for reading or for training."""
    row = VARIANTS[variant]
    tables = (row.rows["train"] + row.rows["test"] + row.rows["train_t"]) * 128 * 4
    return max(needed_bytes(row.links, sum(row.rows[split] for split in READ)), tables + 14 * row.links)


def check(variant: str) -> None:
    """Raises BadInput if the files do not exist or memory is insufficient."""
    check_files(variant)
    stored = array_records.stored_bytes(f"web_graph/{variant}", folder(variant), READ)
    links = min(VARIANTS[variant].links, stored // BYTES_OF_A_LINK)
    needed = needed_bytes(links, min(sum(VARIANTS[variant].rows[split] for split in READ), links))
    memory.require(needed, f"reading web_graph/{variant}, about {links:,} links,", "Choose a smaller variant")


def build(variant: str) -> Ratings:
    """Reads a variant."""
    place = folder(variant)
    remedy = array_records.remedy(f"web_graph/{variant}", place)
    train = Pairs()
    history_pairs = Pairs()
    heldout_pairs = Pairs()
    counts = {"train": _gather(variant, "train", train), "test": _gather(variant, "test", history_pairs, heldout_pairs)}
    expected = {split: VARIANTS[variant].rows[split] for split in READ}
    if counts != expected:
        raise BadInput(f"{place} holds {counts} rows, not {expected}. {remedy}")
    parts = (train, history_pairs, heldout_pairs)
    shape = common_shape(parts)
    (links, history, heldout), merged = zip(*(part.links(shape) for part in parts), strict=True)
    history, heldout, seen = evaluation(links, history, heldout)
    if not heldout.row_count or not len(links.columns):
        raise BadInput(f"{place} holds no links. {remedy}")
    return Ratings(links, history, heldout, sum(merged), left_out(seen))


def row_tag(record: Mapping[str, Any]) -> int:
    """Returns the row number of a record of ``tf.train.Feature``. Raises ValueError unless it has exactly one."""
    (number,) = record["row_tag"].int64_list.value
    return int(number)


def _gather(variant: str, split: str, links: Pairs, heldout: Pairs | None = None) -> int:
    """Adds ``col_tag`` of a split to ``links`` and ``gt_tag`` to ``heldout``. Returns the number of rows."""
    place = folder(variant)
    targets = {"col_tag": links} | ({"gt_tag": heldout} if heldout else {})
    count = 0
    for batch in array_records.batches(f"web_graph/{variant}", place, split):
        rows = []
        for record in batch:
            try:
                rows.append(row_tag(record))
            except ValueError:
                what = f"record {count + len(rows)} of {split} is not a row"
                remedy = array_records.remedy(f"web_graph/{variant}", place)
                raise BadInput(f"{place} cannot be read ({what}). {remedy}") from None
        for tag, target in targets.items():
            columns = [np.array(record[tag].int64_list.value, np.int64) for record in batch]
            target.add(np.repeat(rows, [*map(len, columns)]), np.concatenate(columns), f"{place} ({split}, {tag})")
        count += len(rows)
    return count
