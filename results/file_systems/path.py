"""Paths of objects and folders in buckets: gs://, s3:// and az://, and memory:// (within a process)."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from results.bad_input import BadInput
from results.file_systems.bucket import Bucket, Status, obstore

SCHEMES = ("gs", "s3", "s3a", "az", "azure", "abfs", "abfss", "memory", "http", "https")
_CHUNK = 1 << 20  # bytes read at once from a large object


class BucketPath:
    """The path of an object or of a folder (a common prefix of objects). It can be used like a ``Path``.

    Args:
      bucket: the bucket.
      key: path of the object within the bucket, without leading or trailing slashes.
    """

    def __init__(self, bucket: Bucket, key: str):
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
    def parts(self) -> tuple[str, ...]:
        return PurePosixPath(self.key).parts

    @property
    def parent(self) -> "BucketPath":
        return BucketPath(self.bucket, self.key.rpartition("/")[0])

    @property
    def parents(self) -> list["BucketPath"]:
        return [self.parent, *self.parent.parents] if self.key else []

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

    def stat(self) -> Status:
        return self.bucket.head(self.key)

    def is_file(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        return any(self.bucket.objects(self.key, most=1))

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
        for key in sorted(key for key, _ in self.bucket.objects(self.key)):
            if key.count("/", start) == depth and PurePosixPath(key[start:]).match(pattern):
                yield BucketPath(self.bucket, key)

    def write_bytes(self, data: bytes) -> None:
        self.bucket.put(self.key, data)

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
    obstore()  # raises if it is not installed
    root = f"{parts.scheme}://{parts.netloc}"
    bucket = _BUCKETS.setdefault(root, Bucket(root))
    return BucketPath(bucket, "/".join(names))


def refresh() -> None:
    """Lists the folders of all snapshots again after a listed object turned out to be missing."""
    for bucket in _BUCKETS.values():
        bucket.refresh()
