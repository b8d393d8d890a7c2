"""Folders that a command is given: what lies in one, the stores below it, and what a mistyped path may have meant."""

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
LAUNCHERS = (".slurm", ".ray")  # folders of a store in which launchers leave what their jobs print or look at
DEPTH = 2  # of folders below one, in which stores are looked for
_SHOWN = 5
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def advice(folder: Folder, otherwise: str) -> str:
    """What to do about a folder that is not there: a release that the repository ships is to be had from that."""
    meant = similar_path(folder, is_store) if isinstance(folder, Path) else None
    is_shipped = folder.parent.name == "results" and folder.name in SHIPPED
    instead = "The repository ships it. Name the one in a checkout." if is_shipped else otherwise
    return f"Did you mean {meant}? {instead}" if meant else instead


def check_not_above(folder: Folder) -> None:
    """Raises BadInput, which names them, for a folder that is no store but has stores below it."""
    below = list(_below(folder, DEPTH)) if isinstance(folder, Path) and not is_store(folder) else []
    if below:
        names = ", ".join(map(str, below[:_SHOWN])) + (
            f" and {len(below) - _SHOWN} more" if len(below) > _SHOWN else ""
        )
        raise BadInput(f"{folder} holds no studies. Name one of the stores below it: {names}")


def check_layout(folder: Folder) -> None:
    """Raises TooOld for a store of schema 1: each run of a study was a folder, and files had no hashes."""
    if next(iter(folder.glob("*/[0-9]*/studies.parquet")), None):
        raise TooOld(folder, "is a store of schema 1, without hashes")


def is_store(folder: Path) -> bool:
    """Whether a local folder is a store with a study in it, be it but asked for, or a release."""
    try:
        return (folder / MANIFEST).is_file() or any(folder.glob("*/plan-*.json"))
    except OSError:
        return False


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """The stores below a folder, sorted; nothing within one is looked at, nor a link followed."""
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
