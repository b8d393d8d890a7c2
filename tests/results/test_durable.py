import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from results import durable, store
from results.durable import Damaged
from results.file_systems import local
from results.storage import claims

from ..attack.moments import Watched


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What was asked of the system, in order: opens, writes, flushes, links and removals, with what they were of."""
    made: list[tuple[str, ...]] = []
    names: dict[int, str] = {}

    def watched(name: str, function: Callable) -> Callable:
        def call(*args: Any, **options: Any) -> Any:
            made.append((name, *[names.get(arg, "?") if isinstance(arg, int) else Path(arg).name for arg in args]))
            return function(*args, **options)

        return call

    def opened_file(path: Path, mode: str) -> Watched:
        made.append(("open", path.name, mode))
        file = open(path, mode)  # noqa: SIM115 (closed by Watched)
        names[file.fileno()] = path.name
        return Watched(file, write)

    def write(file: IO[bytes], data: bytes) -> None:
        made.append(("write", data.decode()))
        file.write(data)

    opened = os.open

    def open_folder(path: Path, flags: int) -> int:
        handle = opened(path, flags)
        names[handle] = Path(path).name
        return handle

    monkeypatch.setattr(local, "open", opened_file, raising=False)
    monkeypatch.setattr(os, "open", open_folder)
    for name in ("fsync", "link", "rename", "unlink"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    return made


def test_file_is_on_disk_before_its_name_is_reported(tmp_path: Path, calls: list[tuple[str, ...]]) -> None:
    assert durable.create(tmp_path / "record", b"all of it")
    temporary = calls[0][1]
    assert temporary.startswith(durable.TEMPORARY)
    assert calls == [
        ("open", temporary, "xb"),
        ("write", "all of it"),
        ("fsync", temporary),
        ("link", temporary, "record"),
        ("unlink", temporary),
        ("fsync", tmp_path.name),
    ]
    assert (tmp_path / "record").read_bytes() == b"all of it"


def test_a_name_is_taken_once(tmp_path: Path, calls: list[tuple[str, ...]]) -> None:
    assert durable.create(tmp_path / "record", b"first")
    assert not durable.create(tmp_path / "record", b"second")
    assert (tmp_path / "record").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["record"]
    remote = durable.location(f"memory://{tmp_path.name}/record")
    assert durable.create(remote, b"first")
    assert not durable.create(remote, b"second")
    assert remote.read_bytes() == b"first"


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    won: list[int] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        if durable.create(tmp_path / "record", str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(number) for number in won] == [(tmp_path / "record").read_text()]


def test_a_link_whose_answer_was_lost_has_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def linked_and_told_otherwise(source: Path, path: Path) -> None:
        link(source, path)
        raise FileExistsError

    monkeypatch.setattr(os, "link", linked_and_told_otherwise)
    assert durable.create(tmp_path / "record", b"ours")
    (tmp_path / "taken").write_bytes(b"theirs")
    monkeypatch.setattr(os, "link", link)
    assert not durable.create(tmp_path / "taken", b"ours")
    assert (tmp_path / "taken").read_bytes() == b"theirs"


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        durable.create(tmp_path / "record", b"all of it")
    assert list(tmp_path.iterdir()) == []


def test_a_file_takes_the_place_of_another_once_it_is_on_disk(tmp_path: Path, calls: list[tuple[str, ...]]) -> None:
    (tmp_path / "page").write_bytes(b"the one before")
    durable.replace(tmp_path / "page", b"all ", b"of it")
    temporary = calls[0][1]
    assert temporary.startswith(durable.TEMPORARY)
    assert [call for call in calls if call[0] != "unlink"] == [
        ("open", temporary, "xb"),
        ("write", "all "),
        ("write", "of it"),
        ("fsync", temporary),
        ("rename", temporary, "page"),
        ("fsync", tmp_path.name),
    ]
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("page", b"all of it")]


def test_a_folder_takes_its_name_once_it_is_on_disk(tmp_path: Path, calls: list[tuple[str, ...]]) -> None:
    with durable.new_folder(tmp_path / "release") as folder:
        durable.create(folder / "file", b"all of it")
        assert not (tmp_path / "release").exists()
    assert calls[-3:] == [("fsync", folder.name), ("rename", folder.name, "release"), ("fsync", tmp_path.name)]
    assert (tmp_path / "release" / "file").read_bytes() == b"all of it"
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_unfinished_folder_and_old_one_of_its_name_are_gone(tmp_path: Path) -> None:
    left = [tmp_path / f"{durable.TEMPORARY}{name}-{age}" for name in ("release", "other") for age in ("old", "young")]
    for folder in left:
        folder.mkdir()
        if folder.name.endswith("old"):
            os.utime(folder, (0, 0))
    with contextlib.suppress(ZeroDivisionError), durable.new_folder(tmp_path / "release") as folder:
        durable.create(folder / "file", b"half of it")
        raise ZeroDivisionError
    assert sorted(tmp_path.iterdir()) == sorted(left[1:])


def test_a_folder_takes_no_name_from_another(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not empty"), durable.new_folder(tmp_path / "release") as folder:
        durable.make_folder(tmp_path / "release" / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["release"]
    assert not folder.exists()


def test_folders_are_on_disk_before_what_is_in_them(tmp_path: Path, calls: list[tuple[str, ...]]) -> None:
    durable.make_folder(tmp_path / "a" / "b")
    assert calls == [("fsync", tmp_path.name), ("fsync", "a")]
    durable.make_folder(tmp_path / "a" / "b")
    assert len(calls) == 2


def test_temporary_files_go_by_age_alone(tmp_path: Path) -> None:
    study = tmp_path / "study"
    study.mkdir()
    for name, age in (("old", durable.LEFTOVER_SECONDS + 60), ("young", durable.LEFTOVER_SECONDS - 60)):
        (study / f"{durable.TEMPORARY}{name}").touch()
        os.utime(study / f"{durable.TEMPORARY}{name}", (time.time() - age,) * 2)
    claims.remove_leftovers(study)
    assert [path.name for path in study.iterdir()] == [f"{durable.TEMPORARY}young"]
    with store.claim(tmp_path, "study"):
        assert (study / f"{durable.TEMPORARY}young").exists()


RECORDS = [{"a": 1}, {"text": "Größe \ud800 \x00", "list": [None, True, 1.5, {"b": []}]}, {"n": 10**30}]


@pytest.mark.parametrize("record", RECORDS)
def test_sealed_record_returns_and_changed_bytes_are_noticed(record: dict[str, Any]) -> None:
    data = durable.seal(record)
    assert durable.unseal(data, Path("record")) == record
    assert json.loads(data)["sha256"]
    for i in range(len(data)):
        for other in ({data[i] ^ 1, data[i] ^ 32, 0x20, 0x0A} - {data[i]}) if len(data) < 400 else ():
            with pytest.raises(Damaged):
                durable.unseal(data[:i] + bytes([other]) + data[i + 1 :], Path("record"))
    for bad in (data + b"\n", data[:-1], b" " + data, b"", b"[" * 100_000, b"[]", b"1", b'{"sha256": 1}', b"\xff"):
        with pytest.raises(Damaged, match="record is not what was written"):
            durable.unseal(bad, Path("record"))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(), PLAIN, min_size=1))
def test_records_are_json_as_the_standard_library_indents_it(record: dict[str, Any]) -> None:
    record.pop("sha256", None)
    sealed = durable.seal(record | {"a": 0})
    indented = json.dumps(record | {"a": 0}, indent=1, sort_keys=True)
    assert sealed.decode().startswith(indented[:-2] + ',\n "sha256": "')


def test_file_removed_while_read_is_missing_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever misses a merged part looks again; whoever took it for damaged would stop."""
    path = tmp_path / "part"
    path.write_bytes(b"x")
    stat = Path.stat

    def seen(self: Path, **options: Any) -> os.stat_result:
        found = stat(self, **options)
        self.unlink()
        return found

    monkeypatch.setattr(Path, "stat", seen)
    with pytest.raises(FileNotFoundError):
        durable.read(path)


def test_a_temporary_file_that_somebody_removes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody whose clock is days off takes it for that of a killed process."""
    link, removed = os.link, []

    def late(source: Path, path: Path) -> None:
        if len(removed) < 3:
            os.utime(source, (0, 0))
            claims.remove_leftovers(tmp_path)
            removed.append(source)
        link(source, path)

    monkeypatch.setattr(os, "link", late)
    assert durable.create(tmp_path / "record", b"all of it")
    assert len(set(removed)) == 3
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"record": b"all of it"}


def test_a_folder_that_somebody_removes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def too_late(source: Path, path: Path) -> None:
        shutil.rmtree(path.parent)
        link(source, path)

    monkeypatch.setattr(os, "link", too_late)
    (tmp_path / "study").mkdir()
    with pytest.raises(FileNotFoundError):
        durable.create(tmp_path / "study" / "record", b"all of it")


def test_a_record_of_any_depth_is_damaged_and_no_traceback() -> None:
    def nested(depth: int) -> Any:
        return [] if depth == 1 else [nested(depth - 1)]

    deepest = {"a": nested(durable.MOST_DEPTH - 1)}
    assert durable.unseal(durable.seal(deepest), Path("record")) == deepest
    with pytest.raises(Damaged, match="is not what was written"):
        durable.unseal(durable.seal({"a": nested(durable.MOST_DEPTH)}), Path("record"))
    for depth in (400, 900, 5000, 200_000):
        with pytest.raises(Damaged, match="is not what was written"):
            durable.unseal(b'{"a": ' + b"[" * depth + b"]" * depth + b"}", Path("record"))


def test_a_url_of_a_local_file_is_a_local_path(tmp_path: Path) -> None:
    """What is done for local folders, such as to follow no link, is done for these."""
    assert durable.location(f"file://{tmp_path}") == tmp_path
    assert not isinstance(durable.location("memory://x"), Path)
