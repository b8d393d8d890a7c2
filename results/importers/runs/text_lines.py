"""Text lines: reads the numbers in lines such as ``step 250: train loss 2.1234, val loss 2.3456``."""

import re
from collections.abc import Sequence

from results.aliases import Json
from results.bad_input import BadInput

LONGEST = 2000  # characters of a line; longer ones hold no metrics, and searching them would take long
# A number cannot be split, and the first match of each part counts. Hostile lines would else take long to search.
_CELL = r"(?>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)|[-+]?(?i:nan|inf(?:inity)?)\b|[^\W\d][^\s,;|]*?"


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Returns the regular expression for a pattern of lines.

    Args:
      pattern: text with ``{name}`` for a number or word. ``*`` matches any text, and a space one or more spaces.

    Raises:
      BadInput: the pattern has no names, or an invalid or repeated name.
    """
    expression = re.sub(r"(?:\\ )+", r"\\s+", re.escape(pattern)).replace(r"\*", ")(?>.*?")
    expression = re.sub(r"\\\{(.*?)\\\}", lambda name: f"(?P<{name[1]}>{_CELL})", expression)
    try:
        compiled = re.compile(rf"(?<!\w)(?>{expression}" + (r"(?!\w))" if pattern.endswith("}") else ")"))
    except re.error:
        compiled = re.compile("")
    if not compiled.groupindex:
        raise BadInput(f"line: {pattern[:80]} must contain names in braces, each used once, such as step {{step}}")
    return compiled


def rows(data: bytes, patterns: Sequence[str]) -> tuple[list[Json], int]:
    """Returns a row for each line that matches a pattern, and the number of other lines that are not blank.

    All patterns are tried on every line, and their values are in one row: numbers as floats, and words.
    """
    expressions = [compile_pattern(pattern) for pattern in patterns]
    table, skipped = [], 0
    for line in data.decode("utf-8", "replace").splitlines():
        matches = [expression.search(line) for expression in expressions if len(line) <= LONGEST]
        row = {name: _cell(text) for match in matches if match for name, text in match.groupdict().items()}
        if row:
            table.append(row)
        elif line.strip():
            skipped += 1
    return table, skipped


def _cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
