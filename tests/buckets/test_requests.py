"""Requests cost money and time: how many a sweep and a status need, counted by the proxy."""

from pathlib import Path

import pytest

from results import exit_codes

from . import proxy, stores
from .proxy import Faults, Request
from .servers import Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.buckets
STUDIES = 1000


def test_a_sweep_writes_twelve_objects_a_study(server: Server, faults: Faults) -> None:
    written: list[Request] = []
    faults.answer = lambda request: written.append(request) if request.method == "PUT" else None
    with proxy.before(server.address, faults) as running:
        url = server.store("counted")
        ended = stores.run(["sweeps", *stores.FORTY, f"store={url}"], server.through(running.address))
    assert ended.returncode == exit_codes.DONE, ended.stderr
    checkpoints = sum("checkpoint" in request.target for request in written)
    print(server.name, faults.counts, checkpoints, "checkpoints")
    assert len(stores.keys(server, url)) >= 40
    assert len(written) <= 12 * 40 + checkpoints


@pytest.mark.parametrize("server", ["seaweedfs"], indirect=True)
def test_status_of_a_thousand_studies(server: Server, faults: Faults, tmp_path: Path) -> None:
    url = stores.upload(stores.many(tmp_path / "store", STUDIES), server, server.store("thousand"))
    with proxy.before(server.address, faults) as running:
        ended = stores.run(["sweeps.status", f"store={url}", "--csv"], server.through(running.address))
    assert ended.returncode == exit_codes.DONE, ended.stderr
    assert ended.stdout.count(",done,") == STUDIES
    print(server.name, faults.counts)
    assert faults.counts.total() <= 2100
