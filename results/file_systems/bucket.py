"""Objects in buckets: gs://, s3:// and az:// (through obstore), and memory:// (within a process).

Buckets do not have folders, links or locks. An object is created by a single conditional request, which the client does
not retry. If the response is lost or reports that the name is taken, the object is read back. If its bytes are equal,
this process wrote it. Records whose creator matters therefore contain a random token.

The lock of a study is an object that its holder replaces every few seconds. Other processes watch it for changes, so
the clocks of different machines are never compared. Correctness does not depend on the lock.
"""

import contextlib
import datetime
import errno
import functools
import io
import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from results.aliases import Callback
from results.bad_input import BadInput
from results.file_systems.protocol import TEMPORARY, Entry

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMES = ("gs", "s3", "s3a", "az", "azure", "abfs", "abfss", "memory", "http", "https")
LOCK = f"{TEMPORARY}lock"  # name of a study's lock
LEFTOVER_SECONDS = 24 * 3600
RENEW_SECONDS = 20.0  # between two renewals of a lock
STALE_SECONDS = 90.0  # a lock that was not renewed for so long belongs to a process that is gone
_LOOK_SECONDS = 1.0  # between two looks at a lock that another process holds
FIRST_SECONDS = 10.0  # for which a first request is repeated while the server cannot be reached
PATIENCE_SECONDS = 180.0  # for which later requests are
_PAUSE, _LONGEST_PAUSE = 0.25, 8.0  # seconds after the first attempt, doubled after each
_NO_BUCKET = errno.ENXIO
_FINAL = (_NO_BUCKET, errno.EACCES)  # errors that do not go away by themselves
_AT_ONCE = 32  # concurrent requests
_SMALL = 1 << 16  # bytes of an object that a snapshot keeps
_CHUNK = 1 << 20  # bytes read at once from a large object
_MISSING = "pip install 'scaling-limits[buckets]'"


class Status(NamedTuple):
    """The status of an object, named like the fields of ``os.stat_result``."""

    st_size: int
    st_mtime: float


class BucketPath:
    """The path of an object or of a folder (a common prefix of objects). It can be used like a ``Path``.

    Args:
      bucket: the bucket.
      key: path of the object within the bucket, without leading or trailing slashes.
    """

    def __init__(self, bucket: "Bucket", key: str):
        self.bucket, self.key = bucket, key

    def __truediv__(self, name: object) -> "BucketPath":
        return BucketPath(self.bucket, f"{self.key}/{name}".strip("/"))

    def __str__(self) -> str:
        return f"{self.bucket.url}/{self.key}".rstrip("/")

    def __repr__(self) -> str:
        return f"BucketPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketPath) and str(self) == str(other)

    def __lt__(self, other: "BucketPath") -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        return PurePosixPath(self.key).parts

    @property
    def parent(self) -> "BucketPath":
        return BucketPath(self.bucket, self.key.rpartition("/")[0])

    @property
    def parents(self) -> list["BucketPath"]:
        return [self.parent, *self.parent.parents] if self.key else []

    def with_name(self, name: str) -> "BucketPath":
        return self.parent / name

    def absolute(self) -> "BucketPath":
        return self

    def resolve(self) -> "BucketPath":
        return self

    def is_symlink(self) -> bool:
        return False

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Opens an object for reading."""
        assert mode == "rb", mode
        return io.BufferedReader(_Reader(self, self.stat().st_size), _CHUNK)

    def read_bytes(self) -> bytes:
        return self.bucket.get(self.key)

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def stat(self) -> Status:
        return self.bucket.head(self.key)

    def is_file(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        return self.bucket.has_below(self.key)

    def exists(self) -> bool:
        return self.is_dir() or self.is_file()

    def iterdir(self) -> Iterator["BucketPath"]:
        """Yields the objects and folders directly below this folder, sorted. A missing folder counts as empty."""
        with contextlib.suppress(FileNotFoundError):
            yield from [self / entry.name for entry in sorted(self.bucket.entries(self.key))]

    def glob(self, pattern: str) -> Iterator["BucketPath"]:
        """Yields the objects below this folder whose relative path matches a pattern, sorted."""
        start = len(self.key) + 1 if self.key else 0
        depth = pattern.count("/")
        for key in sorted(self.bucket.keys(self.key)):
            if key.count("/", start) == depth and PurePosixPath(key[start:]).match(pattern):
                yield BucketPath(self.bucket, key)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Accepts any folder without creating it, because a folder exists as soon as it contains an object."""

    def write_bytes(self, data: bytes) -> None:
        self.bucket.put(self.key, data)

    def write_text(self, text: str) -> None:
        self.write_bytes(text.encode())

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok:
            self.stat()
        self.bucket.delete(self.key)


class _Reader(io.RawIOBase):
    """Reads ranges of an object."""

    def __init__(self, path: BucketPath, size: int):
        self._path, self._size, self._at = path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = self._path.bucket.get(self._path.key, self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Snapshot:
    """All objects below a folder, which is listed once, and the contents of small objects that were read since then."""

    def __init__(self, prefix: str, objects: Mapping[str, Status]):
        self.prefix = prefix
        self.objects: dict[str, Status] = {}
        self.folders: dict[str, dict[str, Entry]] = {}
        self.contents: dict[str, bytes] = {}
        for key, status in objects.items():
            self.add(key, status)

    def covers(self, key: str) -> bool:
        return not self.prefix or key == self.prefix or key.startswith(f"{self.prefix}/")

    def add(self, key: str, status: Status) -> None:
        """Adds an object, and the folders that contain it."""
        self.objects[key] = status
        self.contents.pop(key, None)
        entry = Entry(key.rpartition("/")[2], "file", *status)
        while key:
            folder = key.rpartition("/")[0]
            known = self.folders.setdefault(folder, {})
            is_new = entry.name not in known
            known[entry.name] = entry
            if not is_new:
                return
            key, entry = folder, Entry(folder.rpartition("/")[2], "folder", 0, 0.0)

    def remove(self, key: str) -> None:
        """Removes an object, and the folders that become empty."""
        self.objects.pop(key, None)
        self.contents.pop(key, None)
        while key:
            folder, _, name = key.rpartition("/")
            known = self.folders.get(folder, {})
            known.pop(name, None)
            if known:
                return
            self.folders.pop(folder, None)
            key = folder


class Bucket:
    """A bucket, connected at first use.

    Args:
      url: scheme and name of the bucket, such as gs://name.
    """

    def __init__(self, url: str):
        self.url = url
        self._snapshot: _Snapshot | None = None
        self._answered = False
        self._ahead = 0.0  # seconds that the server's clock is ahead of this one

    @functools.cached_property
    def _store(self) -> Any:
        return self._connect(retries=5)

    @functools.cached_property
    def _once(self) -> Any:
        """A connection without retries, for conditional requests."""
        return self._store if self.url.startswith("memory:") else self._connect(retries=0)

    def _connect(self, retries: int) -> Any:
        obstore = _obstore()
        if self.url.startswith("memory:"):
            return obstore.store.MemoryStore()
        scheme, _, name = self.url.partition("://")
        try:
            return obstore.store.from_url(
                f"{_ALIASES.get(scheme, scheme)}://{name}",
                client_options={"connect_timeout": "5s", "timeout": "60s", "allow_http": _allows_http()},
                retry_config={"max_retries": retries, "retry_timeout": datetime.timedelta(seconds=60)},
            )
        except (obstore.exceptions.BaseError, ValueError) as error:
            raise PermissionError(errno.EACCES, _brief(str(error)), self.url) from None

    @contextlib.contextmanager
    def _asking(self, key: str) -> Iterator[Any]:
        """Yields obstore. Its errors become OSError without the library's message, which may contain credentials."""
        obstore, where = _obstore(), f"{self.url}/{key}"
        try:
            yield obstore
        except (FileNotFoundError, obstore.exceptions.BaseError) as error:
            text = str(error)
            status = next(iter(re.findall(r"\b([45][0-9]{2}) [A-Z][a-z]", text)), "")
            if re.search("NoSuchBucket|ContainerNotFound", text):
                raise OSError(_NO_BUCKET, "there is no such bucket", where) from None
            if isinstance(error, FileNotFoundError):
                raise _missing(where) from None
            if status in ("401", "403"):
                raise PermissionError(errno.EACCES, f"the bucket denied access with status {status}", where) from None
            raise OSError(errno.EIO, _brief(text, status), where) from None

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Returns the bytes from ``start`` to ``end`` of an object."""
        if (seen := self._seen(key)) is not None:
            status = seen.objects.get(key)
            if status is None:
                raise _missing(f"{self.url}/{key}")
            if key not in seen.contents and status.st_size <= _SMALL:
                seen.contents[key] = self._get(key, 0, None)
            if key in seen.contents:
                return seen.contents[key][start:end]
        return self._get(key, start, end)

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        return self.look(key, start, end)[0]

    def look(self, key: str, start: int = 0, end: int | None = None) -> tuple[bytes, Status]:
        """Returns the bytes from ``start`` to ``end`` of the current version of an object, and its status."""
        with self._asking(key) as obstore:
            found = obstore.get(self._store, key, options=None if end is None else {"range": (start, end)})
            data = bytes(found.bytes())
        return data[start:] if end is None else data, _status(found.meta)

    def head(self, key: str) -> Status:
        """Returns the status of an object."""
        if (seen := self._seen(key)) is not None:
            if key not in seen.objects:
                raise _missing(f"{self.url}/{key}")
            return seen.objects[key]
        if not key:
            raise _missing(self.url)
        with self._asking(key) as obstore:
            return _status(obstore.head(self._store, key))

    def now(self) -> float:
        """Returns the time by the server's clock, in seconds since 1970, as estimated by the last ``set_clock``."""
        return time.time() + self._ahead

    def set_clock(self, key: str) -> None:
        """Estimates the server's clock from an object that was just written."""
        self._ahead = self.head(key).st_mtime - time.time()

    def has_below(self, key: str) -> bool:
        """Returns whether there are objects below a folder."""
        if (seen := self._seen(key)) is not None:
            return key in seen.folders
        return any(self._objects(key, most=1))

    def keys(self, key: str) -> list[str]:
        """Returns the keys of all objects below a folder."""
        if (seen := self._seen(key)) is not None:
            return [each for each in seen.objects if each.startswith(f"{key}/") or not key]
        return [each for each, _ in self._objects(key)]

    def _objects(self, key: str, most: int = 1000) -> Iterator[tuple[str, Status]]:
        with self._asking(key) as obstore:
            for page in obstore.list(self._store, prefix=f"{key}/" if key else None, chunk_size=most):
                for each in page:
                    yield each["path"], _status(each)

    def entries(self, key: str) -> list[Entry]:
        """Returns the objects and folders directly below a folder. Raises FileNotFoundError if it is empty."""
        if (seen := self._seen(key)) is not None:
            found = list(seen.folders.get(key, {}).values())
        else:
            with self._asking(key) as obstore:
                listed = obstore.list_with_delimiter(self._store, prefix=f"{key}/" if key else None)
            found = [Entry(each["path"].rpartition("/")[2], "file", *_status(each)) for each in listed["objects"]]
            found += [Entry(each.rpartition("/")[2], "folder", 0, 0.0) for each in listed["common_prefixes"]]
        if not found:
            raise _missing(f"{self.url}/{key}", "folder")
        return found

    def put(self, key: str, data: Any) -> None:
        """Creates or replaces an object."""
        with self._asking(key) as obstore:
            obstore.put(self._store, key, data, mode="overwrite")
        if (seen := self._seen(key)) is not None:
            seen.add(key, Status(len(data), time.time()))

    def create(self, key: str, data: bytes) -> bool:
        """Creates an object. If another object has this key, leaves it unchanged and returns False."""
        created = self._create(key, data)
        if created and (seen := self._seen(key)) is not None:
            seen.add(key, Status(len(data), time.time()))
        return created

    def _create(self, key: str, data: bytes) -> bool:
        failure = OSError(errno.EAGAIN, "the server answers that it exists, but it cannot be read", f"{self.url}/{key}")
        began, pause = time.monotonic(), _PAUSE
        while True:
            try:
                with self._asking(key) as obstore, contextlib.suppress(*_taken(obstore)):
                    obstore.put(self._once, key, data, mode="create", use_multipart=False)
                    self._answered = True
                    return True
            except OSError as error:  # the answer may be lost, and the object there
                if error.errno in _FINAL:
                    raise
                failure = error
            try:
                found = self._get(key, 0, None)
                self._answered = True
                return found == data
            except OSError as error:
                # A missing object was being created by a request that failed, or ours did not arrive.
                if not isinstance(error, FileNotFoundError):
                    failure = error
            if time.monotonic() - began > (PATIENCE_SECONDS if self._answered else FIRST_SECONDS):
                raise failure
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def delete(self, key: str) -> None:
        """Deletes an object, if it exists."""
        with contextlib.suppress(FileNotFoundError), self._asking(key) as obstore:
            obstore.delete(self._store, key)
        if (seen := self._seen(key)) is not None:
            seen.remove(key)

    @contextlib.contextmanager
    def snapshot(self, prefix: str) -> Iterator[None]:
        """Returns a context in which a folder is listed only once. If contexts are nested, the outermost applies."""
        if self._snapshot is not None:
            yield
            return
        try:
            self._snapshot = self._look(prefix)
            yield
        finally:
            self._snapshot = None

    def refresh(self) -> None:
        """Lists the folder of the snapshot again, if there is one."""
        if self._snapshot is not None:
            self._snapshot = self._look(self._snapshot.prefix)

    def _look(self, prefix: str) -> _Snapshot:
        return _Snapshot(prefix, dict(self._objects(prefix)))

    def sees(self, key: str) -> bool | None:
        """Returns whether the snapshot contains an object, if the snapshot covers it."""
        seen = self._seen(key)
        return None if seen is None else key in seen.objects

    def _seen(self, key: str) -> _Snapshot | None:
        """Returns the snapshot, if it covers an object or a folder."""
        return self._snapshot if self._snapshot is not None and self._snapshot.covers(key) else None

    def fetch(self, keys: Iterable[str]) -> None:
        """Reads small objects of the snapshot concurrently."""
        seen = self._snapshot
        if seen is None:
            return
        small = (key for key in keys if key in seen.objects and seen.objects[key].st_size <= _SMALL)
        wanted = [key for key in small if key not in seen.contents]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for key, data in zip(wanted, pool.map(lambda key: self._get(key, 0, None), wanted), strict=True):
                seen.contents[key] = data


_ALIASES = {"s3a": "s3", "azure": "az"}


def _obstore() -> Any:
    """Returns the library, which is optional. Raises BadInput if it is not installed."""
    try:
        import obstore
        import obstore.store
    except ImportError:
        raise BadInput(f"stores in buckets need obstore. Install it with {_MISSING}.") from None
    return obstore


def _taken(obstore: Any) -> tuple[type[Exception], ...]:
    """Returns the exceptions raised if an object exists or is being created by another request."""
    return obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError


def _allows_http() -> bool:
    """Returns whether the environment allows unencrypted requests, for example to a server on this machine."""
    names = ("AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP", "AZURE_ALLOW_HTTP")
    return any(os.environ.get(name, "").lower() in ("1", "true") for name in names)


def _brief(text: str, status: str = "") -> str:
    """Returns the kind of a failure."""
    if status:
        return f"the server answered with status {status}"
    if re.search("token|credential|Access Key", text, re.IGNORECASE):
        return "there are no valid credentials"
    if re.search("builder error", text):
        return "http:// is not allowed without ALLOW_HTTP in the environment"
    return "the server cannot be reached"


def _missing(where: str, noun: str = "object") -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, f"no such {noun}", where)


def _status(about: Any) -> Status:
    return Status(about["size"], about["last_modified"].timestamp())


_BUCKETS: dict[str, Bucket] = {}


def bucket_path(url: str) -> BucketPath:
    """Returns the path of a URL. Raises BadInput for an unknown scheme, or if obstore is not installed."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise BadInput(f"{url} cannot be opened. Use a folder, gs://, s3:// or az://.")
    if "#" in url and not parts.query and "@" not in parts.netloc:
        raise BadInput(
            f"{parts.scheme}://… contains a #, which names of folders in buckets cannot have here. Rename it."
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise BadInput(
            f"{parts.scheme}://… contains credentials or options. Set them in the environment, see docs/launch/buckets."
        )
    if not parts.netloc and parts.scheme != "memory":
        raise BadInput(f"{url} has no bucket. Write {parts.scheme}://BUCKET/FOLDER.")
    names = [name for name in parts.path.split("/") if name]
    if not url.isprintable() or {".", ".."} & set(names):
        raise BadInput(
            f"{url!a} has a name that objects in buckets cannot have. Leave out . and .. and control characters."
        )
    _obstore()
    root = f"{parts.scheme}://{parts.netloc}"
    bucket = _BUCKETS.setdefault(root, Bucket(root))
    return BucketPath(bucket, "/".join(names))


def refresh() -> None:
    """Lists the folders of all snapshots again after a listed object turned out to be missing."""
    for each in _BUCKETS.values():
        each.refresh()


class BucketFiles:
    """Objects in buckets. See ``results.file_systems.protocol.FileSystem``."""

    is_local = False
    heartbeat_seconds = 30.0
    fresh_seconds = 100.0

    def within(self, folder: BucketPath, *names: str) -> BucketPath:
        return folder / "/".join(names)

    def create(self, path: BucketPath, data: bytes | memoryview) -> bool:
        return path.bucket.create(path.key, bytes(data))

    def replace(self, path: BucketPath, pieces: Sequence[bytes | memoryview], check: Callback) -> None:
        check()
        path.bucket.put(path.key, b"".join(pieces))

    def post(self, path: BucketPath, data: bytes) -> None:
        path.bucket.put(path.key, data)

    def peek(self, path: BucketPath, most: int) -> tuple[bytes, float]:
        if path.bucket.sees(path.key) is False:
            raise _missing(str(path))
        data, status = path.bucket.look(path.key)
        return data[:most], status.st_mtime

    def delete(self, path: BucketPath) -> None:
        path.bucket.delete(path.key)

    def read(self, path: BucketPath, most: int | None = None) -> bytes:
        if most is None:
            return path.read_bytes()
        size = min(path.stat().st_size, most)  # servers reject a range of an empty object
        return path.bucket.get(path.key, 0, size) if size else b""

    def buffer(self, path: BucketPath) -> "pa.Buffer":
        import pyarrow as pa

        return pa.py_buffer(path.read_bytes())

    def irregular(self, path: BucketPath) -> bool:
        return False

    def names(self, folder: BucketPath) -> list[str]:
        return [entry.name for entry in folder.bucket.entries(folder.key)]

    def entries(self, folder: BucketPath) -> list[Entry]:
        return folder.bucket.entries(folder.key)

    def walk(
        self, root: BucketPath, on_link: Callable[[Any], None], on_error: Callable[[OSError], None]
    ) -> Iterator[tuple[BucketPath, list[str]]]:
        folders: dict[str, list[str]] = {}
        try:
            for key in root.bucket.keys(root.key):
                folder, _, name = key.rpartition("/")
                folders.setdefault(folder, []).append(name)
        except OSError as error:
            on_error(error)
        for folder in sorted(folders):
            yield BucketPath(root.bucket, folder), sorted(folders[folder])

    def make_folder(self, folder: BucketPath) -> None:
        pass  # it exists as soon as there is an object in it

    @contextlib.contextmanager
    def new_folder(self, path: BucketPath) -> Iterator[BucketPath]:
        yield path  # the object that makes a release visible is written last

    def is_leftover(self, path: BucketPath) -> bool:
        try:
            return path.bucket.now() - path.stat().st_mtime > LEFTOVER_SECONDS
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def lock(self, folder: BucketPath) -> Iterator[None]:
        with _Lock(folder / LOCK).held():
            yield

    def is_locked(self, folder: BucketPath) -> bool:
        path = folder / LOCK
        try:
            data, status = self.read(path), path.stat()
        except FileNotFoundError:
            return False
        alive = _is_alive(data)
        return path.bucket.now() - status.st_mtime < STALE_SECONDS if alive is None else alive

    def check_writable(self, store: BucketPath) -> None:
        from results.file_systems import probe

        if store.bucket.url.startswith("http"):
            raise BadInput(f"store={store} can only be read. Use gs://, s3:// or az://.")
        probe.check(store)

    @contextlib.contextmanager
    def snapshot(self, store: BucketPath) -> Iterator[None]:
        with store.bucket.snapshot(store.key):
            yield

    def fetch(self, paths: Iterable[BucketPath]) -> None:
        wanted = list(paths)
        for bucket in {path.bucket for path in wanted}:
            bucket.fetch(path.key for path in wanted if path.bucket is bucket)


class _Lock:
    """The lock of a study: an object with a token that its holder renews in a thread.

    Attributes:
      path: path of the object.
    """

    def __init__(self, path: BucketPath):
        self.path = path
        self._data = json.dumps(_who() | {"token": uuid.uuid4().hex}).encode()
        self._released = threading.Event()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Waits until the lock is not held by any live process, then holds it within the context."""
        self._wait()
        self.path.bucket.set_clock(self.path.key)
        renewing = threading.Thread(target=self._renew, daemon=True)
        renewing.start()
        try:
            yield
        finally:
            self._released.set()
            renewing.join()
            with contextlib.suppress(OSError):  # it becomes stale
                if self.path.read_bytes() == self._data:
                    self.path.bucket.delete(self.path.key)

    def _wait(self) -> None:
        seen: Any = None
        seen_at = 0.0
        while not self.path.bucket.create(self.path.key, self._data):
            try:
                data, status = self.path.read_bytes(), self.path.stat()
            except FileNotFoundError:
                continue
            if seen != (data, status):
                seen, seen_at = (data, status), time.monotonic()
            if _is_alive(data) is False or time.monotonic() - seen_at > STALE_SECONDS:
                self.path.bucket.delete(self.path.key)
                continue
            time.sleep(_LOOK_SECONDS)

    def _renew(self) -> None:
        while not self._released.wait(RENEW_SECONDS):
            with contextlib.suppress(OSError):
                if self.path.read_bytes() == self._data:
                    self.path.bucket.put(self.path.key, self._data)


def _who() -> dict[str, Any]:
    """Returns an id for the machine and the process. Containers on one machine have separate process ids."""
    try:
        numbering = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbering = ""
    return {"host": socket.gethostname(), "numbering": numbering, "pid": os.getpid()}


def _is_alive(data: bytes) -> bool | None:
    """Returns whether the holder of a lock is alive, or None if it runs on another machine or is unknown."""
    try:
        holder = json.loads(data)
        pid = holder["pid"]
        if {**_who(), "pid": pid, "token": holder["token"]} != holder or type(pid) is not int or not 0 < pid < 2**31:
            return None
        os.kill(pid, 0)
    except (ValueError, KeyError, TypeError):
        return None
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
