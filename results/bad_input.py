"""Errors for invalid user input. Each message is one line with the wrong value, its location and a remedy."""

import difflib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

_LOOKED_AT = 1000  # maximum number of file names compared with a misspelled one
_ALIKE = 0.75
MANY = 12  # messages do not contain longer lists of names
ERRORS = "metrics are errors, such as validation_error. In a map of logs, write `validation_error: 1 - TAG`."
LAST_READER = "0.2.0"  # the last version that reads plans, stores and releases from 0.1


class BadInput(ValueError):
    """An invalid or incomplete request. Commands print its message and exit with code 2."""


class Damaged(BadInput):
    """Raised if a durable file differs from the bytes that were written."""


class TooOld(BadInput):
    """Raised for a store, release or plan that was written by an older version and is no longer supported."""

    def __init__(self, path: object, what: str):
        super().__init__(f"{path} {what}. scaling-limits {LAST_READER} is the last version that reads it.")


def nearest(word: object, choices: Iterable[str]) -> str:
    """Returns a suffix for an error message: the closest of ``choices``, and all of them if the message stays short."""
    names = sorted(set(choices))
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.5)
    if len(names) > MANY and not close:
        return f"the nearest are {', '.join(difflib.get_close_matches(str(word), names, n=3, cutoff=0.0))}"
    if len(names) > MANY:
        return f"did you mean {close[0]!r}?"
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}choices: {', '.join(names) or 'none'}"


def check_choice(what: str, word: object, choices: Iterable[str]) -> None:
    """Raises BadInput unless ``word`` is one of ``choices``. ``what`` names the kind of choice."""
    names = list(choices)
    if word in names:
        return
    if what == "metric" and "acc" in str(word).lower():
        raise BadInput(f"unknown metric {word!r}; {ERRORS}")
    raise BadInput(f"unknown {what} {word!r}; {nearest(word, names)}")


def positive(name: str, text: str, noun: str = "number") -> float:
    """Parses a positive number from user input. ``name`` and ``noun`` appear in the error message.

    Raises:
      BadInput: the text is not a finite number above 0.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise BadInput(f"{name}={text} is not a {noun} above 0")
    return number


def similar_path(path: Any, fits: Callable[[Any], bool] = Path.is_file) -> Any:
    """Returns the existing path most similar to a misspelled one, or None.

    Args:
      path: a local path that does not exist.
      fits: predicate that the result must satisfy. By default, it must be a file.
    """
    candidate, missing = path, list[str]()
    try:
        while not candidate.exists():
            missing.append(candidate.name)
            candidate = candidate.parent
        for name in reversed(missing):
            if not (candidate / name).exists():
                siblings = [
                    sibling.name
                    for sibling in itertools.islice(candidate.iterdir(), _LOOKED_AT)
                    if sibling.name[:1] != "."
                ]
                close = difflib.get_close_matches(name, sorted(siblings), n=1, cutoff=_ALIKE)
                name = close[0] if close else name
            candidate /= name
        return candidate if candidate != path and fits(candidate) else None
    except OSError:  # a file in place of a folder, or an unreadable folder
        return None


def meaning(path: Path) -> str:
    """Returns a suffix for an error message about a missing file: a similar path, if there is one."""
    meant = similar_path(path)
    return f"; did you mean {meant}?" if meant else ""


def is_remote(error: BaseException) -> bool:
    """Returns whether an error concerns an object in a bucket."""
    return isinstance(error, OSError) and "://" in str(error.filename)


def printable(text: object) -> str:
    """Escapes characters that would break a line of output or cannot be encoded."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def first_line(error: object) -> str:
    """Returns the first nonempty line of an error's text or, if the text is empty, the name of the error's type."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def first_few(names: Sequence[object], most: int) -> str:
    """Returns the first ``most`` names, and the number of the others."""
    remainder = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + remainder


def number_of(count: int, noun: str) -> str:
    """Returns a count with its noun, such as "1 study", "2 studies" and "1,200 trials"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
