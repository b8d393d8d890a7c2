"""A worker process: bound to its processors, it runs the studies it is sent, one after the other.

Imports nothing that starts JAX until it is bound.
"""

import os
import signal
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple


class Order(NamedTuple):
    """A study to run, as plain data that pickles: its plan, what is asked of it, how to run it, on what ratings."""

    store: str
    plan: dict[str, Any]
    trials: int
    settings: dict[str, Any]
    ratings: dict[str, Any] | None = None
    repeats: tuple[int, ...] = ()


class News(NamedTuple):
    """What a worker tells of its study: ``progress`` (what is settled), ``done`` (a Summary) or ``failed`` (why)."""

    kind: str
    value: Any


def main(orders: Connection, cpus: tuple[int, ...], environment: Mapping[str, str]) -> None:
    """Runs studies until the other end of ``orders`` closes.

    Args:
      orders: gives ``Order``s and takes ``News``.
      cpus: logical processors to be bound to; empty for no binding.
      environment: set before JAX is imported.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    os.environ.update(environment)
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    while True:
        try:
            orders.send(_run(orders, orders.recv()))
        except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
            return


def _run(orders: Connection, order: Order) -> News:
    from harness.engine import Settings
    from results.asked import Repeats
    from results.plans import from_plan
    from results.recorded import Recorded
    from sweeps.run import run_study

    try:
        study = from_plan(order.plan, order.trials, Repeats(*order.repeats))
        assert not isinstance(study, Recorded)
        settings = Settings(**order.settings)
        summary = run_study(
            Path(order.store),
            study,
            settings,
            on_progress=lambda settled: orders.send(News("progress", settled)),
            ratings=order.ratings,
        )
    except Exception:
        return News("failed", traceback.format_exc())
    return News("done", summary)
