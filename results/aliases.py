"""Type aliases for plain data and for callbacks, shared by all modules."""

from collections.abc import Callable, Mapping
from typing import Any

Fields = Mapping[str, Any]  # values by name, not modified
Json = dict[str, Any]  # an object of JSON
Row = dict[str, Any]  # a row of a table, by column
Strings = tuple[str, ...]
StringMap = Mapping[str, str]  # by name, not modified
OnCount = Callable[[int], object]  # called with the number of items or bytes handled so far
Callback = Callable[[], None]
