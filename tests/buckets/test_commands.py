"""Every command that reads or writes a store takes the URL of a bucket, and does the same as with a folder."""

from pathlib import Path

import pytest

from results import exit_codes

from ..results.importers import test_mlperf_rcp
from ..same import assert_same
from . import stores
from .servers import ROOT, Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.buckets

NOWHERE = Server("none", "", "", {})  # of commands that read a folder
TARGET = ("--metric", "validation_error", "--value", "0.2")
READERS = {
    "status": ("sweeps.status", "store={store}", "--csv"),
    "verify": ("results", "verify", "--store", "{store}"),
    "steps": ("analysis", "steps", "--store", "{store}", "--csv", *TARGET),
    "fit": ("analysis", "fit", "--store", "{store}", *TARGET),
    "figures": ("analysis", "figures", "--store", "{store}", "--kind", "steps", *TARGET, "--out", "out"),
    "report": ("analysis", "report", "--store", "{store}", *TARGET, "--out", "out.html"),
    "export": ("results", "export", "--store", "{store}", "--out", "out"),
}


def outputs(name: str, location: str, server: Server, folder: Path) -> dict[str, bytes]:
    """What a command prints and writes, without the name of the store."""
    folder.mkdir()
    ended = stores.run([word.format(store=location) for word in READERS[name]], server, folder)
    assert ended.returncode == exit_codes.DONE, ended.stdout + ended.stderr
    written = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    written["printed"] = ended.stdout.encode()
    return {key: data.replace(location.encode(), b"STORE") for key, data in written.items()}


@pytest.fixture(scope="session")
def expected(forty: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The outputs of every command that reads, with a folder."""
    folder = tmp_path_factory.mktemp("expected")
    return {name: outputs(name, str(forty), NOWHERE, folder / name) for name in READERS}


@pytest.fixture(scope="session")
def uploaded(server: Server, forty: Path) -> str:
    """The URL of the same store in a bucket."""
    return stores.upload(forty, server, server.store("uploaded"))


@pytest.mark.parametrize("name", READERS)
def test_commands_that_read(
    server: Server, uploaded: str, expected: dict[str, dict[str, bytes]], tmp_path: Path, name: str
) -> None:
    before = stores.keys(server, uploaded)
    assert outputs(name, uploaded, server, tmp_path / name) == expected[name]
    assert stores.keys(server, uploaded) == before


def test_a_sweep_of_what_is_there_runs_nothing(server: Server, uploaded: str) -> None:
    before = stores.keys(server, uploaded)
    ended = stores.run(["sweeps", *stores.FORTY, f"store={uploaded}"], server)
    assert ended.returncode == exit_codes.DONE, ended.stderr
    assert stores.keys(server, uploaded) == before


def test_merge_from_and_into_a_bucket(server: Server, uploaded: str, forty: Path, tmp_path: Path) -> None:
    for i, (source, target) in enumerate([(uploaded, tmp_path / "folder"), (forty, server.store("merged"))]):
        ended = stores.run(["results", "merge", source, "--store", target], server)
        assert ended.returncode == exit_codes.DONE, ended.stderr
        copy = stores.download(server, target, tmp_path / str(i)) if isinstance(target, str) else target
        assert_same(copy, forty)
    between = stores.run(["results", "merge", uploaded, "--store", server.store("merged")], server)
    assert between.returncode == exit_codes.DONE, between.stderr
    assert_same(stores.download(server, server.store("merged"), tmp_path / "both"), forty)


def test_import_into_a_bucket(server: Server, tmp_path: Path) -> None:
    records = [test_mlperf_rcp.record(BS=size) for size in (4096, 8192)]
    test_mlperf_rcp.write(tmp_path / "source", "training_2.0.0", *records)
    url = server.store("imported")
    for target in (str(tmp_path / "folder"), url):
        ended = stores.run(["results", "import", "mlperf-rcp", tmp_path / "source", "--store", target], server, ROOT)
        assert ended.returncode == exit_codes.DONE, ended.stderr
    verified = stores.run(["results", "verify", "--store", url], server)
    assert verified.returncode == exit_codes.DONE, verified.stdout
    assert_same(stores.download(server, url, tmp_path / "copy"), tmp_path / "folder")


def test_a_release_goes_into_a_bucket_and_is_read_there(server: Server, uploaded: str, tmp_path: Path) -> None:
    url = server.store("release")
    ended = stores.run(["results", "export", "--store", uploaded, "--out", tmp_path / "release"], server)
    assert ended.returncode == exit_codes.DONE, ended.stderr
    stores.upload(tmp_path / "release", server, url)
    here = stores.run(["analysis", "steps", "--store", tmp_path / "release", "--csv", *TARGET], server)
    there = stores.run(["analysis", "steps", "--store", url, "--csv", *TARGET], server)
    assert there.returncode == exit_codes.DONE, there.stderr
    assert there.stdout == here.stdout != ""
