"""A worker process, as seen by its parent: how it is started, heard and ended. This module does not initialize JAX."""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from harness.processes.processors import Cpus
from harness.run import TRAINING, RunProgress
from results import durable, exit_codes, printing
from results.plans.plan import Plan
from results.storage import attempts
from sweeps.launchers import worker
from sweeps.launchers.process_end import exit_description
from sweeps.launchers.silence import Silence

END_SECONDS = 30.0  # time that a worker has to save before it is killed (on an idle machine, two suffice)
# The program of a worker, which uses its parent's module search path.
PROGRAM = """
import json, sys
descriptor, cpus, sys.path[:] = json.loads(sys.argv[1])
from sweeps.configured_study import Config
from sweeps.launchers import worker
worker.main(descriptor, cpus)
"""


@dataclasses.dataclass
class Worker:
    """A worker process, as seen by its parent.

    Attributes:
      slot: index of the worker's slot in the pool.
      process: process of the worker.
      orders: connection for orders and reports.
      study: study that the worker runs, if any.
      log: log of the attempt, if the output is redirected.
      heard: whether the worker has started the study.
      advanced: whether the worker has taken a step.
      hurried: whether the worker has been asked to end the study.
      progress: last reported progress.
      silence: timer that measures the worker's silence.
      reported_silence: length of the silence in seconds, as last reported.
      ended_silent: whether the worker was killed because it was silent.
    """

    slot: int
    process: subprocess.Popen[bytes]
    orders: Connection
    study: Plan | None = None
    log: Path | None = None
    heard: bool = False
    advanced: bool = False
    hurried: bool = False
    progress: RunProgress = dataclasses.field(default_factory=RunProgress)
    silence: Silence = dataclasses.field(init=False)
    reported_silence: float = 0.0
    ended_silent: bool = False

    def __post_init__(self) -> None:
        self.silence = Silence(self.process.pid)

    def take(self, study: Plan, order: worker.Order) -> None:
        """Assigns a study to the worker and starts an attempt."""
        folder = durable.location(order.store) / study.name
        is_own = attempts.VARIABLE not in os.environ and (not durable.system(folder).is_local or folder.is_dir())
        self.log = attempts.begin(folder, "local") if is_own else None
        self.study, self.heard, self.advanced, self.hurried = study, False, False, False
        self.progress = RunProgress()
        self.silence.restart()
        with contextlib.suppress(OSError):  # if the worker has died, `hear` reports it
            self.orders.send(order._replace(log=None if self.log is None else str(self.log)))

    def ended(self, code: int, cause: str) -> None:
        """Records the end of the attempt in the log. If the attempt was successful, prints its output."""
        if self.log is not None:
            for line in attempts.printed(self.log).rstrip().splitlines() if code == exit_codes.DONE else ():
                printing.say(line)
            attempts.end(self.log, code, cause)

    def hurry(self) -> None:
        """Asks the worker to save and end its study, because the time is up."""
        if self.heard and not self.hurried:
            self.hurried = True
            self.process.send_signal(signal.SIGUSR1)

    def hear(self) -> worker.WorkerReport | None:
        """Returns the next report, or None if the worker has died."""
        try:
            report = self.orders.recv()
        except (EOFError, OSError):
            return None
        self.silence.restart()
        self.reported_silence = 0.0
        return report

    def silent(self, limit: float | None, *, accelerated: bool) -> float:
        """Returns the seconds since the last sign of life. Kills the worker if they exceed ``most``.

        On accelerators, a process may use CPU time while its device hangs, so only reports count during training.
        """
        seconds = self.silence.look(by_computing=not (accelerated and self.progress.doing == TRAINING))
        if limit is not None and seconds >= limit and not self.ended_silent:
            self.ended_silent = True
            self.process.kill()
        return seconds

    def bury(self) -> None:
        """Waits for the process to end and closes its pipes."""
        with self.process:  # closes standard input and waits
            self.orders.close()


def start(slot: int, cpus: Cpus, environment: dict[str, str]) -> Worker:
    """Starts a process with an environment. Before importing JAX, the process binds itself to ``cpus``, if given.

    The new process runs a separate program instead of the main script of this process, which may be a notebook. Its
    standard input closes when this process ends for any reason.
    """
    parent_end, child_end = multiprocessing.Pipe()
    with child_end:
        about = json.dumps([child_end.fileno(), cpus, sys.path])
        warned = [f"-W{option}" for option in sys.warnoptions]
        process = subprocess.Popen(
            [sys.executable, "-P", *warned, "-c", PROGRAM, about],
            stdin=subprocess.PIPE,
            env=os.environ | environment,
            pass_fds=[child_end.fileno()],
        )
    return Worker(slot, process, parent_end)


def end_all(workers: Sequence[Worker]) -> list[int]:
    """Ends processes after they have reported finished trials and saved running trials. Returns their exit codes."""
    for worker_process in workers:
        worker_process.process.terminate()  # before the pipe closes, because a worker whose reports fail also stops
        worker_process.orders.close()
    deadline = time.monotonic() + END_SECONDS
    for worker_process in workers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker_process.process.wait(max(0.0, deadline - time.monotonic()))
        worker_process.process.kill()
        worker_process.bury()
        if worker_process.study is not None:
            worker_process.ended(
                worker_process.process.returncode, exit_description(worker_process.process.returncode, no_memory=False)
            )
            worker_process.study = None
    return [worker_process.process.returncode for worker_process in workers]
