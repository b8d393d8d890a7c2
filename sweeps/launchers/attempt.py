"""An attempt at one study, as a job of a cluster: the command that runs it, in a process whose log is the attempt's.

    python -m sweeps.launchers.attempt STORE STUDY [--retries N] [--nodes N] [--port N] -- WORDS…

is what a job of SLURM is. WORDS are those of `python -m sweeps` for this study alone, or of several such commands with
a semicolon between. SIGTERM and SIGUSR2 say that the job will be ended: the study is saved and the job put back into
the queue. SIGUSR1 says the same of a sweep that is stopped: nothing is put back. SIGHUP says that its time is up: it is
saved and ends as INCOMPLETE(time_limit). Never initialises JAX.
"""

import argparse
import contextlib
import enum
import functools
import itertools
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

from results import exit_codes
from results.cli import say
from results.storage import attempts, heartbeat
from sweeps import limits
from sweeps.launchers import local
from sweeps.launchers.launcher import RetryPolicy, record_failed, worst_code
from sweeps.launchers.worker import Failure

LOOK_SECONDS = 0.5
PORTS = range(20000, 30000)  # of the first host, for studies over several
REQUEUES = 12  # times that SLURM is asked to
CANCELLED = "cancelled by scancel"  # the cause of an end
KILL_SECONDS = 90.0  # that a study has to save and to end
ROOT = Path(__file__).parents[2]


class Wish(enum.Enum):
    """What an attempt is asked for: nothing, to be saved and stop, or to be saved and end as its time is up."""

    NOTHING = 0
    STOP = 1
    TIME_IS_UP = 2


class Fate(enum.Enum):
    """What SLURM does with a job: it lets it run, ends it for good, or puts it back into the queue itself."""

    RUNS = 0  # or ends it so that it may be put back
    CANCELLED = 1
    REQUEUED = 2


class Ending(NamedTuple):
    """The end of an attempt: its exit code, or minus the signal, and whether it took a step of the study."""

    code: int
    advanced: bool


def command(
    words: Sequence[str], store: Path, nodes: int = 1, port: int = 0, silence_seconds: float | None = None
) -> list[str]:
    """The command that runs a study here, or on all nodes of a job of SLURM.

    Args:
      words: of `python -m sweeps` for the study.
      store: folder of the store.
      nodes: that it takes.
      port: on the first node, where its processes find each other.
      silence_seconds: of ``sweeps.launchers.local``; processes of several nodes hear of each other by JAX.
    """
    if nodes == 1:
        alone = ["launcher=local", "launcher.workers=1", "launcher.retries=0"]
        alone += [] if silence_seconds is None else [f"launcher.silence_seconds={silence_seconds}"]
        return [sys.executable, "-P", "-m", "sweeps", *words, f"store={store}", *alone]
    nodelist = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
    first = address_of(subprocess.run(nodelist, capture_output=True, text=True, check=True).stdout.split()[0])
    theirs = command_of_host(words, store, f"{first}:{port}", nodes, None)
    code_file = f"{shlex.quote(os.environ['SCALING_LIMITS_OUTPUT'])}.$SLURM_PROCID"  # for ``code_of_hosts``
    ours = f"{shlex.join(theirs)} launcher.host=$SLURM_PROCID"
    on_each = f"trap : TERM; rm -f {code_file}; {ours}; code=$?; echo $code >{code_file}; exit $code"
    return ["srun", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "bash", "-c", on_each]


def address_of(node: str) -> str:
    """The address that SLURM itself reaches a node at, whose name others may not know."""
    about = ["scontrol", "--oneliner", "show", "node", node]
    found = re.search(r"\bNodeAddr=(\S+)", subprocess.run(about, capture_output=True, text=True, check=False).stdout)
    return found[1] if found else node


def command_of_host(words: Sequence[str], store: Path, coordinator: str, count: int, host: int | None) -> list[str]:
    """The command that runs a study on one of several hosts; without ``host`` that is still to be said."""
    together = ["launcher=hosts", f"launcher.coordinator={coordinator}", f"launcher.hosts={count}"]
    which = [] if host is None else [f"launcher.host={host}"]
    return [sys.executable, "-P", "-m", "sweeps", *words, f"store={store}", *together, *which]


def port_of(study: str) -> int:
    """The port of a study on its first host: the same in every process, and another for most other studies."""
    return PORTS[zlib.crc32(study.encode()) % len(PORTS)]


def joined(commands: Sequence[Sequence[str]]) -> list[str]:
    """The words of several commands as those of one."""
    return [word for i, words in enumerate(commands) for word in ([";"] if i else []) + [*words]]


def split(words: Sequence[str]) -> list[list[str]]:
    """The inverse of ``joined``."""
    return [list(own) for is_end, own in itertools.groupby(words, lambda word: word == ";") if not is_end]


def code_of_hosts(output: Path, nodes: int, code: int) -> int:
    """The exit code of a command on several nodes; srun itself gives the largest.

    Args:
      output: of the job; the nodes write their own codes to files next to it, which are removed.
      nodes: how many there are; one that wrote nothing is lost.
      code: of srun, which counts if no node wrote any.
    """
    codes = []
    for path in (output.with_name(f"{output.name}.{node}") for node in range(nodes)):
        with contextlib.suppress(OSError, ValueError):
            codes.append(int(path.read_text()))
        path.unlink(missing_ok=True)
    return worst_code([*codes, *[exit_codes.PEER_LOST] * (nodes - len(codes))]) if codes else code


def run_each(
    folder: Path,
    commands: Sequence[Sequence[str]],
    log: Path,
    asked: Callable[[], "Wish"],
    code_of: Callable[[int], int] = int,
) -> Ending:
    """Runs commands one after the other as an attempt, until one does not come to its end; see ``run``.

    ``code_of`` gives the exit code of a command from that of its process.
    """
    end = Ending(exit_codes.DONE, False)
    for words in commands:
        before, end = end, run(folder, words, log, asked)
        end = Ending(code_of(end.code), before.advanced or end.advanced)
        if end.code != exit_codes.DONE:
            break
    return end


def run(folder: Path, words: Sequence[str], log: Path, asked: Callable[[], "Wish"]) -> Ending:
    """Runs a command as an attempt at the study in a folder; ends it in order where that is asked for.

    Args:
      folder: of the study.
      words: the command.
      log: of the attempt.
      asked: looked at every half second.
    """
    steps, asked_at = 0, None
    heard = {Wish.NOTHING}
    with open(log, "ab", buffering=0) as file, _kept_for_child(signal.SIGUSR1):
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,  # closes with this process, and the command ends
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
def _kept_for_child(number: signal.Signals) -> Iterator[None]:
    """Within, child processes begin with a signal blocked: it waits until they have a handler, and unblock it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def description(log: Path, code: int) -> str:
    """How an attempt ended, in words: those of the study itself where it said why it failed."""
    said = re.findall(
        r"^(?:[\d:]{8} )?\[\d+/\d+\] \S+: failed: (.+)$|^error: (.+)$", attempts.printed(log), re.MULTILINE
    )
    return f"with exit code {code}: {''.join(said[-1])}" if said and code >= 0 else local.exit_description(code)


def end_with_parent() -> None:
    """Has this process end as by SIGTERM once the attempt that started it is gone, and its studies at SIGUSR1."""
    signal.signal(signal.SIGUSR1, lambda number, frame: limits.time_is_up())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})  # the attempt blocked it until now

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):  # nobody writes to it
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def is_again(folder: Path, job: str, end: Ending, retries: int) -> bool:
    """Whether a job is to try again after an attempt that is in the log already.

    Args:
      folder: of the study.
      job: whose attempts count.
      end: of the last.
      retries: of attempts that were lost.
    """
    past = [each for each in attempts.read(folder) if each.job == job and each.began]
    tries = RetryPolicy(retries)
    for each in past[:-1]:  # one without an end went with its machine
        tries.again(exit_codes.PEER_LOST if each.code is None else each.code, advanced=True)
    return tries.again(end.code, advanced=end.advanced)


def record_lost(store: Path, name: str, why: str) -> None:
    """Stores that the missing trials of a study are lost."""
    from results import store as stores

    planned = stores.stored_plan(store, name)
    if planned is not None:
        record_failed(store, planned, "lost", Failure(why))


def main(argv: Sequence[str]) -> int:
    """Makes an attempt at a study, as a job of SLURM."""
    parser = argparse.ArgumentParser(prog="sweeps.launchers.attempt")
    parser.add_argument("store", type=Path)
    parser.add_argument("study")
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--silence-seconds", type=float)
    parser.add_argument("words", nargs="+")
    asked: Any = parser.parse_args(argv)
    told: list[int] = []
    for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(each, lambda number, frame: told.append(number))

    def wish() -> Wish:
        if set(told) - {signal.SIGHUP} or (told and asked.nodes > 1):
            return Wish.STOP
        return Wish.TIME_IS_UP if told else Wish.NOTHING

    folder, job = asked.store / asked.study, job_of_slurm(os.environ)
    log = _log(folder, job)
    how = (asked.nodes, asked.port, asked.silence_seconds)
    commands = [command(words, asked.store, *how) for words in split(asked.words)]
    several = functools.partial(code_of_hosts, Path(os.environ["SCALING_LIMITS_OUTPUT"]), asked.nodes)
    end = run_each(folder, commands, log, wish, several if asked.nodes > 1 else int)
    is_mistake = end.code in (exit_codes.FAILED, exit_codes.INVALID)
    fate = Fate.RUNS if is_mistake or end.code == exit_codes.DONE else _fate(job, signal.SIGUSR2 in told)
    again = is_again(folder, job, end, asked.retries) and signal.SIGUSR1 not in told
    attempts.end(log, end.code, CANCELLED if fate == Fate.CANCELLED else description(log, end.code))
    _remove_output()
    if end.code == exit_codes.DONE:
        return 0
    if again and fate != Fate.CANCELLED:
        say(f"attempt ended {local.exit_description(end.code)}; back into the queue")
        attempts.begin(folder, "slurm", job, waits=True)
        if fate != Fate.REQUEUED:
            _requeue(job)
        return exit_codes.PREEMPTED
    kept = is_mistake or end.code == exit_codes.PREEMPTED or signal.SIGUSR1 in told or fate == Fate.CANCELLED
    if not kept:
        record_lost(asked.store, asked.study, f"its process died {local.exit_description(end.code)}")
    return end.code if end.code >= 0 else 128 - end.code


def job_of_slurm(environment: Any) -> str:
    """The job that this process is: of an array ARRAY_INDEX."""
    if "SLURM_ARRAY_JOB_ID" in environment:
        return f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    return str(environment["SLURM_JOB_ID"])


def _log(folder: Path, job: str) -> Path:
    """The log of the attempt that begins now, which was made when the job was put into the queue."""
    waiting = [each.log for each in attempts.read(folder) if each.job == job and each.began is None]
    if not waiting:
        return attempts.begin(folder, "slurm", job)
    attempts.begun(waiting[-1])
    return waiting[-1]


def _requeue(job: str) -> None:
    """Puts a job back into the queue, unless SLURM has done so itself; asks again where nobody answers."""
    for _ in range(REQUEUES):
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, check=False)
        if "nable to contact" not in done.stderr:
            return
        time.sleep(LOOK_SECONDS * 10)


def _fate(job: str, is_out_of_time: bool) -> Fate:
    """What SLURM does with this job, whose processes still live: if it ends it in any way, the job is COMPLETING."""
    shown = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True, check=False).stdout
    return fate_of(shown, int(os.environ.get("SLURM_RESTART_COUNT", 0)), is_out_of_time)


def fate_of(shown: str, restarts: int, is_out_of_time: bool) -> Fate:
    """What SLURM does with a job.

    Args:
      shown: about it, by `scontrol show job`.
      restarts: of the job, when it began; each return to the queue counts one at once.
      is_out_of_time: whether it was signalled before the end of its time, which may be over by now.
    """
    if not re.search(r"\bJobState=(COMPLETING|CANCELLED)\b", shown):
        return Fate.RUNS
    found = re.search(r"\bRestarts=([0-9]+)", shown)
    if found and int(found[1]) > restarts:
        return Fate.REQUEUED
    is_preempted = re.search(r"\bPreemptTime=[0-9]", shown) is not None
    return Fate.RUNS if is_out_of_time or is_preempted else Fate.CANCELLED


def _remove_output() -> None:
    """Removes the file that takes what is printed before the log is there."""
    with contextlib.suppress(OSError):
        Path(os.environ["SCALING_LIMITS_OUTPUT"]).unlink(missing_ok=True)


def python_path() -> str:
    """Where the command finds this package, wherever that is installed."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
