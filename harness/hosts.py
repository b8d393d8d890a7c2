"""The processes that run a study together, one on each host, in lockstep: who leads, and what is told to all.

Every process runs the same scheduler on the same metrics, so that next to nothing has to be told: what depends on a
store, a clock or a signal is decided by the first process, which leads and alone reads and writes the store. A process
without others leads, and nothing here costs it anything.
"""

import dataclasses
import functools
import os
import pickle
import re
import sys
from typing import Any, NoReturn, TypeVar

import numpy as np

from results.bad_input import BadInput
from results.command_line import say

T = TypeVar("T")
ARRIVAL_SECONDS = 30  # that hosts wait for each other at the beginning


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Where processes find each other.

    Attributes:
      coordinator: HOST:PORT of the first process, or auto: whatever the cluster says (TPU pods, SLURM, Open MPI,
        Kubernetes), as ``jax.distributed.initialize`` finds it.
      count: of processes; None with auto.
      index: of this one, from 0; None with auto.
      heartbeat_seconds: after which a process that is not heard of is lost.
    """

    coordinator: str
    count: int | None
    index: int | None
    heartbeat_seconds: int

    def check(self) -> None:
        """Raises BadInput for what cannot be."""
        if self.heartbeat_seconds < 1:
            raise BadInput(f"launcher.heartbeat_seconds must be at least 1, not {self.heartbeat_seconds}")
        if self.coordinator == "auto":
            if self.count is not None or self.index is not None:
                raise BadInput("launcher.coordinator=auto finds hosts and host by itself; leave them out")
            return
        host, colon, port = self.coordinator.rpartition(":")
        if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadInput(f"launcher.coordinator={self.coordinator} is no HOST:PORT, such as 10.0.0.1:8482, nor auto")
        if self.count is None or self.index is None:
            raise BadInput("launcher=hosts needs launcher.hosts, how many there are, and launcher.host, which this is")
        if self.count < 2:
            raise BadInput(f"launcher.hosts={self.count}: of one host there is no other; use launcher=local")
        if not 0 <= self.index < self.count:
            raise BadInput(f"launcher.host={self.index} is none of {self.count}, which are 0 to {self.count - 1}")

    def missing(self) -> str:
        """Says that some of them did not come."""
        which = "of the cluster" if self.coordinator == "auto" else f"of {self.count} at {self.coordinator}"
        return (
            f"not all hosts {which} came within {ARRIVAL_SECONDS} s: is each started, and may they reach that port "
            f"through the firewall?"
        )


def start(hosts: Hosts) -> str:
    """Finds the other processes, before JAX is used for anything; a line that says what was found.

    Raises:
      BadInput: not all of them came in time.
    """
    import jax

    hosts.check()
    try:
        jax.distributed.initialize(
            None if hosts.coordinator == "auto" else hosts.coordinator,
            hosts.count,
            hosts.index,
            initialization_timeout=ARRIVAL_SECONDS,
            heartbeat_timeout_seconds=hosts.heartbeat_seconds,
        )
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"{hosts.missing()} ({str(error).strip().splitlines()[0][:200]})") from None
    _count.cache_clear()
    if jax.process_count() < 2:
        raise BadInput("launcher.coordinator=auto found one process, which is no cluster; use launcher=local")
    local, everywhere = jax.local_device_count(), jax.device_count()
    return f"host {jax.process_index()} of {jax.process_count()}: {local} of {everywhere} devices, {hosts.coordinator}"


@functools.cache
def _count() -> int:
    jax = sys.modules.get("jax")
    return 1 if jax is None or not jax.distributed.is_initialized() else int(jax.process_count())


def are_many() -> bool:
    """Whether this process is one of several."""
    return _count() > 1


def leads() -> bool:
    """Whether this process leads: it alone reads and writes the store, and shows progress."""
    if not are_many():
        return True
    import jax

    return bool(jax.process_index() == 0)


def of_leader(value: T) -> T:
    """What the leader says, in every process; of any other process ``value`` does not count. It must pickle."""
    if not are_many():
        return value
    from jax.experimental import multihost_utils

    data = np.frombuffer(pickle.dumps(value), np.uint8) if leads() else np.zeros(0, np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    told = multihost_utils.broadcast_one_to_all(data if leads() else np.zeros(size, np.uint8))
    return pickle.loads(np.asarray(told).tobytes())


def numbers_of_leader(*values: float) -> tuple[float, ...]:
    """As ``of_leader``, of a few numbers as float32, in one exchange."""
    if not are_many():
        return values
    from jax.experimental import multihost_utils

    return tuple(np.asarray(multihost_utils.broadcast_one_to_all(np.array(values, np.float32))).tolist())


def least(size: int) -> int:
    """The least of all processes' sizes in bytes, to a KiB."""
    if not are_many():
        return size
    from jax.experimental import multihost_utils

    return int(np.min(multihost_utils.process_allgather(np.int32(min(size >> 10, 2**31 - 1))))) << 10


def longest(*seconds: float) -> tuple[float, ...]:
    """Of several times the longest that each took any of the processes."""
    if not are_many():
        return seconds
    from jax.experimental import multihost_utils

    words = np.array(seconds, np.float64).view(np.uint32)  # as numbers of JAX's have 32 bits
    return tuple(np.max(np.ascontiguousarray(multihost_utils.process_allgather(words)).view(np.float64), 0).tolist())


def place() -> tuple[int, int]:
    """The number of this process, from 0, and how many there are."""
    if not are_many():
        return 0, 1
    import jax

    return int(jax.process_index()), _count()


def preempted(step: int) -> bool:
    """Whether SIGTERM came to any of the processes: the same answer at the same step in all of them."""
    if not are_many():
        return False
    from jax.experimental import multihost_utils

    return bool(multihost_utils.reached_preemption_sync_point(step))


def on_host(arrays: Any) -> Any:
    """Arrays of the mesh as NumPy arrays, whole, in every process."""
    import jax

    if not are_many():
        return jax.device_get(arrays)
    from jax.sharding import NamedSharding, PartitionSpec

    def whole(array: Any) -> np.ndarray:
        everywhere = NamedSharding(array.sharding.mesh, PartitionSpec())
        return np.asarray(_copied(everywhere)(array))

    return jax.tree.map(whole, arrays)


@functools.cache
def _copied(sharding: Any) -> Any:
    import jax

    return jax.jit(lambda array: array, out_shardings=sharding)


def leave(code: int, why: str = "") -> NoReturn:
    """Ends this process without a word to the others, who may be gone: their service would wait, and then abort."""
    if why:
        say(why)
    sys.stdout.flush()
    os._exit(code)


def lost(error: BaseException) -> bool:
    """Whether an error says that another process is gone."""
    text = f"{type(error).__name__}: {error}"
    return are_many() and re.search("gloo|nccl|coordination|heartbeat|UNAVAILABLE|DEADLINE", text, re.I) is not None
