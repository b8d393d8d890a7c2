"""Runs an attempt at a study as a cluster job. The study's command runs in a process that prints to a log.

    python -m sweeps.launchers.attempt STORE STUDY [--retries N] [--nodes N] [--port N] -- WORDS…

This is the program that a SLURM job runs. WORDS are the arguments of `python -m sweeps` for this study only. On SIGTERM
and SIGUSR2, which announce the end of the job, the study is saved and the job is requeued. On SIGUSR1, which stops the
sweep, the study is saved, but the job is not requeued. On SIGHUP, which signals that the time is up, the study is saved
and ends as INCOMPLETE(time_limit). This module does not initialize JAX.
"""

import argparse
import contextlib
import enum
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from results import exit_codes, store as stores
from results.printing import say
from results.storage import attempts, heartbeat
from sweeps import limits
from sweeps.launchers.launcher import RetryPolicy, record_failed, worst_code
from sweeps.launchers.process_end import exit_description
from sweeps.launchers.worker import Failure

LOOK_SECONDS = 0.5
PORTS = range(20000, 30000)  # ports on the first host, for multi-host studies
REQUEUES = 12  # maximum number of attempts to requeue a job
CANCELLED = "cancelled by scancel"
KILL_SECONDS = 90.0  # time that a study has to save before it is killed
NODE_SECONDS = 20  # time that the other nodes have to end, followed by SLURM's KillWait, before they are killed
ROOT = Path(__file__).parents[2]
_SWEEPS = (sys.executable, "-P", "-m", "sweeps")


class Wish(enum.Enum):
    """A request to an attempt: save the study and stop, or save and end the study because the time is up."""

    NOTHING = 0
    STOP = 1
    TIME_IS_UP = 2


class Fate(enum.Enum):
    """The state of a job in SLURM: running, cancelled or requeued."""

    RUNS = 0  # or is ending, and may be requeued
    CANCELLED = 1
    REQUEUED = 2


class Ending(NamedTuple):
    """The end of an attempt: its exit code (or minus the signal that ended it), and whether it took a training step."""

    code: int
    advanced: bool


def command(
    words: Sequence[str], store: Path, nodes: int = 1, port: int = 0, silence_seconds: float | None = None
) -> list[str]:
    """Returns the command that runs a study on this machine, or on all nodes of a SLURM job.

    Args:
      words: arguments of `python -m sweeps` for the study.
      store: folder of the store.
      nodes: number of nodes.
      port: rendezvous port on the first node.
      silence_seconds: as in ``sweeps.launchers.local``, for a single node. With several nodes, JAX detects lost
        processes, and srun ends those that are frozen.
    """
    if nodes == 1:
        launcher = ["launcher=local", "launcher.workers=1", "launcher.retries=0"]
        if silence_seconds is not None:
            launcher.append(f"launcher.silence_seconds={silence_seconds}")
        return [*_SWEEPS, *words, f"store={store}", *launcher]
    nodelist = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
    first = address_of(subprocess.run(nodelist, capture_output=True, text=True, check=True).stdout.split()[0])
    code_file = f"{shlex.quote(os.environ['SCALING_LIMITS_OUTPUT'])}.$SLURM_PROCID"  # for ``code_of_hosts``
    host_command = f"{shlex.join(command_of_host(words, store, f'{first}:{port}', nodes))} launcher.host=$SLURM_PROCID"
    on_each = f"trap : TERM; rm -f {code_file}; {host_command}; code=$?; echo $code >{code_file}; exit $code"
    options = [f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", f"--wait={NODE_SECONDS}"]
    return ["srun", *options, "bash", "-c", on_each]


def address_of(node: str) -> str:
    """Returns the address at which SLURM reaches a node. The node's name may not resolve on other nodes."""
    about = ["scontrol", "--oneliner", "show", "node", node]
    address = re.search(r"\bNodeAddr=(\S+)", subprocess.run(about, capture_output=True, text=True, check=False).stdout)
    return address[1] if address else node


def command_of_host(words: Sequence[str], store: Path, coordinator: str, count: int) -> list[str]:
    """Returns the command that runs a study on one of several hosts, without its ``launcher.host``."""
    launcher = ["launcher=hosts", f"launcher.coordinator={coordinator}", f"launcher.hosts={count}"]
    return [*_SWEEPS, *words, f"store={store}", *launcher]


def port_of(study: str) -> int:
    """Returns a study's port on its first host. All processes compute the same port. Studies usually differ in it."""
    return PORTS[zlib.crc32(study.encode()) % len(PORTS)]


def code_of_hosts(output: Path, nodes: int, code: int) -> int:
    """Returns the exit code of a command on several nodes. (srun itself returns the largest code.)

    Args:
      output: output file of the job. Each node writes its exit code to a file next to the output, and this function
        removes these files.
      nodes: number of nodes. A node without a file is considered lost.
      code: exit code of srun, which is used if there are no such files.
    """
    codes = []
    for node in range(nodes):
        path = output.with_name(f"{output.name}.{node}")
        with contextlib.suppress(OSError, ValueError):
            codes.append(int(path.read_text()))
        path.unlink(missing_ok=True)
    if not codes:
        return code
    return worst_code(codes if len(codes) == nodes else [*codes, exit_codes.PEER_LOST])


def run(folder: Path, words: Sequence[str], log: Path, asked: Callable[[], "Wish"]) -> Ending:
    """Runs a command as an attempt at the study in a folder. On request, saves and ends the study.

    Args:
      folder: folder of the study.
      words: words of the command.
      log: log file of the attempt.
      asked: function that returns the request. It is called every half second.
    """
    steps = 0
    asked_at = None
    heard = {Wish.NOTHING}
    # The signal stays pending in the child until `end_with_parent` has set a handler.
    with open(log, "ab", buffering=0) as file, blocked(signal.SIGUSR1):
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,  # it closes when this process ends, which ends the command
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {attempts.VARIABLE: str(log), "PYTHONPATH": python_path()},
        )
    with process:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
                break
            beat = heartbeat.read(folder)
            steps = max(steps, beat.steps) if beat else steps
            if asked_at is not None and time.monotonic() > asked_at + KILL_SECONDS:
                process.kill()
            if (wish := asked()) in heard:
                continue
            heard.add(wish)
            if wish == Wish.STOP:
                asked_at = time.monotonic()
                process.terminate()
            else:
                process.send_signal(signal.SIGUSR1)
    return Ending(process.returncode, steps > 0)


@contextlib.contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Blocks signals in this process and in processes started in the context. Signals are delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def description(log: Path, code: int) -> str:
    """Describes the end of an attempt, including the error that the study printed, if any."""
    errors = re.findall(
        r"^(?:[\d:]{8} )?\[\d+/\d+\] \S+: failed: (.+)$|^error: (.+)$", attempts.printed(log), re.MULTILINE
    )
    return f"with exit code {code}: {''.join(errors[-1])}" if errors and code >= 0 else exit_description(code)


def end_with_parent() -> None:
    """Ends this process with SIGTERM once the attempt that started it is gone. On SIGUSR1, its studies are ended."""
    signal.signal(signal.SIGUSR1, lambda number, frame: limits.time_is_up())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})  # the attempt blocked it until now

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):  # returns b"" once the other end closes
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def is_again(folder: Path, job: str, end: Ending, retries: int) -> bool:
    """Returns whether a job should retry after an attempt. The attempt's log must already exist.

    Args:
      folder: folder of the study.
      job: job whose attempts count.
      end: end of the last attempt.
      retries: number of times that lost attempts are retried.
    """
    past = [attempt for attempt in attempts.read(folder) if attempt.job == job and attempt.began]
    policy = RetryPolicy(retries)
    for attempt in past[:-1]:  # an attempt without a code was lost with its machine
        policy.again(exit_codes.PEER_LOST if attempt.code is None else attempt.code, advanced=True)
    return policy.again(end.code, advanced=end.advanced)


def record_lost(store: Path, name: str, why: str) -> None:
    """Stores the missing trials of a study as lost."""
    planned = stores.stored_plan(store, name)
    if planned is not None:
        record_failed(store, planned, "lost", Failure(why))


def main(argv: Sequence[str]) -> int:
    """Runs an attempt at a study as a SLURM job, and returns its exit code."""
    parser = argparse.ArgumentParser(prog="sweeps.launchers.attempt")
    parser.add_argument("store", type=Path)
    parser.add_argument("study")
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--silence-seconds", type=float)
    parser.add_argument("words", nargs="+")
    asked: Any = parser.parse_args(argv)
    received = []
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, lambda number, frame: received.append(number))

    def wish() -> Wish:
        if set(received) - {signal.SIGHUP} or (received and asked.nodes > 1):
            return Wish.STOP
        return Wish.TIME_IS_UP if received else Wish.NOTHING

    folder = asked.store / asked.study
    job = job_of_slurm(os.environ)
    log = _log(folder, job)
    output = Path(os.environ["SCALING_LIMITS_OUTPUT"])
    how = (asked.nodes, asked.port, asked.silence_seconds)
    end = run(folder, command(asked.words, asked.store, *how), log, wish)
    if asked.nodes > 1:
        end = end._replace(code=code_of_hosts(output, asked.nodes, end.code))
    is_error = end.code in (exit_codes.FAILED, exit_codes.INVALID)
    fate = Fate.RUNS if is_error or end.code == exit_codes.DONE else _fate(job, signal.SIGUSR2 in received)
    retries = is_again(folder, job, end, asked.retries) and signal.SIGUSR1 not in received
    attempts.end(log, end.code, CANCELLED if fate == Fate.CANCELLED else description(log, end.code))
    with contextlib.suppress(OSError):
        output.unlink(missing_ok=True)
    if end.code == exit_codes.DONE:
        return 0
    if retries and fate != Fate.CANCELLED:
        say(f"the attempt ended {exit_description(end.code)}. The job is queued again.")
        attempts.begin(folder, "slurm", job, waits=True)
        if fate != Fate.REQUEUED:
            _requeue(job)
        return exit_codes.PREEMPTED
    is_saved = end.code in (exit_codes.PREEMPTED, exit_codes.NO_PROGRESS)
    if not (is_error or is_saved or signal.SIGUSR1 in received or fate == Fate.CANCELLED):
        record_lost(asked.store, asked.study, f"its process died {exit_description(end.code)}")
    return end.code if end.code >= 0 else 128 - end.code


def job_of_slurm(environment: Any) -> str:
    """Returns the SLURM job of this process, as ARRAY_INDEX in an array."""
    if "SLURM_ARRAY_JOB_ID" in environment:
        return f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    return str(environment["SLURM_JOB_ID"])


def _log(folder: Path, job: str) -> Path:
    """Returns the log of the current attempt, which was created when the job was queued."""
    waiting = [
        Path(str(attempt.log)) for attempt in attempts.read(folder) if attempt.job == job and attempt.began is None
    ]
    if not waiting:
        return attempts.begin(folder, "slurm", job)
    attempts.begun(waiting[-1])
    return waiting[-1]


def _requeue(job: str) -> None:
    """Requeues a job, unless SLURM has already done so. Retries if SLURM does not respond."""
    for _ in range(REQUEUES):
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, check=False)
        if "nable to contact" not in done.stderr:
            return
        time.sleep(LOOK_SECONDS * 10)


def _fate(job: str, is_out_of_time: bool) -> Fate:
    """Returns the state of this job in SLURM. A job is COMPLETING until all of its processes have ended."""
    shown = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=False).stdout
    return fate_of(shown, int(os.environ.get("SLURM_RESTART_COUNT", 0)), is_out_of_time)


def fate_of(shown: str, restarts: int, is_out_of_time: bool) -> Fate:
    """Returns the state of a job in SLURM.

    Args:
      shown: output of `scontrol show job`.
      restarts: number of restarts when the job began. A requeue increments the number immediately.
      is_out_of_time: whether the job was signalled near its time limit. The limit may have passed since then.
    """
    if not re.search(r"\bJobState=(COMPLETING|CANCELLED)\b", shown):
        return Fate.RUNS
    restarted = re.search(r"\bRestarts=([0-9]+)", shown)
    if restarted and int(restarted[1]) > restarts:
        return Fate.REQUEUED
    is_preempted = re.search(r"\bPreemptTime=[0-9]", shown) is not None
    return Fate.RUNS if is_out_of_time or is_preempted else Fate.CANCELLED


def python_path() -> str:
    """Returns a PYTHONPATH with which commands can import this package."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
