"""A user's own ratings: files of links (see ``link_files``), by their roles.

All files are of one shape; a parquet file has none of its own, so without a matrix among the files the largest ids of
all of them decide.

Rows with links in ``heldout`` are the evaluation rows. Without ``history``, such a row is solved from its links in
``path``, where it stays: it also takes part in training, and shapes the columns it is then ranked against. That
measures how well links are found of rows that are known. With a ``history``, and rows that are absent from ``path``, it
is rows never seen before, as in ALX. Held-out links that are also in ``path`` or in the history test
nothing: they are left out, and a remark counts them.
"""

import functools
from pathlib import Path
from typing import NamedTuple

from results import durable
from results.bad_input import BadInput
from workloads import memory
from workloads.datasets import link_files
from workloads.datasets.link_files import HOW, LinkFileHeader, MatrixShape, size_text
from workloads.factorization.links import BYTES_PER_LINK, BYTES_PER_ROW, Links, Pairs
from workloads.factorization.ratings import Ratings, RatingsSource, evaluation, file_digest, left_out, short

READER = 1  # counts the versions of what follows and of link_files; part of the data's identity


class Files(NamedTuple):
    """The files, by their roles."""

    path: Path
    heldout: Path
    history: Path | None


def source(path: str, heldout: str, history: str | None = None) -> RatingsSource:
    """The data set of these files."""
    for role, text in (("path", path), ("heldout", heldout), ("history", history or " ")):
        if not text:
            raise BadInput(f"ratings.{role} is missing; it names a file: {HOW}")
        if not isinstance(text, str):
            raise BadInput(f"ratings.{role}={text!r} is not a file name: {HOW}")
    files = Files(durable.local(path), durable.local(heldout), durable.local(history) if history else None)
    calls = (functools.partial(call, files) for call in (version, check, build))
    return RatingsSource("ratings", *calls)  # type: ignore[arg-type]


def version(files: Files) -> str:
    """Hash of what is in the files, wherever they are and whatever they are called."""
    for file in filter(None, files):
        link_files.header(file)  # raises BadInput
    return short(READER, *(file and file_digest(file) for file in files))


def check(files: Files) -> None:
    """Raises BadInput if a file cannot be read, shapes differ, or memory does not suffice; reads no links."""
    headers = {file: link_files.header(file) for file in files if file}
    shape, _ = _common_shape(headers)
    links = sum(one.links for one in headers.values())
    rows = shape[0] if shape else 0  # unknown for parquet until it is read
    needed = links * BYTES_PER_LINK + max(one.bytes for one in headers.values()) + rows * BYTES_PER_ROW
    memory.require(needed, f"reading {links:,} links from {files.path} and the others", "use a machine with more")


def build(files: Files) -> Ratings:
    """Reads the files."""
    headers = {file: link_files.header(file) for file in files if file}
    shape, matrix = _common_shape(headers)
    by_file_pairs = {}
    for file in headers:
        by_file_pairs[file] = file_pairs = Pairs()
        for rows, columns in link_files.blocks(file):
            file_pairs.add(rows, columns, str(file))
        if shape and (file_pairs.rows > shape[0] or file_pairs.columns > shape[1]):
            name, last, size = (
                ("row", file_pairs.rows, shape[0])
                if file_pairs.rows > shape[0]
                else ("col", file_pairs.columns, shape[1])
            )
            raise BadInput(f"{file}: {name} {last - 1} is out of range; {matrix} has {size} of them")
    if shape is None:
        shape = (
            max(file_pairs.rows for file_pairs in by_file_pairs.values()),
            max(file_pairs.columns for file_pairs in by_file_pairs.values()),
        )
        memory.require(
            len(by_file_pairs) * shape[0] * BYTES_PER_ROW,
            f"a matrix of {size_text(shape)}",
            "number ids without gaps",
        )
    by_file = {file: by_file_pairs.pop(file).links(shape) for file in headers}
    return _ratings(files, by_file)


def _ratings(files: Files, by_file: dict[Path, tuple[Links, int]]) -> Ratings:
    train, heldout = by_file[files.path][0], by_file[files.heldout][0]
    for file, links in ((files.path, train), (files.heldout, heldout)):
        if not len(links.columns):
            raise BadInput(f"{file} holds no links")
    merged = sum(count for _, count in by_file.values())
    history, new, known = evaluation(train, by_file[files.history][0] if files.history else None, heldout)
    if not new.row_count:
        raise BadInput(f"every link of {files.heldout} is known already; held-out links must be in no other file")
    return Ratings(train, history, new, merged, left_out(known))


def _common_shape(headers: dict[Path, LinkFileHeader]) -> tuple[MatrixShape | None, Path | None]:
    """The shape of all matrices among the files and one of these; None if there is none."""
    first, shape = None, None
    for file, one in headers.items():
        if one.shape is None:
            continue
        if shape is not None and one.shape != shape:
            raise BadInput(
                f"{file} is {size_text(one.shape)} and {first} is {size_text(shape)}; "
                "all files must have the same shape"
            )
        first, shape = file, one.shape
    return shape, first
