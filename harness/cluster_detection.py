"""Clusters that say in the environment of a process which host of how many it is, and where the first one is.

A table with a row each: TPU pods (by their variables, or by the metadata of the virtual machine), SLURM, Open MPI and
indexed jobs of Kubernetes. Nothing here waits for another host, and JAX is not needed.
"""

import contextlib
import re
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

from harness import processors
from results.bad_input import BadInput

TPU_PORT = 8476  # not the 8482 of newer versions of JAX, which the rules that clouds begin with do not let through
POD_PORT = 8482
_METADATA_SECONDS = 5.0
_PORTS = 2**12  # at the upper end, of which each job takes one


class Place(NamedTuple):
    """The place of a process among the hosts of a cluster, as far as that says it.

    Attributes:
      cluster: its name.
      coordinator: HOST:PORT of the first host.
      hosts: how many there are; None where the cluster does not tell.
      host: which this is, from 0.
    """

    cluster: str
    coordinator: str
    hosts: int | None
    host: int


def find(environment: Mapping[str, str]) -> Place | None:
    """The place of this process by the first cluster that tells one; None if none does.

    Raises:
      BadInput: what a cluster tells cannot be understood.
    """
    for name, place in CLUSTERS.items():
        try:
            found = place(environment)
        except (KeyError, ValueError, IndexError, OSError) as error:
            raise BadInput(
                f"{name} does not tell which host this is ({type(error).__name__}: {error}); give "
                "launcher.coordinator=HOST:PORT, launcher.hosts and launcher.host"
            ) from None
        if found is not None:
            return found
    return None


def _tpu(environment: Mapping[str, str]) -> Place | None:
    names = environment.get("TPU_PROCESS_ADDRESSES", environment.get("TPU_WORKER_HOSTNAMES"))
    if names is not None:
        workers, index = names.split(","), int(environment["TPU_WORKER_ID"])
    elif processors.accelerators()[0] == "tpu" and "TPU_SKIP_MDS_QUERY" not in environment:
        workers = [each.split(":")[-1] for each in _metadata(environment, "worker-network-endpoints").split(",")]
        index = int(_metadata(environment, "agent-worker-number"))
    else:
        return None
    slices, own = int(environment.get("MEGASCALE_NUM_SLICES", 1)), int(environment.get("MEGASCALE_SLICE_ID", 0))
    first = environment.get("MEGASCALE_COORDINATOR_ADDRESS", workers[0]).split(":")[0]
    return Place("the TPU pod", f"{first}:{TPU_PORT}", len(workers) * slices, index + own * len(workers))


def _metadata(environment: Mapping[str, str], key: str) -> str:
    import http.client

    server = environment.get("GCE_METADATA_IP", "metadata.google.internal")
    asking = http.client.HTTPConnection(server, timeout=_METADATA_SECONDS)
    with contextlib.closing(asking):
        asking.request("GET", f"/computeMetadata/v1/instance/attributes/{key}", headers={"Metadata-Flavor": "Google"})
        answer = asking.getresponse()
        text = answer.read().decode()
    if answer.status != http.HTTPStatus.OK:
        raise ValueError(f"no {key} among the metadata")
    return text


def _slurm(environment: Mapping[str, str]) -> Place | None:
    if "SLURM_JOB_ID" not in environment or "SLURM_PROCID" not in environment:
        return None
    nodes = environment.get("SLURM_STEP_NODELIST") or environment["SLURM_JOB_NODELIST"]
    found = re.match(r"([^,\[]+)(?:\[([^,\]-]+))?", nodes)  # n1,n2 and n[01-04,7],m1
    if found is None:
        raise ValueError(nodes)
    first = f"{found[1]}{found[2] or ''}:{_port(int(environment['SLURM_JOB_ID']))}"
    return Place("SLURM", first, int(environment["SLURM_NTASKS"]), int(environment["SLURM_PROCID"]))


def _open_mpi(environment: Mapping[str, str]) -> Place | None:
    where = environment.get("OMPI_MCA_orte_hnp_uri")
    if where is None:
        return None
    found = re.match(r"([0-9]+)\..*?(?:tcp://([^,:]+)|tcp6://\[([^,\]]+))", where)
    if found is None:
        raise ValueError(where)
    first = f"{found[2] or found[3]}:{_port(int(found[1]) // 2**12)}"
    return Place("Open MPI", first, *(int(environment[f"OMPI_COMM_WORLD_{each}"]) for each in ("SIZE", "RANK")))


def _kubernetes(environment: Mapping[str, str]) -> Place | None:
    if "JOB_COMPLETION_INDEX" not in environment:
        return None
    index, own = int(environment["JOB_COMPLETION_INDEX"]), socket.getfqdn()
    pod, dot, service = own.partition(".")  # JOB-INDEX.SERVICE.NAMESPACE…
    if not dot or not pod.endswith(f"-{index}"):
        raise ValueError(f"{own} has no name that other pods know; the job needs a headless service and its subdomain")
    return Place("Kubernetes", f"{pod.removesuffix(str(index))}0.{service}:{POD_PORT}", None, index)


def _port(job: int) -> int:
    return 65536 - _PORTS + job % _PORTS


CLUSTERS: dict[str, Callable[[Mapping[str, str]], Place | None]] = {
    "the TPU pod": _tpu,
    "SLURM": _slurm,
    "Open MPI": _open_mpi,
    "Kubernetes": _kubernetes,
}
