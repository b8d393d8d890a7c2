"""The servers create an object only if it is absent, and the proxy before them disturbs it as the tests need."""

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from . import proxy
from .proxy import Faults, Proxy, refusal
from .servers import Server

obstore = pytest.importorskip("obstore")
pytestmark = pytest.mark.buckets

ONCE = {"retry_config": {"max_retries": 0}, "client_options": {"allow_http": True, "timeout": "20s"}}
Opened = Callable[[Server], Any]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens a new store on a server with obstore, which does not repeat requests."""

    def open_store(server: Server) -> Any:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        return obstore.store.from_url(server.store(secrets.token_hex(4)), **ONCE)

    return open_store


@pytest.fixture
def disturbed(server: Server, faults: Faults) -> Iterator[tuple[Proxy, Server]]:
    """A proxy before each server, and the server as it is reached through it."""
    with proxy.before(server.address, faults) as running:
        yield running, server.through(running.address)


def create(store: Any, key: str, data: bytes) -> bool:
    """Whether the object was created, or was there."""
    try:
        obstore.put(store, key, data, mode="create")
    except obstore.exceptions.AlreadyExistsError:
        return False
    return True


def read(store: Any, key: str) -> bytes:
    return bytes(obstore.get(store, key).bytes())


def keys(store: Any) -> list[str]:
    return sorted(each["path"] for chunk in obstore.list(store) for each in chunk)


def test_an_object_is_created_once(server: Server, opened: Opened) -> None:
    store = opened(server)
    assert create(store, "study/claim-1.json", b"first")
    assert not create(store, "study/claim-1.json", b"second")
    assert read(store, "study/claim-1.json") == b"first"


def test_one_of_sixteen_creates_it(server: Server, opened: Opened) -> None:
    store = opened(server)
    with ThreadPoolExecutor(16) as pool:
        for key in ("a/1", "a/2", "a/3"):
            won = list(pool.map(lambda i, key=key: create(store, key, b"%d" % i), range(16)))
            assert won.count(True) == 1
            assert read(store, key) == b"%d" % won.index(True)


def test_objects_are_listed_and_deleted_at_once(server: Server, opened: Opened) -> None:
    store = opened(server)
    for i in range(5):
        assert create(store, f"study/part-{i}.arrows", b"x" * i)
        assert keys(store) == [f"study/part-{j}.arrows" for j in range(i + 1)]
    found = [each for chunk in obstore.list(store) for each in chunk]
    assert [each["size"] for each in found] == list(range(5))
    assert all(each["last_modified"].tzinfo for each in found)
    obstore.delete(store, "study/part-0.arrows")
    assert "study/part-0.arrows" not in keys(store)


def test_an_answer_is_lost_after_the_write(disturbed: tuple[Proxy, Server], faults: Faults, opened: Opened) -> None:
    store = opened(disturbed[1])
    faults.lose = lambda request: request.number == 2
    assert create(store, "a", b"first")
    with pytest.raises(obstore.exceptions.GenericError):
        create(store, "b", b"second")
    assert (faults.lost, faults.counts["PUT"]) == (1, 2)
    assert read(store, "b") == b"second"
    assert not create(store, "b", b"third")


def test_requests_are_counted_and_answered(disturbed: tuple[Proxy, Server], faults: Faults, opened: Opened) -> None:
    store = opened(disturbed[1])
    assert create(store, "a", b"first")
    faults.answer = lambda request: refusal(403, "AccessDenied") if request.writes else None
    with pytest.raises(obstore.exceptions.PermissionDeniedError):
        create(store, "b", b"second")
    assert read(store, "a") == b"first"
    faults.answer = lambda request: refusal(409, "ConditionalRequestConflict") if request.method == "PUT" else None
    assert not create(store, "b", b"second")
    assert keys(store) == ["a"]
    faults.answer = lambda request: refusal(404, "NoSuchBucket")
    with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
        create(store, "b", b"second")
    assert faults.counts == {"PUT": 4, "GET": 2}


def test_the_network_goes_and_comes_back(disturbed: tuple[Proxy, Server], opened: Opened) -> None:
    store = opened(disturbed[1])
    assert create(store, "a", b"first")
    disturbed[0].refuse()
    with pytest.raises(obstore.exceptions.GenericError):
        create(store, "b", b"second")
    disturbed[0].listen()
    assert create(store, "b", b"second")
    assert keys(store) == ["a", "b"]


def test_without_its_condition_a_write_replaces_the_object(unsigned: Server, faults: Faults, opened: Opened) -> None:
    with proxy.before(unsigned.address, faults) as running:
        store = opened(unsigned.through(running.address))
        assert create(store, "a", b"first")
        assert not create(store, "a", b"second")
        faults.strip = True
        assert create(store, "a", b"third")
        assert (faults.stripped, read(store, "a")) == (1, b"third")
