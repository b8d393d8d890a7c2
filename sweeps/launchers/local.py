"""A pool of long-lived worker processes on this machine, one per physical core or accelerator. Never starts JAX."""

import dataclasses
import multiprocessing
import multiprocessing.connection
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from harness import processors
from harness.engine import Settings
from harness.lanes import programs_key
from results.factorization import Factorization
from results.study import Study
from sweeps.launchers import worker
from sweeps.run import Summary, record_failure

ATTEMPTS = 2  # a study whose worker died is run once more


class Outcome(NamedTuple):
    """What became of one study: its summary, and why it failed if it did."""

    summary: Summary
    failure: str | None


class Progress(NamedTuple):
    """Something happened to a study: ``settled`` of its trials (or epochs) are, or it has ended with ``outcome``."""

    study: Study | Factorization
    settled: int
    outcome: Outcome | None


@dataclasses.dataclass
class Worker:
    """A process as its parent sees it: where to send orders, and the study it is on."""

    slot: int
    process: BaseProcess
    orders: Connection
    study: Study | None = None


def slots(workers: int | None) -> list[tuple[tuple[int, ...], dict[str, str]]]:
    """For each worker the logical processors it is bound to, and its environment.

    On accelerators a worker has one device to itself, or shares it evenly where there are more workers than devices;
    on a CPU it has one physical core. With more workers than cores, cores are shared.
    """
    kind, devices = processors.accelerators()
    cores = processors.physical_cores()
    count = workers or devices or len(cores)
    if not devices:
        return [(cores[i % len(cores)], {}) for i in range(count)]
    share = f"{0.9 / -(-count // devices):.3f}"
    environments = {
        "gpu": lambda i: {"CUDA_VISIBLE_DEVICES": visible(i % devices), "XLA_PYTHON_CLIENT_MEM_FRACTION": share},
        "tpu": lambda i: {
            "TPU_VISIBLE_CHIPS": str(i % devices),
            "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
            "TPU_PROCESS_BOUNDS": "1,1,1",
        },
    }
    return [((), environments[kind](i)) for i in range(count)]


def cost(study: Study) -> float:
    """What a study takes at most, in arbitrary units: the steps of its budget times what a step costs.

    A step costs its examples and, as measured on a small network, about as much as 8 more.
    """
    return study.asked.planned * study.budget_steps * (study.batch_size + 8.0)


def run_all(
    store: Path,
    studies: Sequence[Study],
    settings: Settings,
    workers: int | None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[Outcome]:
    """Runs studies, largest first, each as soon as a worker is free.

    A study that raises is recorded as failed; one whose worker dies is run once more, then recorded as lost. Neither
    stops the others.

    Args:
      store: folder of the store.
      studies: to be run.
      settings: how.
      workers: how many processes; None: one per physical core or accelerator.
      on_progress: told of everything that happens.

    Returns:
      An outcome per study, in the order they ended.
    """
    queue = sorted(studies, key=cost)  # the largest is last, where pop() takes it
    attempts = {study.name: 0 for study in studies}
    outcomes: list[Outcome] = []
    pool = [start(i, *slot) for i, slot in enumerate(slots(workers)[: len(studies)])]

    def end(study: Study, outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_progress(Progress(study, outcome.summary.ran, outcome))

    def died(dead: Worker) -> None:
        dead.process.join()
        pool[dead.slot] = start(dead.slot, *slots(workers)[dead.slot])
        if dead.study is None:
            return
        if attempts[dead.study.name] < ATTEMPTS:
            queue.append(dead.study)
        else:
            why = f"its worker process died {ATTEMPTS} times, last with exit code {dead.process.exitcode}"
            end(dead.study, Outcome(record_failure(store, dead.study, "lost"), why))

    try:
        while len(outcomes) < len(studies):
            for idle in (w for w in pool if w.study is None and queue):
                idle.study = _next(queue, {programs_key(w.study) for w in pool if w.study is not None})
                attempts[idle.study.name] += 1
                idle.orders.send(_order(store, idle.study, settings))
            busy = {w.orders: w for w in pool if w.study is not None}
            for ready in multiprocessing.connection.wait(list(busy)):
                which = busy[ready]  # type: ignore[index]
                assert which.study is not None
                try:
                    news = which.orders.recv()
                except (EOFError, ConnectionResetError):
                    died(which)
                    continue
                if news.kind == "progress":
                    on_progress(Progress(which.study, news.value, None))
                    continue
                study, which.study = which.study, None
                if news.kind == "done":
                    end(study, Outcome(news.value, None))
                else:
                    end(study, Outcome(record_failure(store, study, "failed"), news.value))
    finally:
        for one in pool:
            one.orders.close()
            one.process.terminate()
        for one in pool:
            one.process.join()
    return outcomes


def _order(store: Path, study: Study, settings: Settings) -> worker.Order:
    return worker.Order(
        str(store), study.plan(), study.trials, dataclasses.asdict(settings), repeats=study.asked.repeats
    )


def _next(queue: list[Study], in_use: set) -> Study:
    """Takes the largest study whose programs no other worker is on, and may be compiling; else the largest."""
    for i in reversed(range(len(queue))):
        if programs_key(queue[i]) not in in_use:
            return queue.pop(i)
    return queue.pop()


def start(slot: int, cpus: tuple[int, ...], environment: dict[str, str]) -> Worker:
    """Starts a process bound to ``cpus``, if there are any, with ``environment`` before it imports JAX."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=worker.main, args=(theirs, cpus, environment), daemon=True)
    process.start()
    theirs.close()
    return Worker(slot, process, ours)


def visible(device: int) -> str:
    """The name of a GPU among those this process may use."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed.split(",")[device] if listed else str(device)
