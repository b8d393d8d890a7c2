"""Memory bounds for untrusted files: computes the memory that a file needs, and limits it before decoding the file.

A small untrusted file can expand to a large table. For example, 4 bytes of zstd can become a whole Parquet page, a
string can be stored once and repeated in every row, and Arrow batches can be compressed. All readers of untrusted files
use this module. A file may use ``BASE`` bytes of memory, plus ``PER_BYTE`` bytes for each byte of its size. Our own
files use less than a fifth of this.
"""

import base64
import binascii
import contextlib
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from results import arrow_messages, thrift

BASE = 32 << 20
PER_BYTE = 128
MOST_TEXT = 1 << 20  # maximum bytes of a string in a table
MOST_CSV = 4 << 20  # maximum bytes of a CSV table; each cell becomes a 60-byte Python string
MOST_FOOTER = 64 << 20  # maximum bytes of a Parquet footer
PER_STRUCT, PER_FOOTER_BYTE = 1000, 32  # maximum bytes of memory per struct and per byte of a footer
# Maximum bytes of a Parquet page header, which contains the page's minimum and maximum, at first and if it is longer.
MOST_FIRST, MOST_PAGE_HEADER = 256, 1 << 16
_PLAIN_ENCODINGS = {0, 2, 3, 8}  # plain, dictionary and run length; other encodings can expand short strings
_NO_CODEC = ("UNCOMPRESSED", "SNAPPY")
_SNAPPY = 22  # maximum compression ratio of Snappy


class TooLarge(ValueError):
    """Raised if a file would use more memory than is allowed for its size."""


def allowed(size: int) -> int:
    """Returns the memory, in bytes, that a file of ``size`` bytes may use."""
    return BASE + PER_BYTE * size


class Parquet:
    """A Parquet file that is never decoded beyond its memory bound.

    Strings are decoded as dictionaries. They are expanded if their total length is within the bound.

    Attributes:
      bytes: size of the file.
      metadata: metadata of the file.
      schema_arrow: the stored schema.
    """

    def __init__(self, source: Any, most: int | None = None, metadata: Any = None):
        """Wraps ``source``, an open seekable file that may use ``most`` bytes of memory (default: ``allowed``)."""
        self._source = source
        self.bytes = source.seek(0, 2)
        self._allowed = allowed(self.bytes) if most is None else most
        limits = {} if metadata else _footer_limits(source, self._allowed)
        # With pre_buffer, Arrow reads the file in threads. If the interpreter exits before a thread has released its
        # last Python object, the process aborts.
        self._file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False, **limits)
        self.metadata, self.schema_arrow = self._file.metadata, self._file.schema_arrow
        self._names = self.schema_arrow.names
        self._index = {name: i for i, name in enumerate(self._names)}
        self._longest_texts = 0

    @property
    def groups(self) -> range:
        """Returns the indices of the row groups."""
        return range(self.metadata.num_row_groups)

    def read(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None, *, plain: bool = True
    ) -> pa.Table:
        """Reads columns from row groups. By default, reads all columns of all row groups.

        Args:
          columns: column names.
          groups: indices of row groups.
          plain: whether to convert strings to their stored type. If not, they stay dictionaries, which use less memory.

        Raises:
          TooLarge: the columns would use more memory than is allowed.
        """
        names = self._names if columns is None else list(columns)
        groups = self.groups if groups is None else groups
        decoded = self.decoded_bytes(names, groups)
        if decoded > self._allowed:
            raise TooLarge(f"it would take {decoded:,} bytes of memory, but its size allows {self._allowed:,}")
        if plain and decoded + self._longest_texts <= self._allowed:
            return self._file.read_row_groups(groups, names, use_threads=False)
        texts = [field.name for field in self.schema_arrow if _is_text(field.type)]
        file = pq.ParquetFile(self._source, metadata=self.metadata, read_dictionary=texts, pre_buffer=False)
        table = file.read_row_groups(groups, names, use_threads=False)
        return self._with_plain_texts(table, self._allowed - decoded, plain=plain)

    def decoded_bytes(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        """Returns the decoded size of columns, in bytes (strings as dictionaries). Raises TooLarge for other types."""
        wanted = []
        self._longest_texts = total = 0  # bytes of expanded strings if each were as long as its whole dictionary
        for name in columns:
            i = self._index.get(name, -1)
            if i < 0:
                continue
            kind = self.schema_arrow.field(i).type
            width = _width(kind)
            if width is None or self.metadata.num_columns != len(self._names):
                raise TooLarge(f"its column {name[:80]!r} has the unsupported type {str(kind)[:80]}")
            wanted.append((i, width, _is_text(kind) or pa.types.is_dictionary(kind)))
        for group in map(self.metadata.row_group, groups):
            for i, width, is_text in wanted:
                chunk = group.column(i)
                rows = max(group.num_rows, chunk.num_values)
                total += rows * width
                if not is_text and chunk.compression in _NO_CODEC:
                    total += int(chunk.total_compressed_size) * (_SNAPPY if chunk.compression == "SNAPPY" else 1)
                    continue
                pages = list(_pages(self._source, chunk, is_text=is_text))
                size = sum(size for size, _ in pages)
                total += size
                if is_text:
                    dictionary = sum(size for size, is_dictionary in pages if is_dictionary)
                    self._longest_texts += rows * (dictionary + 4) + size
        return total

    def _with_plain_texts(self, table: pa.Table, room: int, *, plain: bool) -> pa.Table:
        for i, field in enumerate(table.schema):
            if not pa.types.is_dictionary(field.type):
                continue
            written = self.schema_arrow.field(field.name)
            becomes_plain = plain and written.type != field.type
            room -= _text_bytes(table.column(i), field.name, expanded=becomes_plain)
            if room < 0:
                raise TooLarge(f"its texts would take more memory than the {self._allowed:,} bytes its size allows")
            if becomes_plain:
                table = table.set_column(i, written, table.column(i).cast(written.type))
        return table.replace_schema_metadata(self.schema_arrow.metadata)


def _footer_limits(source: Any, limit: int) -> dict[str, int]:
    """Returns limits for opening a Parquet file in PyArrow. Raises TooLarge if the footer could exceed ``limit`` bytes.

    A struct takes at least 3 bytes of the footer and 800 bytes of memory. Its last byte is zero, so the number of zero
    bytes bounds the number of structs. PyArrow allocates a list's declared length before reading the list, so lists are
    limited to a third of the footer's bytes.
    """
    end = source.seek(0, 2)
    source.seek(max(0, end - 8))
    length = int.from_bytes(source.read(8)[:4], "little")
    if length + 8 > end:  # PyArrow rejects it
        return {}
    if length > MOST_FOOTER:
        raise TooLarge(f"its footer has {length:,} bytes, but the limit is {MOST_FOOTER:,}")
    source.seek(end - 8 - length)
    footer = source.read(length)
    for key in re.finditer(b"ARROW:schema", footer):
        try:
            size, start = thrift.varint(footer, key.end() + 1)
            schema = base64.b64decode(footer[start : start + size], validate=True)
            if footer[key.end()] != 0x18 or footer[start + size] != 0 or schema[:4] != b"\xff" * 4:
                raise IndexError
        except (IndexError, binascii.Error):
            raise TooLarge("its footer has no readable schema") from None
        _check_schema(schema[8:])
    zeros = footer.count(b"\0")
    if zeros * PER_STRUCT + length * PER_FOOTER_BYTE > limit:
        raise TooLarge(
            f"its footer of {length:,} bytes would take more memory than the {limit:,} bytes its size allows"
        )
    return {"thrift_container_size_limit": max(16, length // 3), "thrift_string_size_limit": max(16, length)}


def check_stream(source: pa.NativeFile, batches: int | None = None) -> None:
    """Checks the batches of an Arrow stream. Afterwards, restores the position of ``source``.

    Decoding an uncompressed batch does not need memory beyond its own bytes.

    Args:
      source: the stream.
      batches: number of batches to check. None checks all.

    Raises:
      TooLarge: a batch is compressed, or a column has an unsupported type.
    """
    start = source.tell()
    messages = pa.ipc.MessageReader.open_stream(source)
    first = messages.read_next_message()
    _check_schema(first.metadata.to_pybytes())
    schema = pa.ipc.read_schema(first)
    for field in schema:
        if _width(field.type) is None:
            raise TooLarge(f"its column {field.name[:80]!r} has the unsupported type {str(field.type)[:80]}")
    for message in itertools.islice(messages, batches):
        if arrow_messages.is_compressed(message.metadata.to_pybytes()):
            raise TooLarge("it is compressed, which is not supported")
    source.seek(start)


def text(path: Path, most: int = MOST_CSV) -> bytes:
    """Reads a text file or a pipe. Raises TooLarge if there are more than ``most`` bytes."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise TooLarge(f"it has more than {most:,} bytes")
    return data


_CODE = 5  # bytes per value in a dictionary column: its code and its validity


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _width(kind: pa.DataType) -> int | None:
    """Returns the bytes per value in memory, including validity, or None for unsupported types."""
    if _is_text(kind) or (pa.types.is_dictionary(kind) and _is_text(kind.value_type)):
        return _CODE
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return int(kind.bit_width // 8 + 1)
    return 1 if pa.types.is_boolean(kind) or pa.types.is_null(kind) else None


def _text_bytes(column: pa.ChunkedArray, name: str, *, expanded: bool) -> int:
    """Returns the total bytes of strings over all rows of a dictionary column. Returns 0 unless ``expanded``.

    Raises:
      TooLarge: a string has more than ``MOST_TEXT`` bytes.
    """
    total = 0
    for chunk in column.chunks:
        lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0).to_numpy(zero_copy_only=False)
        if len(lengths) and lengths.max() > MOST_TEXT:
            raise TooLarge(f"its column {name[:80]!r} has a text of {lengths.max():,} bytes, more than {MOST_TEXT:,}")
        if expanded and len(lengths):
            codes = pc.drop_null(chunk.indices).to_numpy(zero_copy_only=False)
            total += int(lengths[codes].sum(dtype=np.int64)) + 4 * len(chunk)
    return total


def _pages(source: Any, chunk: pq.ColumnChunkMetaData, *, is_text: bool) -> Iterator[tuple[int, bool]]:
    """Yields the uncompressed size of every page in a column, and whether the page is a dictionary.

    Raises:
      TooLarge: a page has an unsupported header or encoding.
    """
    position = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < position:
        position = chunk.dictionary_page_offset
    end = position + chunk.total_compressed_size
    while 0 <= position < end and chunk.num_values > 0:  # an empty column has no pages
        for limit in (MOST_FIRST, MOST_PAGE_HEADER):
            source.seek(position)
            with contextlib.suppress(IndexError, RecursionError):
                fields, length = thrift.struct(source.read(min(limit, end - position)))
                break
        else:
            raise TooLarge("a page of it has no readable header")
        sizes = fields.get(2), fields.get(3)
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise TooLarge("a page of it has no size")
        data = fields.get(5) or fields.get(8)
        encoding = data.get(2 if 5 in fields else 4) if isinstance(data, dict) else 0
        if is_text and encoding not in _PLAIN_ENCODINGS:
            raise TooLarge("its texts have an unsupported encoding")
        yield sizes[0], 7 in fields  # type: ignore[misc]
        position += length + sizes[1]  # type: ignore[operator]


def _check_schema(data: bytes) -> None:
    """Raises TooLarge if an Arrow schema needs more memory than its size allows."""
    count = _small_schema_bytes if len(data) <= _KEPT_SCHEMA else arrow_messages.schema_bytes
    limit = allowed(len(data))
    if count(data, limit) > limit:
        raise TooLarge(f"its columns would take more memory than the {limit:,} bytes its size allows")


# The studies of a store share a few schemas, so checks of small schemas are cached.
_KEPT_SCHEMA = 1 << 16  # bytes
_small_schema_bytes = functools.lru_cache(64)(arrow_messages.schema_bytes)
