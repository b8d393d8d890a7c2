"""Several hosts that run every study together: real processes, which exchange their sums by Gloo."""

import contextlib
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.processes import multihost
from harness.processes.shutdown import Shutdown
from harness.run import RunProgress
from results import exit_codes, store
from results.bad_input import BadInput
from results.checks import verify
from results.cli import Terminated
from results.plans.batch_study import BatchStudy
from results.storage import attempts
from sweeps import __main__ as sweeps_cli, planning
from sweeps.launchers import hosts as hosts_launcher
from sweeps.overrides import command_line

from ..same import assert_same

ROOT = Path(__file__).parents[2]
HEARTBEAT = 10
WHOLE = ("task=digits_fc", "trials=5", "pruning=off", "task.budget.epochs=2", "lanes=4")
# Two trials of a linear problem, whose rounding errors do not grow.
QUADRATIC = (
    *("task=noisy_quadratic", "optimizer=momentum", "trials=2", "pruning=off", "stop=budget", "task.targets=[]"),
    *("task.budget={steps: 30000, epochs: null, examples: null, at_least_steps: null}", "checkpoint_seconds=0"),
)
# Five trials that take a quarter of a minute on two hosts.
LONG = (
    *("task=digits_fc", "trials=5", "pruning=off", "stop=budget", "task.targets=[]", "lanes=4"),
    *("task.budget={steps: 60000, epochs: null, examples: null, at_least_steps: null}", "checkpoint_seconds=0"),
)


# Epochs of about a second on two cores.
GRAPH = (
    *("task=webgraph_synthetic", "ratings.rows=20000", "ratings.columns=20000", "ratings.links=600000"),
    *("ratings.heldout_rows=1000", "als.epochs=4", "cores=2", "checkpoint_seconds=0"),
)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def started(words: Sequence[str], folder: Path, count: int = 2) -> list[subprocess.Popen[str]]:
    """The same command on so many hosts; only the first one's store is to be written to."""
    port = free_port()
    hosts = []
    for i in range(count):
        command = [sys.executable, "-m", "sweeps", *words, f"store={folder if i == 0 else f'{folder}-{i}'}"]
        command += ["launcher=hosts", f"launcher.coordinator=127.0.0.1:{port}", f"launcher.hosts={count}"]
        command += [f"launcher.host={i}", f"launcher.heartbeat_seconds={HEARTBEAT}"]
        hosts.append(process(command))
    return hosts


def process(command: Sequence[str]) -> subprocess.Popen[str]:
    """A command with the processes it starts, which can be killed together."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, **pipes, text=True, cwd=ROOT, start_new_session=True)  # type: ignore[call-overload, no-any-return]


def ended(hosts: Sequence[subprocess.Popen[str]], seconds: float = 300) -> list[int]:
    """The exit codes of hosts; one that does not end fails the test, and none is left."""
    try:
        return [host.wait(seconds) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            assert host.stdout is not None
            print(host.stdout.read())
            host.stdout.close()


def alone(words: Sequence[str], folder: Path) -> None:
    """The same studies on this host, by its pool of workers."""
    assert sweeps_cli.main([*words, f"store={folder}"]) == exit_codes.DONE


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ((), 2),
        pytest.param(("pruning=exact", "confirm=2", "optimizer=adam"), 2, marks=pytest.mark.slow),
        pytest.param(("shards=2",), 2, marks=pytest.mark.slow),
        pytest.param(("shards=2", "microbatches=2"), 2, marks=pytest.mark.slow),
        pytest.param(("shards=2",), 4, marks=pytest.mark.slow),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_two_hosts_give_the_numbers_of_one(tmp_path: Path, words: Sequence[str], count: int) -> None:
    line = [word for word in WHOLE if word.partition("=")[0] not in {each.partition("=")[0] for each in words}]
    line += words
    assert ended(started(line, tmp_path / "hosts", count)) == [exit_codes.DONE] * count
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts"]  # host 0 alone writes
    alone(line, tmp_path / "alone")
    assert_same(tmp_path / "hosts", tmp_path / "alone")
    about = store.read(tmp_path / "hosts").studies
    assert about["device_count"].tolist() == [count]
    assert verify.run(tmp_path / "hosts", lambda line: None) == 0


WITH_A_MISTAKE = """
from workloads import registry
from workloads.workload import Model

fully_connected = registry.MODELS["fully_connected"]

def mistaken(classes, widths):
    right = fully_connected(classes, widths)
    def apply(params, state, x, keys, train):
        if x.shape[0] == 32:
            raise ValueError("a mistake")
        return right.apply(params, state, x, keys, train)
    return Model(right.init, apply)

registry.MODELS["fully_connected"] = mistaken
"""


@pytest.mark.slow
def test_a_study_that_fails_on_all_hosts_does_not_end_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITH_A_MISTAKE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    words = ("task=digits_fc", "batch_size=32,16", "trials=2", "task.budget.epochs=1", "lanes=2", "-m")
    running = started(words, tmp_path / "hosts")
    out, _ = running[0].communicate(timeout=300)
    assert (running[0].returncode, running[1].wait(60)) == (exit_codes.FAILED, exit_codes.DONE)
    running[1].communicate()
    assert out.count("failed: ValueError: a mistake") == 1
    trials = store.read(tmp_path / "hosts").trials.sort_values(["study", "trial"])
    assert trials["status"].tolist() == ["COMPLETE"] * 2 + ["INCOMPLETE"] * 2  # b16 is before b32
    assert verify.run(tmp_path / "hosts", lambda line: None) == 0


def test_studies_that_failed_last_are_at_the_end(tmp_path: Path, make_study: Callable[..., BatchStudy]) -> None:
    studies = [make_study(seed=i) for i in range(4)]
    for i, codes in enumerate(((exit_codes.FAILED,), (), (exit_codes.FAILED, exit_codes.PREEMPTED), (1, 1))):
        store.ask(tmp_path, studies[i])
        for code in codes:
            attempts.end(attempts.begin(tmp_path / studies[i].name, "hosts"), code, "a cause")
    assert hosts_launcher.in_order(tmp_path, studies) == [studies[1], studies[2], studies[0], studies[3]]


def test_what_all_hosts_have_to_be_asked(tmp_path: Path) -> None:
    def digest(*words: str) -> str:
        return planning.digest(planning.request(command_line(list(words))))

    together = ["launcher=hosts", "launcher.coordinator=h:1", "launcher.hosts=2"]
    here = [*together, "launcher.host=0", f"store={tmp_path}/a"]
    first = digest("trials=2", *here)
    assert digest("trials=2", *together, "launcher.host=1", f"store={tmp_path}/b") == first
    assert digest("trials=3", *here) != first
    for other in ("seed=1", "batch_size=16", "lanes=2", "limits.sweep.max_hours=1"):
        assert digest("trials=2", *here, other) != first


def process_of(host: subprocess.Popen[str]) -> int:
    """The process that a host's command watches."""
    return int(Path(f"/proc/{host.pid}/task/{host.pid}/children").read_text())


def until_saved(folder: Path) -> None:
    """Waits until host 0 has reported its first save to the others, which takes another round."""
    deadline = time.monotonic() + 120
    times: set[int] = set()
    while len(times) < 3 and time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            times |= {path.stat().st_mtime_ns for path in folder.glob("*/checkpoint-*")}
        time.sleep(0.01)
    time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL], ids=lambda by: by.name)
def test_lost_host_ends_the_others_and_the_command_resumes(tmp_path: Path, by: signal.Signals, which: int) -> None:
    hosts = started(LONG, tmp_path / "hosts")
    until_saved(tmp_path / "hosts")
    began = time.monotonic()
    if by == signal.SIGTERM:
        hosts[which].send_signal(by)
    else:
        os.kill(process_of(hosts[which]), by)
    codes = ended(hosts, HEARTBEAT + 30)
    assert time.monotonic() - began < HEARTBEAT + 30
    if by == signal.SIGTERM:
        assert codes == [exit_codes.PREEMPTED] * 2
    else:
        assert codes[1 - which] == exit_codes.PEER_LOST
    assert ended(started(LONG, tmp_path / "hosts")) == [exit_codes.DONE] * 2
    alone(LONG, tmp_path / "alone")
    assert_same(tmp_path / "hosts", tmp_path / "alone")
    assert not list(tmp_path.glob("hosts/*/checkpoint-*"))


@pytest.mark.slow
def test_each_host_saves_its_part_and_one_resumes(tmp_path: Path) -> None:
    line = [*QUADRATIC, f"checkpoint_dir={tmp_path}/saved"]
    hosts = started([*line, "mesh=data:2", "layout=embed:data"], tmp_path / "divided")
    until_saved(tmp_path / "saved")
    hosts[0].send_signal(signal.SIGTERM)
    assert ended(hosts, HEARTBEAT + 30) == [exit_codes.PREEMPTED] * 2
    files = [path.name for path in tmp_path.glob("saved/*/checkpoint-*")]
    trials = {name[: len("checkpoint-000000000")] for name in files}
    steps = {name.split("-")[2] for name in files}
    assert sorted(files) == sorted(f"{trial}-{step}-{i}-of-2" for trial in trials for step in steps for i in (0, 1))
    alone([*line, "mesh=model:2", "layout=embed:model"], tmp_path / "divided")
    assert not list(tmp_path.glob("saved/*/checkpoint-*"))
    assert store.read(tmp_path / "divided").studies["trial_steps"].tolist()[-1] < 2 * 30_000  # it did not start again
    alone(QUADRATIC, tmp_path / "whole")
    divided, whole = (store.read(tmp_path / name).measurements for name in ("divided", "whole"))
    order = ["trial", "step"]
    divided, whole = (table.sort_values(order, ignore_index=True) for table in (divided, whole))
    assert divided[order].equals(whole[order])
    losses = [table["validation_loss"].to_numpy(np.float64) for table in (divided, whole)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills process groups")
@pytest.mark.parametrize("count", [1, 2])
def test_a_factorization_is_killed_in_every_epoch(tmp_path: Path, count: int) -> None:
    line = [*GRAPH, f"checkpoint_dir={tmp_path}/saved"]
    folder = tmp_path / "killed"
    for epoch in range(1, 4):
        running = begun(line, folder, count)
        before = saved(tmp_path / "saved")
        deadline = time.monotonic() + 240
        while saved(tmp_path / "saved") <= before and running[0].poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert running[0].poll() is None, (epoch, running[0].communicate())
        time.sleep(0.3)  # both hosts know that both have saved
        os.killpg(running[-1].pid, signal.SIGKILL)
        codes = ended(running, HEARTBEAT + 30)
        assert codes == ([-signal.SIGKILL] if count == 1 else [exit_codes.PEER_LOST, -signal.SIGKILL])
    assert ended(begun(line, folder, count)) == [exit_codes.DONE] * count
    assert not list((tmp_path / "saved").glob("*/checkpoint-*"))
    calm = tmp_path / "calm"
    # Also with `count` processes: on some processors, one process with two devices rounds in another order.
    assert ended(begun([*GRAPH, f"checkpoint_dir={tmp_path}/others"], calm, count)) == [exit_codes.DONE] * count
    assert_same(folder, calm)


def begun(words: Sequence[str], folder: Path, count: int) -> list[subprocess.Popen[str]]:
    """The same command on so many hosts; on one host alone by its pool."""
    if count > 1:
        return started(words, folder, count)
    return [process([sys.executable, "-m", "sweeps", *words, f"store={folder}"])]


def saved(folder: Path) -> float:
    """When the last checkpoint of all hosts was saved; 0 where there is none."""
    return min((path.stat().st_mtime for path in folder.glob("*/checkpoint-*")), default=0)


def contents(folder: Path) -> dict[Path, bytes]:
    """All files, but for those that are not written to their end."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".tmp-")]
    return {path: path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("which", [0, 1])
def test_a_host_that_stood_still_writes_nothing_and_ends(tmp_path: Path, which: int) -> None:
    hosts = started(LONG, tmp_path / "hosts")
    until_saved(tmp_path / "hosts")
    os.kill(process_of(hosts[which]), signal.SIGSTOP)
    assert ended([hosts[1 - which]], HEARTBEAT + 30) == [exit_codes.PEER_LOST]
    before = contents(tmp_path)
    os.kill(process_of(hosts[which]), signal.SIGCONT)
    assert ended([hosts[which]], 60) == [exit_codes.PEER_LOST]
    after = contents(tmp_path)
    assert {path: after.get(path) for path in before} == before
    more = [path.name for path in after.keys() - before.keys()]
    assert more == (["attempt-1.log"] if which == 0 else [])  # host 0 records why its attempt ended
    assert verify.run(tmp_path / "hosts", lambda line: None) == 0


@pytest.mark.slow
def test_hosts_that_compile_end_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "cache"))
    hosts = started(["task=pydoc_transformer", "optimizer=adam", "batch_size=64", "trials=2"], tmp_path / "hosts")
    assert hosts[0].stdout is not None
    assert any("compiling" in line for line in iter(hosts[0].stdout.readline, ""))
    began = time.monotonic()
    for host in hosts:
        host.send_signal(signal.SIGTERM)
    assert ended(hosts, 10) == [exit_codes.TERMINATED] * 2
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_a_host_that_never_comes_is_one_line() -> None:
    here, second, third = started(WHOLE, Path("never"), 3)
    third.kill()
    third.communicate()
    began = time.monotonic()
    for each, index in ((here, 0), (second, 1)):
        out, _ = each.communicate(timeout=90)
        assert each.returncode == exit_codes.INVALID
        assert f"host {index} of 3, coordinator 127.0.0.1:" in out
        (line,) = [line for line in out.splitlines() if line.startswith("error: ")]
        assert re.match(
            r"error: host 2 of 3 did not reach 127\.0\.0\.1:\d+ within 30 s\. .*firewall allow that port\?$", line
        )
    assert time.monotonic() - began < 60
    assert not Path("never").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "launcher.coordinator"),
        (("launcher.coordinator=here",), "HOST:PORT"),
        (("launcher.coordinator=here:70000",), "HOST:PORT"),
        (("launcher.coordinator=here:1",), "launcher.hosts"),
        (("launcher.coordinator=here:1", "launcher.hosts=1", "launcher.host=0"), "launcher=local"),
        (("launcher.coordinator=here:1", "launcher.hosts=2", "launcher.host=2"), "0 to 1"),
        (("launcher.coordinator=auto", "launcher.hosts=2"), "no TPU pod, SLURM, Open MPI or indexed job"),
        (
            ("launcher.coordinator=here:1", "launcher.hosts=2", "launcher.host=0", "launcher.heartbeat_seconds=0"),
            "heartbeat_seconds",
        ),
        (
            ("launcher.coordinator=here:1", "launcher.hosts=2", "launcher.host=0", "task=webgraph_synthetic"),
            "checkpoint_dir",
        ),
    ],
)
def test_bad_settings_are_one_line(words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweeps_cli.main(["launcher=hosts", *words]) == exit_codes.INVALID
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and said in line


@pytest.mark.parametrize(
    ("error", "saved", "steps", "code"),
    [
        (Terminated, True, 3, exit_codes.PREEMPTED),
        (Terminated, True, 0, exit_codes.NO_PROGRESS),
        (Terminated, False, 0, exit_codes.TERMINATED),
        (RuntimeError, True, 3, exit_codes.PEER_LOST),
        (RuntimeError, False, 3, exit_codes.NO_PROGRESS),
        (RuntimeError, False, 0, exit_codes.NO_PROGRESS),
    ],
)
def test_only_saved_steps_count_in_exit_codes(
    error: type[BaseException], saved: bool, steps: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []

    def leave(code: int, why: str = "") -> None:
        left.append(code)
        raise SystemExit

    def run() -> int:
        hosts_launcher._note(RunProgress(steps=steps, saved=saved))
        if error is Terminated:
            shutdown = Shutdown()
            shutdown.saved = saved
            raise hosts_launcher._terminated(shutdown)
        raise error("heartbeat")

    monkeypatch.setattr(hosts_launcher, "_marks", mmap.mmap(-1, hosts_launcher._MARKS))
    monkeypatch.setattr(multihost, "leave", leave)
    monkeypatch.setattr(multihost, "lost", lambda error: True)
    with pytest.raises(SystemExit):
        hosts_launcher.ended(run)
    assert left == [code]


def test_other_hosts_do_not_open_the_store(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("not a folder")
    words = [f"store={tmp_path / 'broken'}", "launcher=hosts", "launcher.coordinator=here:1", "launcher.hosts=2"]
    with pytest.raises(BadInput, match="broken"):
        planning.request(command_line([*words, "launcher.host=0"]))
    assert planning.request(command_line([*words, "launcher.host=1"])).studies
