"""HTML markup made of elements. Whatever is not made here is text, and escaped."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

EMPTY = ("col", "input")  # elements without content
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Html(str):
    """Text that is HTML already."""


class Cell(NamedTuple):
    """A cell of a table: its content, the value it is sorted by (its content if None), and its class."""

    shown: str
    value: float | str | None = None
    look: str | None = None


def upright(text: str, backslash: str = "\\") -> str:
    """Text with an escape in place of each character that turns the text around it, so that a name shows as it is."""
    return _TURNS.sub(lambda found: f"{backslash}u{ord(found[0]):04x}", text)


def _escaped(text: str) -> str:
    return html.escape(upright(text))


def tag(name: str, /, *children: str, **attributes: str | None) -> Html:
    """An element; of attributes ``class_`` is class, ``data_kind`` is data-kind, and None is left out."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{pairs}>" if name in EMPTY else f"<{name}{pairs}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Children, one after the other."""
    return Html("".join(child if isinstance(child, Html) else _escaped(child) for child in children))


def section(
    name: str, title: str, *content: str, about: str | None = None, groups: Iterable[int] | None = None
) -> Html:
    """A section of the page, which can be folded; it is there while any of ``groups`` is shown."""
    paragraphs = [tag("p", about, class_="about")] if about else []
    shown = None if groups is None else " ".join(dict.fromkeys(map(str, groups)))
    fold = tag("details", tag("summary", tag("h2", title)), *paragraphs, *content, class_="fold", open="")
    return tag("section", fold, id=name, aria_label=title, data_groups=shown or None)


def chart_name(title: str, goal: str) -> str:
    """The name of a chart for a screen reader, and how its points are reached."""
    return f"Chart: {title}; {goal}. Arrow keys go from point to point."


def number(value: float | None, shown: str | None = None) -> Cell:
    """A cell with a number; an empty one sorts last."""
    if value is None:
        return Cell("", "", "number")
    return Cell(f"{value:,}" if shown is None else shown, value, "number")


def table(
    name: str, heads: Sequence[str], rows: Sequence[Html], foot: Sequence[Html] = (), look: str | None = None
) -> Html:
    """A table whose columns can be sorted, in a box of its own that scrolls.

    Args:
      name: what a screen reader calls it.
      heads: of the columns; those with a trailing # are of numbers.
      rows, foot: of ``row``.
      look: its class.
    """
    columns = [
        tag("th", tag("button", head.rstrip("#"), type="button"), scope="col", class_="number" if "#" in head else None)
        for head in heads
    ]
    parts = [tag("thead", tag("tr", *columns)), tag("tbody", *rows)]
    parts += [tag("tfoot", *foot)] if foot else []
    named = tag("table", *parts, class_=look, aria_label=name)
    return tag("div", named, class_="scroll", tabindex="0", role="group", aria_label=f"{name}, scrolls sideways")


def row(cells: Sequence[Cell | str], **attributes: str | None) -> Html:
    """A row of a table."""
    columns = []
    for cell in cells:
        one = cell if isinstance(cell, Cell) else Cell(cell)
        value = None if one.value is None else str(one.value)
        columns.append(tag("td", one.shown, class_=one.look, data_value=value))
    return tag("tr", *columns, **attributes)
