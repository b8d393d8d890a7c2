"""A worker process: bound to its processors, it runs the studies that it receives, one after the other.

Imports nothing that initialises JAX until it is bound.
"""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from harness.shutdown import Shutdown, Stopped
from results.bad_input import BadInput

_ROOT = Path(__file__).parents[2]
_OURS = ("harness", "results", "sweeps", "workloads")
_LONGEST = 300  # characters of a cause


class Order(NamedTuple):
    """A study to run, as plain data that pickles: its plan, the trials requested, settings and data source."""

    store: str
    plan: dict[str, Any]
    trials: int
    repeats: tuple[int, ...]
    settings: dict[str, Any]
    source: dict[str, Any] | None


class Failure(NamedTuple):
    """The failure of a study: its cause in one line, and its places in our code, innermost last."""

    cause: str
    places: tuple[str, ...] = ()


class News(NamedTuple):
    """A worker's report on its study: ``progress`` (RunProgress), ``done`` (RunSummary) or ``failed`` (Failure)."""

    kind: str
    value: Any


def main(descriptor: int, cpus: Sequence[int]) -> None:
    """Runs studies until its parent, which has the other end of its standard input, is gone.

    Args:
      descriptor: of the connection that gives ``Order``s and takes ``News``.
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


def _tell(orders: Connection, news: News, shutdown: Shutdown) -> None:
    try:
        orders.send(news)
    except OSError:  # the parent does not listen any more
        shutdown.requested = True


def _run(orders: Connection, order: Order, shutdown: Shutdown) -> News:
    from harness.settings import Settings
    from results.plans.kinds import from_plan
    from results.plans.trial_request import Repeats
    from sweeps.run import run_study

    try:
        study = from_plan(order.plan, order.trials, Repeats(*order.repeats))
        settings = Settings(**order.settings)
        summary = run_study(
            Path(order.store),
            study,
            settings,
            on_progress=lambda progress: _tell(orders, News("progress", progress), shutdown),
            source=order.source,
            shutdown=shutdown,
        )
    except Stopped:
        shutdown.leave()
    except Exception as error:
        return News("failed", failure(error))
    return News("done", summary)


def failure(error: Exception) -> Failure:
    """The failure that an exception stands for, with frames of our own code only; of ``BadInput`` just its line."""
    if isinstance(error, BadInput):
        return Failure(str(error))
    frames = [(_within_ours(frame.filename), frame) for frame in traceback.extract_tb(error.__traceback__)]
    places = tuple(f"{file}:{frame.lineno} {frame.name}: {frame.line}" for file, frame in frames if file)
    words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    cause = f"{type(error).__name__}: {words}"[:_LONGEST].removesuffix(": ")
    return Failure(f"{cause} ({places[-1].split(' ')[0]})" if places else cause, places)


def _within_ours(file: str) -> str | None:
    """The path of a file of our code from its root; None for other files."""
    path = Path(file)
    if not path.is_relative_to(_ROOT) or (within := path.relative_to(_ROOT)).parts[0] not in _OURS:
        return None
    return within.as_posix()
