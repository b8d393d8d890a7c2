"""Errors in a user's input, in one line: what is wrong, where, and what would be right."""

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
    """An invalid request, or one that lacks something it needs. Commands print its text and exit with code 2."""


def nearest(word: object, choices: Iterable[str]) -> str:
    """The end of an error line: the closest of ``choices`` if one is close, and all of them if that keeps it short."""
    known = sorted(choices)
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)
    if close and len(known) > 12:
        return f"did you mean {close[0]!r}?"
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}choices: {', '.join(known) or 'none'}"


def check_choice(what: str, word: object, choices: Iterable[str]) -> None:
    """Raises BadInput unless ``word`` is one of ``choices``; ``what`` names the thing chosen."""
    known = list(choices)
    if word not in known:
        raise BadInput(f"unknown {what} {word!r}; {nearest(word, known)}")


def printable(text: object) -> str:
    """Text made safe for a line of output: characters that would break the line, or cannot be encoded, are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def number_of(count: int, noun: str) -> str:
    """A number of things in words, such as "1 study", "2 studies" and "1,200 trials"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
