"""Factorizations by several processes together, real ones, against one process with as many devices."""

import json
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils

from harness.processes import multihost

ROOT = Path(__file__).parents[2]
SECONDS = 240


def found(devices: int, cases: str, folder: Path, processes: int = 1) -> list[dict[str, Any]]:
    """What ``factorized`` prints in each of some processes, which share a folder."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        place = [str(held.getsockname()[1]), str(processes)]
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.harness.factorized", str(devices), cases, str(folder)]
    started = [
        subprocess.Popen(
            [*command, *([*place, str(i)] if processes > 1 else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for i in range(processes)
    ]
    said = []
    try:
        for process in started:
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, err
            said.append(dict(json.loads(out.splitlines()[-1])))  # gloo says there what it is connected to
    finally:
        for process in started:
            process.kill()
            process.communicate()
    return said


CASES = "all_gather,all_to_all,hubs"


@pytest.mark.slow
def test_two_processes_factorize_to_the_bits_of_one(tmp_path: Path) -> None:
    (alone,) = found(2, CASES, tmp_path / "alone")
    assert alone.keys() == set(CASES.split(","))
    assert found(2, CASES, tmp_path / "hosts", 2) == [alone] * 2


@pytest.mark.slow
def test_four_processes_factorize_like_one(tmp_path: Path) -> None:
    (alone,) = found(4, CASES, tmp_path / "alone")
    first, *others = found(4, CASES, tmp_path / "hosts", 4)
    assert others == [first] * 3
    for case, (_, objective) in alone.items():
        # bfloat16 tables turn a difference of the last float32 bit into one of 2**-8. The rows of hubs are float32.
        assert first[case][1] == pytest.approx(objective, rel=1e-7 if case == "hubs" else 2**-8)


@pytest.mark.slow
def test_stopped_processes_go_on_from_what_each_of_them_saved(tmp_path: Path) -> None:
    (alone,) = found(2, "all_gather", tmp_path)
    assert found(2, "stopped", tmp_path, 2) == [{"stopped": "stopped"}] * 2
    saved = sorted((tmp_path / "stopped").iterdir())
    assert [path.name for path in saved] == [f"checkpoint-000000000-{i}-of-2" for i in range(2)]
    assert len({path.read_bytes() for path in saved}) == 2
    (tmp_path / "again").touch()
    ended = found(2, "stopped", tmp_path, 2)
    digests, progress = zip(*(each["stopped"] for each in ended), strict=True)
    assert set(digests) == {alone["all_gather"][0]}
    assert progress[0][:4] == [{}, {}, {}, {"1": 1}]  # of the first trial its last epoch was left


@pytest.mark.slow
def test_a_part_that_is_damaged_starts_all_processes_anew(tmp_path: Path) -> None:
    (alone,) = found(2, "all_gather", tmp_path)
    found(2, "stopped", tmp_path, 2)
    (tmp_path / "stopped" / "checkpoint-000000000-1-of-2").write_bytes(b"torn")
    (tmp_path / "again").touch()
    ended = found(2, "stopped", tmp_path, 2)
    assert [each["stopped"][0] for each in ended] == [alone["all_gather"][0]] * 2
    assert ended[0]["stopped"][1][:4] == [{}, {}, {"1": 1}, {"2": 1}]


@pytest.mark.slow
def test_cores_that_are_not_all_of_the_hosts_are_refused(tmp_path: Path) -> None:
    for each in found(4, "fewer", tmp_path, 2):
        assert each == {"fewer": "cores=2: these hosts have 4. A factorization uses all of them."}


def test_what_the_leader_tells_may_be_larger_than_an_int32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size arrives, in numbers of JAX's, at a process that then makes room for as much; no byte is touched."""
    size = 3 << 30
    sent: list[Any] = []

    def broadcast(value: Any) -> Any:
        sent.append(value)
        if len(sent) % 2 == 0:
            return np.zeros(1, np.uint8)
        return jnp.asarray(sent[0])  # of the one that leads, which asked first

    monkeypatch.setattr(multihost, "are_many", lambda: True)
    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", broadcast)
    monkeypatch.setattr(multihost.pickle, "dumps", lambda value: mmap.mmap(-1, size))
    monkeypatch.setattr(multihost.pickle, "loads", lambda data: None)
    for leads in (True, False):
        monkeypatch.setattr(multihost, "leads", lambda leads=leads: leads)
        multihost.broadcast(None)
    assert [value.nbytes for value in sent[1::2]] == [size, size]


def test_alone_nothing_is_told() -> None:
    assert multihost.longest(0.1, 3.0) == (0.1, 3.0) and multihost.place() == (0, 1)
