"""Worker processes on this machine: a pool, one per physical core or accelerator, and exclusive ones.

Studies whose kind must have the machine to itself run after all others, one after the other, each in a process of its
own on as many cores as its plan says. Never initialises JAX.
"""

import contextlib
import dataclasses
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
from typing import Any, NamedTuple, TypeAlias

from harness import processors
from harness.run_progress import RunProgress
from harness.runners import RUNNERS
from harness.settings import Settings
from results import command_line, exit_codes
from results.bad_input import BadInput, number_of
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from sweeps.launchers import worker
from sweeps.launchers.worker import Failure
from sweeps.run import RunSummary, record_failure
from sweeps.speeds import step_cost

Slot: TypeAlias = tuple[tuple[int, ...], dict[str, str]]  # the logical processors of a process, and its environment

ATTEMPTS = 2  # a study whose worker died is run once more
WAIT_SECONDS = 1.0  # between looks at a sweep of which nothing is heard
END_SECONDS = 30.0  # that a worker has to save what it is at before it is killed; on an idle machine it takes two
# The program of a worker: it imports what its parent would, and searches no other folder.
PROGRAM = """
import json, sys
descriptor, cpus, sys.path[:] = json.loads(sys.argv[1])
from sweeps.launchers import worker
worker.main(descriptor, cpus)
"""


class StudyOutcome(NamedTuple):
    """The outcome of one study: its summary, and if it failed the cause, in one line, and its place in our code."""

    summary: RunSummary
    failure: str | None = None
    places: tuple[str, ...] = ()


class StudyUpdate(NamedTuple):
    """An update on a study: its progress, None if it has to wait again; ``outcome`` is set once it has ended."""

    study: Plan
    progress: RunProgress | None
    outcome: StudyOutcome | None = None


@dataclasses.dataclass
class Worker:
    """A worker process as seen by its parent: the pipe for orders, and the study it runs."""

    slot: int
    process: subprocess.Popen[bytes]
    orders: Connection
    study: Plan | None = None

    def send(self, order: worker.Order) -> None:
        """Sends it a study. If it has died, ``hear`` reports that."""
        with contextlib.suppress(OSError):
            self.orders.send(order)

    def hear(self) -> worker.News | None:
        """Its next report; None if it has died."""
        try:
            news: worker.News = self.orders.recv()
        except (EOFError, OSError):
            return None
        return news

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
) -> list[StudyOutcome]:
    """Runs studies, largest first, each as soon as a worker is free; then the exclusive ones, in their order.

    A study that raises is recorded as failed; one whose worker dies is run once more, then recorded as lost. Neither
    stops the others.

    Args:
      store: folder of the store.
      studies: to be run.
      settings: how.
      workers: how many processes; None: one per physical core or accelerator.
      on_progress: told of everything that happens.
      on_wait: called every second in which nothing happens.
      sources: of studies, by their names; see ``sweeps.planning.Request``.

    Returns:
      An outcome per study, in the order they ended.
    """
    together = [study for study in studies if not KINDS[study.kind].alone]
    orders = {study.name: _order(store, study, settings, sources.get(study.name)) for study in studies}
    outcomes = (
        _run(store, together, orders, slots(workers, settings.shards or 1), on_progress, on_wait) if together else []
    )
    for study in studies:
        if KINDS[study.kind].alone:
            outcomes += _run(store, [study], orders, [slot_alone(study.devices)], on_progress, on_wait)
    return outcomes


def _run(
    store: Path,
    studies: Sequence[Plan],
    orders: Mapping[str, worker.Order],
    slots: Sequence[Slot],
    on_progress: Callable[[StudyUpdate], None],
    on_wait: Callable[[], None],
) -> list[StudyOutcome]:
    """Runs studies with one worker per slot, or fewer if there are fewer studies."""
    queue = sorted(studies, key=cost)  # the largest is last, where pop() takes it
    attempts = {study.name: 0 for study in studies}
    outcomes: list[StudyOutcome] = []

    def end(study: Plan, outcome: StudyOutcome) -> None:
        outcomes.append(outcome)
        on_progress(StudyUpdate(study, None, outcome))

    pool = [start(i, *slot) for i, slot in enumerate(slots[: len(studies)])]

    def died(dead: Worker) -> None:
        dead.bury()
        pool[dead.slot] = start(dead.slot, *slots[dead.slot])
        if dead.study is None:
            return
        if dead.process.returncode == exit_codes.PREEMPTED:  # somebody ended it alone; it is no fault of the study
            attempts[dead.study.name] -= 1
        else:
            RUNNERS[dead.study.kind].after_death(dead.study)
        if attempts[dead.study.name] < ATTEMPTS:
            queue.append(dead.study)
            on_progress(StudyUpdate(dead.study, None))
        else:
            why = f"its process died {ATTEMPTS} times, last {exit_description(dead.process.returncode)}"
            end(dead.study, record_failed(store, dead.study, "lost", Failure(why)))

    try:
        while len(outcomes) < len(studies):
            for idle in (w for w in pool if w.study is None and queue):
                idle.study = _next(queue, {_programs(w.study) for w in pool if w.study is not None})
                attempts[idle.study.name] += 1
                idle.send(orders[idle.study.name])
                on_progress(StudyUpdate(idle.study, RunProgress()))
            busy = {w.orders: w for w in pool if w.study is not None}
            heard = multiprocessing.connection.wait(list(busy), WAIT_SECONDS)
            if not heard:
                on_wait()
            for ready in heard:
                which = busy[ready]  # type: ignore[index]
                assert which.study is not None
                news = which.hear()
                if news is None:
                    died(which)
                    continue
                if news.kind == "progress":
                    on_progress(StudyUpdate(which.study, news.value))
                    continue
                study, which.study = which.study, None
                if news.kind == "done":
                    end(study, StudyOutcome(news.value))
                else:
                    end(study, record_failed(store, study, "failed", news.value))
    except command_line.Terminated as terminated:
        terminated.saved = exit_codes.PREEMPTED in end_all(pool)
        raise
    finally:
        end_all(pool)
    return outcomes


def record_failed(store: Path, study: Plan, reason: str, why: Failure) -> StudyOutcome:
    """Stores that the trials of a study still missing ended as INCOMPLETE(``reason``); raises nothing."""
    try:
        return StudyOutcome(record_failure(store, study, reason), *why)
    except Exception as error:  # whatever is wrong with one study must not end the others
        also = f"{why.cause}; and storing this failed: {worker.failure(error).cause}"
        return StudyOutcome(RunSummary(study.name, 0, 0, 0, 0, 0.0), also, why.places)


def exit_description(exitcode: int) -> str:
    """The end of a process in words."""
    if exitcode >= 0:
        return f"with exit code {exitcode}"
    hint = ", as the system does when memory runs out" if -exitcode == signal.SIGKILL else ""
    return f"by signal {-exitcode} ({signal.strsignal(-exitcode)}){hint}"


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
