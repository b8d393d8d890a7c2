"""Reads untrusted files: every problem becomes a line for the user, never a crash."""

import contextlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from results.aliases import Json
from results.bad_input import first_line
from results.durable import Folder, check_depth
from results.printing import Report, report_some

SHOWN = 10
JSON_BYTES = 4 << 20
MOST_METAPARAMETERS = 256
MOST_DEPTH = 32  # maximum nesting of lists and objects
LINK = "is, or is behind, a symbolic link; skipped"


class Unusable(ValueError):
    """Raised for a file or record that cannot be imported. The message is the reason, in a few words."""


class ImportWarnings:
    """Warnings about data that could not be imported, one line each. ``report`` shows the first ten and a count."""

    def __init__(self, lines: Sequence[str] = ()) -> None:
        self.lines = list(lines)

    def add(self, place: str, why: object) -> None:
        self.lines.append(f"{place}: {why}")

    def report(self, report: Report, most: int = SHOWN) -> None:
        report_some(self.lines, report, most)


def files(root: Folder, warnings: ImportWarnings) -> Iterator[tuple[Folder, list[str]]]:
    """Yields each folder at and below ``root`` with its sorted file names. Links to folders become warnings."""

    def unreadable(error: OSError) -> None:
        warnings.add(display_path(Path(str(error.filename)), root), error.strerror or "cannot be read")

    if isinstance(root, Path):
        for folder, below, names in os.walk(root, onerror=unreadable):
            below.sort()
            for name in below:
                if os.path.islink(os.path.join(folder, name)):
                    warnings.add(display_path(Path(folder, name), root), LINK)
            yield Path(folder), sorted(names)
    else:
        for folder, below, found in root.fs.walk(root.path, detail=False):
            below.sort()
            inside = os.path.relpath(folder, root.path)
            yield (root if inside == "." else root / inside), sorted(found)


def relative(path: Folder, root: Folder) -> str:
    """Returns a path relative to ``root``, which is empty for ``root`` itself."""
    return str(path).removeprefix(str(root)).strip("/")


def display_path(path: Folder, root: Folder) -> str:
    """Returns a path for display: relative to ``root`` if possible, and escaped if it would break the line."""
    text = relative(path, root) or path.name
    return text if text.isprintable() else ascii(text)


def brief(value: object) -> str:
    """Shortens a value of unknown size for display on one line."""
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**40 else "a number of more than 40 digits"
    return text if len(text) <= 40 else f"{text[:36]} ..."


def read_bytes(path: Folder, root: Folder, limit: int) -> bytes:
    """Reads a file in an untrusted tree. Importers read such files only with this function or ``read_at``.

    Args:
      path: the file, under ``root``.
      root: tree named by the user. Links below it are never followed, even if the tree changes in the meantime.
      limit: maximum size in bytes.

    Raises:
      Unusable: the file is a link or behind one, is not a regular file, cannot be read, or exceeds ``limit``.
    """
    if isinstance(path, Path):
        assert isinstance(root, Path)
        with open_folder(path.parent, root) as folder:
            return read_at(folder, path.name, limit)
    try:
        with path.open("rb") as file:
            return _within(limit, path.stat().st_size, file)
    except OSError as error:
        raise Unusable(_reason(error)) from None


@contextlib.contextmanager
def open_folder(path: Path, root: Path) -> Iterator[int]:
    """Opens a folder in an untrusted tree, level by level from ``root``. Raises the same errors as ``read_bytes``."""
    parts = path.relative_to(root).parts
    if ".." in parts:
        raise Unusable("leads out of the imported folder")
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Unusable(_reason(error)) from None
    try:
        for part in parts:
            try:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            except OSError as error:
                raise Unusable(LINK if _is_link(part, folder) else _reason(error)) from None
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def read_at(folder: int, name: str, limit: int) -> bytes:
    """Reads a file in a folder from ``open_folder``. Raises the same errors as ``read_bytes``."""
    try:
        _check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False))  # opening a device can have side effects
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
            status = os.fstat(file.fileno())
            _check_regular(status)  # the file may have been replaced in the meantime
            return _within(limit, status.st_size, file)
    except OSError as error:
        raise Unusable(_reason(error)) from None


def _within(limit: int, size: int, file: BinaryIO) -> bytes:
    data = file.read(limit + 1) if size <= limit else b""
    size = max(size, len(data))
    if size > limit:
        raise Unusable(f"has {size:,} bytes, but the limit is {limit:,}")
    return data


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Unusable(LINK if stat.S_ISLNK(status.st_mode) else "is not a regular file")


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _reason(error: OSError) -> str:
    return error.strerror or "cannot be read"


def read_json(path: Folder, root: Folder) -> Json:
    """Reads a JSON object. Raises Unusable if it has another type, contains NaN or Infinity, or repeats a name."""
    return json_object(read_bytes(path, root, JSON_BYTES), _STRICT)


def json_object(data: bytes, decoder: json.JSONDecoder) -> Json:
    """Parses a JSON object. Raises Unusable if ``data`` holds another type."""
    try:
        content = decoder.decode(data.decode("utf-8-sig"))
        check_depth(content, MOST_DEPTH)
    except Unusable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unusable(f"is not JSON ({first_line(error)[:80]})") from None
    if not isinstance(content, dict):
        raise Unusable(f"holds {type(content).__name__}, not a JSON object")
    return content


def number(value: object) -> float | None:
    """Returns a finite number as a float, or None. True and False are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def int_or_none(value: object, least: int, most: int = 2**31 - 1) -> int | None:
    """Returns an integer in a range, or None. 32.0 counts as an integer."""
    finite = number(value)
    return int(finite) if finite is not None and finite.is_integer() and least <= finite <= most else None


def text(value: object, most: int = 200) -> str | None:
    """Returns a string cut to ``most`` characters, or None if it is blank or not a string."""
    return value[:most] if isinstance(value, str) and value.strip() else None


def word(name: str, otherwise: str) -> str:
    """Returns a name in the form that studies allow, or ``otherwise`` if no characters remain."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", name).lstrip("_.+-")[:80] or otherwise


def numeric(value: object) -> float | None:
    """Returns a metaparameter as a float, or None. Numbers may be written as text, and a boolean becomes 0 or 1."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            result = float(value) if len(value) < 40 else math.nan
        except ValueError:
            return None
        return result if math.isfinite(result) else None
    return number(value)


def _object(pairs: list[tuple[str, Any]]) -> Json:
    content = {}
    for name, value in pairs:
        if name in content:
            raise Unusable(f"has {brief(name)} twice")
        content[name] = value
    return content


def no_number(word: str) -> None:
    """Rejects NaN and Infinity, which Python's decoder accepts as numbers."""
    raise Unusable(f"is not JSON (which has no {word})")


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_constant=no_number)
