"""Sweeps into a bucket: killed, with answers that are lost, and without the bucket; every study is stored once."""

import contextlib
import json
import time
from pathlib import Path

import pytest

from results import exit_codes, store

from ..same import assert_same
from . import proxy, stores
from .proxy import Faults, refusal
from .servers import Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.buckets
TRIALS = 2
KILLS = (40, 90, 150, 220)  # after this number of writes, in turn one of the two sweeps


def check(server: Server, url: str, folder: Path, alone: Path) -> None:
    """The store is whole, and holds what one sweep into a folder has stored."""
    verified = stores.run(["results", "verify", "--store", url], server)
    assert verified.returncode == exit_codes.DONE, verified.stdout + verified.stderr
    copy = stores.download(server, url, folder)
    trials = store.read(copy).trials
    assert len(trials) == 40 * TRIALS
    assert not trials.duplicated(["study", "trial"]).any()
    assert_same(copy, alone)


def test_two_killed_sweeps_store_every_study_once(server: Server, faults: Faults, tmp_path: Path, forty: Path) -> None:
    url = server.store("forty")
    words = [*stores.FORTY, f"store={url}"]
    faults.lose = lambda request: request.number % 7 == 3
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    kills = 0
    with proxy.before(server.address, faults) as running, contextlib.ExitStack() as stack:
        disturbed = server.through(running.address)
        sweeps = [stack.enter_context(stores.sweeping(words, disturbed, log)) for log in logs]
        deadline = time.monotonic() + stores.SECONDS
        for i, writes in enumerate(KILLS):
            one = sweeps[i % 2]
            while running.writes < writes and any(each.poll() is None for each in sweeps):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if one.poll() is None:
                kills += 1
            stores.kill(one)
            sweeps[i % 2] = stack.enter_context(stores.sweeping(words, disturbed, logs[i % 2]))
        for one in sweeps:
            one.wait(timeout=stores.SECONDS)
        told = [log.read_text() for log in logs]
        for one, text in zip(sweeps, told, strict=True):  # a sweep whose study another one took reports it
            assert one.returncode == exit_codes.DONE or "taken over" in text, text
            assert "Traceback" not in text and "called from" not in text, text
        last = stores.run(["sweeps", *words], disturbed)
        assert last.returncode == exit_codes.DONE, last.stdout + last.stderr
    assert kills >= 2 and faults.lost >= 20, (kills, faults.lost)
    check(server, url, tmp_path / "copy", forty)


def test_bucket_that_disappears_loses_nothing_confirmed(
    server: Server, faults: Faults, tmp_path: Path, forty: Path
) -> None:
    url = server.store("gone")
    words = [*stores.FORTY, f"store={url}"]
    faults.answer = lambda request: refusal(404, "NoSuchBucket") if request.number > 150 else None
    with proxy.before(server.address, faults) as running:
        disturbed = server.through(running.address)
        ended = stores.run(["sweeps", *words], disturbed)
        assert ended.returncode == exit_codes.INVALID, ended.stdout + ended.stderr
        lines = [line for line in ended.stderr.splitlines() if line.startswith("error")]
        assert len(lines) == 1 and "bucket" in lines[0], ended.stderr
        assert "Traceback" not in ended.stderr and "Debug source" not in ended.stderr, ended.stderr
        confirmed = store.read(stores.download(server, url, tmp_path / "before")).trials
        faults.answer = lambda request: None
        again = stores.run(["sweeps", *words, "--json"], disturbed)
    assert again.returncode == exit_codes.DONE, again.stdout + again.stderr
    assert 0 < len(confirmed) < 40 * TRIALS
    assert sum(row["ran"] for row in json.loads(again.stdout)) <= 40 * TRIALS - len(confirmed)
    check(server, url, tmp_path / "copy", forty)
