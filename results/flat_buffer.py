"""FlatBuffers: reads the metadata of Arrow messages."""

from collections.abc import Iterator


class FlatBuffer:
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
        offset = self.number(names + place, 2) if place < self.number(names, 2) else 0
        return table + offset if offset else 0

    def inner(self, table: int, index: int) -> int:
        """Returns the position of a field's table, string or list, or 0 if it is missing."""
        position = self.field(table, index)
        return position + self.number(position, 4) if position else 0

    def size(self, table: int, index: int) -> int:
        """Returns the length of a string or a list."""
        position = self.inner(table, index)
        return self.number(position, 4) if position else 0

    def tables(self, table: int, index: int) -> Iterator[int]:
        """Yields the positions of the tables in a list."""
        position = self.inner(table, index)
        for place in range(position + 4, position + 4 + 4 * self.size(table, index), 4):
            yield place + self.number(place, 4)
