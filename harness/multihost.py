"""The processes, one per host, that run a study together in lockstep.

Every process runs the same scheduler on the same metrics, so they exchange very little. The first process is the
leader. It decides everything that depends on a store, a clock or a signal, and only it reads and writes the store. A
single process is its own leader, and the functions here then cost nothing.

JAX is imported inside functions, because commands that only plan import this module.
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
from typing import Any, NoReturn, TypeVar

import numpy as np

from harness import cluster_detection, rendezvous
from harness.cluster_detection import Environment
from results.bad_input import BadInput, first_line
from results.cli import say

T = TypeVar("T")
SHARED_SECONDS = 60.0  # within which a failure on all processes counts as a failure of the study


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The addresses of the processes of a run.

    Attributes:
      coordinator: HOST:PORT of the first process.
      count: number of processes.
      index: index of this process, from 0.
      heartbeat_seconds: a process without a heartbeat for this long is lost.
      cluster: the cluster that provided any of these values, or None if the command line did.
    """

    coordinator: str
    count: int
    index: int
    heartbeat_seconds: int
    cluster: str | None = None

    def check(self) -> None:
        """Raises BadInput for invalid values."""
        if self.heartbeat_seconds < 1:
            raise BadInput(f"launcher.heartbeat_seconds must be at least 1, not {self.heartbeat_seconds}")
        _check_address(self.coordinator)
        if self.count < 2:
            given = f"{self.cluster} reports one host" if self.cluster else f"launcher.hosts={self.count}"
            raise BadInput(f"{given}: a multi-host run needs at least two hosts. Use launcher=local.")
        if not 0 <= self.index < self.count:
            raise BadInput(f"launcher.host={self.index} must be from 0 to {self.count - 1}")

    def __str__(self) -> str:
        """The index of this host and the address of the coordinator."""
        source = f", according to {self.cluster}" if self.cluster else ""
        return f"host {self.index} of {self.count}, coordinator {self.coordinator}{source}"


def find(
    coordinator: str | None,
    count: int | None,
    index: int | None,
    heartbeat_seconds: int,
    environment: Environment,
) -> Hosts:
    """The addresses of the processes. The cluster provides values that are None, and a coordinator that is auto.

    Raises:
      BadInput: a value is missing or invalid.
    """
    where = None if coordinator == "auto" else coordinator
    place = cluster_detection.find(environment) if None in (where, count, index) else None
    if place is not None:
        where = where or place.coordinator
        count = place.hosts if count is None else count
        index = place.host if index is None else index
    if where is None:
        raise BadInput(
            "launcher=hosts needs launcher.coordinator=HOST:PORT of host 0, because no TPU pod, SLURM, Open MPI or "
            "indexed job of Kubernetes provides it"
        )
    _check_address(where)
    if count is None or index is None:
        raise BadInput(
            "launcher=hosts needs launcher.hosts, the number of hosts, and launcher.host, the index of this one"
        )
    hosts = Hosts(where, count, index, heartbeat_seconds, place.cluster if place else None)
    hosts.check()
    return hosts


def _check_address(coordinator: str) -> None:
    host, colon, port = coordinator.rpartition(":")
    if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(f"launcher.coordinator={coordinator} must be HOST:PORT, such as 10.0.0.1:8482, or auto")


def start(hosts: Hosts, command: str = "", code: str = "") -> str:
    """Connects to the other processes, before JAX is used for anything. Returns a line to report.

    Args:
      hosts: their addresses.
      command: a hash of the command, the same on all of them.
      code: a hash of the code that runs it, also the same.

    Raises:
      BadInput: some process did not connect in time.
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
            cluster_detection_method="deactivate",  # detection would show a SLURM task only one GPU of its node
            initialization_timeout=round(rendezvous.SECONDS),
            heartbeat_timeout_seconds=hosts.heartbeat_seconds,
        )
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"{hosts}: JAX cannot connect to the other hosts ({first_line(error)[:200]})") from None
    try:
        jax.devices()
    except RuntimeError as error:  # such as a machine whose own host name does not resolve
        raise BadInput(f"JAX finds no devices on host {hosts.index}: {first_line(error)[:200]}") from None
    _count.cache_clear()
    _pulses.append(_Pulse(hosts.heartbeat_seconds / 2))
    if jax.process_count() != hosts.count:
        raise BadInput(f"{hosts}: JAX found {jax.process_count()} processes instead of {hosts.count}")
    local = jax.local_device_count()
    return f"host {jax.process_index()} of {jax.process_count()}: {local} of {jax.device_count()} devices"


class _Pulse:
    """Detects that this process stood still, because earlier messages may arrive long after it resumes.

    Its last heartbeat may already be half of ``heartbeat_seconds`` old, and the others give it up after the other half.
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
        """Whether the process ever stood still for longer than the others are certain to wait."""
        self._stopped |= time.monotonic() - self._at > self._most
        return self._stopped


_pulses: list[_Pulse] = []  # of this process, once it is one of several


def check_pulse() -> None:
    """Raises an error that ``lost`` recognizes if this process stood still for so long that the others gave it up."""
    if _pulses and _pulses[-1].has_stopped():
        raise RuntimeError("no heartbeat of this host for too long")


@functools.cache
def _count() -> int:
    jax = sys.modules.get("jax")
    return 1 if jax is None or not jax.distributed.is_initialized() else int(jax.process_count())


_times_asked = itertools.count(1)  # for ``preempted``


def are_many() -> bool:
    """Whether this process is one of several."""
    return _count() > 1


def leads() -> bool:
    """Whether this process is the leader, which reads and writes the store and shows progress."""
    return place()[0] == 0


def broadcast(value: T) -> T:
    """Broadcasts the leader's value, which must pickle. The argument of other processes is ignored."""
    if not are_many():
        return value
    from jax.experimental import multihost_utils

    data = np.frombuffer(pickle.dumps(value), np.uint8) if leads() else np.zeros(0, np.uint8)
    words = np.array([len(data)], np.int64).view(np.uint32)  # JAX's integers have 32 bits
    size = int(np.asarray(multihost_utils.broadcast_one_to_all(words)).view(np.int64)[0])
    received = multihost_utils.broadcast_one_to_all(data if leads() else np.zeros(size, np.uint8))
    return pickle.loads(np.asarray(received).tobytes())


def numbers_of_leader(*values: float) -> tuple[float, ...]:
    """Broadcasts a few numbers of the leader as float32, in one exchange."""
    if not are_many():
        return values
    from jax.experimental import multihost_utils

    return tuple(np.asarray(multihost_utils.broadcast_one_to_all(np.array(values, np.float32))).tolist())


def longest(*seconds: float) -> tuple[float, ...]:
    """The elementwise maximum over all processes, such as of seconds that each took."""
    if not are_many():
        return seconds
    from jax.experimental import multihost_utils

    words = np.array(seconds, np.float64).view(np.uint32)  # JAX's numbers have 32 bits
    return tuple(np.max(np.ascontiguousarray(multihost_utils.process_allgather(words)).view(np.float64), 0).tolist())


def place() -> tuple[int, int]:
    """The index of this process, from 0, and the number of processes."""
    if not are_many():
        return 0, 1
    import jax

    return int(jax.process_index()), _count()


def preempted() -> bool:
    """Whether any of the processes received SIGTERM. All must ask equally often, and all get the same answer.

    JAX answers yes at only one step, the one after the latest that any process had asked at when the signal arrived.
    Steps are therefore counted for as long as the process lives, and a new study does not start again from 1.
    """
    if not are_many():
        return False
    from jax.experimental import multihost_utils

    return bool(multihost_utils.reached_preemption_sync_point(next(_times_asked)))


def all_fail(study: str) -> bool:
    """Whether all processes fail at a study, so that they can continue with the next. Each failing process calls it."""
    from jax._src import distributed

    client: Any = distributed.global_state.client
    try:
        client.wait_at_barrier(f"failed: {study}", round(1000 * SHARED_SECONDS))
    except RuntimeError:  # the others are computing and wait for this process
        return False
    return True


def on_host(arrays: Any) -> Any:
    """Arrays of the mesh as complete NumPy arrays, in every process."""
    import jax

    if not are_many():
        return jax.device_get(arrays)
    from jax.sharding import NamedSharding, PartitionSpec

    def gathered(array: Any) -> np.ndarray:
        return np.asarray(_copied(NamedSharding(array.sharding.mesh, PartitionSpec()))(array))

    return jax.tree.map(gathered, arrays)


@functools.cache
def _copied(sharding: Any) -> Any:
    import jax

    return jax.jit(lambda array: array, out_shardings=sharding)


def leave(code: int, why: str = "") -> NoReturn:
    """Ends this process without notifying the others, which may be gone: JAX's shutdown would wait and then abort."""
    if why:
        say(why)
    sys.stdout.flush()
    os._exit(code)


def lost(error: BaseException) -> bool:
    """Whether an error indicates that another process is gone."""
    text = f"{type(error).__name__}: {error}"
    return are_many() and re.search("gloo|nccl|coordination|heartbeat|UNAVAILABLE|DEADLINE", text, re.I) is not None
