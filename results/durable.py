"""Atomic, durable files: immutable files, and records that contain their own hash.

Files are never rewritten in place. Files that can be rebuilt, such as a page, a checkpoint or a torn record, are
replaced as a whole. How a file is created depends on the file system (see ``results.file_systems``).
"""

import hashlib
import json
import os
import stat
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from results.aliases import Callback, Fields, Json, OnCount
from results.bad_input import BadInput, Damaged as Damaged, is_remote
from results.file_systems.entry import TEMPORARY as TEMPORARY
from results.file_systems.local import LEFTOVER_SECONDS as LEFTOVER_SECONDS, LocalFiles, sync as sync
from results.lazy import lazy

if TYPE_CHECKING:
    from results.file_systems.bucket_files import BucketFiles
    from results.file_systems.path import BucketPath

MOST_DEPTH = 64  # maximum nesting of lists and objects in a record
RECORD_BYTES = 4 << 20  # far more than any plan, claim or commit record
LIST_BYTES = 32 << 20  # far more than a release's list needs; ours take 0.7 MB
_CHUNK = 1 << 18  # bytes that stay in the processor's cache between reading and hashing
_ITEM_BYTES = 10  # minimum average bytes per item in a release's list; ours take 23

Folder: TypeAlias = Union[Path, "BucketPath"]
Location: TypeAlias = Union[str, Path, "BucketPath"]

_LOCAL = LocalFiles()
# Modules of buckets are imported when the first bucket is used.
_bucket_path = lazy("results.file_systems.path", "bucket_path")
_refresh = lazy("results.file_systems.path", "refresh")


def system(path: Folder) -> "LocalFiles | BucketFiles":
    """Returns the file system of a path."""
    if isinstance(path, Path):
        return _LOCAL
    from results.file_systems.bucket_files import BUCKETS

    return BUCKETS


def refresh() -> None:
    """Discards outdated listings within a snapshot, after a listed file turned out to be missing."""
    _refresh()


def local(text: str | Path) -> Path:
    """Returns a local path. A leading ~ stands for the home folder, as in a shell.

    Raises:
      BadInput: the home folder is unknown, or ``text`` is the URL of a bucket.
    """
    if isinstance(text, Path):
        return text
    if "://" in text:
        raise BadInput(f"{text} is not a local path. Write the path of a file or folder on this machine.")
    expanded = os.path.expanduser(text)
    if expanded.partition("/")[0] == "~":
        raise BadInput(f"{text}: this user has no home folder. Set HOME, or write the whole path.")
    return Path(expanded)


def location(text: Location) -> Folder:
    """Returns a local path (including for file://), or the path of a URL such as gs://bucket/folder."""
    if not isinstance(text, str):
        return text
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return _bucket_path(text) if "://" in text else local(text)


def create(path: Folder, data: bytes | memoryview) -> bool:
    """Creates a file atomically and durably. If another file has this name, leaves it unchanged and returns False.

    Args:
      path: path in an existing folder, or in a bucket.
      data: content of the file.
    """
    return system(path).create(path, data)


def replace(path: Folder, *pieces: bytes | memoryview, check: Callback = lambda: None) -> None:
    """Creates a file, or replaces it atomically. Readers see either the old file or the complete new one.

    Args:
      path: path in an existing folder, or in a bucket.
      pieces: content of the file, as pieces in order.
      check: called just before the replacement. If it raises, the file is not replaced.
    """
    system(path).replace(path, pieces, check)


def new_folder(path: Folder) -> AbstractContextManager[Any]:
    """Returns a context for filling a new folder. The folder is named ``path`` at the end, or removed on an exception.

    The caller must flush each local file in the folder to disk. Leftovers from killed writers with the same name are
    removed. In a bucket, files have their final names from the start.

    Raises:
      OSError: the folder cannot be created, or ``path`` is a file or a non-empty folder.
    """
    return system(path).new_folder(path)


def remove_leftovers(folder: Path) -> None:
    """Removes old folders that killed processes left in a local folder."""
    _LOCAL.remove_leftovers(folder)


def make_folder(folder: Folder) -> None:
    """Creates a folder and its parents durably."""
    system(folder).make_folder(folder)


def seal(record: Fields) -> bytes:
    """Returns a record as JSON. Its last member is the sha256 of the text without that member."""
    return _sealed(json.dumps(record, indent=1, sort_keys=True, default=dict).encode())


def _sealed(body: bytes) -> bytes:
    """Returns the text of a record with its hash as the last member."""
    return body[:-2] + _seal_of(hashlib.sha256(body).hexdigest())


def _seal_of(digest: str) -> bytes:
    return b',\n "sha256": "%b"\n}\n' % digest.encode()


_SEAL_BYTES = len(_sealed(b"{\n}")) - len(b"{")  # length of the seal that replaces the end of the text


def unseal(data: bytes, path: Folder) -> Json:
    """Returns the record from the output of ``seal``. Raises Damaged, which names ``path``, if any byte differs."""
    try:
        digest = hashlib.sha256(memoryview(data)[: max(0, len(data) - _SEAL_BYTES)])
        digest.update(b"\n}")
        if not data.endswith(_seal_of(digest.hexdigest())):
            raise ValueError
        inner = data.count(b"[") + data.count(b"{")
        if len(data) > RECORD_BYTES and (inner + data.count(b",")) * _ITEM_BYTES > len(data):
            raise ValueError
        record = _DECODER.decode(data.decode())
        if inner > MOST_DEPTH:  # otherwise its depth is within the limit
            check_depth(record, MOST_DEPTH)
        del record["sha256"]
        return record
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(f"{path} is not what was written. Check everything with `python -m results verify`.") from None


def check_depth(value: object, most: int) -> None:
    """Raises ValueError if lists and objects in plain data are nested more than ``most`` levels deep."""
    level = [value]
    for _ in range(most + 1):
        inner = [
            nested.values() if isinstance(nested, dict) else nested
            for nested in level
            if isinstance(nested, dict | list)
        ]
        if not inner:
            return
        level = [nested for members in inner for nested in members]
    raise ValueError(f"lists and objects are nested more than {most} deep")


def _refuse(word: str) -> None:
    raise ValueError(word)


_DECODER = json.JSONDecoder(parse_constant=_refuse)  # NaN and Infinity are not JSON


def read(path: Folder, most: int | None = None) -> bytes:
    """Reads a file. Raises FileNotFoundError if it is missing, or Damaged if unreadable or over ``most`` bytes."""
    check_file(path)
    try:
        if most is not None and (size := path.stat().st_size) > most:
            raise Damaged(f"{path} holds {size:,} bytes, more than the limit of {most:,}")
        return system(path).read(path)
    except FileNotFoundError:
        raise
    except MemoryError:
        raise Damaged(f"{path} is far too large") from None
    except OSError as error:
        if is_remote(error):  # a network that fails is no damage
            raise
        raise Damaged(f"{path} cannot be read ({error.strerror}). Check its permissions and its disk.") from None


def check_file(path: Folder) -> None:
    """Raises Damaged if a path exists but is not a regular file. Reading a pipe, for example, would block."""
    try:
        is_file = not isinstance(path, Path) or stat.S_ISREG(path.stat().st_mode)  # a single call, as it may be removed
    except OSError:
        return  # reading it reports the reason
    if not is_file:
        raise Damaged(f"{path} is not a regular file. Check everything with `python -m results verify`.")


def read_sealed(path: Folder, most: int = RECORD_BYTES) -> Json:
    """Reads a sealed file. Raises Damaged if it is unreadable, damaged or larger than ``most`` bytes."""
    return unseal(read(path, most), path)


def sha256(path: Folder, on_read: OnCount = lambda total: None) -> str:
    """Returns the hex sha256 of a file of any size, using little memory. ``on_read`` receives the bytes read so far."""
    check_file(path)
    digest, total, buffer = hashlib.sha256(), 0, memoryview(bytearray(_CHUNK))
    with path.open("rb") as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            total += count
            on_read(total)
    return digest.hexdigest()


def is_leftover(path: Folder) -> bool:
    """Returns whether a file is so old that its writer must have ended."""
    return system(path).is_leftover(path)
