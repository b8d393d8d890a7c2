"""Worker processes on this machine: a pool, one per physical core or accelerator, and exclusive ones.

Studies whose kind must have the machine to itself run after all others, one after the other, each in a process of its
own on as many cores as its plan says. Never initialises JAX.
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
from collections.abc import Callable, Hashable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from harness import processors
from harness.run import TRAINING, RunProgress, Settings
from harness.runners import RUNNERS
from results import cli, exit_codes
from results.bad_input import BadInput, number_of
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.storage import attempts
from sweeps.launchers import worker
from sweeps.launchers.launcher import RetryPolicy, WorkerLost, failed_too_often, record_failed
from sweeps.launchers.silence import Silence
from sweeps.launchers.worker import Failure
from sweeps.limits import Limits
from sweeps.run import RunSummary, StudyOutcome, StudyUpdate
from sweeps.speeds import step_cost
from workloads import data_stream

Slot: TypeAlias = tuple[tuple[int, ...], dict[str, str]]  # the logical processors of a process, and its environment

RETRIES = 1  # of a study whose worker died, where nothing else is said
WAIT_SECONDS = 1.0  # between looks at a sweep of which nothing is heard
END_SECONDS = 30.0  # that a worker has to save what it is at before it is killed; on an idle machine it takes two
# The program of a worker: it imports what its parent would, and searches no other folder.
PROGRAM = """
import json, sys
descriptor, cpus, sys.path[:] = json.loads(sys.argv[1])
from sweeps.launchers import worker
worker.main(descriptor, cpus)
"""


@dataclasses.dataclass
class Worker:
    """A worker process as seen by its parent: the pipe for orders, and the study it runs.

    Attributes:
      slot: which of the pool's it has.
      process, orders: of the worker.
      study: None while it has nothing to do.
      log: of the attempt at that study; None if it prints where this process does.
      heard: whether it has begun with the study.
      advanced: whether it has taken a step of it.
      hurried: whether it was told to come to an end with it.
      progress: of the study, as it reported last.
      silence: since then.
      told_silent: the last length of it that was told.
      ended_silent: whether it was killed for its silence.
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
    told_silent: float = 0.0
    ended_silent: bool = False

    def __post_init__(self) -> None:
        self.silence = Silence(self.process.pid)

    def take(self, study: Plan, order: worker.Order) -> None:
        """Gives it a study, whose attempt begins here."""
        folder = Path(order.store) / study.name
        self.log = attempts.begin(folder, "local") if folder.is_dir() and attempts.VARIABLE not in os.environ else None
        self.study, self.heard, self.advanced, self.hurried = study, False, False, False
        self.progress = RunProgress()
        self.silence.news()
        self.send(order._replace(log=None if self.log is None else str(self.log)))

    def ended(self, code: int, cause: str) -> None:
        """Says in the log how the attempt ended; what was printed by one without a fault goes where it used to."""
        if self.log is not None:
            if code == exit_codes.DONE and (text := attempts.printed(self.log).rstrip()):
                cli.say(text)
            attempts.end(self.log, code, cause)

    def hurry(self) -> None:
        """Has it save and end what is under way, as its time is up."""
        if self.heard and not self.hurried:
            self.hurried = True
            self.process.send_signal(signal.SIGUSR1)

    def send(self, order: worker.Order) -> None:
        """Sends it a study. If it has died, ``hear`` reports that."""
        with contextlib.suppress(OSError):
            self.orders.send(order)

    def hear(self) -> worker.WorkerReport | None:
        """Its next report; None if it has died."""
        try:
            news: worker.WorkerReport = self.orders.recv()
        except (EOFError, OSError):
            return None
        self.silence.news()
        self.told_silent = 0.0
        return news

    def silent(self, most: float | None, *, accelerated: bool) -> float:
        """The seconds since it gave a sign of life; ends it after ``most`` of them.

        On an accelerator a process may spin as long as its device hangs, so that only its reports count in training.
        """
        seconds = self.silence.look(by_computing=not (accelerated and self.progress.doing == TRAINING))
        if most is not None and seconds >= most and not self.ended_silent:
            self.ended_silent = True
            self.process.kill()
        return seconds

    def bury(self) -> None:
        """Waits for its end, and closes what is left of it."""
        with self.process:  # closes its standard input, and waits
            self.orders.close()


def slots(workers: int | None, shards: int = 1) -> list[Slot]:
    """The logical processors that each worker is bound to, and its environment.

    On accelerators a worker has the devices of one batch to itself, or shares them evenly where there are more workers
    than that; on a CPU it has one physical core, on which several devices are emulated. With more workers than cores,
    cores are shared.

    Args:
      workers: how many; None: as many as there are devices, or cores, for.
      shards: devices that each batch is divided over.

    Raises:
      BadInput: the machine has too few devices for that.
    """
    kind, devices = processors.accelerators()
    if not devices:
        cores = processors.physical_cores()
        if attempts.VARIABLE in os.environ:  # others may run beside this on the same machine
            cores = processors.unclaimed_cores(workers or 1) or cores
        emulated: dict[str, str] = {"JAX_NUM_CPU_DEVICES": str(shards)} if shards > 1 else {}
        return [(cores[i % len(cores)], emulated) for i in range(workers or len(cores))]
    if shards > devices or (kind == "tpu" and shards not in (1, devices)):
        there = f"1 or {devices}" if kind == "tpu" else f"at most {devices}"
        raise BadInput(f"shards={shards}: this machine has {number_of(devices, kind.upper())}; use {there}")
    groups = len(processors.devices_of_chips()) if kind == "tpu" and shards == 1 else devices // shards
    count = workers or groups
    share = f"{0.9 / -(-count // groups):.3f}"

    def environment(i: int) -> dict[str, str]:
        own = range(i % groups * shards, (i % groups + 1) * shards)
        if kind == "gpu":
            return {"CUDA_VISIBLE_DEVICES": ",".join(map(gpu_name, own)), "XLA_PYTHON_CLIENT_MEM_FRACTION": share}
        if shards > 1:
            return {}
        bounds = dict.fromkeys(("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_PROCESS_BOUNDS"), "1,1,1")
        return {"TPU_VISIBLE_CHIPS": str(own[0])} | bounds

    return [((), environment(i)) for i in range(count)]


def occupied(slots: Sequence[Slot], studies: int) -> list[Slot]:
    """The slots that so many studies take; workers that are not bound to processors know how many share them."""
    taken = slots[:studies]
    return [
        (cpus, environment if cpus else environment | {data_stream.SHARED_BY: str(len(taken))})
        for cpus, environment in taken
    ]


def slot_alone(cores: int | None) -> Slot:
    """The logical processors that an exclusive process is bound to, and its environment.

    On a CPU a core is a physical one and a device of JAX's, and libraries that thread of their own accord do not.
    Beyond the physical cores, devices share all of them. On accelerators a core is a device.

    Args:
      cores: how many it computes on; None: on all there are, and it is bound to none.
    """
    if cores is None:
        return (), {}
    kind, devices = processors.accelerators()
    if devices:
        return (), {"CUDA_VISIBLE_DEVICES": ",".join(map(gpu_name, range(cores)))} if kind == "gpu" else {}
    bound = tuple(sorted(cpu for core in processors.physical_cores()[:cores] for cpu in core))
    return bound, {"JAX_NUM_CPU_DEVICES": str(cores), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def cost(study: Plan) -> float:
    """The maximal cost of a study, in arbitrary units: the steps of its budget times the cost of a step."""
    return study.request.planned * study.budget_steps * step_cost(study)


def run_all(
    store: Path,
    studies: Sequence[Plan],
    settings: Settings,
    workers: int | None,
    on_progress: Callable[[StudyUpdate], None] = lambda progress: None,
    on_wait: Callable[[], None] = lambda: None,
    *,
    sources: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    retries: int = RETRIES,
    limits: Limits | None = None,
    silence_seconds: float | None = None,
) -> list[StudyOutcome]:
    """Runs studies, largest first, each as soon as a worker is free; then the exclusive ones, in their order.

    A study that raises is recorded as failed. A study whose worker dies is retried by ``RetryPolicy``, then recorded as
    lost. Neither stops the others.

    Args:
      store: folder of the store.
      studies: to be run.
      settings: how.
      workers: how many processes; None: one per physical core or accelerator.
      on_progress: told of everything that happens.
      on_wait: called every second in which nothing happens.
      sources: of studies, by their names; see ``sweeps.planning.Request``.
      retries: of a study whose worker died.
      limits: after which what runs is saved and ends, and nothing more begins; None: there are none.
      silence_seconds: without a sign of life of a worker, after which it is lost; None: never.

    Returns:
      An outcome per study that began, in the order they ended.
    """
    limits = limits or Limits()

    def told(update: StudyUpdate) -> None:
        limits.hear(update)
        on_progress(update)

    def run(studies: Sequence[Plan], slots: Sequence[Slot]) -> list[StudyOutcome]:
        return _run(store, studies, orders, slots, told, on_wait, retries, limits, silence_seconds)

    together = [study for study in studies if not KINDS[study.kind].alone]
    orders = {study.name: _order(store, study, settings, sources.get(study.name)) for study in studies}
    outcomes = run(together, slots(workers, settings.shards or 1)) if together else []
    exclusive = [study for study in studies if KINDS[study.kind].alone]
    for _, group in itertools.groupby(exclusive, key=lambda study: RUNNERS[study.kind].process(study)):
        if limits.reached is None:
            own = list(group)
            outcomes += run(own, [slot_alone(own[0].devices)])
    return outcomes


def _run(
    store: Path,
    studies: Sequence[Plan],
    orders: Mapping[str, worker.Order],
    slots: Sequence[Slot],
    on_progress: Callable[[StudyUpdate], None],
    on_wait: Callable[[], None],
    retries: int,
    limits: Limits,
    silence_seconds: float | None,
) -> list[StudyOutcome]:
    """Runs studies with one worker per slot, or fewer if there are fewer studies."""
    queue = sorted(studies, key=cost)  # the largest is last, where pop() takes it
    tries = {study.name: RetryPolicy(retries) for study in studies}
    outcomes: list[StudyOutcome] = []

    def end(study: Plan, outcome: StudyOutcome) -> None:
        outcomes.append(outcome)
        on_progress(StudyUpdate(study, None, outcome))

    slots = occupied(slots, len(studies))
    pool = [start(i, *slot) for i, slot in enumerate(slots)]

    def died(dead: Worker) -> None:
        dead.bury()
        pool[dead.slot] = start(dead.slot, *slots[dead.slot])
        if dead.study is None:
            return
        code, past = dead.process.returncode, tries[dead.study.name]
        kills, no_memory = out_of_memory_kills(), False
        if code == -signal.SIGKILL and not dead.ended_silent:
            no_memory, kills_before[0] = kills > kills_before[0], kills
        how_it_ended = exit_description(code, no_memory=no_memory or None)
        if dead.ended_silent:
            how_it_ended = f"by launcher.silence_seconds={silence_seconds:g}, as it gave no sign of life"
        dead.ended(code, how_it_ended)
        if code != exit_codes.PREEMPTED:  # somebody ended it alone; it is no fault of the study
            RUNNERS[dead.study.kind].after_death(dead.study)
        most = limits.study.max_failures
        allowed = not failed_too_often(store / dead.study.name, most)
        how = code if code == exit_codes.PREEMPTED else exit_codes.PEER_LOST  # a worker says itself what is a mistake
        if past.again(how, advanced=dead.advanced, out_of_memory=no_memory) and allowed:
            queue.append(dead.study)
            on_progress(StudyUpdate(dead.study, None))
        elif attempts.VARIABLE in os.environ and not no_memory and code != exit_codes.PREEMPTED:
            raise WorkerLost(f"{dead.study.name}: its process died {how_it_ended}")
        elif no_memory:
            why = "its process was killed, as memory ran out; give it more, or take fewer lanes or microbatches=…"
            end(dead.study, record_failed(store, dead.study, "failed", Failure(why)))
        else:
            times = past.lost if code != exit_codes.PREEMPTED else past.preempted
            why = f"its process died {number_of(times, 'time')}, last {how_it_ended}"
            why += "" if allowed else f"; limits.study.max_failures={most} is reached"
            end(dead.study, record_failed(store, dead.study, "lost", Failure(why)))

    def tell_silence(quiet: Worker) -> None:
        assert quiet.study is not None
        if (seconds := quiet.silent(silence_seconds, accelerated=accelerated)) != quiet.told_silent:
            quiet.told_silent = seconds
            on_progress(StudyUpdate(quiet.study, quiet.progress, silent=seconds))

    kills_before = [out_of_memory_kills()]
    accelerated = bool(processors.accelerators()[1])
    try:
        while queue or any(w.study is not None for w in pool):
            for idle in (w for w in pool if w.study is None and queue):
                study = _next(queue, {_programs(w.study) for w in pool if w.study is not None})
                idle.take(study, orders[study.name])
                on_progress(StudyUpdate(study, RunProgress()))
            busy = {w.orders: w for w in pool if w.study is not None}
            heard = multiprocessing.connection.wait(list(busy), WAIT_SECONDS)
            if not heard:
                on_wait()
            for each in busy.values():
                if each.study is not None and limits.is_over(each.study.name):
                    each.hurry()
                if each.study is not None and each.orders not in heard:
                    tell_silence(each)
            if limits.reached is not None:
                queue.clear()
            for ready in heard:
                which = busy[ready]  # type: ignore[index]
                assert which.study is not None
                news = which.hear()
                if news is None:
                    died(which)
                    continue
                which.heard = True
                if news.kind == "progress":
                    which.progress = news.value
                    which.advanced |= news.value.steps > 0
                    on_progress(StudyUpdate(which.study, news.value))
                    continue
                study, which.study = which.study, None
                if news.kind == "done":
                    which.ended(exit_codes.DONE, "done")
                    end(study, StudyOutcome(news.value))
                elif news.kind == "taken":
                    which.ended(exit_codes.PREEMPTED, news.value.cause)  # no fault of the study
                    end(study, StudyOutcome(RunSummary(study.name, 0, 0, 0, 0, 0.0), *news.value))
                else:
                    which.ended(exit_codes.FAILED, news.value.cause)
                    end(study, record_failed(store, study, "failed", news.value))
    except cli.Terminated as terminated:
        terminated.saved = exit_codes.PREEMPTED in end_all(pool) or any(past.preempted for past in tries.values())
        raise
    finally:
        end_all(pool)
    return outcomes


def out_of_memory_kills() -> int:
    """How many processes of this machine, and of its control group, the system has killed as memory ran out."""
    files = ("/proc/vmstat", "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
    found = 0
    for file in files:
        with contextlib.suppress(OSError):
            words = Path(file).read_text().split()
            found += sum(int(n) for name, n in itertools.pairwise(words) if name == "oom_kill" and n.isdecimal())
    return found


def exit_description(exitcode: int, *, no_memory: bool | None = None) -> str:
    """The end of a process in words.

    Args:
      exitcode: of the process.
      no_memory: whether it was killed as memory ran out; None: that is not known.
    """
    if exitcode >= 0:
        return f"with exit code {exitcode}"
    if -exitcode == signal.SIGKILL and no_memory is None:
        why = ": by you, by the system, or as memory ran out"
    else:
        why = ", as memory ran out" if no_memory else ""
    return f"by signal {-exitcode} ({signal.strsignal(-exitcode)}){why}"


def end_all(workers: Sequence[Worker]) -> list[int]:
    """Ends processes, each once it has handed over what has finished and saved the rest; their exit codes."""
    for one in workers:
        one.orders.close()
        one.process.terminate()
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


def _order(store: Path, study: Plan, settings: Settings, source: Mapping[str, Any] | None) -> worker.Order:
    trials, repeats = study.request
    how = dataclasses.asdict(settings)
    return worker.Order(str(store), study.plan(), trials, tuple(repeats), how, None if source is None else dict(source))


def _programs(study: Plan) -> Hashable:
    return RUNNERS[study.kind].programs(study)


def _next(queue: list[Plan], in_use: set) -> Plan:
    """Takes the largest study whose programs no other worker is on, and may be compiling; else the largest."""
    for i in reversed(range(len(queue))):
        if _programs(queue[i]) not in in_use:
            return queue.pop(i)
    return queue.pop()


def start(slot: int, cpus: tuple[int, ...], environment: dict[str, str]) -> Worker:
    """Starts a process bound to ``cpus``, if there are any, with ``environment`` before it imports JAX.

    It is a program of its own, so that the main script of this process, which may be a notebook, is not run again. Its
    standard input closes when this process is gone, however that ended.
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
    """The name of a GPU among those this process may use."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    return devices.split(",")[device] if devices else str(device)
