"""However a sweep is ended, what its workers had finished is stored, what was under way saved, and they end with it."""

import collections
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from results import exit_codes, store
from results.checks import verify

from ..same import assert_same

ROOT = Path(__file__).parents[2]
SECONDS = 8.0  # in which the workers of a sweep end, whatever ended it: five, and what saving takes
SWEEP = """
import sys
from results import cli as commands
from results import store
from sweeps import planning, overrides
from sweeps.launchers import local
from sweeps.launchers.launcher import Launch

def show(update):
    if update.progress is not None and update.progress.steps:  # after an evaluation
        print(update.progress.trials_ended, flush=True)

def cli(argv):
    request = planning.request(overrides.command_line(argv))
    for study in request.studies:
        store.ask(request.store, study)
    asked = {"workers": 1, "retries": 1, "silence_seconds": None}
    local.run_all(asked, Launch(request.store, request.studies, request.settings, on_progress=show))
    return 0

if __name__ == "__main__":
    sys.exit(commands.guarded(cli)(sys.argv[1:]))
"""
# Every other trial diverges at once; the others go on in spans that double, up to minutes.
LINE = (
    "yes=true",  # whatever that may cost
    "optimizer=sgd",
    "+optimizer.space.learning_rate.values=[1.0e30,0.01]",
    *(f"optimizer.space.learning_rate.{end}=null" for end in ("low", "high")),
    "optimizer.space.learning_rate.scale=DISCRETE",
    "trials=16",
    "pruning=off",
    "task.targets=[]",
    "task.budget={steps: 100000000, epochs: null, at_least_steps: null}",
    "task.evaluation_ratio=2",
    "lanes=16",
    "flush_seconds=1000",
)
STILL = 1.0  # seconds without an evaluation: one is a long way off


def is_alive(process: int) -> bool:
    """Whether a process is there, and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    "by",
    [signal.SIGTERM, *(pytest.param(by, marks=pytest.mark.slow) for by in (signal.SIGINT, signal.SIGKILL))],
    ids=lambda by: by.name,
)
def test_finished_trials_are_stored_during_a_long_computation(
    tmp_path: Path, by: signal.Signals, children: Callable[[int], list[int]]
) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    with subprocess.Popen(
        [sys.executable, str(script), *LINE, f"store={tmp_path}/store"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as sweep:
        _ended_and_stored(sweep, by, tmp_path / "store", children)


def _ended_and_stored(
    sweep: subprocess.Popen[str], by: signal.Signals, folder: Path, children: Callable[[int], list[int]]
) -> None:
    told: collections.deque[tuple[float, int]] = collections.deque()

    def listen() -> None:
        assert sweep.stdout is not None
        for line in sweep.stdout:
            told.append((time.monotonic(), int(line)))

    listener = threading.Thread(target=listen)
    listener.start()
    deadline = time.monotonic() + 60
    while not (told and time.monotonic() - told[-1][0] > STILL) and time.monotonic() < deadline:
        time.sleep(0.05)
    (worker,) = children(sweep.pid)
    began = time.monotonic()
    sweep.send_signal(by)
    while is_alive(worker) and time.monotonic() - began < 2 * SECONDS:
        time.sleep(0.01)
    took = time.monotonic() - began
    listener.join()
    assert sweep.wait(SECONDS) == {signal.SIGINT: 130, signal.SIGTERM: exit_codes.PREEMPTED, signal.SIGKILL: -9}[by]
    assert took < SECONDS
    _, finished = told[-1]
    assert 0 < finished < 16
    (name,) = store.names(folder)
    study = store.stored_plan(folder, name)
    assert study is not None
    assert not store.is_running(folder, name)
    assert store.progress(folder, study).ledger.infeasible == finished
    assert len(list((folder / name).glob("checkpoint-*"))) == 16 - finished
    assert verify.run(folder, lambda line: None) == 0
    assert sweep.stderr is not None
    if by != signal.SIGKILL:
        err = sweep.stderr.read()
        assert err.endswith("ed. Stored results are kept; run the same sweep to continue.\n"), err
        assert err.count("\n") == 1


def started(line: tuple[str, ...], store_folder: Path, **environment: str) -> subprocess.Popen[str]:
    """A sweep by the real command."""
    command = [sys.executable, "-m", "sweeps", *line, f"store={store_folder}"]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    return subprocess.Popen(command, **pipes, text=True, cwd=ROOT, env=os.environ | environment)  # type: ignore[call-overload, no-any-return]


def until(condition: Callable[[], object]) -> None:
    """Waits until something holds, for a minute at most."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("by", "code"), [(signal.SIGTERM, exit_codes.TERMINATED), (signal.SIGINT, exit_codes.INTERRUPTED)]
)
def test_signal_without_progress_has_its_exit_code(
    tmp_path: Path, children: Callable[[int], list[int]], by: signal.Signals, code: int
) -> None:
    with started(LINE, tmp_path / "store") as sweep:
        until(lambda: children(sweep.pid))
        sweep.send_signal(by)
        assert sweep.wait(SECONDS) == code


GRAPH = (
    *("task=webgraph_synthetic", "ratings.rows=90", "ratings.columns=80", "ratings.links=500"),
    *("ratings.communities=8", "ratings.exponent=6", "ratings.heldout_rows=20", "als.dim=4", "als.epochs=400"),
)


@pytest.mark.slow
def test_a_factorization_that_is_terminated_goes_on(tmp_path: Path) -> None:
    with started((*GRAPH, "checkpoint_seconds=0"), tmp_path / "ended") as sweep:
        until(lambda: list(tmp_path.glob("ended/*/checkpoint-*")))
        sweep.send_signal(signal.SIGTERM)
        assert sweep.wait(SECONDS) == exit_codes.PREEMPTED
    for folder in ("ended", "calm"):  # by somebody else, who has compiled nothing yet
        elsewhere = {"HOME": str(tmp_path / "home"), "SCALING_LIMITS_CACHE": str(tmp_path / "cache")}
        with started(GRAPH, tmp_path / folder, **elsewhere) as sweep:
            assert sweep.wait(120) == exit_codes.DONE
    assert_same(tmp_path / "ended", tmp_path / "calm")
