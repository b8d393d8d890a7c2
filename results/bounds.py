"""Bounds of memory: what a file may take is known, and refused, before any of it is decoded.

A file of somebody else can be small and say that it is large: a page of Parquet that 4 bytes of zstd stand for, a text
that is stored once and repeated in every row, a batch of Arrow that is compressed. All readers of such files come here.
They may take ``BASE`` bytes, and ``PER_BYTE`` for every byte of the file, which are there; files that we write take
less than a fifth of that.
"""

import base64
import binascii
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BASE = 32 << 20
PER_BYTE = 128
MOST_TEXT = 1 << 20  # bytes of a text in a table
MOST_CSV = 4 << 20  # bytes of a table that is read as Python's texts, of 60 bytes each
MOST_FOOTER = 64 << 20  # bytes of a footer of Parquet
PER_STRUCT, PER_FOOTER_BYTE = 1000, 32  # of memory, at most, for each struct of a footer and for each of its bytes
MOST_PAGE_HEADER = 1 << 16  # bytes of the header of a page of Parquet, which has its least and its largest value
_PLAIN_ENCODINGS = {0, 2, 3, 8}  # plain, dictionaries and runs; others can make a long text of a short one
_NO_CODEC = ("UNCOMPRESSED", "SNAPPY")  # of Snappy a byte stands for 22 at most
_SNAPPY = 22


class TooLarge(ValueError):
    """A file would take more memory than one of its size may."""


def allowed(size: int) -> int:
    """Bytes of memory that a file with so many bytes may take."""
    return BASE + PER_BYTE * size


class Parquet:
    """A Parquet file, of which nothing is decoded that would take more memory than its bytes allow.

    Texts are decoded as dictionaries, and become plain again once it is known how long they are together.

    Attributes:
      metadata: of the file.
      schema_arrow: its columns, as they were written.
    """

    def __init__(self, source: Any, most: int, metadata: Any = None):
        """``source``: an open file, seekable; ``most``: bytes of memory it may take, such as ``allowed`` gives."""
        self._source, self._allowed = source, most
        self._file = pq.ParquetFile(source, metadata=metadata, **({} if metadata else _footer_limits(source, most)))
        self.metadata, self.schema_arrow = self._file.metadata, self._file.schema_arrow
        self._names = self.schema_arrow.names
        self._index = {name: i for i, name in enumerate(self._names)}
        self._longest_texts = 0

    @property
    def groups(self) -> range:
        """Numbers of the row groups."""
        return range(self.metadata.num_row_groups)

    def read(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None, *, plain: bool = True
    ) -> pa.Table:
        """Columns of row groups; all of them by default.

        Args:
          columns: their names.
          groups: numbers of row groups.
          plain: whether texts are as they were written; else they stay dictionaries, which takes less memory.

        Raises:
          TooLarge: they would take more memory than the file may.
        """
        names = self._names if columns is None else list(columns)
        groups = self.groups if groups is None else groups
        decoded = self.check(names, groups)
        if plain and decoded + self._longest_texts <= self._allowed:
            return self._file.read_row_groups(groups, names, use_threads=False)
        texts = [field.name for field in self.schema_arrow if _is_text(field.type)]
        file = pq.ParquetFile(self._source, metadata=self.metadata, read_dictionary=texts)
        table = file.read_row_groups(groups, names, use_threads=False)
        return self._with_plain_texts(table, self._allowed - decoded, plain=plain)

    def check(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        """``decoded_bytes``; TooLarge if it is more than the file may take."""
        decoded = self.decoded_bytes(columns, groups)
        if decoded > self._allowed:
            raise TooLarge(f"it would take {decoded:,} bytes of memory; for its size {self._allowed:,} are the most")
        return decoded

    def decoded_bytes(self, columns: Sequence[str], groups: Sequence[int]) -> int:
        """Bytes of memory that columns take, texts as dictionaries; TooLarge if no column of a table is like one."""
        wanted: list[tuple[int, int, bool]] = []
        self._longest_texts = total = 0  # of the texts that become plain, if each were as long as all of its dictionary
        for name in columns:
            at = self._index.get(name, -1)
            if at < 0:
                continue
            kind = self.schema_arrow.field(at).type
            width = _width(kind)
            if width is None or self.metadata.num_columns != len(self._names):
                raise TooLarge(f"its column {name[:80]!r} holds {str(kind)[:80]}, which no table does")
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
                raise TooLarge(f"its texts would take too much memory; for its size {self._allowed:,} bytes are most")
            if becomes_plain:
                table = table.set_column(i, written, table.column(i).cast(written.type))
        return table.replace_schema_metadata(self.schema_arrow.metadata)


def _footer_limits(source: Any, most: int) -> dict[str, int]:
    """How PyArrow has to open a Parquet file; ``TooLarge`` if its footer would take more than ``most`` bytes.

    A struct takes 3 bytes of a footer and 800 of memory. Each ends in a zero byte, so there are no more than zeros. A
    list takes memory for as many structs as it says, before any is read: it cannot have more than a third of the bytes.
    """
    end = source.seek(0, 2)
    source.seek(max(0, end - 8))
    length = int.from_bytes(source.read(8)[:4], "little")
    if length + 8 > end:  # which PyArrow refuses
        return {}
    if length > MOST_FOOTER:
        raise TooLarge(f"its footer has {length:,} bytes; at most {MOST_FOOTER:,}")
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
            raise TooLarge("its footer has no schema that can be read") from None
    zeros = footer.count(b"\0")
    if zeros * PER_STRUCT + length * PER_FOOTER_BYTE > most:
        raise TooLarge(f"its footer of {length:,} bytes would take more memory than the {most:,} bytes for its size")
    return {"thrift_container_size_limit": max(16, length // 3), "thrift_string_size_limit": max(16, length)}


def check_stream(source: pa.NativeFile, batches: int | None = None) -> None:
    """Looks at the batches of an Arrow stream, or at the first so many; ``source`` stays where it was.

    A batch that is not compressed takes no memory beside its bytes.

    Raises:
      TooLarge: a batch is compressed, or a column is of a type that no table has.
    """
    start = source.tell()
    messages = pa.ipc.MessageReader.open_stream(source)
    first = messages.read_next_message()
    _check_schema(first.metadata.to_pybytes())
    schema = pa.ipc.read_schema(first)
    for field in schema:
        if _width(field.type) is None:
            raise TooLarge(f"its column {field.name[:80]!r} holds {str(field.type)[:80]}, which no table does")
    while batches is None or batches > 0:
        try:
            message = messages.read_next_message()
        except StopIteration:
            break
        if _is_compressed(message.metadata.to_pybytes()):
            raise TooLarge("it is compressed, which nothing here writes")
        batches = None if batches is None else batches - 1
    source.seek(start)


def text(path: Path, most: int = MOST_CSV) -> bytes:
    """All of a file of text, which may be a pipe; TooLarge if it has more than ``most`` bytes."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise TooLarge(f"it has more than {most:,} bytes")
    return data


_PER_COLUMN = 600  # bytes of memory of a column of a schema, or of a text about it, besides its characters
_CODE = 5  # bytes of a text in a dictionary: its code, and whether there is one


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _width(kind: pa.DataType) -> int | None:
    """Bytes of a value in memory, with whether there is one; None of types that no table has."""
    if _is_text(kind) or (pa.types.is_dictionary(kind) and _is_text(kind.value_type)):
        return _CODE
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return int(kind.bit_width // 8 + 1)
    return 1 if pa.types.is_boolean(kind) or pa.types.is_null(kind) else None


def _text_bytes(column: pa.ChunkedArray, name: str, *, expanded: bool) -> int:
    """Bytes of the texts of a column of dictionaries: of all rows if ``expanded``; TooLarge if one is absurd."""
    total = 0
    for chunk in column.chunks:
        lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0).to_numpy(zero_copy_only=False)
        if len(lengths) and lengths.max() > MOST_TEXT:
            raise TooLarge(f"its column {name[:80]!r} has a text of {lengths.max():,} bytes; at most {MOST_TEXT:,}")
        if expanded and len(lengths):
            codes = pc.drop_null(chunk.indices).to_numpy(zero_copy_only=False)
            total += int(lengths[codes].sum(dtype=np.int64)) + 4 * len(chunk)
    return total


def _pages(source: Any, chunk: pq.ColumnChunkMetaData, *, texts: bool) -> Iterator[tuple[int, bool]]:
    """Bytes of every page of a column before it was compressed, and whether it is a dictionary.

    Raises:
      TooLarge: a page is not what we can look at.
    """
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end = at + chunk.total_compressed_size
    while 0 <= at < end and chunk.num_values > 0:  # else nothing of it is read
        source.seek(at)
        head = source.read(min(256, end - at))
        try:
            fields, length = _struct(head, 0)
        except IndexError:
            source.seek(at)
            try:
                fields, length = _struct(source.read(min(MOST_PAGE_HEADER, end - at)), 0)
            except (IndexError, RecursionError):
                raise TooLarge("a page of it has no header that can be read") from None
        sizes = fields.get(2), fields.get(3)
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise TooLarge("a page of it has no size")
        data = fields.get(5) or fields.get(8)
        encoding = data.get(2 if 5 in fields else 4) if isinstance(data, dict) else 0
        if texts and encoding not in _PLAIN_ENCODINGS:
            raise TooLarge("its texts are encoded as none of ours are")
        yield sizes[0], 7 in fields  # type: ignore[misc]
        at += length + sizes[1]  # type: ignore[operator]


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A struct in Thrift's compact protocol: its fields by number, and where it ends; IndexError if it does not."""
    if depth > 4:
        raise IndexError("too deep")
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            value, at = _varint(data, at)
            number = value >> 1 ^ -(value & 1)
        if 4 <= head & 15 <= 6 and (byte := data[at]) < 128:  # most fields: a number of one byte
            fields[number], at = byte >> 1 ^ -(byte & 1), at + 1
        else:
            fields[number], at = _READ[head & 15](data, at, head & 15, depth) if head & 15 in _READ else _no_field()
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


def _no_field() -> tuple[Any, int]:
    raise IndexError("a type of field that no header of a page has")


def _number(data: bytes, at: int, kind: int, depth: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _binary(data: bytes, at: int, kind: int, depth: int) -> tuple[None, int]:
    length, at = _varint(data, at)
    if at + length > len(data):
        raise IndexError("a text without an end")
    return None, at + length


_READ: dict[int, Callable[[bytes, int, int, int], tuple[Any, int]]] = {
    1: lambda data, at, kind, depth: (True, at),
    2: lambda data, at, kind, depth: (False, at),
    3: lambda data, at, kind, depth: (data[at], at + 1),
    4: _number,
    5: _number,
    6: _number,
    7: lambda data, at, kind, depth: (None, at + 8),
    8: _binary,
    12: lambda data, at, kind, depth: _struct(data, at, depth + 1),
}


class _FlatBuffer:
    """A message of Arrow's, a table of FlatBuffers; what is not there reads as 0."""

    def __init__(self, data: bytes):
        self.data = data
        root = self.number(0, 4)
        self.kind, self.header = self.number(self.field(root, 1), 1), self.inner(root, 2)

    def number(self, at: int, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.data[at : at + size], "little", signed=signed)

    def field(self, table: int, index: int) -> int:
        """Where a field of a table is; 0 if it has none."""
        names = table - self.number(table, 4, signed=True)
        place = 4 + 2 * index
        within = self.number(names + place, 2) if place < self.number(names, 2) else 0
        return table + within if within else 0

    def inner(self, table: int, index: int) -> int:
        """Where a field's own table, text or list is; 0 if it has none."""
        at = self.field(table, index)
        return at + self.number(at, 4) if at else 0

    def size(self, table: int, index: int) -> int:
        """How long a text or a list is."""
        at = self.inner(table, index)
        return self.number(at, 4) if at else 0

    def tables(self, table: int, index: int) -> Iterator[int]:
        """Where the tables of a list are."""
        at = self.inner(table, index)
        for place in range(at + 4, at + 4 + 4 * self.size(table, index), 4):
            yield place + self.number(place, 4)


def _check_schema(data: bytes) -> None:
    """TooLarge if a message, a schema of Arrow's, would take more than its size allows: parts of it can be shared."""
    (_count_schema_once if len(data) <= _KEPT_SCHEMA else _count_schema)(data)


def _count_schema(data: bytes) -> None:
    message = _FlatBuffer(data)
    total, most = 0, allowed(len(data))
    waiting = [(message.header, 1, 2)]  # tables, and which of their fields have columns, and texts about them
    while waiting:
        table, columns, about = waiting.pop()
        if about == 6:  # a column: its name, and the time zone or the numbers of its type
            total += message.size(table, 0)
            if message.number(message.field(table, 2), 1) in (10, 14):
                total += 4 * message.size(message.inner(table, 3), 1)
        total += _PER_COLUMN * (message.size(table, columns) + message.size(table, about))
        if total <= most:
            total += sum(message.size(pair, 0) + message.size(pair, 1) for pair in message.tables(table, about))
        if total > most:
            raise TooLarge(f"its columns would take more memory than the {most:,} bytes for its size")
        waiting += [(column, 5, 6) for column in message.tables(table, columns)]


# Most studies of a store have tables of the same few schemas.
_KEPT_SCHEMA = 1 << 16  # bytes
_count_schema_once = functools.lru_cache(64)(_count_schema)


def _is_compressed(data: bytes) -> bool:
    """Whether a message is a batch with compressed buffers."""
    message = _FlatBuffer(data)
    header = message.inner(message.header, 1) if message.kind == 2 else message.header  # a dictionary has a batch
    return message.kind in (2, 3) and message.field(header, 3) != 0
