"""What tests of buckets share: each server, started once, and a proxy before it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from results import exit_codes
from sweeps import __main__ as sweeps_cli

from . import proxy, servers, stores

OF_CLOUDS = ("AWS_", "GOOGLE_", "AZURE_")


@pytest.fixture(autouse=True)
def _no_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the settings of clouds from the environment, so that requests reach the servers of the tests only."""
    for name in os.environ:
        if name.startswith(OF_CLOUDS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session", params=servers.SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """Each server, which is shared by all tests. A test uses a store of its own."""
    with servers.SERVERS[request.param]() as running:
        yield running


@pytest.fixture(scope="session", params=servers.UNSIGNED)
def unsigned(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """Each server, such that a proxy can change requests."""
    with servers.UNSIGNED[request.param]() as running:
        yield running


@pytest.fixture
def faults() -> proxy.Faults:
    """The faults of the proxy, which a test sets."""
    return proxy.Faults()


@pytest.fixture(scope="session")
def forty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty small studies, by one sweep into a folder."""
    folder = tmp_path_factory.mktemp("forty") / "store"
    assert sweeps_cli.main([*stores.FORTY, f"store={folder}"]) == exit_codes.DONE
    return folder
