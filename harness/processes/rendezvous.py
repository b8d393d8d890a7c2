"""Rendezvous of all hosts at the first host's port before JAX uses it. If a host is missing, the others report it.

Every other host sends its index to the first host, which replies when all hosts have arrived. JAX then uses the same
port, so a blocked port is already detected here, and every host reports it in one line.
"""

import contextlib
import json
import resource
import select
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

from results.bad_input import BadInput

SECONDS = 30  # default time that hosts wait for each other
_ANSWER_SECONDS = 5.0  # additional time that others wait for the reply of the first host
_RETRY_SECONDS = 0.2
_BYTES = 4096  # limit on a message
_ROOM = 16  # file descriptors in addition to those of the hosts
_SHOWN = 8  # hosts named in an error
_ANSWER = b"scaling-limits: "  # start of the first host's reply, before an error if there is one
_FIREWALL = "Is the command the same there, and does the firewall allow that port?"


class Arrival(NamedTuple):
    """A message from a host. All fields except ``host`` must agree between hosts.

    Attributes:
      host: zero-based index of the host.
      hosts: number of hosts, as configured on this host.
      versions: versions of the software, such as JAX.
      command: hash of the command.
      code: hash of the code that runs the command.
    """

    host: int
    hosts: int
    versions: str
    command: str
    code: str


def meet(coordinator: str, own: Arrival, seconds: float = SECONDS) -> None:
    """Waits until all hosts have arrived.

    Args:
      coordinator: HOST:PORT of the first host. No process may be listening on it yet.
      own: message of this host.
      seconds: time to wait.

    Raises:
      BadInput: some hosts did not arrive, or hosts disagree. The error message names them.
    """
    host, _, port = coordinator.rpartition(":")
    if own.host:
        _go_to(host.strip("[]"), int(port), coordinator, own, seconds)
    else:
        _await(int(port), coordinator, own, seconds)


def _await(port: int, coordinator: str, own: Arrival, seconds: float) -> None:
    _allow(own.hosts + _ROOM)
    deadline = time.monotonic() + seconds
    came: dict[int, socket.socket] = {}
    waiting: dict[socket.socket, bytes] = {}  # sockets, with the bytes received so far
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listening(port, own.hosts))
        wrong = None
        while len(came) < own.hosts - 1 and wrong is None and (left := deadline - time.monotonic()) > 0:
            for ready in _readable([listening, *waiting, *came.values()], left):
                if ready is listening:
                    waiting[stack.enter_context(listening.accept()[0])] = b""
                    continue
                received = _received(ready)
                if ready not in waiting:  # it disconnected, but may reconnect
                    came = {i: visitor for i, visitor in came.items() if visitor is not ready}
                    continue
                waiting[ready] += received
                if not received or len(waiting[ready]) > _BYTES:
                    del waiting[ready]
                elif waiting[ready].endswith(b"\n"):
                    arrival = _read(waiting.pop(ready))
                    if arrival is None:
                        continue  # not a host of this run
                    wrong = wrong or _differs(own, arrival, came)
                    came.setdefault(arrival.host, ready)
        missing = [i for i in range(1, own.hosts) if i not in came]
        if missing and wrong is None:
            wrong = f"{_named(missing)} of {own.hosts} did not reach {coordinator} within {seconds:.0f} s. {_FIREWALL}"
        for visitor in came.values():
            with contextlib.suppress(OSError):
                visitor.sendall(_ANSWER + (wrong or "").encode() + b"\n")
                visitor.settimeout(_ANSWER_SECONDS)
                visitor.recv(1)  # waits until the other end closes, which frees the port
    if wrong is not None:
        raise BadInput(wrong)


def _go_to(host: str, port: int, coordinator: str, own: Arrival, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    why = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            first = socket.create_connection((host, port), left)
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(_RETRY_SECONDS)
            continue
        with first:
            received = b""
            with contextlib.suppress(OSError):
                first.sendall(json.dumps(own).encode() + b"\n")
                first.settimeout(seconds + _ANSWER_SECONDS)
                while not received.endswith(b"\n") and len(received) < _BYTES and (chunk := first.recv(_BYTES)):
                    received += chunk
        if received.endswith(b"\n") and received.startswith(_ANSWER):
            if words := received.removeprefix(_ANSWER).decode(errors="replace").strip():
                raise BadInput(words)
            return
        foreign = received and not received.startswith(_ANSWER)
        why = "another program answers there" if foreign else "it disconnected"
        time.sleep(_RETRY_SECONDS)
    raise BadInput(
        f"host 0 of {own.hosts} did not answer host {own.host} at {coordinator} within {seconds:.0f} s ({why}). "
        f"{_FIREWALL}"
    )


def _listening(port: int, count: int) -> socket.socket:
    try:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        return socket.create_server(("", port), family=family, backlog=count, dualstack_ipv6=dual)
    except OSError as error:
        raise BadInput(
            f"port {port} of the coordinator cannot be used ({error.strerror}). Is this host 0, and is the port free?"
        ) from None


def _readable(sockets: Sequence[socket.socket], seconds: float) -> list[socket.socket]:
    """Waits for readable sockets and returns them. Uses poll, because select fails for descriptors above 1,023."""
    poll = select.poll()
    by_descriptor = {listened.fileno(): listened for listened in sockets}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(seconds * 1000)]


def _allow(count: int) -> None:
    """Raises the limit on file descriptors by ``count``, as far as allowed. The default is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        limit = soft + count if hard == resource.RLIM_INFINITY else min(hard, soft + count)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _received(sender: socket.socket) -> bytes:
    try:
        return sender.recv(_BYTES)
    except OSError:
        return b""


def _read(line: bytes) -> Arrival | None:
    with contextlib.suppress(ValueError, TypeError, RecursionError):  # the content is untrusted
        arrival = Arrival(*json.loads(line))
        if [type(field) for field in arrival] == [int, int, str, str, str]:
            return arrival
    return None


def _differs(own: Arrival, other: Arrival, came: dict[int, socket.socket]) -> str | None:
    if other.hosts != own.hosts:
        return f"host {other.host} was given {other.hosts} hosts, but host 0 was given {own.hosts}"
    if other.host in came or not 0 < other.host < own.hosts:
        return f"two hosts were given the index {other.host} of {own.hosts}. Give each its own index."
    if other.versions != own.versions:
        return f"host {other.host} has {other.versions}, but host 0 has {own.versions}. Install the same everywhere."
    if other.code != own.code:
        return f"host {other.host} runs different code than host 0. Install the same commit everywhere."
    if other.command != own.command:
        return f"host {other.host} was given a different command than host 0. Only launcher.host and store may differ."
    return None


def _named(hosts: list[int]) -> str:
    suffix = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(map(str, hosts[:_SHOWN]))}{suffix}"
