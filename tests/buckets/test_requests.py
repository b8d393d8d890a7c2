"""Requests cost money and time: how many a sweep and a status need, counted by the proxy."""

import dataclasses
import os
from pathlib import Path
from types import ModuleType

import pytest

from results import exit_codes

from . import proxy, stores
from .proxy import Faults, Request
from .servers import Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.buckets
STUDIES = 1000


@pytest.fixture(scope="module")
def thousand(writer: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand tiny studies in a folder."""
    folder = tmp_path_factory.mktemp("thousand") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        for seed in range(STUDIES):
            writer.replay(folder, dataclasses.replace(writer.study_of("off", 2), seed=seed))
    return folder


def test_a_sweep_needs_twelve_writes_a_study(server: Server, faults: Faults) -> None:
    written: list[Request] = []
    faults.answer = lambda request: written.append(request) if request.writes else None
    with proxy.before(server.address, faults) as running:
        url = server.store("counted")
        ended = stores.run(["sweeps", *stores.FORTY, f"store={url}"], server.through(running.address))
    assert ended.returncode == exit_codes.DONE, ended.stderr
    checkpoints = sum("checkpoint" in request.target for request in written)
    print(server.name, faults.counts, checkpoints, "checkpoints")
    assert len(stores.keys(server, url)) >= 40
    assert len(written) <= 12 * 40 + checkpoints


@pytest.mark.parametrize("server", ["seaweedfs", "azurite"], indirect=True)
def test_status_of_a_thousand_studies(server: Server, faults: Faults, thousand: Path) -> None:
    url = stores.upload(thousand, server, server.store("thousand"))
    with proxy.before(server.address, faults) as running:
        ended = stores.run(["sweeps.status", f"store={url}", "--csv"], server.through(running.address))
    assert ended.returncode == exit_codes.DONE, ended.stderr
    assert ended.stdout.count(",done,") == STUDIES
    print(server.name, faults.counts)
    assert faults.counts.total() <= 2100
