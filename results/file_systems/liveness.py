"""Liveness: the identity of a process, and whether a process with a given identity is alive."""

import os
import socket

from results.aliases import Json


def identity() -> Json:
    """Returns an id for the machine and this process. Containers on one machine have separate process ids."""
    try:
        numbering = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbering = ""
    return {"host": socket.gethostname(), "numbering": numbering, "pid": os.getpid()}


def is_alive(pid: object) -> bool:
    """Returns whether a process of this machine is alive. ``pid`` may come from an untrusted file."""
    if type(pid) is not int or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
