"""Fits tables to a width: moves shared values into headings, wraps prose, shortens names, and omits columns."""

import itertools
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from results import printing
from results.bad_input import printable
from results.wrapping import fill

_NAME = 12  # minimum characters of a shortened string
_PROSE = 16  # minimum characters of a column with wrapped text
_HASH = re.compile(r"(.+)-([0-9a-f]{8}|[0-9a-f]{16})")

Cells = tuple[str, ...]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
      name: name in the header.
      cells: cells of all rows.
      left: whether the column is left-aligned, like names.
      prose: whether cells are wrapped rather than shortened.
      kept: whether it stays a column even on very narrow terminals, because it is the subject of the table.
      stacked: whether a name that is wider than the cells is broken into lines.
    """

    name: str
    cells: Cells
    left: bool
    prose: bool = False
    kept: bool = False
    stacked: bool = False

    @property
    def cell_width(self) -> int:
        return max((len(line) for cell in self.cells for line in cell.split("\n")), default=0)

    @property
    def heads(self) -> list[str]:
        """The lines of the name, which is broken at spaces and after _ and /."""
        size = self.cell_width
        if not self.stacked or len(self.name) <= size:
            return [self.name]
        lines = [""]
        for word in re.findall(r"[^ _/]+[_/]*|[_/]+", self.name):
            space = "" if not lines[-1] or lines[-1][-1] in "_/" else " "
            joined = f"{lines[-1]}{space}{word}"
            if len(joined) <= size or not lines[-1]:
                lines[-1] = joined
            else:
                lines.append(word)
        return lines

    @property
    def size(self) -> int:
        return max(self.cell_width, *map(len, self.heads))


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
    return render(columns, len(last), least, printing.width(sys.stdout))


def render(columns: Sequence[Column], feet: int, least: Sequence[str], width: int | None) -> str:
    """Returns the lines of a table. Values shared by all rows move into a heading, and names are shortened first.

    Args:
      columns: columns with equal numbers of cells.
      feet: number of rows at the end that contain totals.
      least: names of columns to omit, in this order.
      width: maximum line width in characters, or None for no limit.
    """
    rows = len(columns[0].cells) if columns else 0
    if width is None or _width(columns) <= width or not rows:
        return "\n".join(_lines(columns, {}))
    columns, heading = _without_constants([column._replace(stacked=True) for column in columns], feet)
    sections: dict[int, str] = {}
    if _width(columns) > width:
        columns, sections = _sections(columns, rows, feet, width)
    omitted = []
    fitted = _fitted(columns, width)
    while _width(fitted) > width and len(columns) > 2:
        names = [column.name for column in columns if not column.kept]
        if not names:
            break
        omitted.append(next((name for name in least if name in names), names[-1]))
        columns = [column for column in columns if column.name != omitted[-1]]
        fitted = _fitted(columns, width)
    lines = fill(" · ".join(heading), width, others="  ")
    lines += _lines(fitted, {row: fill(text, width, others="  ") for row, text in sections.items()})
    if omitted:
        lines += fill(f"left out: {', '.join(omitted)}; --wide shows all", width, others="  ")
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
    remaining, chosen = list(columns), list[Column]()
    starts = []
    for column in () if feet else columns:
        if (column.name and not column.left) or _width(remaining) <= width:
            break
        if not column.name or column.prose:
            continue
        keys = list(zip(*(c.cells for c in (*chosen, column)), strict=True))
        begins = [i for i in range(rows) if i == 0 or keys[i] != keys[i - 1]]
        if len(begins) <= rows / 2 and len(remaining) > 2:
            chosen, starts = [*chosen, column], begins
            remaining.remove(column)
    texts = {
        i: " · ".join(f"{c.name} {c.cells[i]}" if c.cells[i][0].isdigit() else c.cells[i] for c in chosen if c.cells[i])
        for i in starts
    }
    return remaining, texts


def _fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """Fits columns to a width as far as possible: wraps prose, then shortens names."""
    fitted = list(columns)
    for prose in (True, False):
        names = [i for i, column in enumerate(columns) if column.left and column.prose == prose]
        sizes = {i: columns[i].cell_width for i in names}
        shortest = {i: _PROSE if prose else _shortest(columns[i].cells) for i in names}
        while _width(fitted) > width:
            yielding = [i for i in names if sizes[i] > shortest[i]]
            if not yielding:
                break
            i = max(yielding, key=lambda i: sizes[i])
            sizes[i] -= 1
            cells = columns[i].cells
            if prose:
                cells = tuple("\n".join(textwrap.wrap(cell, sizes[i], break_on_hyphens=False)) for cell in cells)
            else:
                cells = _shortened(cells, sizes[i])
            fitted[i] = columns[i]._replace(cells=cells)
    return fitted


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


def _width(columns: Sequence[Column]) -> int:
    return sum(column.size for column in columns) + 2 * (len(columns) - 1)


def _lines(columns: Sequence[Column], sections: dict[int, list[str]]) -> list[str]:
    """Returns the lines of the header and the rows. ``sections`` contains lines to insert, by the row below them."""
    sizes = [column.size for column in columns]
    heads = [column.heads for column in columns]
    tallest = max(map(len, heads), default=1)

    def line(cells: Sequence[str]) -> str:
        aligned = zip(cells, sizes, columns, strict=True)
        return "  ".join(
            cell.ljust(size) if column.left else cell.rjust(size) for cell, size, column in aligned
        ).rstrip()

    lines = [line(row) for row in zip(*([""] * (tallest - len(head)) + head for head in heads), strict=True)]
    for row in range(len(columns[0].cells) if columns else 0):
        lines += sections.get(row, [])
        split = [column.cells[row].split("\n") for column in columns]
        lines += [line(cells) for cells in itertools.zip_longest(*split, fillvalue="")]
    return lines
