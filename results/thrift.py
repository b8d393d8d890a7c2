"""Thrift: reads structs in the compact protocol, such as the headers of Parquet pages."""

from typing import Any


def struct(data: bytes, position: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Parses a Thrift compact-protocol struct. Returns its fields by number, and its end. May raise IndexError."""
    if depth > 4:
        raise IndexError("too deep")
    fields = {}
    number = 0
    while (head := data[position]) != 0:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            value, position = varint(data, position)
            number = value >> 1 ^ -(value & 1)
        kind = head & 15
        if 4 <= kind <= 6 and (byte := data[position]) < 128:  # most fields are one-byte numbers
            fields[number], position = byte >> 1 ^ -(byte & 1), position + 1
        elif kind in _READ:
            fields[number], position = _READ[kind](data, position, depth)
        else:
            raise IndexError("a type of field that no header of a page has")
    return fields, position + 1


def varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise IndexError("a number without an end")


def _number(data: bytes, position: int, depth: int) -> tuple[int, int]:
    value, position = varint(data, position)
    return value >> 1 ^ -(value & 1), position


def _binary(data: bytes, position: int, depth: int) -> tuple[None, int]:
    length, position = varint(data, position)
    if position + length > len(data):
        raise IndexError("a text without an end")
    return None, position + length


_READ = {
    1: lambda data, at, depth: (True, at),
    2: lambda data, at, depth: (False, at),
    3: lambda data, at, depth: (data[at], at + 1),
    4: _number,
    5: _number,
    6: _number,
    7: lambda data, at, depth: (None, at + 8),
    8: _binary,
    12: lambda data, at, depth: struct(data, at, depth + 1),
}
