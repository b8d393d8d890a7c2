"""Thrift: parses structs of the compact protocol, in which Parquet writes the headers of pages."""

from typing import Any

DEEPEST = 4  # nested structs


def struct(data: bytes, at: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Returns the fields of a struct by number, and its end. Texts are None.

    Raises:
      IndexError: the data end early, or are not such a struct.
    """
    if depth > DEEPEST:
        raise IndexError("too deep")
    fields = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 4 | 5 | 6:
            return _signed(data, at)
        case 12:
            return struct(data, at, depth + 1)
        case 1 | 2:
            return kind == 1, at
        case 3:
            return data[at], at + 1
        case 7:
            return None, at + 8
        case 8:
            length, at = varint(data, at)
            if at + length <= len(data):
                return None, at + length
    raise IndexError("a field that is unknown or does not end")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number and its end. Raises IndexError if it does not end."""
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise IndexError("a number without an end")


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = varint(data, at)
    return value >> 1 ^ -(value & 1), at
