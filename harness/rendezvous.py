"""Arrivals: hosts meet at the port of the first before JAX does, and all of them say who is missing.

Each of the others tells the first which it is, and the first tells all whether everybody has come. JAX then takes the
same port, so that what closes it is found here, and told in one line on every host.
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

SECONDS = 30.0  # that hosts wait for each other
_ANSWER_SECONDS = 5.0  # longer, that others wait for the answer of the first
_RETRY_SECONDS = 0.2
_BYTES = 4096  # of a message
_ROOM = 16  # descriptors beside those of the hosts
_SHOWN = 8  # hosts in an error
_ANSWER = b"scaling-limits: "  # the beginning of what the first tells, before what is wrong, if anything is
_FIREWALL = "is it started with the same words, and may it reach that port through the firewall?"


class Arrival(NamedTuple):
    """What a host tells of itself; all are to tell the same but for ``host``.

    Attributes:
      host: which it is, from 0.
      hosts: how many it was told there are.
      versions: of what computes, such as JAX.
      command: a hash of what is asked for.
      code: a hash of the code that runs it.
    """

    host: int
    hosts: int
    versions: str
    command: str
    code: str


def meet(coordinator: str, own: Arrival) -> None:
    """Returns once all hosts have come.

    Args:
      coordinator: HOST:PORT of the first, at which nobody listens yet.
      own: of this host.

    Raises:
      BadInput: some did not come, or were told otherwise; says which.
    """
    host, _, port = coordinator.rpartition(":")
    if own.host:
        _go_to(host.strip("[]"), int(port), coordinator, own)
    else:
        _await(int(port), coordinator, own)


def _await(port: int, coordinator: str, own: Arrival) -> None:
    _allow(own.hosts + _ROOM)
    deadline = time.monotonic() + SECONDS
    came: dict[int, socket.socket] = {}
    waiting: dict[socket.socket, bytes] = {}  # with what they have told so far
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listening(port, own.hosts))
        wrong = None
        while len(came) < own.hosts - 1 and wrong is None and (left := deadline - time.monotonic()) > 0:
            for ready in _readable([listening, *waiting, *came.values()], left):
                if ready is listening:
                    waiting[stack.enter_context(listening.accept()[0])] = b""
                    continue
                told = _received(ready)
                if ready not in waiting:  # it is gone again, and may come once more
                    came = {i: each for i, each in came.items() if each is not ready}
                    continue
                waiting[ready] += told
                if not told or len(waiting[ready]) > _BYTES:
                    del waiting[ready]
                elif waiting[ready].endswith(b"\n"):
                    other = _read(waiting.pop(ready))
                    if other is None:
                        continue  # somebody else at this port
                    wrong = wrong or _differs(own, other, came)
                    came.setdefault(other.host, ready)
        missing = [i for i in range(1, own.hosts) if i not in came]
        if missing and wrong is None:
            wrong = (
                f"{_named(missing)} of {own.hosts} did not come to {coordinator} within {SECONDS:.0f} s: {_FIREWALL}"
            )
        for each in came.values():
            with contextlib.suppress(OSError):
                each.sendall(_ANSWER + (wrong or "").encode() + b"\n")
                each.settimeout(_ANSWER_SECONDS)
                each.recv(1)  # until the other end closes, so that the port is free at once
    if wrong is not None:
        raise BadInput(wrong)


def _go_to(host: str, port: int, coordinator: str, own: Arrival) -> None:
    deadline, why = time.monotonic() + SECONDS, "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            first = socket.create_connection((host, port), left)
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(_RETRY_SECONDS)
            continue
        with first:
            told = b""
            with contextlib.suppress(OSError):
                first.sendall(json.dumps(own).encode() + b"\n")
                first.settimeout(SECONDS + _ANSWER_SECONDS)
                while not told.endswith(b"\n") and len(told) < _BYTES and (more := first.recv(_BYTES)):
                    told += more
        if told.endswith(b"\n") and told.startswith(_ANSWER):
            if words := told.removeprefix(_ANSWER).decode(errors="replace").strip():
                raise BadInput(words)
            return
        why = "something else answers there" if told and not told.startswith(_ANSWER) else "it went away"
        time.sleep(_RETRY_SECONDS)
    raise BadInput(
        f"host 0 of {own.hosts} did not answer host {own.host} at {coordinator} within {SECONDS:.0f} s ({why}): "
        f"{_FIREWALL}"
    )


def _listening(port: int, count: int) -> socket.socket:
    try:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        return socket.create_server(("", port), family=family, backlog=count, dualstack_ipv6=dual)
    except OSError as error:
        raise BadInput(
            f"port {port} of the coordinator cannot be used ({error.strerror}); is this host 0, and is the port free?"
        ) from None


def _readable(sockets: Sequence[socket.socket], seconds: float) -> list[socket.socket]:
    """The sockets that can be read, once there are any; select takes no descriptor beyond 1,023."""
    poll, by_descriptor = select.poll(), {each.fileno(): each for each in sockets}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(seconds * 1000)]


def _allow(count: int) -> None:
    """Lets this process have so many more descriptors, as far as it may; many systems allow 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = soft + count if hard == resource.RLIM_INFINITY else min(hard, soft + count)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _received(sender: socket.socket) -> bytes:
    try:
        return sender.recv(_BYTES)
    except OSError:
        return b""


def _read(line: bytes) -> Arrival | None:
    with contextlib.suppress(ValueError, TypeError, RecursionError):  # the content is untrusted
        other = Arrival(*json.loads(line))
        if [type(each) for each in other] == [int, int, str, str, str]:
            return other
    return None


def _differs(own: Arrival, other: Arrival, came: dict[int, socket.socket]) -> str | None:
    if other.hosts != own.hosts:
        return f"host {other.host} was told that there are {other.hosts} hosts, and host 0 that there are {own.hosts}"
    if other.host in came or not 0 < other.host < own.hosts:
        return f"two hosts were told that they are host {other.host} of {own.hosts}; each needs a number of its own"
    if other.versions != own.versions:
        return f"host {other.host} has {other.versions}, and host 0 has {own.versions}; install the same everywhere"
    if other.code != own.code:
        return f"host {other.host} has other code of scaling-limits than host 0; install the same commit everywhere"
    if other.command != own.command:
        return f"host {other.host} was given another command than host 0; only launcher.host and store may differ"
    return None


def _named(hosts: list[int]) -> str:
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(map(str, hosts[:_SHOWN]))}{more}"
