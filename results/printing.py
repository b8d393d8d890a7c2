"""Prints the results and messages of all commands, within the width of a terminal or as CSV or JSON.

On a terminal, tables and text fit within its width. In a pipe or with ``--wide``, nothing is shortened. To keep
``--help`` fast, csv and json are imported only when needed.
"""

import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from results.aliases import Json, StringMap
from results.bad_input import BadInput, printable
from results.wrapping import indentation, is_copied, reflowed, wrap

Report = Callable[[str], None]  # called with one line


class _Output:
    """The output format (text, csv or json), whether text keeps its full width, and the words of the command line."""

    form = "text"
    wide = False
    typed: Sequence[str] = ()


_output = _Output()
_names: dict[str, str] = {}  # command names that replace those in messages; see ``rename``
MOST_COLUMNS = 120  # maximum width of help


def set_output(*, csv: bool = False, json: bool = False, wide: bool = False) -> None:
    """Sets the format in which ``show`` prints tables, and whether text is printed in its full width.

    Raises:
      BadInput: both CSV and JSON are requested.
    """
    if csv and json:
        raise BadInput("--csv and --json are two forms of one table. Give only one of them.")
    _output.form = "csv" if csv else "text"
    if json:
        _output.form = "json"
    _output.wide = wide


def set_typed(words: Iterable[object]) -> None:
    """Records the words of the command line. Paths among them are not broken across lines."""
    _output.typed = [str(word) for word in words]


def rename(names: StringMap) -> None:
    """Sets command names to replace in all printed output, as needed by `scaling-limits sweep`."""
    _names.update(names)


def renamed(text: str) -> str:
    """Returns a string with command names replaced as set by ``rename``."""
    if not _names:
        return text
    longest_first = sorted(_names, key=len, reverse=True)
    return re.sub(rf"({'|'.join(map(re.escape, longest_first))})(?![\w.])", lambda found: _names[found[1]], text)


def is_data() -> bool:
    """Returns whether standard output contains only CSV or JSON."""
    return _output.form != "text"


def is_json() -> bool:
    """Returns whether standard output is JSON."""
    return _output.form == "json"


def width(stream: Any) -> int | None:
    """Returns the width of the terminal. Returns None (no limit) for a pipe, a file or --wide."""
    if _output.wide or not stream.isatty():
        return None
    return shutil.get_terminal_size().columns


def quoted(folder: Any) -> str:
    """Returns a path or URL as a command-line word, quoted if the shell requires it."""
    return shlex.quote(str(folder))


def answer(lines: str) -> None:
    """Prints the result of a command. On a terminal, long lines of prose are wrapped."""
    columns = width(sys.stdout)
    print("\n".join(_wrapped(printable(line), columns) for line in renamed(lines).split("\n")), flush=True)


def say(line: str) -> None:
    """Prints a line to standard error. On a terminal, it is wrapped unless it is an error.

    Standard output is flushed first, so that lines stay in order if both go to the same file.
    """
    sys.stdout.flush()
    columns = None if line.startswith("error: ") else width(sys.stderr)
    print(_wrapped(printable(renamed(line)), columns), file=sys.stderr, flush=True)


def report_some(lines: Sequence[str], report: Report, most: int = 10) -> None:
    """Reports the first few of many lines, and the number of remaining lines."""
    for line in lines[:most]:
        report(line)
    if len(lines) > most:
        report(f"and {len(lines) - most} more")


def answer_help(text: str) -> None:
    """Prints --help text within the terminal's width, or within 80 columns if there is no terminal."""
    print("\n".join(map(printable, as_help(text, help_width()).split("\n"))), flush=True)


def help_width() -> int:
    """Returns the width of --help in columns."""
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def as_help(text: str, columns: int) -> str:
    """Formats --help text within a number of columns, with command names replaced."""
    return reflowed(renamed(text), columns)


def numbered(name: str) -> tuple[tuple[int, int, str], ...]:
    """Returns a key that sorts names by number: b1, b2, b1024. Hex hashes at the end are compared as text."""
    base, dash, tail = name.rpartition("-")
    if not dash or not re.fullmatch(r"[0-9a-f]{8,16}", tail):
        base, tail = name, ""
    words = [word for word in re.split(r"(\d+)", base) if word]
    return (*((0, int(word), word) if word.isdecimal() else (1, 0, word) for word in words), (-1, 0, tail))


def show(columns: Sequence[str], rows: Iterable[Sequence[Any]], as_text: Callable[[], str]) -> None:
    """Prints the result of a command: a table as CSV or JSON, or text.

    Args:
      columns: column names.
      rows: cell values. None, NaN and pandas.NA are empty in CSV and null in JSON. Infinity is null in JSON.
      as_text: function that returns the human-readable text.
    """
    if not is_data():
        answer(as_text())
        return
    values = [[_plain(value) for value in row] for row in rows]
    if is_json():
        finite = [[None if isinstance(v, float) and not math.isfinite(v) else v for v in row] for row in values]
        lines = ["\n" + _json(dict(zip(columns, row, strict=True))) for row in finite]
        print(f"[{','.join(lines)}\n]", flush=True)
        return
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(v) if isinstance(v, str) else v for v in row] for row in values)


def show_json(fields: Json) -> None:
    """Prints an object as JSON."""
    print(_json(fields), flush=True)


def _json(fields: Json) -> str:
    import json

    is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(fields, ensure_ascii=is_ascii, allow_nan=False)


def _cell(text: str) -> str:
    """Returns a string as a CSV cell that spreadsheets do not interpret as a formula. Numbers stay unchanged."""
    text = printable(text)
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return text


def _plain(value: Any) -> Any:
    """Returns a value as a Python object, or None if it is missing."""
    if value is None or type(value).__name__ == "NAType":
        return None
    if hasattr(value, "dtype"):  # a NumPy scalar
        value = float(str(value)) if value.dtype.kind == "f" else value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def _wrapped(line: str, columns: int | None) -> str:
    """Wraps a line to a number of columns. Words, commands, paths and examples are not broken."""
    if columns is None or len(line) <= columns or is_copied(line):
        return line
    indent = indentation(line)
    return "\n".join(wrap(line.strip(), columns, indent, f"{indent}  ", _typed_paths()))


def _typed_paths() -> set[str]:
    """Returns typed words that may be paths with spaces. They can be words, --KEY VALUE, KEY=VALUE or --KEY=VALUE."""
    folders = (os.getcwd(), os.environ.get("SCALING_LIMITS_CACHE", ""), "~")
    typed = [word_or_value for word in _output.typed for word_or_value in (word, word.partition("=")[2])]
    expanded = [os.path.expanduser(word_or_value) for word_or_value in (*typed, *folders)]
    return {path for word_or_value in expanded for path in (word_or_value, str(Path(word_or_value))) if " " in path}
