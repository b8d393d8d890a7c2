"""Objects in a bucket in memory: paths, snapshots and locks."""

import contextlib
import errno
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings, strategies as st

from results import durable, store
from results.bad_input import BadInput
from results.file_systems import bucket, entry, liveness, lock, probe
from results.file_systems.lock import LOCK
from results.file_systems.path import BucketPath

NAMES = st.lists(st.sampled_from(["a", "b", "plan-1.json", "c.d"]), min_size=1, max_size=3).map("/".join)


def place() -> BucketPath:
    folder = durable.location(f"memory://{uuid.uuid4().hex}/store")
    assert isinstance(folder, BucketPath)
    return folder


def by_hand(objects: dict[str, bytes], folder: str) -> set[tuple[str, str, int]]:
    """The entries of a folder, from the paths of all objects."""
    found = set()
    for path, data in objects.items():
        parts, start = PurePosixPath(path).parts, PurePosixPath(folder).parts
        if parts[: len(start)] == start and len(parts) > len(start):
            name, *below = parts[len(start) :]
            found.add((name, "folder", 0) if below else (name, "file", len(data)))
    return found


def listed(folder: BucketPath) -> set[tuple[str, str, int]]:
    try:
        return {entry[:3] for entry in durable.system(folder).entries(folder)}
    except FileNotFoundError:
        return set()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, st.booleans(), st.binary(max_size=3)), max_size=12), st.integers(0, 12))
def test_a_snapshot_with_own_changes_equals_what_is_there(changes: list[tuple[str, bool, bytes]], at: int) -> None:
    """Objects are created and deleted, the first ones before the snapshot; then everything is read by all ways."""
    store, objects = place(), dict[str, bytes]()

    def run(some: list[tuple[str, bool, bytes]]) -> None:
        for name, is_deleted, data in some:
            if any(name != other and (f"{other}/").startswith(f"{name}/") for other in objects):
                continue  # a name is either a file or a folder
            if any(name != other and name.startswith(f"{other}/") for other in objects):
                continue
            if is_deleted:
                (store / name).unlink(missing_ok=True)
                objects.pop(name, None)
            else:
                assert durable.create(store / name, data) == (name not in objects or objects[name] == data)
                objects.setdefault(name, data)

    run(changes[:at])
    with durable.system(store).snapshot(store):
        run(changes[at:])
        _check(store, objects)
    _check(store, objects)


def _check(store: BucketPath, objects: dict[str, bytes]) -> None:
    folders = {"", *(str(parent) for name in objects for parent in PurePosixPath(name).parents if str(parent) != ".")}
    for folder in folders:
        assert listed(store / folder) == by_hand(objects, folder)
        assert (store / folder).is_dir() == bool(by_hand(objects, folder))
    for name, data in objects.items():
        assert (store / name).read_bytes() == data
        assert durable.system(store).read(store / name, 2) == data[:2]
        assert (store / name).stat().st_size == len(data)
        with (store / name).open() as file:
            file.seek(-min(2, len(data)), os.SEEK_END)
            assert file.read() == data[-2:]
    assert {str(path) for path in store.glob("*/plan-*.json")} == {
        f"{store}/{name}" for name in objects if name.count("/") == 1 and name.endswith("/plan-1.json")
    }
    with pytest.raises(FileNotFoundError):
        (store / "missing").read_bytes()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://host/folder", "cannot be opened"),
        ("s3://key:secret@bucket/store", "contains credentials"),
        ("az://container/store?sig=secret", "contains credentials"),
        ("s3://", "has no bucket"),
        ("gs://bucket/a#secret", "contains a #, which names of folders in buckets cannot have here"),
        ("gs://bucket/a/../b", "has a name that objects in buckets cannot have"),
        ("gs://bucket/./a", "has a name that objects in buckets cannot have"),
        ("memory://bucket/..", "has a name that objects in buckets cannot have"),
        ("s3://bucket/a\x00b", "has a name that objects in buckets cannot have"),
    ],
)
def test_invalid_store_url_is_one_line_without_its_secret(url: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        durable.location(url)
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_listing_that_comes_late_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: bucket.Bucket, key: str) -> list[object]:
        raise FileNotFoundError(errno.ENOENT, "no such folder", key)

    monkeypatch.setattr(bucket.Bucket, "entries", nothing)
    with pytest.raises(BadInput, match="the server does not list new objects at once"):
        probe.check(place())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lock, "RENEW_SECONDS", 0.02)


@contextlib.contextmanager
def held_elsewhere(folder: BucketPath, holder: dict) -> Iterator[None]:
    """Writes a lock as a process on another machine, or a process that is gone."""
    durable.replace(folder / LOCK, json.dumps({"token": "theirs"} | holder).encode())
    yield
    assert not (folder / LOCK).exists()  # whoever held it afterwards has released it


def test_one_process_at_a_time_holds_a_lock(quick: None) -> None:
    folder, inside, most = place() / "study", list[int](), list[int]()

    def work() -> None:
        with durable.system(folder).lock(folder):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.05)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]
    assert not durable.system(folder).is_locked(folder)


def test_the_lock_of_a_process_that_is_gone_is_taken_at_once(quick: None) -> None:
    folder = place() / "study"
    child = subprocess.Popen(["true"])
    child.wait()
    with held_elsewhere(folder, liveness.identity() | {"pid": child.pid}), durable.system(folder).lock(folder):
        assert durable.system(folder).is_locked(folder)


def test_lock_of_another_machine_expires_if_not_renewed(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place() / "study"
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.5)
    holder = {"host": "elsewhere", "numbering": "", "pid": os.getpid()}
    renewed = threading.Event()

    def renew() -> None:
        for _ in range(20):
            durable.replace(folder / LOCK, json.dumps({"token": "theirs"} | holder).encode())
            time.sleep(0.1)
        renewed.set()

    with held_elsewhere(folder, holder):
        thread = threading.Thread(target=renew)
        thread.start()
        with durable.system(folder).lock(folder):
            assert renewed.is_set()
        thread.join()


def test_clocks_that_differ_do_not_make_a_leftover(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place() / "study"
    durable.replace(folder / f"{entry.TEMPORARY}file", b"written just now")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3 * 24 * 3600)
    with durable.system(folder).lock(folder):
        assert not durable.is_leftover(folder / f"{entry.TEMPORARY}file")
    folder.bucket._ahead = 0.0
    assert durable.is_leftover(folder / f"{entry.TEMPORARY}file")


def test_a_folder_whose_last_object_was_just_removed_is_empty() -> None:
    """Another host that opens the same new store removes the objects of its probe."""
    folder = place()
    durable.create(folder / ".tmp-probe", b"1")
    assert folder.is_dir()
    (folder / ".tmp-probe").unlink()
    assert list(folder.iterdir()) == []
    assert store.committed(folder) == []
