"""Arrow messages: the memory that a schema needs, and whether a batch is compressed, without decoding them."""

from collections.abc import Iterator

PER_COLUMN = 600  # bytes of memory for a schema column or a metadata string, excluding its characters


class _Message:
    """An Arrow message, which is a FlatBuffers table. Missing fields read as 0."""

    def __init__(self, data: bytes):
        self.data = data
        root = self.number(0, 4)
        self.kind, self.header = self.number(self.field(root, 1), 1), self.inner(root, 2)

    def number(self, position: int, size: int = 4, *, signed: bool = False) -> int:
        return int.from_bytes(self.data[position : position + size], "little", signed=signed)

    def field(self, table: int, index: int) -> int:
        """Returns the position of a field of a table, or 0 if it is missing."""
        names = table - self.number(table, signed=True)
        place = 4 + 2 * index
        distance = self.number(names + place, 2) if place < self.number(names, 2) else 0
        return table + distance if distance else 0

    def inner(self, table: int, index: int) -> int:
        """Returns the position of a field's table, string or list, or 0 if it is missing."""
        position = self.field(table, index)
        return position + self.number(position) if position else 0

    def size(self, table: int, index: int) -> int:
        """Returns the length of a string or a list."""
        position = self.inner(table, index)
        return self.number(position) if position else 0

    def tables(self, table: int, index: int) -> Iterator[int]:
        """Yields the positions of the tables in a list."""
        position = self.inner(table, index)
        for place in range(position + 4, position + 4 + 4 * self.size(table, index), 4):
            yield place + self.number(place)


def schema_bytes(data: bytes, limit: int) -> int:
    """Returns the memory that a schema needs, in bytes, or a number above ``limit``. Parts may be shared."""
    message = _Message(data)
    total = 0
    waiting = [(message.header, 1, 2)]  # tables, with the indices of their fields for columns and metadata strings
    while waiting and total <= limit:
        table, columns, about = waiting.pop()
        if about == 6:  # a column with its name, and the time zone or numbers in its type
            total += message.size(table, 0)
            if message.number(message.field(table, 2), 1) in (10, 14):
                total += 4 * message.size(message.inner(table, 3), 1)
        total += PER_COLUMN * (message.size(table, columns) + message.size(table, about))
        if total <= limit:
            total += sum(message.size(pair, 0) + message.size(pair, 1) for pair in message.tables(table, about))
            waiting += [(column, 5, 6) for column in message.tables(table, columns)]
    return total


def is_compressed(data: bytes) -> bool:
    """Returns whether a message is a batch with compressed buffers."""
    message = _Message(data)
    header = message.inner(message.header, 1) if message.kind == 2 else message.header  # a dictionary contains a batch
    return message.kind in (2, 3) and message.field(header, 3) != 0
