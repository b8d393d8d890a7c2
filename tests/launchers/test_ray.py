"""Studies as tasks of a real Ray cluster of two nodes, each with processes of its own: killed, and gone on with."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from results import exit_codes, store
from results.checks import verify
from results.storage import attempts
from sweeps import __main__ as sweeps_cli

from ..same import assert_same

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]
STUDIES = (
    *("optimizer=sgd,momentum,nesterov,adam", "batch_size=16,32,64,128", "trials=4"),
    *("pruning=off", "stop=budget", "task.targets=[]", "checkpoint_seconds=1"),
    "task.budget={steps: 1500, epochs: null, examples: null, at_least_steps: null}",
)
LONG = (
    *("batch_size=16", "trials=4", "pruning=off", "stop=budget", "task.targets=[]", "checkpoint_seconds=1"),
    "task.budget={steps: 200000, epochs: null, examples: null, at_least_steps: null}",
)


class Cluster:
    """A head that runs no studies, and two nodes that can each run two at once."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._cluster.add_node(num_cpus=0, include_dashboard=False)
        self.address = self._cluster.address
        self.nodes = [self.add_node(), self.add_node()]

    def add_node(self) -> object:
        """Another node with two CPUs."""
        return self._cluster.add_node(num_cpus=2)

    def remove_node(self, node: object) -> None:
        """Kills the processes of a node."""
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        """Stops all of it."""
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    pytest.importorskip("ray.cluster_utils", reason="make test-ray installs Ray")
    cluster = Cluster()
    yield cluster
    cluster.stop()


def sweep(words: Sequence[str], folder: Path, cluster: Cluster) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sweeps", *words, f"store={folder}", "-m", "launcher=ray"]
    command.append(f"launcher.address={cluster.address}")
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)


def until(found: Callable[[], object], seconds: float = 120) -> object:
    deadline = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return result


def workers() -> list[int]:
    """The processes that train as part of an attempt."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"from sweeps.launchers import worker" not in (folder / "cmdline").read_bytes():
                continue
            if b"SCALING_LIMITS_ATTEMPT=" in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def logs(folder: Path) -> list[attempts.Attempt]:
    return [each for name in store.names(folder) for each in attempts.read(folder / name)]


def lost_attempts(folder: Path) -> list[attempts.Attempt]:
    return [each for each in logs(folder) if each.code == exit_codes.PEER_LOST]


def lost_after_a_kill(folder: Path) -> list[attempts.Attempt]:
    """The attempts that were lost, after SIGKILL to one worker more, which may just have come to its end."""
    for victim in workers()[:1]:
        os.kill(victim, signal.SIGKILL)
    time.sleep(3)
    return lost_attempts(folder)


def test_studies_end_exactly_once(ray: Cluster, tmp_path: Path) -> None:
    running = sweep(STUDIES, tmp_path / "ray", ray)
    try:
        until(lambda: len(workers()) >= 3)
        until(lambda: len(lost_after_a_kill(tmp_path / "ray")) >= 3)
        until(lambda: len(workers()) >= 3)
        ray.remove_node(ray.nodes.pop())
        time.sleep(5)
        ray.nodes.append(ray.add_node())
        until(workers)
        running.kill()
        output, _ = running.communicate()
        assert "no sign of life" not in output
        assert "aylet" not in output  # nor the state of the node that is gone
        until(lambda: not workers())
        running = sweep(STUDIES, tmp_path / "ray", ray)
        output, _ = running.communicate(timeout=900)
    finally:
        running.kill()
    print(output)
    assert running.returncode == exit_codes.DONE
    assert verify.run(tmp_path / "ray", print) == 0
    lost = lost_attempts(tmp_path / "ray")
    assert len(lost) >= 3
    assert all("process died by signal 9" in attempts.printed(each.log) for each in lost)
    assert sweeps_cli.main([*STUDIES, f"store={tmp_path / 'alone'}", "-m"]) == exit_codes.DONE
    assert_same(tmp_path / "ray", tmp_path / "alone")


def test_a_sweep_that_is_stopped_saves_what_runs(ray: Cluster, tmp_path: Path) -> None:
    stopped = sweep(LONG, tmp_path / "ray", ray)
    until(lambda: list((tmp_path / "ray").glob("*/checkpoint-*")))
    stopped.terminate()
    output, _ = stopped.communicate(timeout=120)
    assert stopped.returncode == exit_codes.PREEMPTED, output
    again = sweep(LONG, tmp_path / "ray", ray)
    output, _ = again.communicate(timeout=600)
    assert again.returncode == exit_codes.DONE, output
    assert not logs(tmp_path / "ray")
    assert sweeps_cli.main([*LONG, f"store={tmp_path / 'alone'}", "-m"]) == exit_codes.DONE
    assert_same(tmp_path / "ray", tmp_path / "alone")


def test_more_than_any_node_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*LONG, "launcher=ray", "launcher.gpus=64", f"store={tmp_path}", "-m"]
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == exit_codes.INVALID
    assert re.search(r"^error: digits\S+ needs 64 GPU, and the largest node has 0$", done.stderr, re.M), done.stderr


def test_no_cluster_at_the_address(tmp_path: Path) -> None:
    words = [*LONG, "launcher=ray", "launcher.address=127.0.0.1:1", f"store={tmp_path}", "-m"]
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == exit_codes.INVALID, done.stderr
    assert "there is no Ray cluster" in done.stderr


def test_frozen_worker_is_lost_and_its_study_resumes(ray: Cluster, tmp_path: Path) -> None:
    running = sweep((*LONG, "launcher.silence_seconds=5"), tmp_path / "ray", ray)
    until(lambda: list((tmp_path / "ray").glob("*/checkpoint-*")))
    (victim,) = workers()
    os.kill(victim, signal.SIGSTOP)
    try:
        output, _ = running.communicate(timeout=300)
    finally:
        running.kill()
    assert running.returncode == exit_codes.DONE, output
    (lost,) = lost_attempts(tmp_path / "ray")
    assert "process died by launcher.silence_seconds=5, without a sign of life" in attempts.printed(lost.log)
    assert verify.run(tmp_path / "ray", print) == 0
