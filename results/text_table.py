"""A table as lines of text within a width: what all rows share goes into a heading; names yield before numbers."""

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

_NAME = 12  # characters that a shortened text has at least
_PROSE = 16  # and a column of wrapped text
_HASH = re.compile(r"(.+)-([0-9a-f]{8}|[0-9a-f]{16})")


class Column(NamedTuple):
    """A column of a table.

    Attributes:
      name: in the header.
      cells: of all rows.
      left: whether it is aligned to the left, as names are.
      prose: whether its cells are wrapped rather than shortened.
      kept: whether it is what the table is about: it stays a column, however narrow the terminal.
    """

    name: str
    cells: tuple[str, ...]
    left: bool
    prose: bool = False
    kept: bool = False


def render(columns: Sequence[Column], feet: int, least: Sequence[str], width: int | None) -> str:
    """The lines of a table.

    Args:
      columns: all with as many cells.
      feet: how many of the last rows are totals.
      least: names of columns in the order in which they are left out.
      width: of a line, in characters; None: as wide as it is.
    """
    rows = len(columns[0].cells) if columns else 0
    if width is None or _width(columns, stacked=False) <= width or not rows:
        return "\n".join(_lines(columns, {}, stacked=False))
    columns, heading = _without_constants(columns, feet)
    if _width(columns, stacked=True) > width:
        columns, sections = _sections(columns, rows, feet, width)
    else:
        sections = {}
    out: list[str] = []
    fitted = _fitted(columns, width)
    while _width(fitted, stacked=True) > width and (names := [column.name for column in columns if not column.kept]):
        if len(columns) <= 2:
            break
        first = next((name for name in least if name in names), names[-1])
        columns = [column for column in columns if column.name != first]
        out.append(first)
        fitted = _fitted(columns, width)
    lines = _fill(" · ".join(heading), width) if heading else []
    indented = {row: _fill(text, width) for row, text in sections.items()}
    lines += _lines(fitted, indented, stacked=True)
    if out:
        lines += _fill(f"left out: {', '.join(out)}; --wide shows all", width)
    return "\n".join(lines)


def _fill(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _without_constants(columns: Sequence[Column], feet: int) -> tuple[list[Column], list[str]]:
    """The columns that a table needs, and the others in words; those that are empty throughout say nothing.

    Words are names that all rows share, and zeros; other numbers stay in their columns, as they are of each row.
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
    """Moves columns of names, from the left, into lines above the rows that share them, while that is needed."""
    leading = []
    for column in columns:
        if column.name and not column.left:
            break
        if column.name and column.left and not column.prose:
            leading.append(column)
    chosen: list[Column] = []
    starts: list[int] = []
    for column in leading if not feet else ():
        if _width([c for c in columns if c not in chosen], stacked=True) <= width:
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
    """The columns within a width if wrapping prose and shortening names can do it, else as narrow as they get."""
    fitted = list(columns)
    for prose in (True, False):
        at = [i for i, column in enumerate(columns) if column.left and column.prose == prose]
        sizes = {i: _cell_width(columns[i]) for i in at}
        shortest = {i: _PROSE if prose else _shortest(columns[i].cells) for i in at}
        while _width(fitted, stacked=True) > width:
            yielding = [i for i in at if sizes[i] > shortest[i]]
            if not yielding:
                break
            i = max(yielding, key=lambda i: sizes[i])
            sizes[i] -= 1
            narrowed = _wrapped if prose else _shortened
            fitted[i] = columns[i]._replace(cells=narrowed(columns[i].cells, sizes[i]))
    return fitted


def _wrapped(cells: tuple[str, ...], size: int) -> tuple[str, ...]:
    """Cells of several lines."""
    return tuple("\n".join(textwrap.wrap(cell, size, break_on_hyphens=False)) for cell in cells)


def _shortest(cells: tuple[str, ...]) -> int:
    """The least size at which cells that differ still do."""
    longest = max(map(len, cells))
    different = len(set(cells))
    size = longest
    while size > _NAME and len(set(_shortened(cells, size - 1))) == different:
        size -= 1
    return size


def _shortened(cells: tuple[str, ...], size: int) -> tuple[str, ...]:
    """Cells of at most ``size`` characters: hashes at their ends give way first, then their middle."""
    if max(map(len, cells)) > size:
        cells = _with_short_hashes(cells)
    return tuple(cell if len(cell) <= size else _middle_cut(cell, size) for cell in cells)


def _with_short_hashes(cells: tuple[str, ...]) -> tuple[str, ...]:
    parts = [(found[1], found[2]) if (found := _HASH.fullmatch(cell)) else (cell, "") for cell in cells]
    for digits in (4, 6, 8):
        short = tuple(f"{base}-{tail[:digits]}" if tail else base for base, tail in parts)
        if len(set(short)) == len(set(cells)):
            return short
    return cells


def _middle_cut(cell: str, size: int) -> str:
    tail = (size - 1) * 3 // 5  # what tells names apart is rather at their ends
    return f"{cell[: size - 1 - tail]}…{cell[len(cell) - tail :]}"


def _cell_width(column: Column) -> int:
    return max((len(line) for cell in column.cells for line in cell.split("\n")), default=0)


def _heads(column: Column, *, stacked: bool) -> list[str]:
    """The name of a column as lines: broken at spaces, and after _ and /, where it is wider than its cells."""
    size = _cell_width(column)
    if not stacked or len(column.name) <= size:
        return [column.name]
    lines = [""]
    for word in re.findall(r"[^ _/]+[_/]*|[_/]+", column.name):
        joined = lines[-1] + ("" if not lines[-1] or lines[-1][-1] in "_/" else " ") + word
        if len(joined) <= size or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def _sizes(columns: Sequence[Column], *, stacked: bool) -> list[int]:
    return [max(_cell_width(one), *map(len, _heads(one, stacked=stacked))) for one in columns]


def _width(columns: Sequence[Column], *, stacked: bool) -> int:
    return sum(_sizes(columns, stacked=stacked)) + 2 * (len(columns) - 1)


def _lines(columns: Sequence[Column], sections: dict[int, list[str]], *, stacked: bool) -> list[str]:
    sizes = _sizes(columns, stacked=stacked)
    heads = [_heads(one, stacked=stacked) for one in columns]
    tallest = max(map(len, heads), default=1)

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(size) if one.left else cell.rjust(size)
            for cell, size, one in zip(cells, sizes, columns, strict=True)
        ).rstrip()

    lines = [line(row) for row in zip(*([""] * (tallest - len(head)) + head for head in heads), strict=True)]
    for row in range(len(columns[0].cells) if columns else 0):
        lines += sections.get(row, [])
        split = [one.cells[row].split("\n") for one in columns]
        for i in range(max(map(len, split))):
            lines.append(line([cell[i] if i < len(cell) else "" for cell in split]))
    return lines
