"""Reads untrusted files. Problems never cause a crash, but become lines for the user."""

import contextlib
import hashlib
import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from results import durable
from results.aliases import Json
from results.bad_input import first_line
from results.durable import Folder, check_depth
from results.file_systems.entry import Entry
from results.grouping import grouped
from results.printing import Report, report_some

SHOWN = 10
LONGEST_WORD = 80  # characters of a name in a study
HASH_DIGITS = 8  # hex digits that tell apart shortened names
JSON_BYTES = 4 << 20
MOST_METAPARAMETERS = 256
MOST_DEPTH = 32  # maximum nesting of lists and objects
LINK = "is, or is behind, a symbolic link; skipped"


class Unusable(ValueError):
    """Raised for a file or record that cannot be imported. The message gives the reason in a few words."""


class ImportWarnings:
    """Warnings about data that could not be imported, one per line. ``report`` shows the first ten and a count.

    With ``by_reason``, warnings with the same reason share a line of the report.

    Attributes:
      lines: the warnings.
      files: number of files that were found.
      skipped: number of these files that were not read, by reason.
      refused: number of runs in the other files that were not imported.
    """

    def __init__(self, lines: Sequence[str] = (), *, by_reason: bool = False) -> None:
        self.lines = list(lines)
        self.files = self.refused = 0
        self.skipped: Counter[str] = Counter()
        self._by_reason = by_reason

    def add(self, place: str, why: object) -> None:
        self.lines.append(f"{place}: {why}")

    def report(self, report: Report, most: int = SHOWN) -> None:
        reports = self.lines
        if self._by_reason:
            groups = grouped(self.lines, lambda line: line.partition(": ")[2]).values()
            reports = [f"{lines[0]} (and {len(lines) - 1:,} more)" if lines[1:] else lines[0] for lines in groups]
        report_some(reports, report, most)


def files(root: Folder, warnings: ImportWarnings) -> Iterator[tuple[Folder, list[str]]]:
    """Yields each folder at and below ``root`` with its sorted file names, without following links.

    Links to folders, and folders that cannot be read, become warnings.
    """
    folders = [root]
    with durable.system(root).snapshot(root):
        while folders:
            folder, names, subfolders = folders.pop(), list[str](), list[Folder]()
            try:
                content = sorted(durable.system(folder).entries(folder))
            except OSError as error:
                warnings.add(display_path(Path(str(error.filename)), root), _reason(error))
                continue
            for entry in content:
                path = folder / entry.name
                if entry.kind == "folder":
                    subfolders.append(path)
                elif entry.kind == "link" and path.is_dir():
                    warnings.add(display_path(path, root), LINK)
                else:
                    names.append(entry.name)
            yield folder, names
            folders += reversed(subfolders)


def relative(path: Folder, root: Folder) -> str:
    """Returns a path relative to ``root``, or an empty string for ``root`` itself."""
    return str(path).removeprefix(str(root)).strip("/")


def display_path(path: Folder, root: Folder) -> str:
    """Returns a path for display. It is relative to ``root`` if possible, and escaped if it would break the line."""
    text = relative(path, root) or path.name
    return text if text.isprintable() else ascii(text)


def brief(value: object) -> str:
    """Shortens a value of unknown size for display on one line."""
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**40 else "a number of more than 40 digits"
    return text if len(text) <= 40 else f"{text[:36]} ..."


def read_bytes(path: Folder, root: Folder, limit: int) -> bytes:
    """Reads a file in an untrusted tree. Importers use only this function and ``open_folder`` to read such files.

    Args:
      path: the file, under ``root``.
      root: tree given by the user. Links below it are never followed, even if the tree changes in the meantime.
      limit: maximum size in bytes.

    Raises:
      Unusable: the file is a link or below a link, is not a regular file, cannot be read, or exceeds ``limit``.
    """
    with open_folder(path.parent, root) as folder:
        return folder.read(path.name, limit)


class OpenFolder:
    """A folder in an untrusted tree. Its methods raise the same errors as ``read_bytes``.

    Args:
      place: descriptor of a local folder, in which links are never followed, or folder in a bucket, which has no links.
      files: the file system.
    """

    def __init__(self, place: Any, files: Any):
        self._place, self._files = place, files

    def entries(self) -> list[Entry]:
        """Returns the entries of the folder, in any order."""
        return self._files.entries(self._place)

    def read(self, name: str, limit: int) -> bytes:
        """Reads a file in the folder."""
        try:
            with self._open(name) as file:
                if self._files.is_local:
                    _check_regular(os.fstat(file.fileno()))  # the file may have been replaced in the meantime
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                data = file.read(limit + 1) if size <= limit else b""
        except OSError as error:
            raise Unusable(_reason(error)) from None
        size = max(size, len(data))
        if size > limit:
            raise Unusable(f"has {size:,} bytes, but the limit is {limit:,}")
        return data

    def _open(self, name: str) -> BinaryIO:
        if not self._files.is_local:
            return (self._place / name).open("rb")
        # Opening a device can have side effects.
        _check_regular(os.stat(name, dir_fd=self._place, follow_symlinks=False))
        return open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._place), "rb")


@contextlib.contextmanager
def open_folder(path: Folder, root: Folder) -> Iterator[OpenFolder]:
    """Opens a folder in an untrusted tree. Local folders are opened level by level. Raises like ``read_bytes``."""
    files = durable.system(root)
    if not files.is_local:
        yield OpenFolder(path, files)
        return
    parts = Path(str(path)).relative_to(str(root)).parts
    if ".." in parts:
        raise Unusable("leads out of the imported folder")
    try:
        folder = os.open(str(root), os.O_RDONLY | os.O_DIRECTORY)
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
        yield OpenFolder(folder, files)
    finally:
        os.close(folder)


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
    """Parses a JSON object. Raises Unusable if ``data`` contains another type."""
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


def int_or_none(value: object, low: int, high: int = 2**31 - 1) -> int | None:
    """Returns an integer in a range, or None. 32.0 counts as an integer."""
    finite = number(value)
    return int(finite) if finite is not None and finite.is_integer() and low <= finite <= high else None


def text(value: object, longest: int = 200) -> str | None:
    """Returns a string, truncated to ``longest`` characters, or None if it is blank or not a string."""
    return value[:longest] if isinstance(value, str) and value.strip() else None


def word(name: str, otherwise: str) -> str:
    """Converts a name to a form that is allowed in studies. Returns ``otherwise`` if no characters remain.

    Names that are too long, or have characters other than ASCII, end with a hash, since they would often become equal.
    """
    plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", name).lstrip("_.+-")
    if name.isascii() and len(plain) <= LONGEST_WORD:
        return plain or otherwise
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    return f"{plain[: LONGEST_WORD - HASH_DIGITS - 1] or otherwise}-{digest}"


def numeric(value: object) -> float | None:
    """Returns a metaparameter as a float, or None. Numbers may be written as text. Booleans become 0 or 1."""
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
