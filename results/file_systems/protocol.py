"""The operations that stores need from a file system. A store is in a local folder or in a bucket."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from results.aliases import Callback

if TYPE_CHECKING:
    import pyarrow as pa

TEMPORARY = ".tmp-"  # prefix of the names of unfinished files


class Entry(NamedTuple):
    """An entry in a folder.

    Attributes:
      name: name within the folder.
      kind: file, folder, link or device (anything else).
      bytes: size in bytes.
      modified: time of the last write in seconds since 1970, by the clock of the file system.
    """

    name: str
    kind: str
    bytes: int
    modified: float


class FileSystem(Protocol):
    """Operations on files. Paths are ``Path`` or ``BucketPath``, depending on the file system.

    Failed operations raise OSError. A missing file raises FileNotFoundError.

    Attributes:
      is_local: whether files are on this machine, or on a disk that it mounts.
      heartbeat_seconds: time between two heartbeats of a study.
      fresh_seconds: age of a heartbeat above which its process may have ended.
    """

    is_local: bool
    heartbeat_seconds: float
    fresh_seconds: float

    def within(self, folder: Any, *names: str) -> Any:
        """Returns a path within a folder for ``read`` and ``names``. Local paths are strings, since ``/`` is slower."""

    def create(self, path: Any, data: bytes | memoryview) -> bool:
        """Creates a file atomically and durably. If another file has this name, keeps it and returns False."""

    def replace(self, path: Any, pieces: Sequence[bytes | memoryview], check: Callback) -> None:
        """Creates a file, or replaces it atomically. Calls ``check`` first, which can raise to keep the old file."""

    def post(self, path: Any, data: bytes) -> None:
        """Replaces a file without flushing it to disk, because it is not needed after a crash."""

    def peek(self, path: Any, most: int) -> tuple[bytes, float]:
        """Returns the first bytes of a regular file, and its time (in seconds since 1970). Does not follow links."""

    def delete(self, path: Any) -> None:
        """Deletes a file, if it exists."""

    def read(self, path: Any, most: int | None = None) -> bytes:
        """Returns the content of a regular file, or its first ``most`` bytes."""

    def buffer(self, path: Any) -> "pa.Buffer":
        """Returns the content of a file as a buffer. A local file is mapped into memory."""

    def irregular(self, path: Any) -> bool:
        """Returns whether a path exists but is not a regular file. Reading a pipe, for example, would block."""

    def names(self, folder: Any) -> list[str]:
        """Returns the names in a folder. Raises FileNotFoundError or NotADirectoryError."""

    def entries(self, folder: Any) -> list[Entry]:
        """Returns the entries of a folder. Raises FileNotFoundError or NotADirectoryError."""

    def walk(self, root: Any, on_link: Callable[[Any], None], on_error: Callable[[OSError], None]) -> Iterator[Any]:
        """Yields (folder, sorted names of its files) for each folder at and below ``root``, without following links."""

    def make_folder(self, folder: Any) -> None:
        """Creates a folder and its parents durably."""

    def new_folder(self, path: Any) -> AbstractContextManager[Any]:
        """Returns a context that yields a folder to fill. At the end, the folder is named ``path``."""

    def is_leftover(self, path: Any) -> bool:
        """Returns whether a file is so old that its writer must have ended."""

    def lock(self, folder: Any) -> AbstractContextManager[None]:
        """Returns a context that waits for other processes to release the lock of a folder, then holds it."""

    def is_locked(self, folder: Any) -> bool:
        """Returns whether a live process holds the lock of a folder."""

    def check_writable(self, store: Any) -> None:
        """Raises BadInput unless files can be created atomically in a store (which may be missing). Leaves no files."""

    def snapshot(self, store: Any) -> AbstractContextManager[None]:
        """Returns a context in which a store in a bucket is listed only once, and small files are read only once."""

    def fetch(self, paths: Iterable[Any]) -> None:
        """Prefetches small objects of a ``snapshot`` concurrently. Does nothing for local files."""
