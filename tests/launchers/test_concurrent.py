"""Two sweeps of the same studies at once, on one store: killed, stopped and woken; every trial is stored once."""

import contextlib
import json
import os
import random
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
from sweeps import __main__ as sweeps_cli

from ..same import assert_same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
ROOT = Path(__file__).parents[2]
STUDIES, TRIALS = 6, 4
WORDS = (
    *("optimizer=sgd,momentum,adam", "batch_size=16,64", f"trials={TRIALS}", "-m"),
    *("pruning=off", "stop=budget", "task.targets=[]", "checkpoint_seconds=0.5", "flush_seconds=0.5"),
    "task.budget={steps: 60000, epochs: null, examples: null, at_least_steps: null}",
    *("launcher.retries=20", "--json"),
)
SECONDS = 600.0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same studies by one sweep that nobody disturbed."""
    folder = tmp_path_factory.mktemp("alone") / "store"
    assert sweeps_cli.main([*WORDS, "launcher.workers=1", f"store={folder}"]) == exit_codes.DONE
    return folder


def sweep(folder: Path, log: Path, beside: Path = ROOT) -> subprocess.Popen[bytes]:
    """Starts a sweep, with modules of a folder that come before all others."""
    command = [sys.executable, "-m", "sweeps", *WORDS, "launcher.workers=2", f"store={folder}"]
    environment = os.environ | {"PYTHONPATH": f"{beside}{os.pathsep}{ROOT}"}
    with open(log, "ab") as file:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, cwd=ROOT, env=environment, start_new_session=True
        )


@contextlib.contextmanager
def ended(sweeps: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """A context after which no sweep is left."""
    try:
        yield
    finally:
        for one in sweeps:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.communicate()


def check(folder: Path, alone: Path) -> None:
    """The store is whole, and holds what one sweep alone would have stored."""
    assert verify.run(folder, print) == 0
    trials = store.read(folder).trials
    assert len(trials) == STUDIES * TRIALS
    assert not trials.duplicated(["study", "trial"]).any()
    assert_same(folder, alone)


def test_every_trial_runs_once(tmp_path: Path, alone: Path) -> None:
    folder, sweeps = tmp_path / "store", []
    with ended(sweeps):
        sweeps += [sweep(folder, tmp_path / f"{i}.log") for i in range(2)]
        told = [one.communicate(timeout=SECONDS)[0] for one in sweeps]
    assert [one.returncode for one in sweeps] == [exit_codes.DONE] * 2
    ran = [sum(row["ran"] for row in json.loads(text or "[]")) for text in told]
    assert sum(ran) == STUDIES * TRIALS, ran
    check(folder, alone)


def test_last_writer_without_locks_owns_the_study(tmp_path: Path, alone: Path) -> None:
    """As on two machines that share a file system whose locks do not reach."""
    folder, sweeps = tmp_path / "store", []
    (tmp_path / "sitecustomize.py").write_text("import fcntl\nfcntl.flock = lambda handle, operation: None\n")
    with ended(sweeps):
        for i in range(2):
            sweeps.append(sweep(folder, tmp_path / f"{i}.log", tmp_path))
            time.sleep(6.0)
        for one in sweeps:
            one.communicate(timeout=SECONDS)
    logs = [(tmp_path / f"{i}.log").read_text() for i in range(2)]
    lost = [{*re.findall(r"failed: (\S+) was taken over by process", log)} for log in logs]
    assert lost[0] | lost[1] and not lost[0] & lost[1], logs
    assert [one.returncode for one in sweeps] == [exit_codes.FAILED if each else exit_codes.DONE for each in lost], logs
    assert "called from" not in "".join(logs)
    check(folder, alone)


@pytest.mark.parametrize("seed", range(2))
def test_killed_stopped_and_woken(tmp_path: Path, alone: Path, children: Callable[[int], list[int]], seed: int) -> None:
    folder, chance = tmp_path / "store", random.Random(seed)
    sweeps: list[subprocess.Popen[bytes]] = []
    kills = stops = 0
    with ended(sweeps):
        sweeps += [sweep(folder, tmp_path / f"{i}.log") for i in range(2)]
        deadline = time.monotonic() + SECONDS
        while kills < 3 or stops < 4:
            assert time.monotonic() < deadline
            time.sleep(chance.uniform(0.2, 1.5))
            one = chance.randrange(2)
            workers = children(sweeps[one].pid)
            if sweeps[one].poll() is not None or not list(folder.glob("*/checkpoint-*")):
                assert sweeps[one].returncode in (None, exit_codes.DONE), (tmp_path / f"{one}.log").read_text()
                if sweeps[one].returncode == exit_codes.DONE:
                    break  # what was left is too little for further harm
                continue
            if chance.random() < 0.4 and workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    kills += 1
            else:  # one whole sweep stands still, and the other goes on with what that does not have
                processes = [sweeps[one].pid, *workers]
                for number in (signal.SIGSTOP, signal.SIGCONT):
                    for process in processes:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(process, number)
                    time.sleep(chance.uniform(0.5, 3.0) if number == signal.SIGSTOP else 0.0)
                stops += 1
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(sweeps[0].pid, signal.SIGKILL)  # including its workers
        sweeps[0].communicate()
        sweeps[0] = sweep(folder, tmp_path / "0.log")
        for one in sweeps:
            one.communicate(timeout=SECONDS)
    logs = "".join((tmp_path / f"{i}.log").read_text() for i in range(2))
    assert [one.returncode for one in sweeps] == [exit_codes.DONE] * 2, logs
    assert kills >= 1 and stops >= 1, (kills, stops)
    check(folder, alone)
