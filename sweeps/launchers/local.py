"""Local launcher: runs one worker process per physical core or accelerator of this machine.

Studies of an exclusive kind run after all others, one at a time. Each runs in a separate process on the cores that its
plan requests. This module does not initialize JAX.
"""

import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
from collections.abc import Hashable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.kinds import RUNNERS
from harness.processes import processors
from harness.processes.processors import Cpus
from harness.run import TRAINING, RunProgress, Settings
from harness.step.batch_partition import of_settings
from results import cli, durable, exit_codes, printing
from results.bad_input import BadInput, number_of
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.storage import attempts
from sweeps.configured_study import Config, Studies
from sweeps.launchers import worker
from sweeps.launchers.launcher import (
    Launch,
    RetryPolicy,
    WorkerLost,
    check_least,
    check_retries,
    cost,
    failed_too_often,
    record_failed,
)
from sweeps.launchers.silence import Silence
from sweeps.launchers.worker import Failure
from sweeps.run import RunSummary, StudyOutcome, StudyUpdate
from workloads import data_stream

Slot = tuple[Cpus, dict[str, str]]  # logical processors and environment of a process

WAIT_SECONDS = 1.0  # maximum time between checks of the sweep
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
      study: study that the worker runs, or None while it is idle.
      log: log of the attempt, or None if the output is not redirected.
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

    def silent(self, most: float | None, *, accelerated: bool) -> float:
        """Returns the seconds since the last sign of life. Kills the worker if they exceed ``most``.

        On accelerators, a process may use CPU time while its device hangs, so only reports count during training.
        """
        seconds = self.silence.look(by_computing=not (accelerated and self.progress.doing == TRAINING))
        if most is not None and seconds >= most and not self.ended_silent:
            self.ended_silent = True
            self.process.kill()
        return seconds

    def bury(self) -> None:
        """Waits for the process to end and closes its pipes."""
        with self.process:  # closes standard input and waits
            self.orders.close()


def slots(workers: int | None, own: int = 1) -> list[Slot]:
    """Returns the logical processors and the environment of each worker.

    On accelerators, a worker owns the devices that one batch is split across, and additional workers share devices
    evenly. On a CPU, a worker has one physical core, which emulates several devices if necessary, and additional
    workers share cores.

    Args:
      workers: number of workers. By default, all devices or cores are used.
      own: number of devices that each trial is split across.

    Raises:
      BadInput: the machine has too few devices.
    """
    kind, devices = processors.accelerators()
    if not devices:
        cores = processors.physical_cores()
        if attempts.VARIABLE in os.environ:  # other attempts may share the machine
            cores = processors.unclaimed_cores(workers or 1) or cores
        emulated = {"JAX_NUM_CPU_DEVICES": str(own)} if own > 1 else {}
        return [(cores[i % len(cores)], emulated) for i in range(workers or len(cores))]
    if own > devices or (kind == "tpu" and own not in (1, devices)):
        there = f"1 or {devices}" if kind == "tpu" else f"at most {devices}"
        here = number_of(devices, kind.upper())
        raise BadInput(f"each trial is divided over {own} devices, but this machine has {here}. Use {there}.")
    groups = len(processors.devices_of_chips()) if kind == "tpu" and own == 1 else devices // own
    count = workers or groups
    share = f"{0.9 / -(-count // groups):.3f}"

    def environment(i: int) -> dict[str, str]:
        ids = range(i % groups * own, (i % groups + 1) * own)
        if kind == "gpu":
            return {"CUDA_VISIBLE_DEVICES": ",".join(map(gpu_name, ids)), "XLA_PYTHON_CLIENT_MEM_FRACTION": share}
        if own > 1:
            return {}
        bounds = dict.fromkeys(("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_PROCESS_BOUNDS"), "1,1,1")
        return {"TPU_VISIBLE_CHIPS": str(ids[0])} | bounds

    return [((), environment(i)) for i in range(count)]


def occupied(slots: Sequence[Slot], studies: int) -> list[Slot]:
    """Returns a slot for each study, as long as slots are left. Unbound workers get the number of workers."""
    taken = slots[:studies]
    return [
        (cpus, environment if cpus else environment | {data_stream.SHARED_BY: str(len(taken))})
        for cpus, environment in taken
    ]


def slot_alone(cores: int | None) -> Slot:
    """Returns the logical processors and the environment of an exclusive process.

    On a CPU, each core is a physical core and a JAX device, and other libraries use a single thread. If there are more
    devices than physical cores, the devices share the cores. On accelerators, each core is a device.

    Args:
      cores: number of cores. With None, all cores are used, and the process is not bound.
    """
    if cores is None:
        return (), {}
    kind, devices = processors.accelerators()
    if devices:
        return (), {"CUDA_VISIBLE_DEVICES": ",".join(map(gpu_name, range(cores)))} if kind == "gpu" else {}
    bound = tuple(sorted(cpu for core in processors.physical_cores()[:cores] for cpu in core))
    return bound, {"JAX_NUM_CPU_DEVICES": str(cores), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def check(asked: Config, studies: Studies, settings: Settings) -> None:
    """Raises BadInput for an invalid configuration."""
    check_least(asked, workers=1)
    check_retries(asked)


def run_all(asked: Config, launch: Launch) -> list[StudyOutcome]:
    """Runs studies in worker processes, largest first, followed by exclusive studies in the given order.

    A study that raises an error is recorded as failed. A study whose worker dies is retried as ``RetryPolicy`` allows,
    and then recorded as lost. All other studies continue.

    Args:
      asked: the configuration of the launcher.
      launch: studies to run.

    Returns:
      An outcome for each study that started, in the order in which the studies ended.
    """
    processors.check_platforms()
    outcomes = []
    together = [study for study in launch.studies if not KINDS[study.kind].alone]
    if together:
        outcomes += _Pool(asked, launch, together, slots(asked["workers"], of_settings(launch.settings).devices)).run()
    exclusive = [study for study in launch.studies if KINDS[study.kind].alone]
    for _, group in itertools.groupby(exclusive, key=lambda study: RUNNERS[study.kind].process(study)):
        if launch.limits.reached is None:
            own = list(group)
            outcomes += _Pool(asked, launch, own, [slot_alone(own[0].devices)]).run()
    return outcomes


class _Pool:
    """A pool of workers that run studies: one per slot, or fewer if there are fewer studies."""

    def __init__(self, asked: Config, launch: Launch, studies: Studies, slots: Sequence[Slot]) -> None:
        self._launch = launch
        self._silence_seconds = asked["silence_seconds"]
        self._queue = sorted(studies, key=cost)  # pop() takes the largest
        self._policies = {study.name: RetryPolicy(asked["retries"]) for study in studies}
        self._outcomes: list[StudyOutcome] = []
        self._advanced = False  # whether any study took a step or ended
        self._kills = out_of_memory_kills()
        self._accelerated = bool(processors.accelerators()[1])
        self._slots = occupied(slots, len(studies))
        self._workers = [start(i, *slot) for i, slot in enumerate(self._slots)]

    def run(self) -> list[StudyOutcome]:
        """Runs all studies, and returns their outcomes in the order in which the studies ended."""
        try:
            while self._queue or any(one.study is not None for one in self._workers):
                self._give_orders()
                busy: dict[Any, Worker] = {one.orders: one for one in self._workers if one.study is not None}
                heard = multiprocessing.connection.wait(list(busy), WAIT_SECONDS)
                if not heard:
                    self._launch.on_wait()
                for orders, one in busy.items():
                    self._watch(one, is_heard=orders in heard)
                if self._launch.limits.reached is not None:
                    self._queue.clear()
                for orders in heard:
                    self._hear(busy[orders])
        except cli.Terminated as terminated:
            preempted = any(policy.preempted for policy in self._policies.values())
            terminated.saved = exit_codes.PREEMPTED in end_all(self._workers) or preempted
            terminated.advanced = self._advanced
            raise
        finally:
            end_all(self._workers)
        return self._outcomes

    def _give_orders(self) -> None:
        for idle in self._workers:
            if idle.study is None and self._queue:
                in_use = {_programs(one.study) for one in self._workers if one.study is not None}
                study = _next(self._queue, in_use)
                store = str(self._launch.store)
                source = self._launch.sources.get(study.name)
                idle.take(study, worker.order(store, study, self._launch.settings, source))
                self._launch.report(StudyUpdate(study, RunProgress()))

    def _watch(self, one: Worker, *, is_heard: bool) -> None:
        """Ends studies that have reached a limit, and reports silent workers."""
        assert one.study is not None
        if self._launch.limits.is_over(one.study.name):
            one.hurry()
        if is_heard:
            return
        seconds = one.silent(self._silence_seconds, accelerated=self._accelerated)
        if seconds != one.reported_silence:
            one.reported_silence = seconds
            self._launch.report(StudyUpdate(one.study, one.progress, silent=seconds))

    def _hear(self, one: Worker) -> None:
        """Handles the next report of a worker, or the death of the worker."""
        report = one.hear()
        study = one.study
        assert study is not None
        if report is None:
            self._bury(one, study)
            return
        one.heard = True
        if report.kind == "progress":
            one.progress = report.value
            one.advanced |= report.value.steps > 0
            self._advanced |= one.advanced
            self._launch.report(StudyUpdate(study, report.value))
            return
        one.study = None
        if report.kind == "done":
            self._advanced = True
            one.ended(exit_codes.DONE, "done")
            self._end(study, StudyOutcome(report.value))
        elif report.kind == "taken":
            one.ended(exit_codes.PREEMPTED, report.value.cause)  # not an error of the study
            self._end(study, StudyOutcome(RunSummary(study.name), *report.value))
        else:
            one.ended(exit_codes.FAILED, report.value.cause)
            self._end(study, record_failed(self._launch.store, study, "failed", report.value))

    def _end(self, study: Plan, outcome: StudyOutcome) -> None:
        self._outcomes.append(outcome)
        self._launch.report(StudyUpdate(study, outcome=outcome))

    def _bury(self, dead: Worker, study: Plan) -> None:
        """Replaces a dead worker. Retries its study or records it as lost or failed."""
        dead.bury()
        self._workers[dead.slot] = start(dead.slot, *self._slots[dead.slot])
        code = dead.process.returncode
        policy = self._policies[study.name]
        no_memory = False
        if code == -signal.SIGKILL and not dead.ended_silent:
            before = self._kills
            self._kills = out_of_memory_kills()
            no_memory = self._kills > before
        end = exit_description(code, no_memory=no_memory or None)
        if dead.ended_silent:
            end = f"by launcher.silence_seconds={self._silence_seconds:g}, without a sign of life"
        dead.ended(code, end)
        is_preempted = code == exit_codes.PREEMPTED
        if not is_preempted:
            RUNNERS[study.kind].after_death(study)
        most = self._launch.limits.study.max_failures
        allowed = not failed_too_often(self._launch.store / study.name, most)
        # A worker reports a study's errors before it ends, so any other code means that the process was lost.
        counted = code if is_preempted else exit_codes.PEER_LOST
        if policy.again(counted, advanced=dead.advanced, out_of_memory=no_memory) and allowed:
            self._queue.append(study)
            self._launch.report(StudyUpdate(study))
        elif attempts.VARIABLE in os.environ and not no_memory and not is_preempted:
            raise WorkerLost(f"{study.name}: its process died {end}")
        elif no_memory:
            why = "its process ran out of memory and was killed. Use more memory, fewer lanes or microbatches=…"
            self._end(study, record_failed(self._launch.store, study, "failed", Failure(why)))
        else:
            times = policy.preempted if is_preempted else policy.lost
            why = f"its process died {number_of(times, 'time')}, last {end}"
            if not allowed:
                why += f" (limits.study.max_failures={most})"
            self._end(study, record_failed(self._launch.store, study, "lost", Failure(why)))


def out_of_memory_kills() -> int:
    """Returns how often the system has killed processes for lack of memory, on this machine and in its cgroup."""
    files = ("/proc/vmstat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
    found = 0
    for file in files:
        with contextlib.suppress(OSError):
            words = Path(file).read_text().split()
            found += sum(int(n) for name, n in itertools.pairwise(words) if name == "oom_kill" and n.isdecimal())
    return found


def exit_description(exitcode: int, *, no_memory: bool | None = None) -> str:
    """Describes the end of a process.

    Args:
      exitcode: exit code of the process (or minus the signal that ended it).
      no_memory: whether the process was killed for lack of memory, or None if this is unknown.
    """
    if exitcode >= 0:
        return f"with exit code {exitcode}"
    why = ""
    if no_memory:
        why = ", out of memory"
    elif -exitcode == signal.SIGKILL and no_memory is None:
        why = ": by you, by the system, or for lack of memory"
    return f"by signal {-exitcode} ({signal.strsignal(-exitcode)}){why}"


def end_all(workers: Sequence[Worker]) -> list[int]:
    """Ends processes after they have reported finished trials and saved running trials. Returns their exit codes."""
    for one in workers:
        one.process.terminate()  # before the pipe closes, because a worker whose reports fail also stops
        one.orders.close()
    deadline = time.monotonic() + END_SECONDS
    for one in workers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, deadline - time.monotonic()))
        one.process.kill()
        one.bury()
        if one.study is not None:
            one.ended(one.process.returncode, exit_description(one.process.returncode, no_memory=False))
            one.study = None
    return [one.process.returncode for one in workers]


def _programs(study: Plan) -> Hashable:
    return RUNNERS[study.kind].programs(study)


def _next(queue: list[Plan], in_use: set) -> Plan:
    """Takes the largest study. Prefers studies whose programs are not in use, since these may still be compiling."""
    for i in reversed(range(len(queue))):
        if _programs(queue[i]) not in in_use:
            return queue.pop(i)
    return queue.pop()


def start(slot: int, cpus: Cpus, environment: dict[str, str]) -> Worker:
    """Starts a process with an environment. Before importing JAX, the process binds itself to ``cpus``, if given.

    The new process runs a separate program instead of the main script of this process, which may be a notebook. Its
    standard input closes when this process ends for any reason.
    """
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        about = json.dumps([theirs.fileno(), cpus, sys.path])
        warned = [f"-W{each}" for each in sys.warnoptions]
        process = subprocess.Popen(
            [sys.executable, "-P", *warned, "-c", PROGRAM, about],
            stdin=subprocess.PIPE,
            env=os.environ | environment,
            pass_fds=[theirs.fileno()],
        )
    return Worker(slot, process, ours)


def gpu_name(device: int) -> str:
    """Returns the name of one of the GPUs that this process may use."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    return devices.split(",")[device] if devices else str(device)
