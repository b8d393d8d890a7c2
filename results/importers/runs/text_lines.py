"""Text lines: reads the numbers in lines such as ``step 250: train loss 2.1234, val loss 2.3456``."""

import re
from collections.abc import Sequence
from typing import Any

from results.aliases import Fields
from results.bad_input import BadInput

LONGEST = 2000  # characters of a line; longer ones hold no metrics, and searching them would take long
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf(?:inity)?)\b"
_TOKEN = re.compile(r"\{(\w*)\}|\*|\s+")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Returns the regular expression for a pattern of lines.

    Args:
      pattern: text with ``{name}`` for a number or word. ``*`` matches any text, and a space one or more spaces.

    Raises:
      BadInput: the pattern has no names, or an invalid or repeated name.
    """
    expression, position, names = "", 0, list[str]()
    for token in _TOKEN.finditer(pattern):
        expression += re.escape(pattern[position : token.start()])
        position = token.end()
        if token[0] == "*":
            expression += ".*?"
        elif token[1] is None:
            expression += r"\s+"
        else:
            names.append(token[1])
            expression += f"(?P<{token[1]}>{_NUMBER}|[^\\W\\d][^\\s,;|]*?)"
    if not names or len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
        raise BadInput(f"line: {pattern[:80]} must contain names in braces, each used once, such as step {{step}}")
    end = r"(?![\w.])" if pattern.endswith("}") else ""
    return re.compile(rf"(?<!\w){expression}{re.escape(pattern[position:])}{end}")


def rows(data: bytes, patterns: Sequence[str]) -> tuple[list[Fields], int]:
    """Returns a row for each line that matches a pattern, and the number of other lines that are not blank.

    All patterns are tried on every line, and their values are in one row.
    """
    expressions = [compile_pattern(pattern) for pattern in patterns]
    found, skipped = list[Fields](), 0
    for line in data.decode("utf-8", "replace").splitlines():
        matches = [expression.search(line) for expression in expressions if len(line) <= LONGEST]
        row = {name: _cell(text) for match in matches if match for name, text in match.groupdict().items()}
        if row:
            found.append(row)
        elif line.strip():
            skipped += 1
    return found, skipped


def _cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
