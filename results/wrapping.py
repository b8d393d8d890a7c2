"""Wraps text to a width. Words, commands and quoted strings are never broken, and help keeps its columns."""

import re
import textwrap
from collections.abc import Collection, Iterator
from typing import NamedTuple

_FULL = 88  # characters; a longer unindented line continues in the next one
_NARROWEST = 32  # characters; explanations with less room start on their own line
_COMMAND = r"(?:python -m|scaling-limits|make|pip install) "
_COPIED = re.compile(rf"\s*{_COMMAND}")
_ENTRY = re.compile(r"( *)(\S+(?: \S+)*)( {2,})(\S.*)")
# Commands within a line: in backticks, or at its end.
_WITHIN = re.compile(rf"`[^`]*`|(?<=next: ){_COMMAND}.*$|(?<![\w'])'[^']*'(?=[\s,;:.)]|$)")
_OPTION = re.compile(r"--[\w-]+ [^-\s]\S*")
_SPACE = "\0"  # marks a space at which a line must not break; printable text does not contain it


def wrap(text: str, width: int, first: str = "", others: str = "", kept: Collection[str] = ()) -> list[str]:
    """Returns lines of at most ``width`` characters. Words, commands and quoted strings are never broken.

    Args:
      text: a single line.
      width: width in characters; at least 20.
      first, others: prefixes of the first line and of the other lines.
      kept: strings that are not broken, up to the next space after them, such as paths that a user typed.
    """
    for path in sorted(kept, key=len, reverse=True):
        text = re.sub(rf"{re.escape(path)}\S*", _unbroken, text)
    return [line.replace(_SPACE, " ") for line in fill(_WITHIN.sub(_unbroken, text), width, first, others)]


def fill(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Like ``wrap``, but breaks lines at any space."""
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


def indentation(line: str) -> str:
    """Returns the spaces at the start of a line."""
    return line[: len(line) - len(line.lstrip())]


def reflowed(text: str, width: int) -> str:
    """Wraps text with several paragraphs, such as --help, to a width.

    Long unindented lines continue on the next line. An explanation that is two or more spaces after a name stays in its
    column. Commands are broken with line continuations. Other indented lines are not joined.
    """
    lines = []
    for block in _blocks(text.split("\n")):
        lines += _command(block, width) if isinstance(block, str) else block.lines(width)
    return "\n".join(lines)


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


def _blocks(lines: list[str]) -> Iterator[_Block | str]:
    """Yields the blocks of a text. Commands and empty lines are unchanged."""
    block = None
    full = False  # whether the previous line was so long that its paragraph may continue
    for line in lines:
        indent, words = len(indentation(line)), line.strip()
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
    indent = indentation(line)
    *firsts, last = wrap(_OPTION.sub(_unbroken, line.strip()), width - 2, indent, f"{indent}  ")
    return [*(f"{start} \\" for start in firsts), last]


def _unbroken(match: re.Match[str]) -> str:
    return match[0].replace(" ", _SPACE)
