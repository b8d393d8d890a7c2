"""A study with the command and the environment of its manifest, as two pods on loopback, into a server of S3."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from results import exit_codes

from . import servers, stores

pytest.importorskip("obstore")
BIN = Path(sys.executable).parent
WORDS = ("task=digits_fc", "batch_size=64", "trials=2", "pruning=off", "task.budget.epochs=2", "lanes=2")
# Gives a command an /etc/hosts of its own.
WITH_HOSTS = ("unshare", "--map-root-user", "--mount", "bash", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"')


@pytest.fixture(scope="module")
def moto() -> Iterator[servers.Server]:
    with servers.moto() as running:
        yield running


def pods(jobset: dict[str, Any], folder: Path, environment: dict[str, str]) -> list[subprocess.Popen[str]]:
    """Starts the pods of a JobSet as a kubelet does: with its environment, and with variables in its command."""
    (job,) = jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    name = jobset["metadata"]["name"]
    first = f"{name}-{job['name']}-0-0.{name}"  # as JobSet names pods
    hosts = folder / "hosts"
    hosts.write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.1 {first}\n")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    started = []
    for i in range(spec["completions"]):
        own = {each["name"]: each["value"] for each in container["env"]} | {"JOB_COMPLETION_INDEX": str(i)}
        command = [word.replace("$(JOB_COMPLETION_INDEX)", str(i)).replace("$$", "$") for word in container["command"]]
        assert sum(f"{first}:8476" in word for word in command) == 1
        command = [word.replace(f"{first}:8476", f"{first}:{port}") for word in command]  # others may use 8476
        command[0] = str(BIN / command[0])
        variables = os.environ | own | environment | {"JAX_PLATFORMS": "cpu"}
        process = subprocess.Popen(
            [*WITH_HOSTS, str(hosts), *command],
            env=variables,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
    return started


def ended(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """The exit codes and the output of pods."""
    try:
        outputs = [each.communicate(timeout=120)[0] for each in processes]
        return [(each.returncode, output) for each, output in zip(processes, outputs, strict=True)]
    finally:
        for each in processes:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.communicate()


@pytest.mark.slow
def test_two_pods_run_a_study_into_a_bucket(moto: servers.Server, tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run([*WITH_HOSTS, "/etc/hosts", "true"], check=False).returncode:
        pytest.skip("this machine has no mount namespaces for an /etc/hosts of a test")
    url = moto.store("manifest")
    machine = ("topology=v6e:2x4", "machine=ct6e-standard-4t", "image=registry.example.com/scaling-limits:1")
    machine += ("secret=keys",)  # its variables are those of the server
    written = stores.run(["sweeps.manifest", *WORDS, *machine, f"store={url}"], moto)
    assert written.returncode == exit_codes.DONE, written.stderr
    assert not any(value in written.stdout for value in (servers.KEY, servers.SECRET))
    ends = ended(pods(yaml.safe_load(written.stdout), tmp_path, moto.environment))
    assert [code for code, _ in ends] == [exit_codes.DONE] * 2, ends
    shown = stores.run(["sweeps.status", f"store={url}", "--json"], moto)
    (study,) = json.loads(shown.stdout)
    assert (study["state"], study["planned"], study["missing"]) == ("done", 2, 0)
