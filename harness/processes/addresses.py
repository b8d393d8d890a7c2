"""The addresses of the processes of a multi-host run, from the command line or from the cluster."""

import dataclasses

from harness.processes import cluster_detection, rendezvous
from harness.processes.cluster_detection import Environment
from results.bad_input import BadInput


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The addresses of the processes of a run. Raises BadInput if a number is invalid.

    Attributes:
      coordinator: HOST:PORT of the first process.
      count: number of processes.
      index: zero-based index of this process.
      heartbeat_seconds: time without a heartbeat after which a process is considered lost.
      connect_seconds: time that processes wait for each other at startup.
      cluster: name of the cluster that provided some of these values, or None if the command line provided all of them.
    """

    coordinator: str
    count: int
    index: int
    heartbeat_seconds: int
    connect_seconds: int = rendezvous.SECONDS
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.heartbeat_seconds < 1:
            raise BadInput(f"launcher.heartbeat_seconds must be at least 1, not {self.heartbeat_seconds}")
        if self.connect_seconds < 1:
            raise BadInput(f"launcher.connect_seconds must be at least 1, not {self.connect_seconds}")
        if self.count < 2:
            given = f"{self.cluster} reports one host" if self.cluster else f"launcher.hosts={self.count}"
            raise BadInput(f"{given}: a multi-host run needs at least two hosts. Use launcher=local.")
        if not 0 <= self.index < self.count:
            raise BadInput(f"launcher.host={self.index} must be from 0 to {self.count - 1}")

    def __str__(self) -> str:
        """Returns a text with the index of this host and the address of the coordinator."""
        source = f", according to {self.cluster}" if self.cluster else ""
        return f"host {self.index} of {self.count}, coordinator {self.coordinator}{source}"


def find(
    coordinator: str | None,
    count: int | None,
    index: int | None,
    heartbeat_seconds: int,
    environment: Environment,
    connect_seconds: int = rendezvous.SECONDS,
) -> Hosts:
    """Returns the addresses of the processes. Missing values, or ``auto`` as coordinator, are taken from the cluster.

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
    host, colon, port = where.rpartition(":")
    if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(f"launcher.coordinator={where} must be HOST:PORT, such as 10.0.0.1:8482, or auto")
    if count is None or index is None:
        raise BadInput(
            "launcher=hosts needs launcher.hosts, the number of hosts, and launcher.host, the index of this one"
        )
    return Hosts(where, count, index, heartbeat_seconds, connect_seconds, place.cluster if place else None)
