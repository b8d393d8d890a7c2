"""Detects a cluster from the environment: the number of hosts, this host's index and the first host's address.

Supported clusters are TPU pods (detected from environment variables or the virtual machine's metadata), SLURM, Open MPI
and indexed Kubernetes jobs. This module does not wait for other hosts and does not import JAX.
"""

import contextlib
import re
import socket
from collections.abc import Mapping
from typing import NamedTuple

from harness.processes import processors
from results.bad_input import BadInput

Environment = Mapping[str, str]
TPU_PORT = 8476  # newer versions of JAX use 8482, which the default firewall rules of clouds block
POD_PORT = 8482
_METADATA_SECONDS = 5.0
_PORTS = 2**12  # number of ports, at the upper end of the range, to choose a job's port from


class Place(NamedTuple):
    """The position of a process in a cluster.

    Attributes:
      cluster: name of the cluster.
      coordinator: HOST:PORT of the first host.
      hosts: number of hosts, or None if the cluster does not report this number.
      host: zero-based index of this host.
    """

    cluster: str
    coordinator: str
    hosts: int | None
    host: int


def find(environment: Environment) -> Place | None:
    """Returns the place of this process in the first cluster that is detected, or None if there is no cluster.

    Raises:
      BadInput: a cluster's environment variables are invalid.
    """
    for name, place in CLUSTERS.items():
        try:
            position = place(environment)
        except (KeyError, ValueError, IndexError, OSError) as error:
            raise BadInput(
                f"{name} does not report the index of this host ({type(error).__name__}: {error}). Give "
                "launcher.coordinator=HOST:PORT, launcher.hosts and launcher.host."
            ) from None
        if position is not None:
            return position
    return None


def _tpu(environment: Environment) -> Place | None:
    names = environment.get("TPU_PROCESS_ADDRESSES", environment.get("TPU_WORKER_HOSTNAMES"))
    if names is not None:
        workers = names.split(",")
        index = int(environment["TPU_WORKER_ID"])
    elif processors.accelerators()[0] == "tpu" and "TPU_SKIP_MDS_QUERY" not in environment:
        workers = [
            endpoint.split(":")[-1] for endpoint in _metadata(environment, "worker-network-endpoints").split(",")
        ]
        index = int(_metadata(environment, "agent-worker-number"))
    else:
        return None
    slices = int(environment.get("MEGASCALE_NUM_SLICES", 1))
    slice_index = int(environment.get("MEGASCALE_SLICE_ID", 0))
    first = environment.get("MEGASCALE_COORDINATOR_ADDRESS", workers[0]).split(":")[0]
    return Place("the TPU pod", f"{first}:{TPU_PORT}", len(workers) * slices, index + slice_index * len(workers))


def _metadata(environment: Environment, key: str) -> str:
    import http.client  # slow to import, and only TPU pods need it

    server = environment.get("GCE_METADATA_IP", "metadata.google.internal")
    asking = http.client.HTTPConnection(server, timeout=_METADATA_SECONDS)
    with contextlib.closing(asking):
        asking.request("GET", f"/computeMetadata/v1/instance/attributes/{key}", headers={"Metadata-Flavor": "Google"})
        answer = asking.getresponse()
        text = answer.read().decode()
    if answer.status != http.HTTPStatus.OK:
        raise ValueError(f"no {key} in the metadata")
    return text


def _slurm(environment: Environment) -> Place | None:
    if "SLURM_JOB_ID" not in environment or "SLURM_PROCID" not in environment:
        return None
    nodes = environment.get("SLURM_STEP_NODELIST") or environment["SLURM_JOB_NODELIST"]
    match = re.match(r"([^,\[]+)(?:\[([^,\]-]+))?", nodes)  # n1,n2 and n[01-04,7],m1
    if match is None:
        raise ValueError(nodes)
    first = f"{match[1]}{match[2] or ''}:{_port(int(environment['SLURM_JOB_ID']))}"
    return Place("SLURM", first, int(environment["SLURM_NTASKS"]), int(environment["SLURM_PROCID"]))


def _open_mpi(environment: Environment) -> Place | None:
    where = environment.get("OMPI_MCA_orte_hnp_uri")
    if where is None:
        return None
    match = re.match(r"([0-9]+)\..*?(?:tcp://([^,:]+)|tcp6://\[([^,\]]+))", where)
    if match is None:
        raise ValueError(where)
    first = f"{match[2] or match[3]}:{_port(int(match[1]) // 2**12)}"
    return Place("Open MPI", first, *(int(environment[f"OMPI_COMM_WORLD_{suffix}"]) for suffix in ("SIZE", "RANK")))


def _kubernetes(environment: Environment) -> Place | None:
    if "JOB_COMPLETION_INDEX" not in environment:
        return None
    index = int(environment["JOB_COMPLETION_INDEX"])
    name = socket.getfqdn()
    pod, dot, service = name.partition(".")  # JOB-INDEX.SERVICE.NAMESPACE…
    if not dot or not pod.endswith(f"-{index}"):
        raise ValueError(f"{name} cannot be resolved by other pods. The job needs a headless service and its subdomain")
    return Place("Kubernetes", f"{pod.removesuffix(str(index))}0.{service}:{POD_PORT}", None, index)


def _port(job: int) -> int:
    return 65536 - _PORTS + job % _PORTS


CLUSTERS = {
    "the TPU pod": _tpu,
    "SLURM": _slurm,
    "Open MPI": _open_mpi,
    "Kubernetes": _kubernetes,
}
