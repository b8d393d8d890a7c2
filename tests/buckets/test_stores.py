"""A writer of a study into a bucket: without any one answer, without the bucket from any write on, or four at once."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from results import durable, store
from results.checks import verify

from ..attack import writer
from . import proxy, stores
from .proxy import Faults, Proxy, refusal
from .servers import Server

pytest.importorskip("obstore")
from results.file_systems import lock, path

pytestmark = pytest.mark.buckets
STUDY = writer.study_of("off", 6)
MOST = 40  # writes of one study
Opened = Callable[[str], Any]


@pytest.fixture
def running(server: Server, faults: Faults) -> Iterator[Proxy]:
    with proxy.before(server.address, faults) as one:
        yield one


@pytest.fixture
def opened(server: Server, running: Proxy, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens a store of this name through the proxy, as a process does that has just begun."""
    for name, value in server.through(running.address).environment.items():
        monkeypatch.setenv(name, value)

    def open_store(name: str) -> Any:
        monkeypatch.setattr(path, "_BUCKETS", {})
        return durable.location(server.store(name))

    return open_store


def check(folder: Any) -> None:
    """The study is there once, and whole."""
    assert writer.unlike(folder, STUDY) == []
    assert verify.run(folder, print) == 0
    assert store.names(folder) == [STUDY.name]


def test_without_any_one_answer_the_study_is_stored_once(opened: Opened, running: Proxy, faults: Faults) -> None:
    for place in range(1, MOST):
        folder, before = opened(f"answer-{place}"), running.writes
        faults.lose = lambda request, lost=before + place: request.number == lost
        lost = faults.lost
        writer.replay(folder, STUDY)
        faults.lose = lambda request: False
        check(folder)
        claims = [name for name in durable.system(folder).names(folder / STUDY.name) if name.startswith("claim")]
        assert len(claims) == 2, place  # the study, and its commit
        if faults.lost == lost:
            break
    assert 10 < place < MOST - 1


def test_without_every_other_answer_the_study_is_stored_once(opened: Opened, faults: Faults) -> None:
    folder = opened("others")
    faults.lose = lambda request: request.number % 2 == 0
    writer.replay(folder, STUDY)
    check(folder)
    assert faults.lost > 5


def test_lost_bucket_loses_nothing_that_was_confirmed(
    opened: Opened, running: Proxy, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RENEW_SECONDS", "STALE_SECONDS", "_LOOK_SECONDS"):  # the lock remains, and this process is alive
        monkeypatch.setattr(lock, name, 0.1)
    for place in range(1, MOST):
        name, last = f"gone-{place}", running.writes + place
        faults.answer = lambda request, last=last: (
            refusal(404, "NoSuchBucket") if request.number >= last else None  # reads are numbered like the last write
        )
        confirmed: set[int] = set()
        try:
            write(opened(name), confirmed)
            ended = True
        except OSError:
            ended = False
        faults.answer = lambda request: None
        folder = opened(name)
        store.ask(folder, STUDY)
        with store.claim(folder, STUDY.name) as claim:
            assert confirmed <= set(claim.settled)
        writer.replay(folder, STUDY)
        check(folder)
        if ended:
            break
    assert 10 < place < MOST - 1


def write(folder: Any, confirmed: set[int]) -> None:
    """Writes the study, and adds to the trials that were confirmed."""
    store.ask(folder, STUDY)
    with store.claim(folder, STUDY.name) as claim:
        for i in range(0, STUDY.trials, 2):
            claim.write(writer.tables(STUDY, [i, i + 1]))
            confirmed |= {i, i + 1}
        claim.commit(STUDY)


def test_four_writers_without_the_lock_store_every_trial_once(opened: Opened, faults: Faults) -> None:
    folder = opened("four")
    store.ask(folder, STUDY)
    faults.lose = lambda request: request.number % 5 == 0
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(writer.insist, folder, STUDY, attempt, rest) for attempt in range(4)]
        for each in futures:
            each.result(timeout=stores.SECONDS)
    check(folder)


def rest() -> None:
    time.sleep(0.05)


def test_writers_that_wait_for_the_lock_write_once(opened: Opened) -> None:
    folder = opened("waiting")
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(writer.replay, folder, STUDY, attempt) for attempt in range(4)]:
            each.result(timeout=stores.SECONDS)
    check(folder)


def test_a_conflict_is_no_winner(opened: Opened, faults: Faults) -> None:
    """S3 answers 409 to a write while another one of the same name is in flight, which may fail."""
    folder = opened("conflict")
    conflicts = iter([True] * 3)
    faults.answer = lambda request: (
        refusal(409, "ConditionalRequestConflict") if request.conditional and next(conflicts, False) else None
    )
    assert durable.create(folder / "study" / "claim-000001.json", b"ours")
    assert durable.read(folder / "study" / "claim-000001.json") == b"ours"
    assert not durable.create(folder / "study" / "claim-000001.json", b"theirs")
