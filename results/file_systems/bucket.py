"""A bucket: requests for its objects (through obstore), and a snapshot of them for readers of many studies.

Buckets do not have folders, links or locks. An object is created by a conditional request. If the response is lost, the
same request is sent again. If it reports that the name is taken, the object is read back. If its bytes are equal, this
process wrote it. Records whose creator matters therefore contain a random token.
"""

import bisect
import contextlib
import datetime
import errno
import functools
import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from results.bad_input import BadInput
from results.file_systems.entry import Entry

FIRST_SECONDS = 10.0  # for which a first request is repeated while the server cannot be reached
PATIENCE_SECONDS = 180.0  # for which later requests are
_PAUSE, _LONGEST_PAUSE = 0.25, 8.0  # seconds after the first attempt, doubled after each
_NO_BUCKET = errno.ENXIO
_FINAL = (_NO_BUCKET, errno.EACCES)  # errors that do not go away by themselves
_AT_ONCE = 32  # concurrent requests
_SMALL = 1 << 16  # bytes of an object that a snapshot keeps
_MISSING = "pip install 'scaling-limits[buckets]'"


class Status(NamedTuple):
    """The status of an object, named like the fields of ``os.stat_result``."""

    st_size: int
    st_mtime: float


class _Snapshot:
    """All objects below a folder, which is listed once, and the contents of small objects that were read since then."""

    def __init__(self, folder: str, objects: Iterable[tuple[str, Status]]):
        self.folder = folder
        self.objects = dict(objects)
        self.contents: dict[str, bytes] = {}
        self._keys = sorted(self.objects)

    def covers(self, key: str) -> bool:
        return f"{key}/".startswith(_prefix(self.folder))

    def status(self, key: str, url: str) -> Status:
        if key not in self.objects:
            raise missing(f"{url}/{key}")
        return self.objects[key]

    def below(self, folder: str) -> Iterator[tuple[str, Status]]:
        """Yields the objects below a folder, sorted by key."""
        prefix = _prefix(folder)
        for i in range(bisect.bisect_left(self._keys, prefix), len(self._keys)):
            if not self._keys[i].startswith(prefix):
                return
            yield self._keys[i], self.objects[self._keys[i]]

    def change(self, key: str, status: Status | None) -> None:
        """Adds or replaces an object or, if there is no status, removes it."""
        self.contents.pop(key, None)
        if status is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = status
        self._keys = sorted(self.objects)


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
        library = obstore()
        if self.url.startswith("memory:"):
            return library.store.MemoryStore()
        scheme, _, name = self.url.partition("://")
        try:
            return library.store.from_url(
                f"{_ALIASES.get(scheme, scheme)}://{name}",
                client_options={"connect_timeout": "5s", "timeout": "60s", "allow_http": _allows_http()},
                retry_config={"max_retries": retries, "retry_timeout": datetime.timedelta(seconds=60)},
            )
        except (library.exceptions.BaseError, ValueError) as error:
            raise PermissionError(errno.EACCES, _brief(str(error)), self.url) from None

    @contextlib.contextmanager
    def _asking(self, key: str) -> Iterator[Any]:
        """Yields obstore. Its errors become OSError without the library's message, which may contain credentials."""
        library, url = obstore(), f"{self.url}/{key}"
        try:
            yield library
        except (FileNotFoundError, library.exceptions.BaseError) as error:
            text = str(error)
            status = next(iter(re.findall(r"\b([45][0-9]{2}) [A-Z][a-z]", text)), "")
            if re.search("NoSuchBucket|ContainerNotFound", text):
                raise OSError(_NO_BUCKET, "there is no such bucket", url) from None
            if isinstance(error, FileNotFoundError):
                raise missing(url) from None
            if status in ("401", "403"):
                raise PermissionError(errno.EACCES, f"the bucket denied access with status {status}", url) from None
            raise OSError(errno.EIO, _brief(text, status), url) from None

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Returns the bytes from ``start`` to ``end`` of an object."""
        snapshot = self._covering(key)
        if snapshot is None or snapshot.status(key, self.url).st_size > _SMALL:
            return self.look(key, start, end)[0]
        if key not in snapshot.contents:
            snapshot.contents[key] = self.look(key)[0]
        return snapshot.contents[key][start:end]

    def look(self, key: str, start: int = 0, end: int | None = None) -> tuple[bytes, Status]:
        """Returns the bytes from ``start`` to ``end`` of the current version of an object, and its status."""
        with self._asking(key) as library:
            answer = library.get(self._store, key, options=None if end is None else {"range": (start, end)})
            data = bytes(answer.bytes())
        return data[start:] if end is None else data, _status(answer.meta)

    def head(self, key: str) -> Status:
        """Returns the status of an object."""
        if snapshot := self._covering(key):
            return snapshot.status(key, self.url)
        if not key:
            raise missing(self.url)
        with self._asking(key) as library:
            return _status(library.head(self._store, key))

    def now(self) -> float:
        """Returns the time by the server's clock, in seconds since 1970, as estimated by the last ``set_clock``."""
        return time.time() + self._ahead

    def set_clock(self, key: str) -> None:
        """Estimates the server's clock from an object that was just written."""
        self._ahead = self.head(key).st_mtime - time.time()

    def objects(self, folder: str, most: int = 1000) -> Iterator[tuple[str, Status]]:
        """Yields the key and status of each object below a folder. Requests list at most ``most`` objects at once."""
        if snapshot := self._covering(folder):
            yield from snapshot.below(folder)
            return
        with self._asking(folder) as library:
            for page in library.list(self._store, prefix=_prefix(folder) or None, chunk_size=most):
                for listed in page:
                    yield listed["path"], _status(listed)

    def entries(self, folder: str) -> list[Entry]:
        """Returns the objects and folders directly below a folder. Raises FileNotFoundError if it is empty."""
        prefix = _prefix(folder)
        if snapshot := self._covering(folder):
            content = {}
            for key, status in snapshot.below(folder):
                name, slash, _ = key.removeprefix(prefix).partition("/")
                content[name] = _folder(name) if slash else Entry(name, "file", *status)
            entries = [*content.values()]
        else:
            with self._asking(folder) as library:
                listed = library.list_with_delimiter(self._store, prefix=prefix or None)
            entries = [Entry(about["path"].rpartition("/")[2], "file", *_status(about)) for about in listed["objects"]]
            entries += [_folder(path.rpartition("/")[2]) for path in listed["common_prefixes"]]
        if not entries:
            raise missing(f"{self.url}/{folder}", "folder")
        return entries

    def put(self, key: str, data: Any) -> None:
        """Creates or replaces an object."""
        with self._asking(key) as library:
            library.put(self._store, key, data, mode="overwrite")
        self._record(key, Status(len(data), time.time()))

    def create(self, key: str, data: bytes) -> bool:
        """Creates an object. If another object has this key, leaves it unchanged and returns False."""
        failure = OSError(errno.EAGAIN, "the server answers that it exists, but it cannot be read", f"{self.url}/{key}")
        began, pause = time.monotonic(), _PAUSE
        while True:
            try:
                created = self._put_new(key, data) or self.look(key)[0] == data
                self._answered = True
            except FileNotFoundError:  # the object was being created by a request that failed
                pass
            except OSError as error:
                if error.errno in _FINAL:
                    raise
                failure = error
            else:
                if created:
                    self._record(key, Status(len(data), time.time()))
                return created
            if time.monotonic() - began > (PATIENCE_SECONDS if self._answered else FIRST_SECONDS):
                raise failure
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _put_new(self, key: str, data: bytes) -> bool:
        """Creates an object. Returns False if it exists or is being created by another request."""
        with self._asking(key) as library:
            try:
                library.put(self._once, key, data, mode="create", use_multipart=False)
            except (library.exceptions.AlreadyExistsError, library.exceptions.PreconditionError):
                return False
        return True

    def delete(self, key: str) -> None:
        """Deletes an object, if it exists."""
        with contextlib.suppress(FileNotFoundError), self._asking(key) as library:
            library.delete(self._store, key)
        self._record(key, None)

    @contextlib.contextmanager
    def snapshot(self, folder: str) -> Iterator[None]:
        """Returns a context in which a folder is listed only once. If contexts are nested, the outermost applies."""
        if self._snapshot is not None:
            yield
            return
        try:
            self._snapshot = _Snapshot(folder, self.objects(folder))
            yield
        finally:
            self._snapshot = None

    def refresh(self) -> None:
        """Lists the folder of the snapshot again, if there is one."""
        if self._snapshot is not None:
            folder, self._snapshot = self._snapshot.folder, None
            self._snapshot = _Snapshot(folder, self.objects(folder))

    def lacks(self, key: str) -> bool:
        """Returns whether an object is missing in a snapshot that covers it."""
        snapshot = self._covering(key)
        return snapshot is not None and key not in snapshot.objects

    def _covering(self, key: str) -> _Snapshot | None:
        """Returns the snapshot, if it covers an object or a folder."""
        return self._snapshot if self._snapshot is not None and self._snapshot.covers(key) else None

    def _record(self, key: str, status: Status | None) -> None:
        """Records a change by this process in the snapshot."""
        if snapshot := self._covering(key):
            snapshot.change(key, status)

    def fetch(self, keys: Iterable[str]) -> None:
        """Reads small objects of the snapshot concurrently."""
        snapshot = self._snapshot
        if snapshot is None:
            return
        from concurrent.futures import ThreadPoolExecutor

        objects = snapshot.objects
        small = [key for key in keys if key in objects and objects[key].st_size <= _SMALL]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.get, small))


_ALIASES = {"s3a": "s3", "azure": "az"}


def obstore() -> Any:
    """Returns the library, which is optional. Raises BadInput if it is not installed."""
    try:
        import obstore
        import obstore.store
    except ImportError:
        raise BadInput(f"stores in buckets need obstore. Install it with {_MISSING}.") from None
    return obstore


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


def missing(url: str, noun: str = "object") -> FileNotFoundError:
    """Returns the error for a missing object or folder."""
    return FileNotFoundError(errno.ENOENT, f"no such {noun}", url)


def _prefix(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _folder(name: str) -> Entry:
    return Entry(name, "folder", 0, 0.0)


def _status(about: Any) -> Status:
    return Status(about["size"], about["last_modified"].timestamp())
