"""Reads files of links: SciPy CSR matrices (``.npz``) or parquet files with integer columns ``row`` and ``col``.

Values are ignored. Every entry except explicit zeros is a link.
"""

import contextlib
import functools
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads.base import BadInput, meaning
from workloads.factorization import links

BATCH = 1 << 20  # rows of parquet read at once
ROW_BYTES = 64  # maximum size of a parquet row, encoded and decoded
HOW = "SciPy CSR .npz (scipy.sparse.save_npz) or parquet with integer columns row and col"

NO_MATRIX = "is not a SciPy sparse matrix"
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error)

LinkBlocks = Iterator[tuple[np.ndarray, np.ndarray]]
MatrixShape = tuple[int, int]


class LinkFileHeader(NamedTuple):
    """Metadata of a file that can be read without reading its links.

    Attributes:
      shape: shape of the matrix, or None for a parquet file.
      links: number of stored links.
      bytes: size of the arrays of a matrix, which are read into memory completely, or 0 for a parquet file.
    """

    shape: MatrixShape | None
    links: int
    bytes: int


def header(file: Path) -> LinkFileHeader:
    """Returns the header of a file. Raises BadInput unless its format is supported."""
    start = first_bytes(file, HOW)
    if start.startswith(b"PAR1"):
        return _table_header(file)
    if start.startswith(b"PK"):
        return _matrix_header(file)
    raise BadInput(f"{file} has an unsupported format. It should be {HOW}.")


def first_bytes(file: Path, how: str, option: str = "") -> bytes:
    """Returns the first 4,096 bytes of a user's file. Raises BadInput, with the valid formats, if it cannot be read."""
    if not file.exists():
        raise BadInput(f"{option}{file} does not exist. It should be {how}{meaning(file)}")
    if not file.is_file():
        raise BadInput(f"{option}{file} is not a file. It should be {how}.")
    try:
        with open(file, "rb") as opened:
            return opened.read(4096)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None


def blocks(file: Path) -> LinkBlocks:
    """Yields the links of a file in blocks of rows and columns, integer[links] each."""
    return _matrix(file) if header(file).shape else _table(file)


def size_text(shape: MatrixShape) -> str:
    """Returns a shape as text, such as "3 × 2"."""
    return f"{shape[0]:,} × {shape[1]:,}"


def _matrix_header(file: Path) -> LinkFileHeader:
    with (
        _reading(file),
        zipfile.ZipFile(file) as archive,
        np.load(file, allow_pickle=False) as members,
    ):
        for name in ("format", "shape"):
            if f"{name}.npy" in archive.namelist() and math.prod(array_header(archive, name)[0]) > 2:
                raise ValueError(f"its {name} has too many values")
        kind = bytes(np.asarray(members["format"], "S").item())
        shape = members["shape"]
        names = ("indptr", "indices", "data") if kind == b"csr" else ()
        arrays = {name: array_header(archive, name) for name in names}
    if not arrays or shape.shape != (2,):
        raise BadInput(f"{file} is a {kind.decode(errors='replace')} matrix. Convert it with .tocsr() first.")
    rows, columns = (int(size) for size in shape)
    if not (0 < rows <= links.MOST_IDS and 0 < columns <= links.MOST_IDS):
        raise BadInput(
            f"{file} is {size_text((rows, columns))}. There must be 1 to {links.MOST_IDS:,} rows and columns."
        )
    (indptr, _), (indices, _), (data, _) = arrays.values()
    integers = all(np.issubdtype(arrays[name][1], np.integer) for name in ("indptr", "indices"))
    if indptr != (rows + 1,) or len(indices) != 1 or indices != data or not integers:
        raise BadInput(f"{file} is damaged: its arrays do not match. Write it again.")
    size = sum(int(np.prod(shape)) * kind.itemsize for shape, kind in arrays.values())
    return LinkFileHeader((rows, columns), indices[0], size)


def array_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Returns the shape and dtype of an array in an ``.npz`` without reading it."""
    with archive.open(f"{name}.npy") as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(member)
    return shape, kind


def _matrix(file: Path) -> LinkBlocks:
    """Yields the links of a CSR matrix in blocks."""
    with _reading(file), np.load(file, allow_pickle=False) as members:
        shape = members["shape"]
        starts = members["indptr"].astype(np.int64)
        nonzero = members["data"] != 0
        indices = members["indices"]
    if starts[0] != 0 or starts[-1] != len(indices) or (np.diff(starts) < 0).any():
        raise BadInput(f"{file} is damaged: its row pointers do not match its {len(indices):,} links. Write it again.")
    if len(indices) and not (indices.min() >= 0 and indices.max() < shape[1]):
        wrong = int(np.flatnonzero((indices < 0) | (indices >= shape[1]))[0])
        row = int(np.searchsorted(starts, wrong, side="right")) - 1
        raise BadInput(f"{file}: col {indices[wrong]} in row {row} is out of range. There are {shape[1]} columns.")
    first = 0
    while first < shape[0]:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + links.PAIRS_BLOCK, side="right")) - 1)
        span = slice(starts[first], starts[last])
        rows = np.repeat(np.arange(first, last), np.diff(starts[first : last + 1]))
        yield rows[nonzero[span]], indices[span][nonzero[span]]
        first = last


def _table_header(file: Path) -> LinkFileHeader:
    import pyarrow as pa

    from results import bounds

    with _reading(file), open(file, "rb") as opened:
        table = bounds.Parquet(opened)
        schema = table.schema_arrow
        count = table.metadata.num_rows
        decoded = table.decoded_bytes([name for name in ("row", "col") if name in schema.names], table.groups)
        if decoded > bounds.BASE + ROW_BYTES * count:
            raise ValueError("its pages are larger than their links")
    for name in ("row", "col"):
        if schema.names.count(name) != 1:
            columns = ", ".join(schema.names[:8]) or "none"
            raise BadInput(f"{file} has no column {name} (it has {columns}). It needs integer columns row and col.")
        kind = schema.field(name).type
        if not pa.types.is_integer(kind):
            raise BadInput(f"{file}: column {name} is {kind}. Ids must be integers without missing values.")
    return LinkFileHeader(None, count, 0)


def _table(file: Path) -> LinkBlocks:
    """Yields the links of a parquet file in blocks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from results import bounds

    with _reading(file):
        with open(file, "rb") as opened:
            metadata = bounds.Parquet(opened).metadata
        with pa.OSFile(os.fsencode(file)) as opened:  # not a Python file, because Arrow reads it in threads
            for batch in pq.ParquetFile(opened, metadata=metadata).iter_batches(BATCH, columns=["row", "col"]):
                columns = [batch.column(name) for name in ("row", "col")]
                for name, column in zip(("row", "col"), columns, strict=True):
                    if column.null_count:
                        raise BadInput(f"{file}: column {name} has missing values. Every link needs both ids.")
                rows, cols = (column.to_numpy() for column in columns)
                yield rows, cols


@contextlib.contextmanager
def reading(file: Path, how: str, without: str = "cannot be read") -> Iterator[None]:
    """Reads a user's file. Errors become BadInput.

    Args:
      file: path of the file, for messages.
      how: sentence with the valid formats, with which messages end.
      without: description of a file in which an array is missing.
    """
    import pyarrow as pa

    try:
        yield
    except BadInput:
        raise
    except (*_UNREADABLE, pa.ArrowException) as error:
        what = f"{without}: {error.args[0]}" if isinstance(error, KeyError) else f"cannot be read: {reason(error)}"
        raise BadInput(f"{file} {what}. {how}") from None


_reading = functools.partial(reading, how=f"It should be {HOW}.", without=NO_MATRIX)


def reason(error: Exception) -> str:
    """Returns the message of an error, shortened to one line, or the name of the error's type if it has no message."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
