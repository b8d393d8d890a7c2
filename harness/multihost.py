"""The processes that run a study together, one on each host, in lockstep: who leads, and what is told to all.

Every process runs the same scheduler on the same metrics, so that next to nothing has to be told: what depends on a
store, a clock or a signal is decided by the first process, which leads and alone reads and writes the store. A process
without others leads, and nothing here costs it anything.
"""

import dataclasses
import functools
import itertools
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np

from harness import cluster_detection, rendezvous
from results.bad_input import BadInput, first_line
from results.cli import say

T = TypeVar("T")
SHARED_SECONDS = 60.0  # in which all processes fail at a study, if they do


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Where processes find each other.

    Attributes:
      coordinator: HOST:PORT of the first process.
      count: of processes.
      index: of this one, from 0.
      heartbeat_seconds: after which a process that is not heard of is lost.
      cluster: that told any of this; None if whoever started the process did.
    """

    coordinator: str
    count: int
    index: int
    heartbeat_seconds: int
    cluster: str | None = None

    def check(self) -> None:
        """Raises BadInput for what cannot be."""
        if self.heartbeat_seconds < 1:
            raise BadInput(f"launcher.heartbeat_seconds must be at least 1, not {self.heartbeat_seconds}")
        _check_address(self.coordinator)
        if self.count < 2:
            told = f"{self.cluster} tells of one host" if self.cluster else f"launcher.hosts={self.count}"
            raise BadInput(f"{told}: of one host there is no other; use launcher=local")
        if not 0 <= self.index < self.count:
            raise BadInput(f"launcher.host={self.index} is none of {self.count}, which are 0 to {self.count - 1}")

    def __str__(self) -> str:
        """Which host this is, and where it finds the others."""
        told = f", as {self.cluster} says" if self.cluster else ""
        return f"host {self.index} of {self.count}, coordinator {self.coordinator}{told}"


def find(
    coordinator: str | None,
    count: int | None,
    index: int | None,
    heartbeat_seconds: int,
    environment: Mapping[str, str],
) -> Hosts:
    """Where processes find each other; what is None, or a coordinator auto, is as the cluster says.

    Raises:
      BadInput: something is missing, or cannot be.
    """
    where = None if coordinator == "auto" else coordinator
    place = cluster_detection.find(environment) if None in (where, count, index) else None
    if place is not None:
        where, count = where or place.coordinator, place.hosts if count is None else count
        index = place.host if index is None else index
    if where is None:
        raise BadInput(
            "launcher=hosts needs launcher.coordinator=HOST:PORT of host 0; no TPU pod, SLURM, Open MPI or indexed job "
            "of Kubernetes says it"
        )
    _check_address(where)
    if count is None or index is None:
        raise BadInput("launcher=hosts needs launcher.hosts, how many there are, and launcher.host, which this is")
    hosts = Hosts(where, count, index, heartbeat_seconds, place.cluster if place else None)
    hosts.check()
    return hosts


def _check_address(coordinator: str) -> None:
    host, colon, port = coordinator.rpartition(":")
    if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(f"launcher.coordinator={coordinator} is no HOST:PORT, such as 10.0.0.1:8482, nor auto")


def start(hosts: Hosts, command: str = "", code: str = "") -> str:
    """Finds the other processes, before JAX is used for anything; a line that says what was found.

    Args:
      hosts: where they are.
      command: a hash of what is asked for, the same in all of them.
      code: a hash of the code that runs it, likewise.

    Raises:
      BadInput: not all of them came in time.
    """
    import jax

    hosts.check()
    own = rendezvous.Arrival(hosts.index, hosts.count, f"JAX {jax.__version__}", command, code)
    rendezvous.meet(hosts.coordinator, own)
    try:
        jax.distributed.initialize(
            hosts.coordinator,
            hosts.count,
            hosts.index,
            cluster_detection_method="deactivate",  # which would let a task of SLURM see one GPU of its node alone
            initialization_timeout=round(rendezvous.SECONDS),
            heartbeat_timeout_seconds=hosts.heartbeat_seconds,
        )
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"{hosts}: JAX does not find the others ({first_line(error)[:200]})") from None
    try:
        jax.devices()
    except RuntimeError as error:  # such as a machine whose own name has no address
        raise BadInput(f"JAX finds no devices on host {hosts.index}: {first_line(error)[:200]}") from None
    _count.cache_clear()
    _pulses.append(_Pulse(hosts.heartbeat_seconds / 2))
    if jax.process_count() != hosts.count:
        raise BadInput(f"{hosts}: JAX found {jax.process_count()}, each of which would be taken for all")
    local, everywhere = jax.local_device_count(), jax.device_count()
    return f"host {jax.process_index()} of {jax.process_count()}: {local} of {everywhere} devices"


class _Pulse:
    """A clock that stands still with this process; what was exchanged before may arrive long after it goes on.

    The last heartbeat before that may be half of ``heartbeat_seconds`` old; the others may give it up after the rest.
    """

    def __init__(self, most: float):
        self._most = most
        self._at = time.monotonic()
        self._stopped = False
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self.has_stopped():
            self._at = time.monotonic()
            time.sleep(min(1.0, self._most / 4))

    def has_stopped(self) -> bool:
        """Whether the process ever stood still for longer than the others wait for it at least."""
        self._stopped |= time.monotonic() - self._at > self._most
        return self._stopped


_pulses: list[_Pulse] = []  # of this process, once it is one of several


def check_pulse() -> None:
    """Raises what ``lost`` knows where this process stood still for so long that the others have given it up."""
    if _pulses and _pulses[-1].has_stopped():
        raise RuntimeError("no heartbeat of this host for too long")


@functools.cache
def _count() -> int:
    jax = sys.modules.get("jax")
    return 1 if jax is None or not jax.distributed.is_initialized() else int(jax.process_count())


_times_asked = itertools.count(1)  # whether a process is to end


def are_many() -> bool:
    """Whether this process is one of several."""
    return _count() > 1


def leads() -> bool:
    """Whether this process leads: it alone reads and writes the store, and shows progress."""
    if not are_many():
        return True
    import jax

    return bool(jax.process_index() == 0)


def broadcast(value: T) -> T:
    """What the leader says, in every process; of any other process ``value`` does not count. It must pickle."""
    if not are_many():
        return value
    from jax.experimental import multihost_utils

    data = np.frombuffer(pickle.dumps(value), np.uint8) if leads() else np.zeros(0, np.uint8)
    words = np.array([len(data)], np.int64).view(np.uint32)  # as numbers of JAX's have 32 bits
    size = int(np.asarray(multihost_utils.broadcast_one_to_all(words)).view(np.int64)[0])
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


def preempted() -> bool:
    """Whether SIGTERM came to any of the processes, all of which must ask equally often, and get the same answer.

    JAX answers yes at one step only, the one after the latest that any process had asked at when the signal came. So
    steps are counted from call to call for as long as the process lives: a study must not start again from 1.
    """
    if not are_many():
        return False
    from jax.experimental import multihost_utils

    return bool(multihost_utils.reached_preemption_sync_point(next(_times_asked)))


def all_fail(study: str) -> bool:
    """Whether all processes fail at a study, so that they can go on with the next; for each that does."""
    from jax._src import distributed

    client: Any = distributed.global_state.client
    try:
        client.wait_at_barrier(f"failed: {study}", round(1000 * SHARED_SECONDS))
    except RuntimeError:  # the others compute, and wait for this one
        return False
    return True


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
