"""The user's own ratings, given as one file of links (see ``link_files``) for each role.

All matrices must have the same shape. Parquet files do not store a shape, so if no file is a matrix, the largest ids in
all files determine the shape.

Rows with links in ``heldout`` are the evaluation rows. Without ``history``, they are solved from their links in
``path`` and are also used for training, so recall measures new links of known rows. With ``history`` and evaluation
rows that are absent from ``path``, recall measures links of unseen rows, as in ALX. Held-out links that also occur in
``path`` or ``history`` are dropped, and a note reports their number.
"""

import itertools
from pathlib import Path
from typing import NamedTuple

from workloads import caches, memory
from workloads.base import BadInput, durable
from workloads.datasets import link_files
from workloads.datasets.link_files import HOW, LinkFileHeader, MatrixShape, size_text
from workloads.factorization.links import BYTES_PER_LINK, BYTES_PER_ROW, Pairs, common_shape
from workloads.factorization.ratings import Ratings, RatingsSource, evaluation, left_out, short

READER = 1  # version of this module and link_files; part of the data's identity


class Files(NamedTuple):
    """The files by role."""

    path: Path
    heldout: Path
    history: Path | None


def source(path: str, heldout: str, history: str | None = None) -> RatingsSource:
    """Returns the data set stored in these files.

    Args:
      path: file with the training links.
      heldout: file with the held-out links.
      history: file with the links that evaluation rows are solved from. Defaults to the links in ``path``.

    Raises:
      BadInput: ``path`` or ``heldout`` is missing, or one of the three is not a file name.
    """
    for role, text in (("path", path), ("heldout", heldout), ("history", history or " ")):
        if not text:
            raise BadInput(f"ratings.{role} is missing. It must name a file: {HOW}.")
        if not isinstance(text, str):
            raise BadInput(f"ratings.{role}={text!r} is not a file name. It must name a file: {HOW}.")
    files = Files(durable.local(path), durable.local(heldout), durable.local(history) if history else None)
    return RatingsSource.of("ratings", files, version, check, build)


def version(files: Files) -> str:
    """Returns the hash of the files' contents. The hash does not depend on file names or locations."""
    for file in filter(None, files):
        link_files.header(file)  # raises BadInput
    return short(READER, *(file and caches.file_digest(file) for file in files))


def check(files: Files) -> None:
    """Raises BadInput if a file is unreadable, shapes differ, or memory is insufficient. Links are not read."""
    headers = {file: link_files.header(file) for file in files if file}
    shape, _ = _common_shape(headers)
    links = sum(header.links for header in headers.values())
    rows = shape[0] if shape else 0  # unknown for parquet before reading
    needed = links * BYTES_PER_LINK + max(header.bytes for header in headers.values()) + rows * BYTES_PER_ROW
    memory.require(needed, f"reading {links:,} links from {files.path} and the others", "Use a machine with more")


def build(files: Files) -> Ratings:
    """Reads the files."""
    headers = {file: link_files.header(file) for file in files if file}
    shape, matrix = _common_shape(headers)
    pairs = {file: Pairs() for file in headers}
    for file, file_pairs in pairs.items():
        for rows, columns in link_files.blocks(file):
            file_pairs.add(rows, columns, str(file))
        sizes = zip(("row", "col"), file_pairs.shape, shape or file_pairs.shape, strict=True)
        for name, count, size in sizes:
            if count > size:
                raise BadInput(f"{file}: {name} {count - 1} is out of range. {matrix} has {size} of them.")
    if shape is None:
        shape = common_shape(pairs.values())
        needed = len(pairs) * shape[0] * BYTES_PER_ROW
        memory.require(needed, f"a matrix of {size_text(shape)}", "Number ids without gaps")
    links = {}
    merged = 0
    for file in headers:
        links[file], duplicates = pairs.pop(file).links(shape)
        merged += duplicates
    for file in (files.path, files.heldout):
        if not len(links[file].columns):
            raise BadInput(f"{file} holds no links. It needs at least one.")
    given = links[files.history] if files.history else None
    history, new, dropped = evaluation(links[files.path], given, links[files.heldout])
    if not new.row_count:
        raise BadInput(
            f"every link of {files.heldout} is also in another file. Held-out links must be in no other file."
        )
    return Ratings(links[files.path], history, new, merged, left_out(dropped))


def _common_shape(headers: dict[Path, LinkFileHeader]) -> tuple[MatrixShape | None, Path | None]:
    """Returns the common shape of all matrices, and the last matrix file. Returns None if there are only tables."""
    shapes = {file: header.shape for file, header in headers.items() if header.shape is not None}
    for (first, shape), (file, following) in itertools.pairwise(shapes.items()):
        if following != shape:
            sizes = f"{file} is {size_text(following)} and {first} is {size_text(shape)}"
            raise BadInput(f"{sizes}. All files must have the same shape.")
    matrix = next(reversed(shapes), None)
    return (shapes[matrix], matrix) if matrix else (None, None)
