"""Multi-host runs: one process per host, all of which run a study in lockstep.

Every process runs the same scheduler on the same metrics, so processes exchange very little data. The first process is
the leader. It makes all decisions that depend on the store, a clock or a signal, and is the only process that reads and
writes the store. In a single-process run, that process is the leader, and the functions in this module have no
overhead.

JAX and ``rendezvous`` are imported inside functions because planning commands import this module.
"""

import functools
import itertools
import os
import pickle
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from results.bad_input import BadInput, first_line
from results.printing import say

if TYPE_CHECKING:
    from harness.processes.addresses import Hosts

T = TypeVar("T")
SHARED_SECONDS = 60.0  # a failure on all processes within this time counts as a failure of the study


def start(hosts: "Hosts", command: str = "", code: str = "") -> str:
    """Connects to the other processes. Call it before using JAX. Returns a line to report.

    Args:
      hosts: addresses of the processes.
      command: hash of the command, which must be the same on all hosts.
      code: hash of the code that runs the command, which must also be the same.

    Raises:
      BadInput: a process did not connect in time.
    """
    import jax

    from harness.processes import rendezvous

    arrival = rendezvous.Arrival(hosts.index, hosts.count, f"JAX {jax.__version__}", command, code)
    rendezvous.meet(hosts.coordinator, arrival, hosts.connect_seconds)
    try:
        jax.distributed.initialize(
            hosts.coordinator,
            hosts.count,
            hosts.index,
            cluster_detection_method="deactivate",  # detection would show a SLURM task only one GPU of its node
            initialization_timeout=hosts.connect_seconds,
            heartbeat_timeout_seconds=hosts.heartbeat_seconds,
        )
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"{hosts}: JAX cannot connect to the other hosts ({first_line(error)[:200]})") from None
    try:
        jax.devices()
    except RuntimeError as error:  # such as a machine that cannot resolve its own host name
        raise BadInput(f"JAX finds no devices on host {hosts.index}: {first_line(error)[:200]}") from None
    _count.cache_clear()
    _pulses.append(_Pulse(hosts.heartbeat_seconds / 2))
    if jax.process_count() != hosts.count:
        raise BadInput(f"{hosts}: JAX found {jax.process_count()} processes instead of {hosts.count}")
    local = jax.local_device_count()
    return f"host {jax.process_index()} of {jax.process_count()}: {local} of {jax.device_count()} devices"


class _Pulse:
    """Detects whether this process was suspended. Messages sent to it before may arrive long after it resumes.

    When it is suspended, its last heartbeat may already be half of ``heartbeat_seconds`` old, so the others may give up
    on it after the other half.
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
        """Returns whether the process was ever suspended for longer than the other processes are guaranteed to wait."""
        self._stopped |= time.monotonic() - self._at > self._most
        return self._stopped


_pulses: list[_Pulse] = []  # the pulse of this process, in multi-host runs


def check_pulse() -> None:
    """Raises an error that ``lost`` recognizes if the other processes gave up on this one while it was suspended."""
    if _pulses and _pulses[-1].has_stopped():
        raise RuntimeError("no heartbeat of this host for too long")


@functools.cache
def _count() -> int:
    jax = sys.modules.get("jax")
    return 1 if jax is None or not jax.distributed.is_initialized() else int(jax.process_count())


_times_asked = itertools.count(1)  # for ``preempted``


def are_many() -> bool:
    """Returns whether this is a multi-host run."""
    return _count() > 1


def leads() -> bool:
    """Returns whether this process is the leader, which reads and writes the store and shows progress."""
    return place()[0] == 0


def broadcast(value: T) -> T:
    """Broadcasts the leader's value, which must be picklable. The argument of other processes is ignored."""
    if not are_many():
        return value
    from jax.experimental import multihost_utils

    data = np.frombuffer(pickle.dumps(value), np.uint8) if leads() else np.zeros(0, np.uint8)
    words = np.array([len(data)], np.int64).view(np.uint32)  # JAX's integers have 32 bits
    size = int(np.asarray(multihost_utils.broadcast_one_to_all(words)).view(np.int64)[0])
    received = multihost_utils.broadcast_one_to_all(data if leads() else np.zeros(size, np.uint8))
    return pickle.loads(np.asarray(received).tobytes())


def numbers_of_leader(*values: float) -> tuple[float, ...]:
    """Broadcasts the leader's numbers as float32 in a single exchange."""
    if not are_many():
        return values
    from jax.experimental import multihost_utils

    return tuple(np.asarray(multihost_utils.broadcast_one_to_all(np.array(values, np.float32))).tolist())


def longest(*seconds: float) -> tuple[float, ...]:
    """Returns the elementwise maximum over all processes, for example of elapsed seconds."""
    if not are_many():
        return seconds
    from jax.experimental import multihost_utils

    words = np.array(seconds, np.float64).view(np.uint32)  # JAX's numbers have 32 bits
    return tuple(np.max(np.ascontiguousarray(multihost_utils.process_allgather(words)).view(np.float64), 0).tolist())


def place() -> tuple[int, int]:
    """Returns the zero-based index of this process, and the number of processes."""
    if not are_many():
        return 0, 1
    import jax

    return int(jax.process_index()), _count()


def preempted() -> bool:
    """Returns whether any process received SIGTERM. All processes must call it equally often, and get the same result.

    JAX reports the signal at exactly one step: the step after the latest step that any process had polled when the
    signal arrived. Steps are therefore counted over the lifetime of the process, and the count does not restart with a
    new study.
    """
    if not are_many():
        return False
    from jax.experimental import multihost_utils

    return bool(multihost_utils.reached_preemption_sync_point(next(_times_asked)))


def all_fail(study: str) -> bool:
    """Returns whether all processes failed at a study, so all can continue with the next. Call it after a failure."""
    from jax._src import distributed

    client: Any = distributed.global_state.client
    try:
        client.wait_at_barrier(f"failed: {study}", round(1000 * SHARED_SECONDS))
    except RuntimeError:  # the others are still computing and will wait for this process
        return False
    return True


def on_host(arrays: Any) -> Any:
    """Returns sharded arrays as complete NumPy arrays, in every process."""
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
    """Ends this process without notifying the others. JAX's shutdown would wait for lost processes, then abort."""
    if why:
        say(why)
    sys.stdout.flush()
    os._exit(code)


def lost(error: BaseException) -> bool:
    """Returns whether an error indicates that another process is gone."""
    text = f"{type(error).__name__}: {error}"
    return are_many() and re.search("gloo|nccl|coordination|heartbeat|UNAVAILABLE|DEADLINE", text, re.I) is not None
