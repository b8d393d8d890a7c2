"""Errors in a user's input, in one line: what is wrong, where, and what would be right."""

import difflib
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

_LOOKED_AT = 1000  # names in a folder, of which one may have been meant
_ALIKE = 0.75
LAST_READER = "0.2.0"  # the last version that read plans, stores and releases of 0.1


class BadInput(ValueError):
    """An invalid request, or one that lacks something it needs. Commands print its text and exit with code 2."""


class TooOld(BadInput):
    """A store, release or plan that an older version wrote and this one no longer reads."""

    def __init__(self, path: object, what: str):
        super().__init__(f"{path} {what}. scaling-limits {LAST_READER} is the last version that reads it.")


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


def similar_path(path: Path, fits: Callable[[Path], bool] = Path.is_file) -> Path | None:
    """The path that one which leads nowhere may have meant: with the names closest to it that are there.

    Args:
      path: local.
      fits: what it has to be, a file unless told.
    """
    there, missing = path, list[str]()
    try:
        while not there.exists():
            missing.append(there.name)
            there = there.parent
        for name in reversed(missing):
            if not (there / name).exists():
                known = [one.name for one in itertools.islice(there.iterdir(), _LOOKED_AT) if one.name[:1] != "."]
                close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_ALIKE)
                name = close[0] if close else name
            there /= name
        return there if there != path and fits(there) else None
    except OSError:  # a file where a folder should be, or a folder that is not to be read
        return None


def meaning(path: Path) -> str:
    """The end of an error line on a file that is not there: that which may have been meant, if any is close."""
    meant = similar_path(path)
    return f"; did you mean {meant}?" if meant else ""


def printable(text: object) -> str:
    """Text made safe for a line of output: characters that would break the line, or cannot be encoded, are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def first_line(error: object) -> str:
    """The first line of an error's text that is not empty; the name of its type where there is none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def number_of(count: int, noun: str) -> str:
    """A number of things in words, such as "1 study", "2 studies" and "1,200 trials"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
