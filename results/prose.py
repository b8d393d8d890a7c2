"""Prose within the width of a terminal, in which whatever is to be copied stays in one piece."""

import re
import textwrap
from collections.abc import Collection, Iterator
from typing import NamedTuple

_FULL = 88  # characters; a longer line at the margin goes on in the next one
_NARROWEST = 32  # a narrower column of explanations begins on a line of its own
_COMMAND = r"(?:python -m|scaling-limits|make|pip install) "
_COPIED = re.compile(rf"\s*{_COMMAND}")
_ENTRY = re.compile(r"( *)(\S+(?: \S+)*)( {2,})(\S.*)")
# Commands within a line: in backticks, and at its end.
_WITHIN = re.compile(rf"`[^`]*`|(?<=next: ){_COMMAND}.*$|(?<![\w'])'[^']*'(?=[\s,;:.)]|$)")
_OPTION = re.compile(r"--[\w-]+ [^-\s]\S*")
_SPACE = "\0"  # in place of one where no line may end; no printable text has it


class _Block(NamedTuple):
    """A paragraph, or what a name means: words after a start, and where their further lines begin."""

    start: str
    words: str
    hang: int
    indent: int = 0

    def lines(self, width: int) -> list[str]:
        if self.start.strip() and width - self.hang < _NARROWEST and self.hang > self.indent + 4:
            below = _Block("", self.words, self.indent + 4)  # no room beside the name
            return [self.start.rstrip(), *below._replace(start=" " * below.hang).lines(width)]
        comment = "# " if self.words.startswith("# ") else ""
        return wrap(self.words.removeprefix(comment), width, self.start + comment, " " * self.hang + comment)


def wrap(text: str, width: int, first: str = "", others: str = "", kept: Collection[str] = ()) -> list[str]:
    """Lines of at most ``width`` characters; words, commands and what is quoted stay whole, however long they are.

    Args:
      text: without the end of a line in it.
      width: at least 20 is taken.
      first, others: what the first line and the others begin with.
      kept: texts, such as paths that a user typed, that stay whole with what follows them up to the next space.
    """
    for one in sorted(kept, key=len, reverse=True):
        text = re.sub(rf"{re.escape(one)}\S*", _whole, text)
    text = _WITHIN.sub(_whole, text)
    lines = textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_SPACE, " ") for line in lines]


def is_copied(line: str) -> bool:
    """Whether a line is a command, and nothing else."""
    return bool(_COPIED.match(line))


def reflowed(text: str, width: int) -> str:
    """A text of several paragraphs, such as of --help, within a width.

    Lines at the margin that are long go on in the next one. Where two spaces or more are between a name and its
    meaning, the latter keeps its column. Commands are broken as a shell takes them; other indented lines stay apart.
    """
    lines: list[str] = []
    for each in _blocks(text.split("\n")):
        lines += _command(each, width) if isinstance(each, str) else each.lines(width)
    return "\n".join(lines)


def _blocks(lines: list[str]) -> Iterator[_Block | str]:
    """The blocks of a text; commands, and lines with nothing in them, as they are."""
    block: _Block | None = None
    full = False  # whether the line before was so long that its paragraph may go on
    for line in lines:
        indent = len(line) - len(line.lstrip())
        words = line.strip()
        comment = bool(block and block.words.startswith("# ") and words.startswith("# "))
        if block and words and (full if indent == block.hang == 0 else block.start.strip() and indent == block.hang):
            block = block._replace(words=f"{block.words} {words.removeprefix('# ') if comment else words}")
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
            block = _Block(" " * indent, words, indent and indent + 2, indent)
            full = not indent and len(line) > _FULL
    if block:
        yield block


def _command(line: str, width: int) -> list[str]:
    """A command of several lines, but for the last with a backslash at their ends."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    *firsts, last = wrap(_OPTION.sub(_whole, line.strip()), width - 2, indent, f"{indent}  ")
    return [*(f"{one} \\" for one in firsts), last]


def _whole(found: re.Match[str]) -> str:
    return found[0].replace(" ", _SPACE)
