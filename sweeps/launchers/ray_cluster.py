"""Connects to a Ray cluster, or starts one. Ray is imported inside functions because it is optional."""

import contextlib
import signal
import socket
from collections.abc import Iterator
from typing import Any

from results.aliases import Callback
from results.bad_input import BadInput, first_line
from results.cli import Terminated
from sweeps.configured_study import Config
from sweeps.launchers import attempt

CONNECT_SECONDS = 10.0


@contextlib.contextmanager
def connected(asked: Config) -> Iterator[tuple[Any, Callback]]:
    """Connects Ray to a cluster, or starts one. Yields Ray, and a function that raises an error after a signal."""
    import ray

    _check_reachable(asked["address"])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    started_here = {"include_dashboard": False} if asked["address"] is None else {}
    try:
        ray.init(
            address=asked["address"],
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
            runtime_env={"env_vars": {"PYTHONPATH": attempt.python_path()}},
            **started_here,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        why = first_line(error)[:200]
        raise BadInput(f"launcher.address={asked['address']}: there is no Ray cluster ({why})") from None
    ray._private.worker._worker_logs_enabled = False  # otherwise Ray prints the state of lost nodes to standard output
    received = []
    for number in handlers:  # Ray's handler exits immediately, and Ray's waiting swallows exceptions raised in handlers
        signal.signal(number, lambda number, frame: received.append(number))

    def look() -> None:
        if signal.SIGTERM in received:
            raise Terminated
        if received:
            raise KeyboardInterrupt

    try:
        yield ray, look
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Raises BadInput if there is no server at an address. Ray itself would wait for hours."""
    if address in (None, "auto"):
        return
    host, _, port = str(address).partition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"launcher.address={address}: there is no Ray cluster ({error})") from None
