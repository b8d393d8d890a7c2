"""Studies as jobs of a real SLURM: killed, preempted, and on a node that goes down and comes back.

It is on this machine: a controller and two nodes, each a process, with a key of their own.
"""

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from results import exit_codes, store
from results.checks import verify
from results.storage import attempts
from sweeps import __main__ as sweeps_cli, status

from ..same import assert_same

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[2]
FORTY = (
    *("optimizer=sgd,momentum,nesterov,adam", "batch_size=16,24,32,48,64,96,128,192,256,384", "trials=4"),
    *("pruning=off", "stop=budget", "task.targets=[]", "checkpoint_seconds=1"),
    "task.budget={steps: 1500, epochs: null, examples: null, at_least_steps: null}",
)
LONG = (
    *("batch_size=16", "trials=4", "pruning=off", "stop=budget", "task.targets=[]", "checkpoint_seconds=1"),
    "task.budget={steps: 200000, epochs: null, examples: null, at_least_steps: null}",
)
BY_SLURM = ("launcher=slurm", "launcher.poll_seconds=1", "launcher.grace_seconds=20")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
NODES = ("n1", "n2")
CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdTimeout=10
ReturnToService=2
MaxArraySize=26
MinJobAge=300
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,batch_sched_delay=0
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4000
PartitionName=low Nodes=n1,n2 Default=YES State=UP PriorityTier=1 GraceTime=20
PartitionName=high Nodes=n1,n2 State=UP PriorityTier=10
"""


class Cluster:
    """A running cluster; ``SLURM_CONF`` of the environment is its configuration."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Starts all of it, and waits until both nodes take jobs."""
        for name in ("munge", "state"):
            (self._folder / name).mkdir()
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        own = self._folder / "munge"
        self._start(
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={own}/socket"),
            *(f"--pid-file={own}/pid", f"--log-file={own}/log", f"--seed-file={own}/seed"),
        )
        with contextlib.ExitStack() as stack:  # three ports that are free at once
            listening = [stack.enter_context(socket.socket()) for _ in range(3)]
            for each in listening:
                each.bind(("127.0.0.1", 0))
            ports = [each.getsockname()[1] for each in listening]
        about = {"host": socket.gethostname(), "user": getpass.getuser(), "ports": ports, "folder": self._folder}
        configuration = self._folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(**about))
        os.environ["SLURM_CONF"] = str(configuration)
        self._start("slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        self.wait_for("idle", "idle")

    def start_node(self, node: str) -> None:
        """Starts the daemon of a node."""
        self._start("slurmd", "-D", "-N", node)

    def stop_node(self, node: str) -> None:
        """Stops the daemon of a node; SLURM takes the node for lost after ten seconds, and its jobs elsewhere."""
        process = self._processes.pop(f"slurmd -D -N {node}")
        process.terminate()
        process.wait()

    def wait_for(self, *states: str, seconds: float = 60) -> None:
        """Waits until the nodes are in these states."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            shown = ask("sinfo", "--noheader", "--Node", "--partition=low", "--format=%N %t").split("\n")
            if [line.split()[1].rstrip("*") for line in shown if line] == list(states):
                return
            time.sleep(0.5)
        raise AssertionError(f"nodes are not {states}: {shown}")

    def stop(self) -> None:
        """Stops all of it."""
        subprocess.run(["scancel", f"--user={getpass.getuser()}"], check=False)
        time.sleep(2)
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def _start(self, *words: str) -> None:
        name = " ".join(words)
        log = self._folder / f"{words[0]}{len(self._processes)}.log"
        with open(log, "ab") as file:
            self._processes[name] = subprocess.Popen(words, stdout=file, stderr=file)


def ask(*words: str) -> str:
    """What a command of SLURM prints."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster while the context lasts."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    assert not missing, f"{missing[0]} is missing; `make test-slurm` installs SLURM"
    before = os.environ.get("SLURM_CONF")
    with tempfile.TemporaryDirectory(prefix="slurm", ignore_cleanup_errors=True) as folder:  # sockets need short paths
        one = Cluster(Path(folder))
        try:
            one.start()
            yield one
        finally:
            one.stop()
            os.environ.pop("SLURM_CONF")
            if before is not None:
                os.environ["SLURM_CONF"] = before


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@contextlib.contextmanager
def sweep(words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep in a process of its own, which ends with the context at the latest."""
    command = [sys.executable, "-m", "sweeps", *words, f"store={folder}", "-m"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def until(found: Callable[[], object], seconds: float = 120) -> object:
    """Waits for something that is true, and gives it."""
    deadline = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return result


def states(state: str = "RUNNING") -> list[str]:
    shown = ask("squeue", "--noheader", "--array", "--format=%F_%K %T")
    return [line.split()[0] for line in shown.splitlines() if line.split()[1] == state]


def workers(job: str | None = None) -> list[int]:
    """The processes that train, of a job or of all."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"from sweeps.launchers import worker" not in (folder / "cmdline").read_bytes():
                continue
            about = dict(e.split(b"=", 1) for e in (folder / "environ").read_bytes().split(b"\0") if b"=" in e)
        except OSError:
            continue
        own = b"%s_%s" % (about.get(b"SLURM_ARRAY_JOB_ID", b""), about.get(b"SLURM_ARRAY_TASK_ID", b""))
        if own != b"_" and (job is None or own.decode() == job):
            found.append(int(folder.name))
    return found


def logs(folder: Path) -> list[attempts.Attempt]:
    return [each for name in store.names(folder) for each in attempts.read(folder / name)]


def saved(folder: Path) -> object:
    """Waits until a study of a store has a checkpoint."""
    return until(lambda: list(folder.glob("*/checkpoint-*")))


def codes(folder: Path, count: int) -> list[int]:
    """Waits until so many attempts at studies of a store have ended; the exit code of each, in their order."""
    found: list[int] = []

    def ended() -> bool:
        found[:] = [each.code for each in logs(folder) if each.code is not None]
        return len(found) >= count

    until(ended)
    return found


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `python -m sweeps.status` prints of a store, in one line."""
    capsys.readouterr()
    assert status.main([f"store={folder}"]) == 0
    return " ".join(capsys.readouterr().out.split())


def lost_attempts(folder: Path) -> list[attempts.Attempt]:
    return [each for each in logs(folder) if each.code == exit_codes.PEER_LOST]


def lost_after_a_kill(folder: Path) -> list[attempts.Attempt]:
    """The attempts that were lost, after SIGKILL to one worker more, which may just have come to its end."""
    for victim in workers()[:1]:
        os.kill(victim, signal.SIGKILL)
    time.sleep(3)
    return lost_attempts(folder)


def test_forty_studies_end_exactly_once(slurm: Cluster, tmp_path: Path) -> None:
    with sweep([*FORTY, *BY_SLURM], tmp_path / "slurm") as running:
        try:
            until(lambda: len(workers()) >= 3)
            until(lambda: len(lost_after_a_kill(tmp_path / "slurm")) >= 3)
            for job in states()[:2]:
                ask("scontrol", "requeue", job)
            until(lambda: len(states()) >= 3)
            slurm.stop_node("n2")
            slurm.wait_for("mix", "down")
            time.sleep(5)
            slurm.start_node("n2")
            output, _ = running.communicate(timeout=1200)
        finally:
            print(ask("sinfo"), ask("scontrol", "--oneliner", "show", "jobs"))
    print(output)
    assert running.returncode == exit_codes.DONE
    assert len(re.findall(r"^digits\S+ +4 +4 ", output, re.M)) == 40
    assert verify.run(tmp_path / "slurm", print) == 0
    lost = lost_attempts(tmp_path / "slurm")
    assert len(lost) >= 3
    assert all("process died by signal 9" in attempts.printed(each.log) for each in lost)
    assert sweeps_cli.main([*FORTY, f"store={tmp_path / 'alone'}", "-m"]) == exit_codes.DONE
    assert_same(tmp_path / "slurm", tmp_path / "alone")


def test_a_cancelled_element_is_saved_and_stays_out_of_the_queue(
    slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.wait_for("idle", "idle")
    with sweep([*LONG, *BY_SLURM], tmp_path) as running:
        saved(tmp_path)
        (job,) = states()
        ask("scancel", job)
        output, _ = running.communicate(timeout=120)
    (log,) = logs(tmp_path)
    assert log.code == exit_codes.PREEMPTED
    assert running.returncode == exit_codes.FAILED
    assert f"failed: job {job}: cancelled by scancel; see {log.log}" in output
    assert "Run the same command to retry them" in output
    time.sleep(5)
    assert not states() + states("PENDING")
    text = shown(tmp_path, capsys)
    assert re.search(r"digits\S+ unfinished examples 4 0 0 0 0 0 0 0 4 ", text)
    assert f"attempt 1 ended cancelled by scancel; see {log.log}" in text


def test_requeued_and_out_of_time_goes_on(slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.wait_for("idle", "idle")
    words = [word.replace("200000", "20000000") for word in LONG]
    with sweep([*words, *BY_SLURM, "launcher.minutes=1", "launcher.retries=0"], tmp_path) as running:
        saved(tmp_path)
        (job,) = states()
        ask("scontrol", "requeue", job)
        assert codes(tmp_path, 1) == [exit_codes.PREEMPTED]
        until(lambda: f"queued (slurm {job})" in shown(tmp_path, capsys))
        assert codes(tmp_path, 2) == [exit_codes.PREEMPTED] * 2  # its minute was over
        until(lambda: states() == [job])
        running.terminate()
        output, _ = running.communicate(timeout=200)
    assert running.returncode in (exit_codes.PREEMPTED, exit_codes.TERMINATED)  # it has just begun
    assert "failed" not in output


def test_preempted_job_resumes_from_its_checkpoint(
    slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.wait_for("idle", "idle")
    words = [word.replace("200000", "1500000") for word in LONG]  # takes longer than the grace time
    with sweep([*words, *BY_SLURM, "launcher.retries=0"], tmp_path / "slurm") as running:
        try:
            saved(tmp_path / "slurm")
            ask("sbatch", "--partition=high", "--exclusive", "--nodes=2", "--output=/dev/null", "--wrap=sleep 3")
            assert codes(tmp_path / "slurm", 1) == [exit_codes.PREEMPTED]
            assert re.search(r"digits\S+ (queued \(slurm \d+_0\)|running \d/4) ", shown(tmp_path / "slurm", capsys))
            output, _ = running.communicate(timeout=600)
        finally:
            print(ask("scontrol", "--oneliner", "show", "jobs"))
    print(output)
    assert running.returncode == exit_codes.DONE
    assert not logs(tmp_path / "slurm")
    assert sweeps_cli.main([*words, f"store={tmp_path / 'alone'}", "-m"]) == exit_codes.DONE
    assert_same(tmp_path / "slurm", tmp_path / "alone")


def test_stopped_sweep_saves_and_a_killed_one_is_found_again(slurm: Cluster, tmp_path: Path) -> None:
    slurm.wait_for("idle", "idle")
    words = [*LONG, *BY_SLURM]
    with sweep(words, tmp_path) as stopped:
        saved(tmp_path)
        stopped.terminate()
        output, _ = stopped.communicate(timeout=120)
    assert stopped.returncode == exit_codes.PREEMPTED, output
    assert not states()
    assert not states("PENDING")
    with sweep(words, tmp_path):
        job = until(states)
    with sweep(words, tmp_path) as again:
        output, _ = again.communicate(timeout=600)
    assert again.returncode == exit_codes.DONE, output
    assert "1 study already queued or running" in output
    assert job
    assert verify.run(tmp_path, print) == 0


def test_two_nodes_run_a_study_together_and_resume(slurm: Cluster, tmp_path: Path) -> None:
    slurm.wait_for("idle", "idle")
    words = [word.replace("200000", "40000") for word in LONG]
    with sweep([*words, *BY_SLURM, "launcher.nodes=2", "launcher.retries=0"], tmp_path / "slurm") as running:
        try:
            saved(tmp_path / "slurm")
            (job,) = states()
            ask("scontrol", "requeue", job)
            output, _ = running.communicate(timeout=900)
        finally:
            for each in logs(tmp_path / "slurm"):
                print(each.log.read_text())
    print(output)
    assert running.returncode == exit_codes.DONE
    assert sweeps_cli.main([*words, f"store={tmp_path / 'alone'}", "-m"]) == exit_codes.DONE
    assert_same(tmp_path / "slurm", tmp_path / "alone")
    assert set(store.read(tmp_path / "slurm").studies["device_count"]) == {2}


def test_a_frozen_node_ends_the_attempt(slurm: Cluster, tmp_path: Path) -> None:
    slurm.wait_for("idle", "idle")
    words = [*(word.replace("200000", "40000") for word in LONG), *BY_SLURM, "launcher.minutes=60"]
    with sweep([*words, "launcher.nodes=2", "launcher.retries=1"], tmp_path) as running:
        saved(tmp_path)
        time.sleep(5)  # both nodes know that steps were saved
        frozen = processes_of_node(1)
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        began = time.monotonic()
        (code,) = codes(tmp_path, 1)
        assert time.monotonic() - began < 110  # without a heartbeat for 30 s, then srun waits for 20 s
        output, _ = running.communicate(timeout=600)
    assert frozen and code == exit_codes.PEER_LOST
    assert running.returncode == exit_codes.DONE, output
    assert verify.run(tmp_path, print) == 0
    assert not any(Path(f"/proc/{process}").exists() for process in frozen)


def processes_of_node(node: int) -> list[int]:
    """The processes of a study on one of its nodes."""
    word = f"launcher.host={node}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if word in words and b"launcher=hosts" in words:
                found.append(int(folder.name))
    return found


def test_a_mistake_is_not_repeated(slurm: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "it's #1 50%A"
    with sweep([*LONG, *BY_SLURM, "launcher.sbatch={export: 'ALL,JAX_PLATFORMS=cuda'}"], folder) as broken:
        output, _ = broken.communicate(timeout=200)
    print(output)
    assert broken.returncode == exit_codes.FAILED
    assert re.search(r"failed: job \d+_0: .*; see .+/attempt-1\.log", output)
    (log,) = logs(folder)
    assert log.code == exit_codes.FAILED
    assert "cuda" in (log.cause or "")


def test_what_the_cluster_does_not_have(slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("launcher.cpus=400", "launcher.partition=nosuch", "launcher.gpus=8"):
        assert sweeps_cli.main([*LONG, *BY_SLURM, word, f"store={tmp_path}", "-m"]) == exit_codes.INVALID
        (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("error: ")]
        assert re.match("error: (sbatch rejects|SLURM cannot run) the job: .", line)
        assert not states("PENDING")
        assert not logs(tmp_path)


def test_jobs_that_can_never_run_are_refused(
    slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sweep([*LONG, *BY_SLURM, "launcher.mem=900G"], tmp_path) as running:
        output, _ = running.communicate(timeout=60)
    assert running.returncode == exit_codes.INVALID
    (line,) = [each for each in output.splitlines() if each.startswith("error: ")]
    assert line.startswith("error: SLURM can never run 1 study: BadConstraints")
    assert not states("PENDING")
    assert not logs(tmp_path)
    assert re.search(r"digits\S+ unfinished examples 4 0 0 0 0 0 0 0 4 ", shown(tmp_path, capsys))


def test_the_reason_why_jobs_wait_is_shown(slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slurm.wait_for("idle", "idle")
    ask("scontrol", "update", "nodename=n1,n2", "state=drain", "reason=test")
    with sweep([*LONG, *BY_SLURM], tmp_path) as running:
        try:
            assert running.stdout is not None
            lines = iter(running.stdout.readline, "")
            assert next(line for line in lines if "queued" in line).startswith(
                "1 queued: Nodes required for job are DOWN"
            )
            (job,) = states("PENDING")
            assert f"queued (slurm {job})" in shown(tmp_path, capsys)
            running.terminate()
            running.communicate(timeout=60)
        finally:
            ask("scontrol", "update", "nodename=n1,n2", "state=resume")
    assert running.returncode == exit_codes.TERMINATED
    assert not states("PENDING")
