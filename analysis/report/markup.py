"""Creates HTML elements. Text from outside is always escaped."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

EMPTY = ("col", "input")  # elements without content
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Html(str):
    """A string that is already HTML."""


class Cell(NamedTuple):
    """A table cell: its content, its sort key (None sorts by content) and its CSS class."""

    shown: str
    value: float | str | None = None
    look: str | None = None


def upright(text: str, backslash: str = "\\") -> str:
    """Escapes bidirectional control characters, which could make one name look like another."""
    return _TURNS.sub(lambda match: f"{backslash}u{ord(match[0]):04x}", text)


def _escaped(text: str) -> str:
    return html.escape(upright(text))


def tag(name: str, /, *children: str, **attributes: str | None) -> Html:
    """Returns an element. ``class_`` becomes class, ``data_kind`` becomes data-kind. Values of None are omitted."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{pairs}>" if name in EMPTY else f"<{name}{pairs}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Concatenates children, escaping those that are not HTML."""
    return Html("".join(child if isinstance(child, Html) else _escaped(child) for child in children))


def section(
    name: str, title: str, *content: str, about: str | None = None, groups: Iterable[int] | None = None
) -> Html:
    """Returns a collapsible section of the page. It is visible while any of ``groups`` is visible."""
    paragraphs = [tag("p", about, class_="about")] if about else []
    shown = None if groups is None else " ".join(dict.fromkeys(map(str, groups)))
    fold = tag("details", tag("summary", tag("h2", title)), *paragraphs, *content, class_="fold", open="")
    return tag("section", fold, id=name, aria_label=title, data_groups=shown or None)


def definitions(pairs: Iterable[tuple[str, str]], look: str) -> Html:
    """Returns a list of terms, each with its meaning. ``look`` is its CSS class."""
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", meaning)) for term, meaning in pairs), class_=look)


def chart_name(title: str, goal: str) -> str:
    """Returns the accessible name of a chart, with a hint about keyboard use."""
    return f"Chart: {title}; {goal}. Use the arrow keys to move between points."


def number(value: float | None, shown: str | None = None) -> Cell:
    """Returns a cell with a number. Empty cells sort last."""
    if value is None:
        return Cell("", "", "number")
    return Cell(f"{value:,}" if shown is None else shown, value, "number")


def table(
    name: str, heads: Sequence[str], rows: Sequence[Html], foot: Sequence[Html] = (), look: str | None = None
) -> Html:
    """Returns a table with sortable columns, in a container that scrolls horizontally.

    Args:
      name: accessible name.
      heads: column headings. A trailing # marks a column of numbers.
      rows, foot: rows made by ``row``.
      look: CSS class.
    """
    columns = [
        tag("th", tag("button", head.rstrip("#"), type="button"), scope="col", class_="number" if "#" in head else None)
        for head in heads
    ]
    parts = [tag("thead", tag("tr", *columns)), tag("tbody", *rows)]
    if foot:
        parts.append(tag("tfoot", *foot))
    named = tag("table", *parts, class_=look, aria_label=name)
    return tag("div", named, class_="scroll", tabindex="0", role="group", aria_label=f"{name}, scrolls sideways")


def row(cells: Sequence[Cell | str], **attributes: str | None) -> Html:
    """Returns a table row with the given attributes."""
    columns = []
    for cell in cells:
        filled = cell if isinstance(cell, Cell) else Cell(cell)
        value = None if filled.value is None else str(filled.value)
        columns.append(tag("td", filled.shown, class_=filled.look, data_value=value))
    return tag("tr", *columns, **attributes)
