"""Thrift: parses structs of the compact protocol, in which Parquet writes the headers of pages."""

from typing import Any

DEEPEST = 4  # nested structs


def struct(data: bytes, position: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Returns the fields of a struct by number, and its end. Texts are None.

    Raises:
      IndexError: the data end early, or are not such a struct.
    """
    if depth > DEEPEST:
        raise IndexError("too deep")
    fields = {}
    number = 0
    while (head := data[position]) != 0:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            number, position = _signed(data, position)
        fields[number], position = _value(data, position, head & 15, depth)
    return fields, position + 1


def _value(data: bytes, position: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 4 | 5 | 6:
            return _signed(data, position)
        case 12:
            return struct(data, position, depth + 1)
        case 1 | 2:
            return kind == 1, position
        case 3:
            return data[position], position + 1
        case 7:
            return None, position + 8
        case 8:
            length, position = varint(data, position)
            if position + length <= len(data):
                return None, position + length
    raise IndexError("a field that is unknown or does not end")


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number and its end. Raises IndexError if it does not end."""
    value = shift = 0
    while shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise IndexError("a number without an end")


def _signed(data: bytes, position: int) -> tuple[int, int]:
    value, position = varint(data, position)
    return value >> 1 ^ -(value & 1), position
