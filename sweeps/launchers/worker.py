"""A worker process: binds itself to its processors and runs the studies that it receives, one after another.

Modules that initialize JAX are imported inside functions, after binding.
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from harness.processes import processors
from harness.processes.shutdown import Shutdown, Stopped
from harness.run import RunProgress, Settings, Source
from results import durable
from results.aliases import Strings
from results.bad_input import BadInput, first_line, is_remote
from results.plans.plan import Plan

_ROOT = Path(__file__).parents[2]
OURS = ("harness", "results", "sweeps", "workloads")  # packages whose frames are reported in failures
_LONGEST = 300  # maximum length of a cause


class Order(NamedTuple):
    """A study to run, as picklable data.

    Attributes:
      store: folder of the store.
      study: the study with its request.
      settings: settings of the run.
      source: data source, if the plan does not contain it.
      log: file for the study's output. With None, standard output and error are not redirected.
    """

    store: str
    study: Plan
    settings: Settings
    source: Source
    log: str | None = None


class Failure(NamedTuple):
    """The failure of a study: its cause in one line, and the traceback in this project's code, innermost line last."""

    cause: str
    places: Strings = ()


class WorkerReport(NamedTuple):
    """A worker's report on its study.

    Attributes:
      kind: ``progress``, ``done``, ``failed``, or ``taken`` if another process has claimed the study.
      value: a RunProgress for ``progress``, a RunSummary for ``done``, otherwise a Failure.
    """

    kind: str
    value: Any


def main(descriptor: int, cpus: Sequence[int]) -> None:
    """Runs studies until the parent process, which holds the other end of standard input, is gone.

    Args:
      descriptor: file descriptor of the connection for orders and reports.
      cpus: logical processors to bind to. If empty, the process is not bound.
    """
    orders = Connection(descriptor)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent handles interrupts
    shutdown = Shutdown()
    shutdown.watch(sys.stdin.fileno())
    processors.allow_locked_memory()
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    while True:
        try:
            order = orders.recv()
        except (EOFError, OSError):  # the parent is gone
            return
        _send(orders, _run(orders, order, shutdown), shutdown)


def _send(orders: Connection, report: WorkerReport, shutdown: Shutdown) -> None:
    try:
        orders.send(report)
    except OSError:  # the parent is gone
        shutdown.requested = True


def _run(orders: Connection, order: Order, shutdown: Shutdown) -> WorkerReport:
    from results.store import TakenOver
    from sweeps.study_run import run_study

    shutdown.time_is_up = False
    with _printing_to(order.log):
        _send(orders, WorkerReport("progress", RunProgress()), shutdown)
        try:
            summary = run_study(
                durable.location(order.store),
                order.study,
                order.settings,
                on_progress=lambda progress: _send(orders, WorkerReport("progress", progress), shutdown),
                source=order.source,
                shutdown=shutdown,
            )
        except Stopped:
            shutdown.leave()
        except TakenOver as error:
            return WorkerReport("taken", taken(error))
        except Exception as error:
            if order.log is not None:
                traceback.print_exc()
            return WorkerReport("failed", failure(error))
        return WorkerReport("done", summary)


@contextlib.contextmanager
def _printing_to(log: str | None) -> Iterator[None]:
    """Appends the output of this process to a file, including the output of native libraries."""
    if log is None:
        yield
        return
    streams = (sys.stdout, sys.stderr)
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    with open(log, "ab", buffering=0) as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for stream in streams:
            stream.flush()
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
            os.close(before)


def failure(error: Exception) -> Failure:
    """Describes an exception, with only the frames in this project's code. For ``BadInput``, uses only the message."""
    if isinstance(error, BadInput):
        return Failure(str(error))
    if isinstance(error, OSError) and is_remote(error):
        return Failure(f"{error.filename}: {error.strerror}")
    frames = [(_within_ours(frame.filename), frame) for frame in traceback.extract_tb(error.__traceback__)]
    places = tuple(f"{file}:{frame.lineno} {frame.name}: {frame.line}" for file, frame in frames if file)
    words = first_line(error) if str(error).strip() else ""
    cause = f"{type(error).__name__}: {words}"[:_LONGEST].removesuffix(": ")
    return Failure(f"{cause} ({places[-1].split(' ')[0]})" if places else cause, places)


def taken(error: Exception) -> Failure:
    """Describes a study that another process has claimed, so its trials are not recorded as failed."""
    return Failure(f"{error}, which continues it. Results stored before are kept.")


def _within_ours(file: str) -> str | None:
    """Returns the path of a file relative to the root of this project, or None for files outside this project."""
    path = Path(file)
    if not path.is_relative_to(_ROOT) or (inside := path.relative_to(_ROOT)).parts[0] not in OURS:
        return None
    return inside.as_posix()
