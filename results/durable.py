"""How anything durable comes to be: an immutable file, whole or not at all; records end in their own hash.

A file is made by writing a temporary one beside it, flushing it to disk, linking it to its name, which fails if that
is taken, and flushing the folder. Nothing is ever rewritten in place. What a killed process left behind is removed by
age alone, because nobody else can know whether its writer is still alive; one that is writes its temporary file again.
What may be made anew, such as a page, a checkpoint or what a repair finds torn, is put in the place of the one before
by a rename, and a whole folder takes its name so.
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
from typing import Any

from upath import UPath

from results.bad_input import BadInput

TEMPORARY = ".tmp-"
LEFTOVER_SECONDS = 24 * 3600  # by the clock of whoever looks; a writer that it was too short for writes again
MOST_DEPTH = 64  # of lists and objects within each other, in a record
_WRITES = 100  # of one file, whose temporary file somebody keeps removing


Folder = Path | UPath


class Damaged(BadInput):
    """A durable file that is not what was written."""


def location(text: str | Path) -> Folder:
    """A local path, also of file://; or a place that fsspec knows, if ``text`` is a URL such as gs://bucket/folder."""
    if "://" not in str(text):
        return Path(text).expanduser()
    try:
        found = UPath(text)
        return Path(found.path) if found.protocol in ("file", "local") else found
    except (ValueError, ImportError) as error:
        raise BadInput(f"{text} cannot be opened: {str(error).splitlines()[0]}") from None


def create(path: Folder, data: bytes | memoryview) -> bool:
    """Creates a file, whole and for good; False, and nothing changed, if the name is taken.

    Args:
      path: in a folder that exists. Local, or a place of fsspec whose file system can create exclusively.
      data: everything the file holds.
    """
    if not isinstance(path, Path):
        with contextlib.suppress(FileExistsError):
            path.fs.pipe_file(path.path, bytes(data), mode="create")
            return True
        return False
    for left in reversed(range(_WRITES)):
        temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            _write(temporary, data)
            created = _link(temporary, path)
            break
        except OSError as error:  # removed, by a process whose clock is off, or that we had stalled too long for
            if not left or error.errno not in (errno.ENOENT, errno.ESTALE) or not path.parent.is_dir():
                raise
        finally:
            temporary.unlink(missing_ok=True)
    sync(path.parent)
    return created


def replace(path: Path, *pieces: bytes | memoryview) -> None:
    """Creates a file, or puts it in the place of another: at every moment one of them is there, and the new one whole.

    Args:
      path: in a folder that exists.
      pieces: everything the file holds, in order.
    """
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        _write(temporary, *pieces)
        os.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into beside ``path``; it takes that name once it is whole, and is gone if anything is raised.

    What is in it must have been flushed to disk, file by file. What killed writers of the same name left is removed.

    Raises:
      OSError: it cannot be made, or there is a file or a folder with something in it at ``path``.
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
    """Removes folders within a local one that killed processes left behind, once they are old."""
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
    """Makes a folder, and those above it, durably."""
    if folder.is_dir():
        return
    if isinstance(folder, Path) and not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(folder, Path):
        sync(folder.parent)


def seal(record: Mapping[str, Any]) -> bytes:
    """A record as JSON text whose last member is the sha256 of the text without it."""
    body = _text(record, "\n")
    return f'{body[:-2]},\n "sha256": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n'.encode()


def _text(value: Any, margin: str) -> str:
    """Plain data as json.dumps writes it with indent=1 and sort_keys=True, in a third of the time."""
    inside = f"{margin} "
    if isinstance(value, Mapping) and value:
        items = (f"{json.dumps(key)}: {_text(value[key], inside)}" for key in sorted(value))
        return f"{{{inside}{f',{inside}'.join(items)}{margin}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{inside}{f',{inside}'.join(_text(item, inside) for item in value)}{margin}]"
    return json.dumps(value)


def unseal(data: bytes, path: Folder) -> dict[str, Any]:
    """The record that ``seal`` wrote; Damaged, naming ``path``, unless every byte is as it was written."""
    try:
        record = _DECODER.decode(data.decode())
        check_depth(record, MOST_DEPTH)
        del record["sha256"]
        intact = seal(record) == data
    except (ValueError, KeyError, TypeError, RecursionError):
        intact = False
    if not intact:
        raise Damaged(f"{path} is not what was written; look at all of it with `python -m results verify`")
    return record


def check_depth(value: object, most: int) -> None:
    """Raises ValueError if lists and objects of plain data are within each other more than ``most`` deep."""
    level = [value]
    for _ in range(most + 1):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not inner:
            return
        level = [each for members in inner for each in members]
    raise ValueError(f"more than {most} lists and objects are within each other")


def _refuse(word: str) -> None:
    raise ValueError(word)


_DECODER = json.JSONDecoder(parse_constant=_refuse)  # of NaN and Infinity, which are no JSON


def read(path: Folder) -> bytes:
    """All of a file; Damaged if it cannot be read, FileNotFoundError if there is none."""
    check_file(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except MemoryError:
        raise Damaged(f"{path} is far too large for what it should be") from None
    except OSError as error:
        raise Damaged(f"{path} cannot be read ({error.strerror}); look at its permissions, or its disk") from None


def check_file(path: Folder) -> None:
    """Raises Damaged if a local path is there and no file, but a folder, say, or a pipe, which would be waited for."""
    if not isinstance(path, Path):
        return
    try:
        mode = path.stat().st_mode  # asked once: between two questions it may be removed
    except OSError:
        return  # reading it will tell
    if not stat.S_ISREG(mode):
        raise Damaged(f"{path} is no file; look at all of it with `python -m results verify`")


def read_sealed(path: Folder) -> dict[str, Any]:
    """The record in a sealed file; Damaged unless it can be read, and every byte is as it was written."""
    return unseal(read(path), path)


def is_leftover(path: Path, now: float | None = None) -> bool:
    """Whether a local file is old enough for its writer to be gone."""
    try:
        return (time.time() if now is None else now) - path.stat().st_mtime > LEFTOVER_SECONDS
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
        # On NFS the answer to a link that worked can be lost and the retry be told that the name is taken.
        return os.stat(temporary).st_nlink == 2
    return True
