"""Memory bounds for untrusted files: computes the memory that a file needs, and limits it before decoding the file.

A small untrusted file can expand to a large table. For example, 4 bytes of zstd can become a whole Parquet page, a
string can be stored once and repeated in every row, and Arrow batches can be compressed. All readers of untrusted files
use this module. A file may use ``BASE`` bytes of memory, plus ``PER_BYTE`` bytes for each byte of its size. Our own
files use less than a fifth of this.
"""

import base64
import binascii
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BASE = 32 << 20
PER_BYTE = 128
MOST_TEXT = 1 << 20  # maximum bytes of a string in a table
MOST_CSV = 4 << 20  # maximum bytes of a CSV table; each cell becomes a 60-byte Python string
MOST_FOOTER = 64 << 20  # maximum bytes of a Parquet footer
PER_STRUCT, PER_FOOTER_BYTE = 1000, 32  # maximum bytes of memory per struct and per byte of a footer
MOST_PAGE_HEADER = 1 << 16  # maximum bytes of a Parquet page header, which contains the page's minimum and maximum
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
        decoded = self.check(names, groups)
        if plain and decoded + self._longest_texts <= self._allowed:
            return self._file.read_row_groups(groups, names, use_threads=False)
        texts = [field.name for field in self.schema_arrow if _is_text(field.type)]
        file = pq.ParquetFile(self._source, metadata=self.metadata, read_dictionary=texts, pre_buffer=False)
        table = file.read_row_groups(groups, names, use_threads=False)
        return self._with_plain_texts(table, self._allowed - decoded, plain=plain)

    def check(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        """Returns ``decoded_bytes``. Raises TooLarge if they exceed the memory bound."""
        decoded = self.decoded_bytes(columns, groups)
        if decoded > self._allowed:
            raise TooLarge(f"it would take {decoded:,} bytes of memory, but its size allows {self._allowed:,}")
        return decoded

    def decoded_bytes(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        """Returns the decoded size of columns, in bytes (strings as dictionaries). Raises TooLarge for other types."""
        wanted = []
        self._longest_texts = total = 0  # bytes of expanded strings if each were as long as its whole dictionary
        for name in columns:
            at = self._index.get(name, -1)
            if at < 0:
                continue
            kind = self.schema_arrow.field(at).type
            width = _width(kind)
            if width is None or self.metadata.num_columns != len(self._names):
                raise TooLarge(f"its column {name[:80]!r} has the unsupported type {str(kind)[:80]}")
            wanted.append((at, width, _is_text(kind) or pa.types.is_dictionary(kind)))
        for group in map(self.metadata.row_group, groups):
            most = group.num_rows
            for at, width, texts in wanted:
                chunk = group.column(at)
                rows = max(most, chunk.num_values)
                total += rows * width
                if not texts and chunk.compression in _NO_CODEC:
                    total += int(chunk.total_compressed_size) * (_SNAPPY if chunk.compression == "SNAPPY" else 1)
                    continue
                dictionary = pages = 0
                for size, is_dictionary in _pages(self._source, chunk, texts=texts):
                    pages += size
                    dictionary += size if is_dictionary else 0
                total += pages
                if texts:
                    self._longest_texts += rows * (dictionary + 4) + pages
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


def _footer_limits(source: Any, most: int) -> dict[str, int]:
    """Returns limits for opening a Parquet file in PyArrow. Raises TooLarge if the footer could exceed ``most`` bytes.

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
    for found in re.finditer(b"ARROW:schema", footer):
        try:
            head, at = footer[found.end()], found.end() + 1
            size, at = _varint(footer, at)
            if head != 0x18 or footer[at + size] != 0:
                raise IndexError
            schema = base64.b64decode(footer[at : at + size], validate=True)
            if schema[:4] != b"\xff" * 4:
                raise IndexError
            _check_schema(schema[8:])
        except (IndexError, binascii.Error):
            raise TooLarge("its footer has no readable schema") from None
    zeros = footer.count(b"\0")
    if zeros * PER_STRUCT + length * PER_FOOTER_BYTE > most:
        raise TooLarge(f"its footer of {length:,} bytes would take more memory than the {most:,} bytes its size allows")
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
    while batches is None or batches > 0:
        try:
            message = messages.read_next_message()
        except StopIteration:
            break
        if _is_compressed(message.metadata.to_pybytes()):
            raise TooLarge("it is compressed, which is not supported")
        batches = None if batches is None else batches - 1
    source.seek(start)


def csv_source(data: bytes) -> pa.BufferReader:
    """Returns CSV text as a source for ``pyarrow.csv.read_csv``, which reads it in threads.

    The source holds a copy of the data rather than a Python object. If a thread released a Python object while the
    interpreter exits, the process would abort.
    """
    copy = pa.allocate_buffer(len(data))
    pa.FixedSizeBufferWriter(copy).write(data)
    return pa.BufferReader(copy)


def text(path: Path, most: int = MOST_CSV) -> bytes:
    """Reads a text file or a pipe. Raises TooLarge if there are more than ``most`` bytes."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise TooLarge(f"it has more than {most:,} bytes")
    return data


_PER_COLUMN = 600  # bytes of memory for a schema column or a metadata string, excluding its characters
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


def _pages(source: Any, chunk: pq.ColumnChunkMetaData, *, texts: bool) -> Iterator[tuple[int, bool]]:
    """Yields the uncompressed size of every page in a column, and whether the page is a dictionary.

    Raises:
      TooLarge: a page has an unsupported header or encoding.
    """
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end = at + chunk.total_compressed_size
    while 0 <= at < end and chunk.num_values > 0:  # an empty column has no pages
        source.seek(at)
        head = source.read(min(256, end - at))
        try:
            fields, length = _struct(head, 0)
        except IndexError:
            source.seek(at)
            try:
                fields, length = _struct(source.read(min(MOST_PAGE_HEADER, end - at)), 0)
            except (IndexError, RecursionError):
                raise TooLarge("a page of it has no readable header") from None
        sizes = fields.get(2), fields.get(3)
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise TooLarge("a page of it has no size")
        data = fields.get(5) or fields.get(8)
        encoding = data.get(2 if 5 in fields else 4) if isinstance(data, dict) else 0
        if texts and encoding not in _PLAIN_ENCODINGS:
            raise TooLarge("its texts have an unsupported encoding")
        yield sizes[0], 7 in fields  # type: ignore[misc]
        at += length + sizes[1]  # type: ignore[operator]


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Parses a Thrift compact-protocol struct. Returns its fields by number, and its end. May raise IndexError."""
    if depth > 4:
        raise IndexError("too deep")
    fields = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            value, at = _varint(data, at)
            number = value >> 1 ^ -(value & 1)
        kind = head & 15
        if 4 <= kind <= 6 and (byte := data[at]) < 128:  # most fields are one-byte numbers
            fields[number], at = byte >> 1 ^ -(byte & 1), at + 1
        elif kind in _READ:
            fields[number], at = _READ[kind](data, at, depth)
        else:
            raise IndexError("a type of field that no header of a page has")
    return fields, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError("a number without an end")


def _number(data: bytes, at: int, depth: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _binary(data: bytes, at: int, depth: int) -> tuple[None, int]:
    length, at = _varint(data, at)
    if at + length > len(data):
        raise IndexError("a text without an end")
    return None, at + length


_READ = {
    1: lambda data, at, depth: (True, at),
    2: lambda data, at, depth: (False, at),
    3: lambda data, at, depth: (data[at], at + 1),
    4: _number,
    5: _number,
    6: _number,
    7: lambda data, at, depth: (None, at + 8),
    8: _binary,
    12: lambda data, at, depth: _struct(data, at, depth + 1),
}


class _FlatBuffer:
    """An Arrow message, which is a FlatBuffers table. Missing fields read as 0."""

    def __init__(self, data: bytes):
        self.data = data
        root = self.number(0, 4)
        self.kind, self.header = self.number(self.field(root, 1), 1), self.inner(root, 2)

    def number(self, at: int, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.data[at : at + size], "little", signed=signed)

    def field(self, table: int, index: int) -> int:
        """Returns the position of a field of a table, or 0 if it is missing."""
        names = table - self.number(table, 4, signed=True)
        place = 4 + 2 * index
        within = self.number(names + place, 2) if place < self.number(names, 2) else 0
        return table + within if within else 0

    def inner(self, table: int, index: int) -> int:
        """Returns the position of a field's table, string or list, or 0 if it is missing."""
        at = self.field(table, index)
        return at + self.number(at, 4) if at else 0

    def size(self, table: int, index: int) -> int:
        """Returns the length of a string or a list."""
        at = self.inner(table, index)
        return self.number(at, 4) if at else 0

    def tables(self, table: int, index: int) -> Iterator[int]:
        """Yields the positions of the tables in a list."""
        at = self.inner(table, index)
        for place in range(at + 4, at + 4 + 4 * self.size(table, index), 4):
            yield place + self.number(place, 4)


def _check_schema(data: bytes) -> None:
    """Raises TooLarge if an Arrow schema needs more memory than its size allows. Parts of it may be shared."""
    (_count_schema_once if len(data) <= _KEPT_SCHEMA else _count_schema)(data)


def _count_schema(data: bytes) -> None:
    message = _FlatBuffer(data)
    total, most = 0, allowed(len(data))
    waiting = [(message.header, 1, 2)]  # tables, with the indices of their fields for columns and metadata strings
    while waiting:
        table, columns, about = waiting.pop()
        if about == 6:  # a column with its name, and the time zone or numbers in its type
            total += message.size(table, 0)
            if message.number(message.field(table, 2), 1) in (10, 14):
                total += 4 * message.size(message.inner(table, 3), 1)
        total += _PER_COLUMN * (message.size(table, columns) + message.size(table, about))
        if total <= most:
            total += sum(message.size(pair, 0) + message.size(pair, 1) for pair in message.tables(table, about))
        if total > most:
            raise TooLarge(f"its columns would take more memory than the {most:,} bytes its size allows")
        waiting += [(column, 5, 6) for column in message.tables(table, columns)]


# The studies of a store share a few schemas, so checks of small schemas are cached.
_KEPT_SCHEMA = 1 << 16  # bytes
_count_schema_once = functools.lru_cache(64)(_count_schema)


def _is_compressed(data: bytes) -> bool:
    """Returns whether a message is a batch with compressed buffers."""
    message = _FlatBuffer(data)
    header = message.inner(message.header, 1) if message.kind == 2 else message.header  # a dictionary contains a batch
    return message.kind in (2, 3) and message.field(header, 3) != 0
