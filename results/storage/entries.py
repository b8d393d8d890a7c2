"""Entries of a folder, listed without opening anything or following a link."""

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from upath import UPath

from results.bad_input import BadInput, shown
from results.durable import Folder

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class Entry(NamedTuple):
    """Something in a folder.

    Attributes:
      name: within the folder.
      kind: file, folder, link or device (which is whatever else a file system knows).
      bytes: its size.
      modified: when it was last written, seconds since 1970; now, if its file system does not tell.
    """

    name: str
    kind: str
    bytes: int
    modified: float


def entries(folder: Folder) -> list[Entry]:
    """Everything in a folder, sorted by name; BadInput if it cannot be listed."""
    try:
        found = _local(folder) if isinstance(folder, Path) else _remote(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"no folder {shown(folder)}; name an existing one") from None
    except OSError as error:
        raise BadInput(f"{shown(folder)} cannot be read ({error.strerror}); check its permissions") from None
    return sorted(found)


def _local(folder: Path) -> list[Entry]:
    found = []
    with os.scandir(folder) as within:
        for each in within:
            try:
                status = each.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed since
                continue
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "device")
            found.append(Entry(each.name, kind, status.st_size, status.st_mtime))
    return found


def _remote(folder: UPath) -> list[Entry]:
    found = []
    for about in folder.fs.ls(folder.path, detail=True):
        name = about["name"].rstrip("/").rpartition("/")[2]
        kind = "folder" if about["type"] == "directory" else "file"
        found.append(Entry(name, kind, int(about.get("size") or 0), time.time()))
    return found
