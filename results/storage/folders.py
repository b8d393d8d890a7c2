"""Folders on command lines: their entries, the stores below them, and suggestions for mistyped paths."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from upath import UPath

from results.bad_input import BadInput, TooOld, printable, similar_path
from results.durable import Folder
from results.storage.commits import MANIFEST

SHIPPED = ("published", "mlperf")  # in results/ of the repository
LAUNCHERS = (".slurm", ".ray")  # folders in a store that hold launcher files
DEPTH = 2  # number of levels below a folder to search for stores
_SHOWN = 5
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def advice(folder: Folder, otherwise: str) -> str:
    """Returns the remedy for a missing folder: a similar path, the release in the repository, or ``otherwise``."""
    meant = similar_path(folder, is_store) if isinstance(folder, Path) else None
    is_shipped = folder.parent.name == "results" and folder.name in SHIPPED
    instead = "The repository ships it. Name the one in a checkout." if is_shipped else otherwise
    return f"Did you mean {meant}? {instead}" if meant else instead


def check_not_above(folder: Folder) -> None:
    """Raises BadInput for a folder that is not a store but has stores below it, and names those stores."""
    below = list(_below(folder, DEPTH)) if isinstance(folder, Path) and not is_store(folder) else []
    if below:
        names = ", ".join(map(str, below[:_SHOWN]))
        if len(below) > _SHOWN:
            names += f" and {len(below) - _SHOWN} more"
        raise BadInput(f"{folder} holds no studies. Name one of the stores below it: {names}")


def check_layout(folder: Folder) -> None:
    """Raises TooOld for a store of schema 1, in which each run was a folder and files had no hashes."""
    if next(iter(folder.glob("*/[0-9]*/studies.parquet")), None):
        raise TooOld(folder, "is a store of schema 1, without hashes")


def is_store(folder: Path) -> bool:
    """Returns whether a local folder is a release, or a store with at least one requested study."""
    try:
        return (folder / MANIFEST).is_file() or any(folder.glob("*/plan-*.json"))
    except OSError:
        return False


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """Yields the stores below a folder, sorted, without entering stores or following links."""
    try:
        folders = sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return
    for each in folders:
        if each.name.startswith("."):
            continue
        if is_store(each):
            yield each
        elif depth > 1:
            yield from _below(each, depth - 1)


class Entry(NamedTuple):
    """An entry in a folder.

    Attributes:
      name: name within the folder.
      kind: file, folder, link or device (anything else).
      bytes: size in bytes.
      modified: time of the last write in seconds since 1970, or now if the file system does not record it.
    """

    name: str
    kind: str
    bytes: int
    modified: float


def entries(folder: Folder) -> list[Entry]:
    """Returns the entries of a folder, sorted by name. Raises BadInput if it cannot be listed."""
    try:
        content = _local_entries(folder) if isinstance(folder, Path) else _remote_entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"no folder {printable(folder)}. {advice(folder, 'Name an existing one.')}") from None
    except OSError as error:
        raise BadInput(f"{printable(folder)} cannot be read ({error.strerror}). Check its permissions.") from None
    return sorted(content)


def _local_entries(folder: Path) -> list[Entry]:
    result = []
    with os.scandir(folder) as within:
        for each in within:
            try:
                status = each.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed in the meantime
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
