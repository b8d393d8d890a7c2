"""Files in buckets, with the operations of local files."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from results.aliases import Callback
from results.bad_input import BadInput
from results.file_systems import lock, probe
from results.file_systems.bucket import missing
from results.file_systems.entry import Entry
from results.file_systems.path import BucketPath

LEFTOVER_SECONDS = 24 * 3600


class BucketFiles:
    """Objects in buckets. See ``results.file_systems.local.LocalFiles`` for the operations."""

    is_local = False
    heartbeat_seconds = 30.0
    fresh_seconds = 100.0

    def within(self, folder: Any, *names: str) -> BucketPath:
        return folder / "/".join(names)

    def create(self, path: Any, data: bytes | memoryview) -> bool:
        return path.bucket.create(path.key, bytes(data))

    def replace(
        self, path: Any, pieces: Sequence[bytes | memoryview], check: Callback = lambda: None, *, durable: bool = True
    ) -> None:
        check()
        path.bucket.put(path.key, b"".join(pieces))

    def peek(self, path: Any, most: int, *, at_end: bool = False) -> tuple[bytes, float]:
        if path.bucket.lacks(path.key):
            raise missing(str(path))
        data, status = path.bucket.look(path.key)
        return data[-most:] if at_end else data[:most], status.st_mtime

    def read(self, path: Any, most: int | None = None) -> bytes:
        if most is None:
            return path.read_bytes()
        size = min(path.stat().st_size, most)  # servers reject a range of an empty object
        return path.bucket.get(path.key, 0, size) if size else b""

    def names(self, folder: Any) -> list[str]:
        return [entry.name for entry in folder.bucket.entries(folder.key)]

    def entries(self, folder: Any) -> list[Entry]:
        return folder.bucket.entries(folder.key)

    def make_folder(self, folder: Any) -> None:
        pass  # it exists as soon as there is an object in it

    @contextlib.contextmanager
    def new_folder(self, path: Any) -> Iterator[BucketPath]:
        yield path  # the object that makes a release visible is written last

    def is_leftover(self, path: Any) -> bool:
        try:
            return path.bucket.now() - path.stat().st_mtime > LEFTOVER_SECONDS
        except FileNotFoundError:
            return False

    def lock(self, folder: Any) -> AbstractContextManager[None]:
        return lock.held(folder / lock.LOCK)

    def is_locked(self, folder: Any) -> bool:
        return lock.is_held(folder / lock.LOCK)

    def check_writable(self, store: Any) -> None:
        if store.bucket.url.startswith("http"):
            raise BadInput(f"store={store} can only be read. Use gs://, s3:// or az://.")
        probe.check(store)

    def snapshot(self, store: Any) -> AbstractContextManager[None]:
        return store.bucket.snapshot(store.key)

    def fetch(self, paths: Iterable[Any]) -> None:
        wanted = list(paths)
        for bucket in {path.bucket for path in wanted}:
            bucket.fetch(path.key for path in wanted if path.bucket is bucket)


BUCKETS = BucketFiles()
