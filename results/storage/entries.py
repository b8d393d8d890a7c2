"""Entries of a folder, listed without opening anything or following a link."""

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from upath import UPath

from results.bad_input import BadInput, printable
from results.durable import Folder
from results.storage.places import advice

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
        content = _local_entries(folder) if isinstance(folder, Path) else _remote_entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"no folder {printable(folder)}; {advice(folder, 'name an existing one')}") from None
    except OSError as error:
        raise BadInput(f"{printable(folder)} cannot be read ({error.strerror}); check its permissions") from None
    return sorted(content)


def _local_entries(folder: Path) -> list[Entry]:
    result = []
    with os.scandir(folder) as within:
        for each in within:
            try:
                status = each.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed since
                continue
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "device")
            result.append(Entry(each.name, kind, status.st_size, status.st_mtime))
    return result


def _remote_entries(folder: UPath) -> list[Entry]:
    result = []
    for about in folder.fs.ls(folder.path, detail=True):
        name = about["name"].rstrip("/").rpartition("/")[2]
        kind = "folder" if about["type"] == "directory" else "file"
        result.append(Entry(name, kind, int(about.get("size") or 0), time.time()))
    return result
