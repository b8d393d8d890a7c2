"""A worker process: bound to its processors, it runs the studies that it receives, one after the other.

Imports nothing that initialises JAX until it is bound.
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

from harness.run import RunProgress
from harness.shutdown import Shutdown, Stopped
from results.bad_input import BadInput

_ROOT = Path(__file__).parents[2]
_OURS = ("harness", "results", "sweeps", "workloads")
_LONGEST = 300  # characters of a cause


class Order(NamedTuple):
    """A study to run, as plain data that pickles: its plan, the trials requested, settings and data source.

    ``log`` is the file that takes what is printed meanwhile; None leaves standard output and error as they are.
    """

    store: str
    plan: dict[str, Any]
    trials: int
    repeats: tuple[int, ...]
    settings: dict[str, Any]
    source: dict[str, Any] | None
    log: str | None = None


class Failure(NamedTuple):
    """The failure of a study: its cause in one line, and its places in our code, innermost last."""

    cause: str
    places: tuple[str, ...] = ()


class WorkerReport(NamedTuple):
    """A worker's report on its study: ``progress`` (RunProgress), ``done`` (RunSummary), or a Failure: ``failed``, or
    ``taken``, where somebody else has the study by now, and goes on with it.
    """

    kind: str
    value: Any


def main(descriptor: int, cpus: Sequence[int]) -> None:
    """Runs studies until its parent, which has the other end of its standard input, is gone.

    Args:
      descriptor: of the connection that gives ``Order``s and takes ``WorkerReport``.
      cpus: logical processors to be bound to; empty for no binding.
    """
    orders = Connection(descriptor)
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # the parent decides what an interrupt means
    shutdown = Shutdown()
    shutdown.watch(sys.stdin.fileno())
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    while True:
        try:
            order = orders.recv()
        except (EOFError, OSError):  # the parent is gone
            return
        _tell(orders, _run(orders, order, shutdown), shutdown)


def _tell(orders: Connection, news: WorkerReport, shutdown: Shutdown) -> None:
    try:
        orders.send(news)
    except OSError:  # the parent does not listen any more
        shutdown.requested = True


def _run(orders: Connection, order: Order, shutdown: Shutdown) -> WorkerReport:
    from harness.run import Settings
    from results.plans.kinds import from_plan
    from results.plans.trial_request import Repeats
    from results.storage.claims import TakenOver
    from sweeps.run import run_study

    shutdown.time_is_up = False
    with _printing_to(order.log):
        _tell(orders, WorkerReport("progress", RunProgress()), shutdown)
        try:
            study = from_plan(order.plan, order.trials, Repeats(*order.repeats))
            settings = Settings(**order.settings)
            summary = run_study(
                Path(order.store),
                study,
                settings,
                on_progress=lambda progress: _tell(orders, WorkerReport("progress", progress), shutdown),
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
    """Within, whatever this process prints, the libraries beneath Python too, goes to the end of a file."""
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
    """The failure that an exception stands for, with frames of our own code only; of ``BadInput`` just its line."""
    if isinstance(error, BadInput):
        return Failure(str(error))
    frames = [(_within_ours(frame.filename), frame) for frame in traceback.extract_tb(error.__traceback__)]
    places = tuple(f"{file}:{frame.lineno} {frame.name}: {frame.line}" for file, frame in frames if file)
    words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    cause = f"{type(error).__name__}: {words}"[:_LONGEST].removesuffix(": ")
    return Failure(f"{cause} ({places[-1].split(' ')[0]})" if places else cause, places)


def taken(error: Exception) -> Failure:
    """The failure of a study that somebody else claimed since: none of the study, and nothing is to be stored of it."""
    return Failure(f"{error}, which goes on with it; what was stored before is kept")


def _within_ours(file: str) -> str | None:
    """The path of a file of our code from its root; None for other files."""
    path = Path(file)
    if not path.is_relative_to(_ROOT) or (within := path.relative_to(_ROOT)).parts[0] not in _OURS:
        return None
    return within.as_posix()
