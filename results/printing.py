"""Prints the results and messages of all commands, within the width of a terminal or as CSV or JSON.

On a terminal, tables and text fit within its width. Names are shortened first. Numbers, commands and paths are never
broken. In a pipe or with ``--wide``, nothing is shortened. To keep ``--help`` fast, csv and json are imported only when
needed.
"""

import itertools
import math
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from results.aliases import StringMap
from results.bad_input import BadInput, printable

Report = Callable[[str], None]  # called with one line


class _Output:
    """The output format (text, csv or json), whether text keeps its full width, and the words of the command line."""

    form = "text"
    wide = False
    typed: Sequence[str] = ()


_output = _Output()
_names: dict[str, str] = {}  # command names that replace those in messages; see ``rename``
MOST_COLUMNS = 120  # maximum width of help

_FULL = 88  # characters; a longer unindented line continues in the next one
_NARROWEST = 32  # characters; explanations with less room start on their own line
_COMMAND = r"(?:python -m|scaling-limits|make|pip install) "
_COPIED = re.compile(rf"\s*{_COMMAND}")
_ENTRY = re.compile(r"( *)(\S+(?: \S+)*)( {2,})(\S.*)")
# Commands within a line: in backticks, or at its end.
_WITHIN = re.compile(rf"`[^`]*`|(?<=next: ){_COMMAND}.*$|(?<![\w'])'[^']*'(?=[\s,;:.)]|$)")
_OPTION = re.compile(r"--[\w-]+ [^-\s]\S*")
_SPACE = "\0"  # marks a space at which a line must not break; printable text does not contain it

_NAME = 12  # minimum characters of a shortened string
_PROSE = 16  # minimum characters of a column with wrapped text
_HASH = re.compile(r"(.+)-([0-9a-f]{8}|[0-9a-f]{16})")


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
        show_json([dict(zip(columns, row, strict=True)) for row in values])
        return
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(v) if isinstance(v, str) else v for v in row] for row in values)


def show_json(value: Any) -> None:
    """Prints a value as JSON. Lists are printed with one object per line."""
    import json

    is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")

    def dump(one: Any) -> str:
        return json.dumps(one, ensure_ascii=is_ascii, allow_nan=False)

    def finite(one: Any) -> Any:
        if isinstance(one, dict):
            return {name: finite(each) for name, each in one.items()}
        return None if isinstance(one, float) and not math.isfinite(one) else one

    if isinstance(value, list):
        print("[" + ",".join("\n" + dump(finite(one)) for one in value) + "\n]", flush=True)
    else:
        print(dump(value), flush=True)


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


# Wrapping text


class _Block(NamedTuple):
    """A paragraph, or the explanation of a name: words after a prefix, and the indentation of the following lines."""

    start: str
    words: str
    hang: int
    indent: int = 0

    def lines(self, width: int) -> list[str]:
        if self.start.strip() and width - self.hang < _NARROWEST and self.hang > self.indent + 4:
            hang = self.indent + 4  # no room next to the name
            return [self.start.rstrip(), *_Block(" " * hang, self.words, hang).lines(width)]
        comment = "# " if self.words.startswith("# ") else ""
        return wrap(self.words.removeprefix(comment), width, self.start + comment, " " * self.hang + comment)


def wrap(text: str, width: int, first: str = "", others: str = "", kept: Collection[str] = ()) -> list[str]:
    """Returns lines of at most ``width`` characters. Words, commands and quoted strings are never broken.

    Args:
      text: a single line.
      width: width in characters; at least 20.
      first, others: prefixes of the first line and of the other lines.
      kept: strings that are not broken, up to the next space after them, such as paths that a user typed.
    """
    for one in sorted(kept, key=len, reverse=True):
        text = re.sub(rf"{re.escape(one)}\S*", _whole, text)
    lines = _fill(_WITHIN.sub(_whole, text), width, first, others)
    return [line.replace(_SPACE, " ") for line in lines]


def _fill(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def is_copied(line: str) -> bool:
    """Returns whether a line is only a command."""
    return bool(_COPIED.match(line))


def _wrapped(line: str, columns: int | None) -> str:
    """Wraps a line to a number of columns. Words, commands, paths and examples are not broken."""
    if columns is None or len(line) <= columns or is_copied(line):
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return "\n".join(wrap(line.strip(), columns, indent, f"{indent}  ", _typed_paths()))


def _typed_paths() -> set[str]:
    """Returns typed words that may be paths with spaces. They can be words, --KEY VALUE, KEY=VALUE or --KEY=VALUE."""
    around = (os.getcwd(), os.environ.get("SCALING_LIMITS_CACHE", ""), "~")
    typed = [each for word in _output.typed for each in (word, word.partition("=")[2])]
    expanded = [os.path.expanduser(each) for each in (*typed, *around)]
    return {path for each in expanded for path in (each, str(Path(each))) if " " in path}


def reflowed(text: str, width: int) -> str:
    """Wraps text with several paragraphs, such as --help, to a width.

    Long unindented lines continue on the next line. An explanation that is two or more spaces after a name stays in its
    column. Commands are broken with line continuations. Other indented lines are not joined.
    """
    lines = []
    for each in _blocks(text.split("\n")):
        lines += _command(each, width) if isinstance(each, str) else each.lines(width)
    return "\n".join(lines)


def _blocks(lines: list[str]) -> Iterator[_Block | str]:
    """Yields the blocks of a text. Commands and empty lines are unchanged."""
    block = None
    full = False  # whether the previous line was so long that its paragraph may continue
    for line in lines:
        indent = len(line) - len(line.lstrip())
        words = line.strip()
        if block and words and (full if indent == block.hang == 0 else block.start.strip() and indent == block.hang):
            if block.words.startswith("# "):
                words = words.removeprefix("# ")
            block = block._replace(words=f"{block.words} {words}")
            full = len(line) > _FULL
            continue
        if block:
            yield block
        block, full = None, False
        entry = _ENTRY.fullmatch(line)
        if entry:
            block = _Block(line[: entry.start(4)], entry[4], entry.start(4), indent)
        elif not words or (is_copied(line) and indent):
            yield line.rstrip()
        else:
            block = _Block(" " * indent, words, indent + 2 if indent else 0, indent)
            full = not indent and len(line) > _FULL
    if block:
        yield block


def _command(line: str, width: int) -> list[str]:
    """Breaks a command into several lines. All lines except the last end with a backslash."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    *firsts, last = wrap(_OPTION.sub(_whole, line.strip()), width - 2, indent, f"{indent}  ")
    return [*(f"{one} \\" for one in firsts), last]


def _whole(found: re.Match[str]) -> str:
    return found[0].replace(" ", _SPACE)


# Fitting tables


Cells = tuple[str, ...]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
      name: name in the header.
      cells: cells of all rows.
      left: whether the column is left-aligned, like names.
      prose: whether cells are wrapped rather than shortened.
      kept: whether it stays a column even on very narrow terminals, because it is the subject of the table.
    """

    name: str
    cells: Cells
    left: bool
    prose: bool = False
    kept: bool = False


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    left: Iterable[str] | None = None,
    *,
    prose: Iterable[str] = (),
    least: Sequence[str] = (),
    kept: Iterable[str] = (),
    foot: Iterable[Sequence[Any]] = (),
) -> str:
    """Returns the lines of a table that fits standard output, with columns two spaces apart.

    Args:
      header: column names.
      rows: cells of each row. Integers are printed with thousands separators.
      left: left-aligned columns. By default, all columns without integers.
      prose: columns whose cells are wrapped rather than shortened.
      least: columns to omit, in this order, if the table does not fit otherwise.
      kept: columns that are never omitted or moved into the heading.
      foot: additional rows at the end, such as totals.
    """
    last = list(foot)
    cells = [*rows, *last]
    if left is None:
        left = [name for i, name in enumerate(header) if not all(isinstance(row[i], int) for row in cells)]
    lines = [[f"{cell:,}" if isinstance(cell, int) else printable(cell) for cell in row] for row in cells]
    sides, wrapped, stay = set(left), set(prose), set(kept)
    columns = [
        Column(printable(name), tuple(line[i] for line in lines), name in sides, name in wrapped, name in stay)
        for i, name in enumerate(header)
    ]
    return render(columns, len(last), least, width(sys.stdout))


def render(columns: Sequence[Column], feet: int, least: Sequence[str], width: int | None) -> str:
    """Returns the lines of a table. Values shared by all rows move into a heading, and names are shortened first.

    Args:
      columns: columns with equal numbers of cells.
      feet: number of rows at the end that contain totals.
      least: names of columns to omit, in this order.
      width: maximum line width in characters, or None for no limit.
    """
    rows = len(columns[0].cells) if columns else 0
    if width is None or _width(columns, stacked=False) <= width or not rows:
        return "\n".join(_lines(columns, {}, stacked=False))
    columns, heading = _without_constants(columns, feet)
    sections: dict[int, str] = {}
    if _width(columns) > width:
        columns, sections = _sections(columns, rows, feet, width)
    out = []
    fitted = _fitted(columns, width)
    while _width(fitted) > width and len(columns) > 2:
        names = [column.name for column in columns if not column.kept]
        if not names:
            break
        first = next((name for name in least if name in names), names[-1])
        columns = [column for column in columns if column.name != first]
        out.append(first)
        fitted = _fitted(columns, width)
    lines = _fill(" · ".join(heading), width, others="  ")
    indented = {row: _fill(text, width, others="  ") for row, text in sections.items()}
    lines += _lines(fitted, indented, stacked=True)
    if out:
        lines += _fill(f"left out: {', '.join(out)}; --wide shows all", width, others="  ")
    return "\n".join(lines)


def _without_constants(columns: Sequence[Column], feet: int) -> tuple[list[Column], list[str]]:
    """Returns the columns that a table must show, and a description of the others.

    Names and zeros that all rows share are moved to the description. Empty columns are dropped. Other numbers stay in
    place.
    """
    rows = len(columns[0].cells) - feet
    kept, heading = [], []
    for i, column in enumerate(columns):
        body, foot = set(column.cells[:rows]), set(column.cells[rows:]) - {""}
        is_number = not column.left and not body <= {"", "0"}
        if column.kept or is_number or len(body) > 1 or not foot <= body or (i == 0 and feet):
            kept.append(column)
        elif body != {""}:
            heading.append(f"{column.name} {column.cells[0]}".strip())
    if not kept:
        return [columns[0]], heading
    return kept, heading


def _sections(columns: Sequence[Column], rows: int, feet: int, width: int) -> tuple[list[Column], dict[int, str]]:
    """While the table is too wide, moves name columns from the left into lines above the rows that share them."""
    leading = []
    for column in columns:
        if column.name and not column.left:
            break
        if column.name and not column.prose and not feet:
            leading.append(column)
    chosen: list[Column] = []
    starts = []
    for column in leading:
        if _width([c for c in columns if c not in chosen]) <= width:
            break
        keys = list(zip(*(c.cells for c in (*chosen, column)), strict=True))
        begins = [i for i in range(rows) if i == 0 or keys[i] != keys[i - 1]]
        if len(begins) <= rows / 2 and len(columns) - len(chosen) > 2:
            chosen, starts = [*chosen, column], begins
    texts = {
        i: " · ".join(f"{c.name} {c.cells[i]}" if c.cells[i][0].isdigit() else c.cells[i] for c in chosen if c.cells[i])
        for i in starts
    }
    return [column for column in columns if column not in chosen], texts


def _fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """Fits columns to a width as far as possible: wraps prose, then shortens names."""
    fitted = list(columns)
    for prose in (True, False):
        at = [i for i, column in enumerate(columns) if column.left and column.prose == prose]
        sizes = {i: _cell_width(columns[i]) for i in at}
        shortest = {i: _PROSE if prose else _shortest(columns[i].cells) for i in at}
        while _width(fitted) > width:
            yielding = [i for i in at if sizes[i] > shortest[i]]
            if not yielding:
                break
            i = max(yielding, key=lambda i: sizes[i])
            sizes[i] -= 1
            narrowed = _wrapped_cells if prose else _shortened
            fitted[i] = columns[i]._replace(cells=narrowed(columns[i].cells, sizes[i]))
    return fitted


def _wrapped_cells(cells: Cells, size: int) -> Cells:
    """Wraps cells to several lines."""
    return tuple("\n".join(textwrap.wrap(cell, size, break_on_hyphens=False)) for cell in cells)


def _shortest(cells: Cells) -> int:
    """Returns the smallest size at which different cells stay different."""
    different = len(set(cells))
    size = max(map(len, cells))
    while size > _NAME and len(set(_shortened(cells, size - 1))) == different:
        size -= 1
    return size


def _shortened(cells: Cells, size: int) -> Cells:
    """Shortens cells to at most ``size`` characters: first the hashes at their ends, then the middle."""
    if max(map(len, cells)) > size:
        cells = _with_short_hashes(cells)
    return tuple(cell if len(cell) <= size else _middle_cut(cell, size) for cell in cells)


def _with_short_hashes(cells: Cells) -> Cells:
    hashes = [_HASH.fullmatch(cell) for cell in cells]
    for digits in (4, 6, 8):
        short = tuple(f"{h[1]}-{h[2][:digits]}" if h else cell for h, cell in zip(hashes, cells, strict=True))
        if len(set(short)) == len(set(cells)):
            return short
    return cells


def _middle_cut(cell: str, size: int) -> str:
    tail = (size - 1) * 3 // 5  # most names differ at their ends
    return f"{cell[: size - 1 - tail]}…{cell[len(cell) - tail :]}"


def _cell_width(column: Column) -> int:
    return max((len(line) for cell in column.cells for line in cell.split("\n")), default=0)


def _heads(column: Column, *, stacked: bool) -> list[str]:
    """Breaks a column name that is wider than the cells into lines, at spaces and after _ and /."""
    size = _cell_width(column)
    if not stacked or len(column.name) <= size:
        return [column.name]
    lines = [""]
    for word in re.findall(r"[^ _/]+[_/]*|[_/]+", column.name):
        space = "" if not lines[-1] or lines[-1][-1] in "_/" else " "
        joined = f"{lines[-1]}{space}{word}"
        if len(joined) <= size or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def _sizes(columns: Sequence[Column], *, stacked: bool) -> list[int]:
    return [max(_cell_width(one), *map(len, _heads(one, stacked=stacked))) for one in columns]


def _width(columns: Sequence[Column], *, stacked: bool = True) -> int:
    return sum(_sizes(columns, stacked=stacked)) + 2 * (len(columns) - 1)


def _lines(columns: Sequence[Column], sections: dict[int, list[str]], *, stacked: bool) -> list[str]:
    sizes = _sizes(columns, stacked=stacked)
    heads = [_heads(one, stacked=stacked) for one in columns]
    tallest = max(map(len, heads), default=1)

    def line(cells: Sequence[str]) -> str:
        aligned = zip(cells, sizes, columns, strict=True)
        return "  ".join(cell.ljust(size) if one.left else cell.rjust(size) for cell, size, one in aligned).rstrip()

    lines = [line(row) for row in zip(*([""] * (tallest - len(head)) + head for head in heads), strict=True)]
    for row in range(len(columns[0].cells) if columns else 0):
        lines += sections.get(row, [])
        split = [one.cells[row].split("\n") for one in columns]
        lines += [line(cells) for cells in itertools.zip_longest(*split, fillvalue="")]
    return lines
