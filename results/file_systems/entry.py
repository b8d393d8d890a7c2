"""The entries of a folder, in a local folder or in a bucket."""

from typing import NamedTuple

TEMPORARY = ".tmp-"  # prefix of the names of unfinished files


class Entry(NamedTuple):
    """An entry in a folder.

    Attributes:
      name: name within the folder.
      kind: file, folder, link or device (anything else).
      bytes: size in bytes.
      modified: time of the last write in seconds since 1970, by the clock of the file system.
    """

    name: str
    kind: str
    bytes: int
    modified: float
