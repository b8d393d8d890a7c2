"""Hosts that meet, or do not, and clusters that say which is which, compared with what JAX itself makes of them."""

import concurrent.futures
import contextlib
import http.server
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator

import jax
import pytest
from jax._src.clusters import cloud_tpu_cluster, ompi_cluster, slurm_cluster

from harness.processes import addresses, cluster_detection, processors, rendezvous
from harness.processes.rendezvous import Arrival
from results.bad_input import BadInput


@pytest.fixture
def port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def said(port: int, *own: Arrival, late: float = 0.0, seconds: float = 2.0) -> list[str]:
    """What hosts are told that come at once, but for the first, which may be late; nothing if all is well."""

    def meet(one: Arrival) -> str:
        time.sleep(0.0 if one.host else late)
        try:
            rendezvous.meet(f"127.0.0.1:{port}", one, seconds)
        except BadInput as error:
            return str(error)
        return ""

    with concurrent.futures.ThreadPoolExecutor(len(own)) as pool:
        return list(pool.map(meet, own))


def arrival(host: int, count: int = 3, versions: str = "JAX 1", command: str = "a", code: str = "1") -> Arrival:
    return Arrival(host, count, versions, command, code)


def test_all_come_and_the_port_is_free_again(port: int) -> None:
    for _ in range(3):
        assert said(port, *(arrival(i) for i in range(3)), late=0.5) == ["", "", ""]
        with socket.socket() as listening:  # as strict as can be: no SO_REUSEADDR
            listening.bind(("0.0.0.0", port))


def test_every_host_says_which_did_not_come(port: int) -> None:
    began = time.monotonic()
    one, other = said(port, arrival(0, 4), arrival(2, 4))
    assert one == other
    assert one.startswith(f"hosts 1, 3 of 4 did not reach 127.0.0.1:{port} within 2 s. ")
    assert "firewall" in one
    assert time.monotonic() - began < 2 + 2


def test_the_first_does_not_come(port: int) -> None:
    (line,) = said(port, arrival(1))
    assert line.startswith(f"host 0 of 3 did not answer host 1 at 127.0.0.1:{port} within 2 s (Connection refused)")
    assert "firewall" in line


@pytest.mark.parametrize(
    ("others", "line"),
    [
        ([arrival(1, 2)], "host 1 was given 2 hosts, but host 0 was given 3"),
        ([arrival(1), arrival(1)], "two hosts were given the index 1 of 3"),
        ([arrival(1), arrival(2, versions="JAX 2")], "host 2 has JAX 2, but host 0 has JAX 1"),
        ([arrival(1), arrival(2, command="b")], "host 2 was given a different command than host 0"),
        ([arrival(1), arrival(2, code="2")], "host 2 runs different code than host 0"),
    ],
)
def test_hosts_that_were_told_differently(port: int, others: list[Arrival], line: str) -> None:
    first, *rest = said(port, arrival(0), *others)
    assert line in first
    assert first in rest


def test_strangers_at_the_port_and_a_host_that_comes_twice(port: int) -> None:
    def disturb() -> None:
        for data in (
            b"GET / HTTP/1.1\r\n\r\n\n",
            b"\x00" * 9000,
            b"[" * 4000 + b"\n",
            json.dumps([1, "3", 5]).encode() + b"\n",
            b"",
        ):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(data)
        with socket.create_connection(("127.0.0.1", port)) as killed:
            killed.sendall(json.dumps(arrival(1)).encode() + b"\n")
            time.sleep(0.2)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(said, port, arrival(0))
        time.sleep(0.3)
        disturb()
        assert said(port, arrival(1), arrival(2)) == ["", ""]
        assert first.result() == [""]


def test_descriptors_beyond_those_that_select_takes(port: int) -> None:
    """A thousand hosts need as many, which is also how many most systems allow a process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
        held = os.open(os.devnull, os.O_RDONLY)
        while True:
            stack.callback(os.close, held)
            if held == 1023:
                break
            held = os.dup(held)
        assert said(port, *(arrival(i) for i in range(3))) == ["", "", ""]


@pytest.mark.parametrize("page", [b"HTTP/1.1 400 Bad Request\r\n\r\n<html>no</html>\n", b"x" * 9000, b"\n"])
def test_a_foreign_server_at_the_coordinator(port: int, page: bytes) -> None:
    def serve(listening: socket.socket) -> None:
        while True:
            try:
                visitor, _ = listening.accept()
            except OSError:
                return
            with visitor:
                visitor.recv(4096)
                visitor.sendall(page)

    with socket.create_server(("127.0.0.1", port)) as listening:
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        (line,) = said(port, arrival(1), seconds=0.5)
        listening.shutdown(socket.SHUT_RDWR)
        server.join()
    about = f"host 0 of 3 did not answer host 1 at 127.0.0.1:{port} within 0 s (another program answers there)"
    assert line.startswith(about)
    assert len(line.splitlines()) == 1


def test_a_port_that_is_taken(port: int) -> None:
    with socket.create_server(("", port)):
        (line,) = said(port, arrival(0))
    assert f"port {port} of the coordinator cannot be used" in line


SLURM = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "0"}
MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("environment", "theirs"),
    [
        *(
            (SLURM | {"SLURM_STEP_NODELIST": nodes}, slurm_cluster.SlurmCluster)
            for nodes in ("node001", "node001,host2", "node[001-015],host2", "node[001,007-015],host2", "a-b-[7-9]")
        ),
        *(
            (MPI | {"OMPI_MCA_orte_hnp_uri": where}, ompi_cluster.OmpiCluster)
            for where in (
                "1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911",
                "1314521088.0;tcp6://[fe80::b9b:ac5d:9cf0:b858,2620:10d:c083:150e::3000:2]:43370",
            )
        ),
    ],
)
def test_what_jax_makes_of_the_same_environment(
    environment: dict[str, str], theirs: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert theirs.is_env_present()  # type: ignore[attr-defined]
    found = cluster_detection.find(environment)
    assert found is not None
    assert found.coordinator == theirs.get_coordinator_address(None, None)  # type: ignore[attr-defined]
    assert found.hosts == theirs.get_process_count()  # type: ignore[attr-defined]
    assert found.host == theirs.get_process_id()  # type: ignore[attr-defined]


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], None]]:
    """A server as virtual machines have it, with the attributes it is given."""
    attributes: dict[str, str] = {}

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            key = self.path.removeprefix("/computeMetadata/v1/instance/attributes/")
            known = key in attributes and self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(attributes.get(key, "").encode())

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{server.server_port}")
        yield attributes.update
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("endpoints", ["10.0.0.1,10.0.0.2", "a:1:10.0.0.1,b:2:10.0.0.2"])
def test_the_metadata_of_a_tpu_host(
    metadata: Callable[[dict[str, str]], None], endpoints: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "accelerators", lambda: ("tpu", 4))
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    with pytest.raises(
        BadInput, match=r"the TPU pod does not report the index of this host .*worker-network-endpoints"
    ):
        cluster_detection.find(os.environ)
    metadata({"worker-network-endpoints": endpoints, "agent-worker-number": "1"})
    found = cluster_detection.find(os.environ)
    assert found == cluster_detection.Place("the TPU pod", "10.0.0.1:8476", 2, 1)
    pytest.importorskip("requests")
    assert cloud_tpu_cluster.GceTpuCluster._get_worker_list_in_slice() == ["10.0.0.1", "10.0.0.2"]
    assert cloud_tpu_cluster.GceTpuCluster._get_process_id_in_slice() == found.host


def test_pods_of_tpus_and_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = {"TPU_WORKER_HOSTNAMES": "t-0.svc,t-1.svc", "TPU_WORKER_ID": "1"}
    assert cluster_detection.find(pods) == cluster_detection.Place("the TPU pod", "t-0.svc:8476", 2, 1)
    slices = {"MEGASCALE_NUM_SLICES": "3", "MEGASCALE_SLICE_ID": "2", "MEGASCALE_COORDINATOR_ADDRESS": "m-0:8080"}
    assert cluster_detection.find(pods | slices) == cluster_detection.Place("the TPU pod", "m-0:8476", 6, 5)
    monkeypatch.setattr(socket, "getfqdn", lambda: "sweep-13.pods.default.svc.cluster.local")
    job = {"JOB_COMPLETION_INDEX": "13"}
    assert cluster_detection.find(job) == cluster_detection.Place(
        "Kubernetes", "sweep-0.pods.default.svc.cluster.local:8482", None, 13
    )
    with pytest.raises(BadInput, match=r"launcher\.hosts, the number of hosts"):
        addresses.find(None, None, None, 30, job)
    assert addresses.find("auto", 20, None, 30, job).index == 13
    monkeypatch.setattr(socket, "getfqdn", lambda: "sweep-13")
    with pytest.raises(BadInput, match="headless service"):
        cluster_detection.find(job)


def test_one_host_is_never_taken_for_many() -> None:
    alone = SLURM | {"SLURM_JOB_NODELIST": "n1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}
    with pytest.raises(BadInput, match=r"SLURM reports one host: .*launcher=local"):
        addresses.find(None, None, None, 30, alone)
    with pytest.raises(BadInput, match=r"needs launcher\.coordinator=HOST:PORT"):
        addresses.find("auto", None, None, 30, {})
    assert not jax.distributed.is_initialized()
