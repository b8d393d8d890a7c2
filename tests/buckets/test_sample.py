"""A sample of stores in buckets for every run of the tests: in memory, and on moto's server with a proxy before it."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from results import durable, exit_codes
from results.checks import verify
from sweeps import __main__ as sweeps_cli

from ..attack import writer
from ..same import assert_same
from . import proxy, servers, stores
from .proxy import Faults
from .servers import Server

pytest.importorskip("obstore")
pytest.importorskip("moto")
WORDS = ("optimizer=sgd", "batch_size=64", *stores.STUDY)


def test_a_study_in_memory() -> None:
    folder, study = durable.location("memory://sample/store"), writer.study_of("off", 6)
    for trials in (2, 6):
        writer.replay(folder, dataclasses.replace(study, trials=trials))
    assert writer.unlike(folder, study) == []
    assert verify.run(folder, print) == exit_codes.DONE


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "store"
    assert sweeps_cli.main([*WORDS, f"store={folder}"]) == exit_codes.DONE
    return folder


@pytest.fixture(scope="module")
def moto() -> Iterator[Server]:
    with servers.moto() as running:
        yield running


def test_a_sweep_into_a_bucket_whose_answers_are_lost(
    moto: Server, faults: Faults, alone: Path, tmp_path: Path
) -> None:
    url = moto.store("sample")
    faults.lose = lambda request: request.number % 4 == 3
    with proxy.before(moto.address, faults) as running:
        through = moto.through(running.address)
        swept = stores.run(["sweeps", *WORDS, f"store={url}"], through)
        assert swept.returncode == exit_codes.DONE, swept.stderr
        assert faults.lost > 0
        verified = stores.run(["results", "verify", "--store", url], through)
    assert verified.returncode == exit_codes.DONE, verified.stdout + verified.stderr
    assert_same(stores.download(moto, url, tmp_path / "copy"), alone)


def test_a_server_that_ignores_the_condition_is_refused(moto: Server, faults: Faults) -> None:
    faults.strip = True
    with proxy.before(moto.address, faults) as running:
        ended = stores.run(["sweeps", *WORDS, f"store={moto.store('ignored')}"], moto.through(running.address))
    assert ended.returncode == exit_codes.INVALID
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
