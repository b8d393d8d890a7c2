"""Places: finds the files of runs in a folder by a pattern with named parts, such as ``bs{batch_size}/*.csv``."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from results.aliases import StringMap
from results.bad_input import BadInput
from results.durable import Folder
from results.importers import untrusted
from results.importers.untrusted import ImportWarnings

MOST_FILES = 20_000
MOST_BYTES = 64 << 20
HIDDEN = "hidden"  # reason to skip a file
_TOKEN = re.compile(r"(\*\*/|\*\*|\*|\?|\{\w*\}|\{|\})")
_ADJACENT = re.compile(r"(?:\{\w*\}|\*\*?|\?)\{\w*\}|\{\w*\}(?:\*\*/|\*\*?|\?)")
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Place(NamedTuple):
    """A file that matches the pattern.

    Attributes:
      folder: the file's folder.
      name: the file's name.
      path: path relative to the imported folder, with slashes.
      parts: the text that matched each named part of the pattern.
    """

    folder: Folder
    name: str
    path: str
    parts: StringMap

    def folders(self, root: Folder) -> Iterator[Folder]:
        """Yields the file's folder and those above it, up to the imported folder."""
        folder = self.folder
        yield folder
        while folder not in (root, folder.parent):
            folder = folder.parent
            yield folder

    def read(self, root: Folder) -> bytes:
        """Returns the content of the file. Raises Unusable as ``untrusted.read_bytes``."""
        return untrusted.read_bytes(self.folder / self.name, root, MOST_BYTES)


def find(root: Folder, pattern: str, warnings: ImportWarnings) -> list[Place]:
    """Returns the files that match a pattern, sorted by path.

    Args:
      root: the imported folder, or one file.
      pattern: pattern of relative paths. ``*`` and ``{name}`` match within a folder, and ``**/`` matches any number of
        folders. Names that start with a dot match only if the pattern has the dot.
      warnings: receives a line for each link and each unreadable folder, and the number of hidden files.

    Raises:
      BadInput: the pattern is invalid, or matches more than ``MOST_FILES`` files.
    """
    expression = compile_pattern(pattern)
    places = []
    for folder, names in [(root.parent, [root.name])] if root.is_file() else untrusted.files(root, warnings):
        for name in names:
            path = untrusted.relative(folder / name, root) or name
            match = expression.fullmatch(path)
            if match and _is_hidden(path, pattern):
                warnings.skipped[HIDDEN] += 1
            elif match:
                places.append(Place(folder, name, path, match.groupdict()))
        if len(places) > MOST_FILES:
            raise BadInput(f"files: {pattern} matches more than {MOST_FILES:,} files. Import fewer at a time.")
    return sorted(places, key=lambda place: place.path)


def _is_hidden(path: str, pattern: str) -> bool:
    """Returns whether a folder or file in a path has a name with a leading dot, such as .ipynb_checkpoints."""
    shown = [compile_pattern(part) for part in pattern.split("/") if part.startswith(".")]
    return any(not any(part.fullmatch(name) for part in shown) for name in path.split("/") if name.startswith("."))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Returns the regular expression for a pattern.

    Raises:
      BadInput: a named part is invalid, repeated, or next to a wildcard or another named part. For example,
        ``bs{batch_size}*`` would not determine where the batch size ends.
    """
    adjacent = _ADJACENT.search(pattern)
    if adjacent:
        raise BadInput(f"files: {pattern} has {adjacent[0]}, but needs a fixed text between them, such as _ or -")
    parts = _TOKEN.split(pattern)
    expressions = [
        f"(?P<{part[1:-1]}>[^/]+?)" if part.startswith(("{", "}")) else _WILDCARDS.get(part, re.escape(part))
        for part in parts
    ]
    try:
        return re.compile("".join(expressions))
    except re.error:
        braces = ", ".join(part for part in parts if part.startswith(("{", "}")))
        raise BadInput(f"files: {pattern} has {braces}, but a named part is one name in braces, used once") from None


def run_folder(place: Place, pattern: str) -> str:
    """Returns the folder of a run with several files: up to the last ``**/`` of the pattern, or the file's folder."""
    prefix = pattern.rpartition("**/")[0]
    folders = place.path.split("/")
    return "/".join(folders[: prefix.count("/")] if prefix and "**" not in prefix else folders[:-1])
