"""Manifests for Kubernetes: every shape by the rules of JobSet, refusals in one line, and restarts by a simulator."""

import itertools
import json
import math
import mmap
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.run import RunProgress
from results import exit_codes
from sweeps import manifest
from sweeps.launchers import hosts
from sweeps.manifests import jobset as jobsets, machines
from sweeps.manifests.machines import Machines
from sweeps.manifests.options import Options

from .jobset import rules
from .jobset.simulator import DEADLINE, DISRUPTED, State, run

ROOT = Path(__file__).parents[2]
STUDY = "digits-fully_connected-momentum-b64-202cae3016933520"
OPTIONS = Options("registry.example.com/scaling-limits:1", queue="research", priority="high", spot=True)
WORDS = ("task=digits_fc", "batch_size=64", "trials=8", "task.budget.epochs=1")
LINE = (*WORDS, "image=r/x:1", "store=gs://bucket/launch")


def shapes() -> list[Machines]:
    """Every TPU slice, with every machine type that it can have, and every host with GPUs."""
    found = []
    for name, version in machines.VERSIONS.items():
        topologies = [*(machines.FLAT if version.directions == 2 else machines.DEEP)]
        if version.directions == 3:
            cubes = itertools.combinations_with_replacement(range(1, version.most_cubes + 1), 3)
            sides = [[4 * n for n in each] for each in cubes if math.prod(each) <= version.most_cubes]
            topologies += ["x".join(map(str, each)) for each in sides]
        for topology in dict.fromkeys(topologies):
            chips = math.prod(map(int, topology.split("x")))
            for each, kind in version.machine_types.items():
                if each == chips or (each == machines.SEVERAL_HOSTS and chips % each == 0):
                    found.append(machines.tpus(f"{name}:{topology}", kind))
    for gpu, types in machines.GPUS.items():
        found += [machines.gpus(gpu, count) for count in types]
        found += [machines.gpus(gpu, max(types), hosts) for hosts in (2, 16, machines.MOST_HOSTS)]
    return found


def made(on: Machines, options: Options = OPTIONS, seconds: float | None = 7200.0) -> dict:
    found = json.loads(json.dumps(jobsets.jobset(STUDY, WORDS, "gs://bucket/launch", on, options, seconds)))
    assert isinstance(found, dict)
    return found


def test_every_shape_is_valid() -> None:
    found = shapes()
    assert {each.name.partition(":")[0] for each in found} >= machines.VERSIONS.keys() | machines.GPUS.keys()
    assert sum(each.topology is not None for each in found) > 400
    assert {each.hosts * each.devices for each in found} >= {1, 4, 8, 16, 256, 2048, 64 * 144}
    listed = {*machines.FLAT, *machines.DEEP, None}  # larger slices have the same fields, and differ in numbers only
    for each in found:
        check = rules.errors if each.topology in listed else rules.further
        assert not list(check(made(each))), each


@pytest.mark.parametrize("placement", [None, "any", "exclusive", "cloud.google.com/gke-tpu-partition-4x4x4-id"])
@pytest.mark.parametrize("name", [None, "a" * 19])
def test_every_option_is_valid(placement: str | None, name: str | None) -> None:
    on = machines.tpus("tpu7x:4x4x4")
    with_queue = Options("r/x", "q", "p", placement=placement, name=name, namespace="n", restarts=0)
    with_queue.check()
    assert rules.errors(made(on, with_queue)) == []
    assert rules.errors(made(on, Options("r/x", name=name), None)) == []
    assert len(jobsets.name_of(STUDY, name, "")) <= jobsets.MOST_CHARACTERS


def test_the_rules_find_errors() -> None:
    for change, about in {
        ("spec", "sucessPolicy"): "sucessPolicy",
        ("metadata", "lables"): "lables",
        ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "hostNetworks"): "hostNetworks",
    }.items():
        broken = made(machines.tpus("v6e:4x4"))
        part = broken
        for key in change[:-1]:
            part = part[key]
        part[change[-1]] = {}
        assert any(about in each for each in rules.errors(broken)), change
    job = ("spec", "replicatedJobs", 0, "template", "spec")
    for change, value in {
        (*job, "completions"): 5,
        (*job, "template", "spec", "restartPolicy"): "OnFailure",
        (*job, "template", "spec", "dnsPolicy"): "ClusterFirst",
        ("metadata", "name"): "a" * 29,
        ("metadata", "name", ""): None,
    }.items():
        broken = made(machines.tpus("v6e:4x4"))
        part = broken
        for key in change[:-1]:
            part = part[key]
        if value is not None:
            part[change[-1]] = value
            assert rules.errors(broken), change
    assert rules.SCHEMA.stat().st_size <= 150_000


def test_a_deadline_is_later_than_the_limit_of_the_study() -> None:
    spec = made(machines.tpus("v6e:4x4"))
    job = spec["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["activeDeadlineSeconds"] == 7200 + jobsets.DEADLINE_SECONDS + jobsets.CONNECT_SECONDS
    assert spec["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] == str(job["activeDeadlineSeconds"])
    without = made(machines.tpus("v6e:4x4"), seconds=None)
    assert "activeDeadlineSeconds" not in without["spec"]["replicatedJobs"][0]["template"]["spec"]


def test_a_single_host_has_no_coordinator_in_its_command() -> None:
    pod = made(machines.tpus("v5e:2x4"))["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert "hostNetwork" not in pod
    command = pod["containers"][0]["command"]
    assert command == ["scaling-limits", "sweep", *WORDS, "store=gs://bucket/launch"]


def container_of(manifest: dict[str, Any]) -> dict[str, Any]:
    (container,) = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_gpu_pods_find_the_driver_of_their_node() -> None:
    variables = {each["name"]: each["value"] for each in container_of(made(machines.gpus("nvidia-l4", 1)))["env"]}
    assert variables == {"JAX_PLATFORMS": "cuda,cpu", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}
    assert "securityContext" not in container_of(made(machines.gpus("nvidia-l4", 1)))


def test_tpu_pods_may_lock_memory() -> None:
    root = {"runAsUser": 0, "capabilities": {"add": ["SYS_RESOURCE"]}}
    assert container_of(made(machines.tpus("v6e:4x4")))["securityContext"] == root
    privileged = made(machines.tpus("v6e:4x4"), Options("r/x", privileged=True))
    assert container_of(privileged)["securityContext"] == {"privileged": True, "runAsUser": 0}


def test_arm_hosts_are_tolerated() -> None:
    pod = made(machines.gpus("nvidia-gb200", 4))["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    arm = {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}
    assert arm in pod["tolerations"]


def test_options_of_pods_and_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    line = [word for word in LINE if not word.startswith("store=")]
    words = ("env.AWS_REGION=eu", "env.LD_LIBRARY_PATH=/a:$B", "secret=keys", "selector.example.com/rack=r1")
    words += ("reservation=mine", "volume.data=claim:/data", "volume.gib=/home/gib:/usr/local/gib", "store=s3://b/f")
    assert manifest.main([*line, *words, "gpu=nvidia-b200", "gpus=8", "hosts=2"]) == exit_codes.DONE
    document = yaml.safe_load(capsys.readouterr().out)
    assert rules.errors(document) == []
    pod = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    container = container_of(document)
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["AWS_REGION"] == "eu" and variables["LD_LIBRARY_PATH"] == "/a:$$B"
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert pod["nodeSelector"]["cloud.google.com/reservation-name"] == "mine"
    assert pod["nodeSelector"]["example.com/rack"] == "r1"
    assert {each["name"]: each["mountPath"] for each in container["volumeMounts"]} == {
        "shm": "/dev/shm", "data": "/data", "gib": "/usr/local/gib"
    }  # fmt: skip
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}} in pod["volumes"]
    assert {"name": "gib", "hostPath": {"path": "/home/gib"}} in pod["volumes"]


@pytest.mark.parametrize(
    "change",
    ["trials=9", "limits.study.max_hours=3", "image=r/x:2", "store=gs://bucket/b", "topology=v6e:2x4", "spot=true"],
)
def test_a_changed_manifest_has_another_name(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = change.partition("=")[0]
    line = [*LINE, "topology=v6e:4x4"]
    names = []
    for words in (line, line, [*(word for word in line if word.partition("=")[0] != key), change]):
        assert manifest.main(words) == exit_codes.DONE
        names.append(yaml.safe_load(capsys.readouterr().out)["metadata"]["name"])
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028"])
def test_line_breaks_stay_in_comments(end: str, capsys: pytest.CaptureFixture[str]) -> None:
    word = f"checkpoint_dir='a{end}kind: Pod{end}---{end}#'"
    assert manifest.main([*LINE, "topology=v6e:4x4", word]) == exit_codes.DONE
    (document,) = yaml.safe_load_all(capsys.readouterr().out)
    assert word in container_of(document)["command"]


def test_manifests_of_an_earlier_sweep_are_not_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [*LINE, "topology=v6e:4x4", f"out={tmp_path}"]
    for _ in range(2):  # writing the same again is possible
        assert manifest.main(line) == exit_codes.DONE
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    assert manifest.main([*line, "seed=1"]) == exit_codes.INVALID
    assert "1 file of other manifests" in capsys.readouterr().err
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_dollars_are_kept() -> None:
    made_of = jobsets.jobset(STUDY, ["task.name=$(HOME)"], "gs://b/f", machines.tpus("v5e:1x1"), OPTIONS, None)
    pod = made_of["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert "task.name=$$(HOME)" in pod["containers"][0]["command"]  # Kubernetes reads $$ as $


def test_the_command_prints_a_stream_of_jobsets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [*LINE, "optimizer=sgd,nesterov", "topology=v6e:4x4", "queue=research", "-m"]
    assert manifest.main(words) == exit_codes.DONE
    printed = capsys.readouterr().out
    documents = list(yaml.safe_load_all(printed))
    assert [rules.errors(each) for each in documents] == [[], []]
    assert len({each["metadata"]["name"] for each in documents}) == 2
    assert manifest.main([*words, f"out={tmp_path}"]) == exit_codes.DONE
    assert [yaml.safe_load(path.read_text()) for path in sorted(tmp_path.glob("*.yaml"))] == sorted(
        documents, key=lambda each: str(each["metadata"]["name"])
    )
    for document in documents:
        (job,) = document["spec"]["replicatedJobs"]
        words = job["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
        name = document["metadata"]["name"]
        assert f"launcher.coordinator={name}-s-0-0.{name}:{jobsets.PORT}" in words
        assert not re.search("secret|token|password", json.dumps(document), re.IGNORECASE)


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("topology=v6e:1x2",), "no such slice of 2 chips. Choices: 1x1, 2x2"),
        (("topology=v5e:4x2",), "Write v5e:2x4"),
        (("topology=v5p:8x4x4",), "Write v5p:4x4x8"),
        (("topology=v4:1x2x2",), "Write v4:2x2x1"),
        (("topology=v4:4x4x6",), "no such slice of 96 chips"),
        (("topology=v4:16x16x20",), "80 cubes of 4x4x4 chips, but at most 64"),
        (("topology=v6e:2x2x2",), "2 directions"),
        (("topology=v3:8x16",), "Choices: v4, v5e, v5p, v6e, tpu7x"),
        (("topology=v6e:4x4", "hosts=8"), "v6e:4x4 has 4 of ct6e-standard-4t"),
        (("topology=v6e:4x4", "machine=ct6e-standard-8t"), "Choices: ct6e-standard-4t"),
        (("gpu=nvidia-h100-80gb", "gpus=3"), "1 or 2 or 4 or 8"),
        (("gpu=nvidia-h100-80gb", "gpus=4", "hosts=2"), "gpus=8"),
        (("gpu=h100", "gpus=8"), "nvidia-h100-80gb"),
        (("gpu=nvidia-l4", "gpus=1", "topology=v6e:4x4"), "either"),
        (("topology=v6e:4x4", "store=results/launch"), "pods cannot use store=results/launch"),
        (("topology=v6e:4x4", "store=s3://key:secret@bucket/a"), "without credentials"),
        (("topology=v6e:4x4", "name=digits-with-a-long-name"), "such as digits-with-a-long"),
        (("topology=v6e:4x4", "name=Digits"), "a-z, 0-9 and -"),
        (("topology=v6e:4x4", "queue=Research_1"), "queue=Research_1 is not a name"),
        (("topology=v6e:4x4", "placement=example.com/rack"), "Set queue= too"),
        (("topology=v6e:4x4", "placement=both"), "placement=both must be exclusive"),
        (("topology=v6e:4x4", "spot=yes"), "true or false"),
        (("topology=v6e:4x4", "slices=2"), "one slice"),
        (("gpu=nvidia-h100-80gb", "gpus=8", "hosts=10001"), "from 1 to 10,000"),
        (("gpu=nvidia-h100-80gb", "gpus=8", "hosts=99999999999"), "hosts=99999999999 is not a whole number"),
        (("topology=v6e:4x4", "restarts=99999999999"), "restarts=99999999999 is not a whole number"),
        (("topology=v6e:4x4", "image=registry/Case"), "not the name of an image"),
        (("topology=v6e:4x4", "image=UPPER/Case"), "not the name of an image"),
        (("topology=v6e:4x4", "image=r/x:"), "not the name of an image"),
        (("topology=v6e:4x4", "account=a..b"), "account=a..b is not a name"),
        (("topology=v6e:4x4", "account=-a"), "account=-a is not a name"),
        (("topology=v6e:4x4", "namespace=a.b"), "namespace=a.b is not a name"),
        (("topology=v6e:4x4", "namespace=" + "a" * 64), "at most 63 of a-z"),
        (("topology=v6e:4x4", "priority=" + "a" * 254), "at most 253 of a-z"),
        (("topology=v6e:4x4", "queue=q", "priority=" + ".".join(["a" * 40] * 2)), "at most 63 letters"),
        (("topology=v6e:4x4", "reservation=a b"), "reservation-name=a b is not a value of a label"),
        (("topology=v6e:4x4", "env.1A=b"), "env=1A is not a name"),
        (("topology=v6e:4x4", "env=b"), "Write env.NAME=b"),
        (("topology=v6e:4x4", "env.AWS_SECRET_ACCESS_KEY=b"), "Use secret=NAME"),
        (("topology=v6e:4x4", "selector.a b=c"), "not a label of nodes"),
        (("topology=v6e:4x4", "selector.a=b c"), "not a value of a label"),
        (("topology=v6e:4x4", f"selector.{machines.TOPOLOGY}=2x2"), "is set by topology="),
        (("topology=v6e:4x4", "volume.shm=a:/b"), "volume=shm is not a name"),
        (("topology=v6e:4x4", "volume.a=b"), "is not a volume"),
        (("topology=v6e:4x4", "store=s3://bucket/a"), "Give secret=NAME"),
        (("topology=v6e:4x4", "store=az://bucket/a", "env.AWS_REGION=a"), "env.AZURE_STORAGE_ACCOUNT_NAME=…"),
        (("topology=v6e:4x4", "restarts=-1"), "whole number"),
        (("topology=v6e:4x4", "launcher=hosts"), "Leave it out"),
        (("topology=v6e:4x4", "limits.sweep.max_hours=1"), "Leave it out"),
        (("topology=v6e:4x4", "task=webgraph_synthetic"), "checkpoint_dir"),
        (("topology=v6e:4x4", "--json"), "YAML"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_refusals(words: tuple[str, ...], about: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {word.partition("=")[0] for word in words}
    line = [word for word in LINE if word.partition("=")[0] not in keys]
    if "task=webgraph_synthetic" in words:
        line = [word for word in line if not word.startswith(("batch_size", "task"))]
    assert manifest.main([*line, *words]) == exit_codes.INVALID
    printed = capsys.readouterr()
    assert printed.out == ""
    assert about in printed.err and printed.err.count("\n") == 1


JOBSET = made(machines.tpus("v6e:4x4"))
MOST = OPTIONS.restarts


@pytest.mark.parametrize(
    ("attempts", "after"),
    [
        ([(75, 75)] * 50, {State(50, 0)}),
        ([(76, DISRUPTED)] * 50, {State(50, 0)}),
        ([(77,)] * 3, {State(3, 3)}),
        ([(77,)] * 4, {State(3, 3, "Failed")}),
        ([(137, 77)] * 4, {State(3, 3, "Failed")}),  # out of memory before anything is saved
        ([(137, 76)], {State(1, 0), State(1, 1)}),  # out of memory later: the order of events decides
        ([(2,)] * 4, {State(3, 3, "Failed")}),  # a user's mistake
        ([(1,)] * 4, {State(3, 3, "Failed")}),
        ([(75, 75), (75, 75), (0, 0)], {State(2, 0, "Completed")}),  # Kueue suspends twice: SIGTERM to all pods
        ([(143, 77), (0, 0)], {State(1, 1, "Completed")}),  # Kueue suspends before the first step
        ([(75,), (DEADLINE,)], {State(1, 0, "Failed")}),
    ],
)
def test_restarts(attempts: list[tuple[int | str, ...]], after: set[State]) -> None:
    assert run(JOBSET, *attempts) == after


@pytest.mark.parametrize("crash", [1, 2, 137, 139, 143])
def test_hosts_that_always_crash_end_their_jobset(crash: int, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = mmap.mmap(-1, hosts._MARKS)
    monkeypatch.setattr(hosts, "_marks", marks)
    hosts._note(RunProgress(steps=9))  # a step that was not saved
    assert run(JOBSET, *[(crash, hosts._peer_lost(marks))] * (MOST + 1)) == {State(MOST, MOST, "Failed")}
    hosts._note(RunProgress(steps=9, saved=True))
    assert State(50, 0) in run(JOBSET, *[(crash, hosts._peer_lost(marks))] * 50)  # each attempt adds saved steps


def test_free_restarts_are_those_of_the_table_of_exit_codes() -> None:
    codes = {int(code) for name, code in vars(exit_codes).items() if name.isupper()} - {exit_codes.DONE}
    free = {code for code in codes if run(JOBSET, [code]) == {State(1, 0)}}
    assert free == set(exit_codes.free_restarts) == {exit_codes.PREEMPTED, exit_codes.PEER_LOST}
    assert exit_codes.NO_PROGRESS in codes - free


def test_image_files_exist_and_run_the_console_script() -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    copied = {source for line in lines if line[0] == "COPY" for source in line[1:-1]}
    assert all((ROOT / source).exists() for source in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {each.partition(".")[0] for each in project["tool"]["setuptools"]["packages"]}
    modules = {f"{each}.py" for each in project["tool"]["setuptools"]["py-modules"]}
    assert copied >= packages | modules | {"pyproject.toml", "README.md", "LICENSE"}
    locks = set(re.findall(r"requirements[-\w${}]*\.lock", text))
    assert "requirements.lock" in locks and all((ROOT / each.replace("${EXTRA}", "tpu")).exists() for each in locks)
    assert {f"requirements-{extra}.lock" for extra in ("tpu", "cuda")} <= copied
    (installed,) = (line for line in lines if line[:3] == ["RUN", "pip", "install"] and "--requirement" in line)
    assert [installed[i + 1] for i, word in enumerate(installed) if word == "--requirement"] == [
        "requirements-${EXTRA}.lock"
    ]
    extras = project["project"]["optional-dependencies"]
    needed = {re.split("[>;=]", each)[0] for name in ("buckets", "data") for each in extras[name]}
    assert needed <= set(installed)
    tools = {re.split(r"[>;=\[]", each)[0] for each in (*extras["dev"], *extras["docs"])} - needed
    for extra in ("tpu", "cuda"):
        locked = (ROOT / f"requirements-{extra}.lock").read_text()
        assert not tools & {line.partition("==")[0] for line in locked.splitlines()}
    (entry,) = (json.loads(" ".join(line[1:])) for line in lines if line[0] == "ENTRYPOINT")
    assert (
        entry
        == [*project["project"]["scripts"]]
        == made(machines.tpus("v5e:1x1"))["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
            "containers"
        ][0]["command"][:1]
    )
    (user,) = (line[1] for line in lines if line[0] == "USER")
    assert user.isdecimal() and int(user) > 0


PUBLIC = {
    name: each
    for file in ("tpu_recipes", "gpu_recipes", "xpk")
    for name, each in json.loads((Path(__file__).parent / "jobset" / f"{file}.json").read_text()).items()
}


def fields(part: Any, path: str = "") -> dict[str, list[Any]]:
    """The values of a manifest by the path of their field. A job and its pods are ``job`` and ``pod`` in any kind."""
    if isinstance(part, dict) and path.rpartition(".")[2] not in ("labels", "annotations", "nodeSelector", "resources"):
        items = [(f"{path}.{key}" if path else key, value) for key, value in part.items()]
    elif isinstance(part, list) and part and isinstance(part[0], dict):
        items = [(path, each) for each in part]
    else:
        return {path: [part]} if part not in (None, {}) else {}
    found: dict[str, list[Any]] = {}
    for name, value in items:
        for key, values in fields(value, name).items():
            found.setdefault(key, []).extend(values)
    return found


def renamed(manifest: dict[str, Any]) -> dict[str, list[Any]]:
    job = "spec" if manifest["kind"] == "Job" else "spec.replicatedJobs.template.spec"
    names = {f"{job}.template.spec.": "pod.", f"{job}.template.": "pod.", f"{job}.": "job."}
    names.setdefault("spec.", "jobset.")
    found = {}
    for path, values in fields(manifest).items():
        start = next((each for each in names if path.startswith(each)), "")
        found[names.get(start, "") + path.removeprefix(start)] = values
    return found


def same_machines(name: str) -> Machines:
    """The machines of a public manifest."""
    if topology := re.search(r"tpu7x-(\w+)", name):
        return machines.tpus(f"tpu7x:{topology[1]}")
    known = {
        "/a3ultra/": machines.gpus("nvidia-h200-141gb", 8, 8),
        "/a3mega/": machines.gpus("nvidia-h100-mega-80gb", 8, 16),
        "/a4/": machines.gpus("nvidia-b200", 8, 32),
        "=v6e-16 ": machines.tpus("v6e:4x4"),
        "=l4-1 ": machines.gpus("nvidia-l4", 1),
        "=h100-mega-80gb-8 ": machines.gpus("nvidia-h100-mega-80gb", 8, 2),
        "=h200-141gb-8 ": machines.gpus("nvidia-h200-141gb", 8, 8),
        "=b200-8 ": machines.gpus("nvidia-b200", 8, 2),
        "=gb200-4 ": machines.gpus("nvidia-gb200", 4, 2),
    }
    (on,) = (on for part, on in known.items() if part in name)
    return on


def differences(name: str) -> set[str]:
    """The fields in which a public manifest differs from ours for the same machines."""
    ours, theirs = renamed(made(same_machines(name), Options("r/x", queue="q"))), renamed(PUBLIC[name])
    return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}


@pytest.mark.parametrize("kind", ["TPU", "GPU"])
def test_differences_from_public_manifests_are_explained(kind: str) -> None:
    page = (ROOT / "docs" / "launch" / "kubernetes.md").read_text()
    table = page.partition(f"### {kind} manifests")[2].partition("\n#")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    explained = re.findall(r"`([\w.]+)`", "".join(rows))
    names = [name for name in PUBLIC if (same_machines(name).topology is not None) == (kind == "TPU")]
    found = {name: differences(name) for name in names}
    for name, different in found.items():
        assert {"metadata.name", "pod.containers.command"} <= different
        left = {key for key in different if not any(f"{key}.".startswith(f"{each}.") for each in explained)}
        assert not left, name
        equal = {"job.completions", "job.parallelism", "job.backoffLimit", "pod.restartPolicy"}
        assert equal <= renamed(PUBLIC[name]).keys() - different
    every = set().union(*found.values())
    assert not [each for each in explained if not any(f"{key}.".startswith(f"{each}.") for key in every)]


@pytest.mark.parametrize("name", [name for name in PUBLIC if "device-type" in name and "l4" not in name])
def test_gpu_pods_search_the_same_folder_as_those_of_xpk(name: str) -> None:
    theirs, ours = container_of(PUBLIC[name])["env"], container_of(made(same_machines(name)))["env"]
    folder = {"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}
    assert folder in theirs and folder in ours
