"""The lock of a study in a bucket: an object that its holder replaces every few seconds.

Other processes watch it for changes, so the clocks of different machines are never compared. Correctness does not
depend on the lock.
"""

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator

from results.file_systems.entry import TEMPORARY
from results.file_systems.liveness import identity, is_alive
from results.file_systems.path import BucketPath, Status

LOCK = f"{TEMPORARY}lock"  # name of a study's lock
RENEW_SECONDS = 20.0  # between two renewals of a lock
STALE_SECONDS = 90.0  # a lock that was not renewed for so long belongs to a process that is gone
_LOOK_SECONDS = 1.0  # between two looks at a lock that another process holds


@contextlib.contextmanager
def held(path: BucketPath) -> Iterator[None]:
    """Waits until a lock is not held by any live process, then holds it within the context."""
    data = json.dumps(identity() | {"token": uuid.uuid4().hex}).encode()
    _acquire(path, data)
    path.bucket.set_clock(path.key)
    released = threading.Event()
    renewal = threading.Thread(target=_renew, args=(path, data, released), daemon=True)
    renewal.start()
    try:
        yield
    finally:
        released.set()
        renewal.join()
        with contextlib.suppress(OSError):  # it becomes stale
            if path.read_bytes() == data:
                path.unlink(missing_ok=True)


def is_held(path: BucketPath) -> bool:
    """Returns whether a live process holds a lock."""
    try:
        data, status = path.read_bytes(), path.stat()
    except FileNotFoundError:
        return False
    alive = _is_holder_alive(data)
    return path.bucket.now() - status.st_mtime < STALE_SECONDS if alive is None else alive


def _acquire(path: BucketPath, data: bytes) -> None:
    version: tuple[bytes, Status] | None = None
    changed = 0.0
    while not path.bucket.create(path.key, data):
        try:
            present = path.read_bytes(), path.stat()
        except FileNotFoundError:
            continue
        if version != present:
            version, changed = present, time.monotonic()
        if _is_holder_alive(present[0]) is False or time.monotonic() - changed > STALE_SECONDS:
            path.unlink(missing_ok=True)
            continue
        time.sleep(_LOOK_SECONDS)


def _renew(path: BucketPath, data: bytes, released: threading.Event) -> None:
    while not released.wait(RENEW_SECONDS):
        with contextlib.suppress(OSError):
            if path.read_bytes() == data:
                path.write_bytes(data)


def _is_holder_alive(data: bytes) -> bool | None:
    """Returns whether the holder of a lock is alive, or None if it runs on another machine or is unknown."""
    try:
        holder = json.loads(data)
        pid = holder["pid"]
        is_here = identity() | {"pid": pid, "token": holder["token"]} == holder and type(pid) is int
    except (ValueError, KeyError, TypeError):
        return None
    return is_alive(pid) if is_here else None
