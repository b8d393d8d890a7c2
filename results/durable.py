"""Atomic, durable file creation: immutable files, and records that end with their own hash.

To create a file, a temporary file is written next to it, flushed to disk and linked to the final name, which fails if
the name is taken. Then the folder is flushed. Files are never rewritten in place. Leftovers of killed processes are
removed by age, because other processes cannot detect whether the writer is alive. If its temporary file is removed, a
live writer writes it again. Files that can be rebuilt, such as a page, a checkpoint or a torn record, are replaced by a
rename, and a new folder gets its name in the same way.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from results.aliases import Callback, Fields, Json, OnCount
from results.bad_input import BadInput, first_line

if TYPE_CHECKING:
    from upath import UPath

TEMPORARY = ".tmp-"
LEFTOVER_SECONDS = 24 * 3600  # by the local clock; a slower writer writes again
MOST_DEPTH = 64  # maximum nesting of lists and objects in a record
RECORD_BYTES = 4 << 20  # far more than any plan, claim or commit record
LIST_BYTES = 32 << 20  # far more than a release's list needs; ours take 0.7 MB
_ITEM_BYTES = 10  # minimum average bytes per item in a release's list; ours take 23
_WRITES = 100  # attempts at writing a file if its temporary file keeps being removed

Folder: TypeAlias = Union[Path, "UPath"]
Location: TypeAlias = Union[str, Path, "UPath"]


class Damaged(BadInput):
    """A durable file that differs from the bytes originally written."""


def local(text: str | Path) -> Path:
    """Returns a local path. A leading ~ is the home folder, as in a shell. Raises BadInput if that is unknown."""
    if isinstance(text, Path):
        return text
    expanded = os.path.expanduser(text)
    if expanded.partition("/")[0] == "~":
        raise BadInput(f"{text}: this user has no home folder. Set HOME, or write the whole path.")
    return Path(expanded)


def location(text: "Location") -> Folder:
    """Returns a local path (including for file://), or an fsspec path for a URL such as gs://bucket/folder."""
    if isinstance(text, Path):
        return text
    if isinstance(text, str) and "://" not in text:
        return local(text)
    from upath import UPath

    try:
        path = UPath(text)
        if path.protocol in ("file", "local"):
            return Path(path.path)
        _ = path.fs  # raises ImportError if its package is not installed
        return path
    except ImportError as error:
        raise BadInput(f"{text} cannot be opened ({error}). gs:// needs `pip install scaling-limits[gcs]`.") from None
    except ValueError as error:
        raise BadInput(f"{text} cannot be opened: {first_line(error)}") from None


def create(path: Folder, data: bytes | memoryview) -> bool:
    """Creates a file atomically and durably. Returns False, without a change, if the name is taken.

    Args:
      path: path in an existing folder, local or on an fsspec file system with exclusive creation.
      data: content of the file.
    """
    if not isinstance(path, Path):
        with contextlib.suppress(FileExistsError):
            path.fs.pipe_file(path.path, bytes(data), mode="create")
            return True
        return False
    for attempts in reversed(range(_WRITES)):
        temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            _write(temporary, data)
            created = _link(temporary, path)
            break
        except OSError as error:  # removed by a process with a wrong clock, or after this process stalled for long
            if not attempts or error.errno not in (errno.ENOENT, errno.ESTALE) or not path.parent.is_dir():
                raise
        finally:
            temporary.unlink(missing_ok=True)
    sync(path.parent)
    return created


def replace(path: Folder, *pieces: bytes | memoryview, check: Callback = lambda: None) -> None:
    """Creates a file or replaces it atomically: readers see either the old file or the complete new one.

    Args:
      path: path in an existing folder, local or on an fsspec file system that replaces whole objects.
      pieces: content of the file, in order.
      check: called just before the replacement. If it raises, the file is not replaced.
    """
    if not isinstance(path, Path):
        check()
        path.fs.pipe_file(path.path, b"".join(pieces))
        return
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        _write(temporary, *pieces)
        check()
        os.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a folder next to ``path`` that is renamed to ``path`` at the end, or removed after an exception.

    The caller must flush each file in it to disk. Leftovers from killed writers of the same name are removed.

    Raises:
      OSError: it cannot be created, or ``path`` is a file or a non-empty folder.
    """
    prefix = f"{TEMPORARY}{path.name}-"
    folder = path.parent / f"{prefix}{uuid.uuid4().hex}"
    try:
        make_folder(folder)
        remove_leftovers(path.parent, prefix)
        yield folder
        sync(folder)
        os.rename(folder, path)
        sync(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folder: Path, prefix: str = TEMPORARY) -> None:
    """Removes old folders that killed processes left in a local folder."""
    for path in folder.iterdir():
        if path.name.startswith(prefix) and is_leftover(path):
            shutil.rmtree(path, ignore_errors=True)


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Folder) -> None:
    """Creates a folder and its parents durably."""
    if folder.is_dir():
        return
    if isinstance(folder, Path) and not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(folder, Path):
        sync(folder.parent)


def seal(record: Fields) -> bytes:
    """Returns a record as JSON whose last member is the sha256 of the text without that member."""
    return _sealed(_text(record, "\n").encode())


def _sealed(body: bytes) -> bytes:
    """Returns the text of a record with its hash as the last member."""
    return body[:-2] + _seal_of(hashlib.sha256(body).hexdigest())


def _seal_of(digest: str) -> bytes:
    return b',\n "sha256": "%b"\n}\n' % digest.encode()


_SEAL_BYTES = len(_sealed(b"{\n}")) - len(b"{")  # length of the seal that replaces the end of the text


def _text(value: Any, margin: str) -> str:
    """Formats plain data like json.dumps with indent=1 and sort_keys=True, but faster."""
    if type(value) is str:
        return _QUOTED(value)
    if type(value) is int:
        return repr(value)
    inside = f"{margin} "
    if isinstance(value, Mapping) and value:
        items = [f"{_QUOTED(key)}: {_text(value[key], inside)}" for key in sorted(value)]
        return f"{{{inside}{f',{inside}'.join(items)}{margin}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{inside}{f',{inside}'.join([_text(item, inside) for item in value])}{margin}]"
    return json.dumps(value)


_QUOTED = json.encoder.encode_basestring_ascii  # formats strings like json.dumps


def unseal(data: bytes, path: Folder) -> Json:
    """Returns the record in the output of ``seal``. Raises Damaged, naming ``path``, if any byte differs."""
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
    """Raises ValueError if the lists and objects in plain data are nested more than ``most`` deep."""
    level = [value]
    for _ in range(most + 1):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not inner:
            return
        level = [each for members in inner for each in members]
    raise ValueError(f"lists and objects are nested more than {most} deep")


def _refuse(word: str) -> None:
    raise ValueError(word)


_DECODER = json.JSONDecoder(parse_constant=_refuse)  # NaN and Infinity are not JSON


def read(path: Folder, most: int | None = None) -> bytes:
    """Reads a file. Raises FileNotFoundError if missing, and Damaged if unreadable or larger than ``most`` bytes."""
    check_file(path)
    try:
        if most is not None and (size := path.stat().st_size) > most:
            raise Damaged(f"{path} holds {size:,} bytes, more than the limit of {most:,}")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except MemoryError:
        raise Damaged(f"{path} is far too large") from None
    except OSError as error:
        raise Damaged(f"{path} cannot be read ({error.strerror}). Check its permissions and its disk.") from None


def check_file(path: Folder) -> None:
    """Raises Damaged if a local path exists but is not a regular file. Reading a pipe, for example, would block."""
    if not isinstance(path, Path):
        return
    try:
        mode = path.stat().st_mode  # a single call, because the file may be removed between two
    except OSError:
        return  # reading it reports the reason
    if not stat.S_ISREG(mode):
        raise Damaged(f"{path} is not a regular file. Check everything with `python -m results verify`.")


def read_sealed(path: Folder, most: int = RECORD_BYTES) -> Json:
    """Reads a sealed file. Raises Damaged if it is unreadable, damaged or larger than ``most`` bytes."""
    return unseal(read(path, most), path)


def sha256(path: Folder, on_read: OnCount = lambda total: None) -> str:
    """Returns the hex sha256 of a file of any size, using little memory. ``on_read`` gets the bytes read so far."""
    check_file(path)
    digest, total = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
            total += len(piece)
            on_read(total)
    return digest.hexdigest()


def is_leftover(path: Path) -> bool:
    """Returns whether a local file is so old that its writer must be gone."""
    try:
        return time.time() - path.stat().st_mtime > LEFTOVER_SECONDS
    except FileNotFoundError:
        return False


def _write(temporary: Path, *pieces: bytes | memoryview) -> None:
    with open(temporary, "xb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        # On NFS, the reply to a successful link can be lost. The retry then reports that the name is taken.
        return os.stat(temporary).st_nlink == 2
    return True
