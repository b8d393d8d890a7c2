"""A real SLURM on this machine: a controller and two nodes, each a process, with a key of their own."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

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
