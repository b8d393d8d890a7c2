"""Writes a study as a JobSet of kubernetes-sigs/jobset (v1alpha2, as of commit 08dfbdfd), queued by Kueue."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from results import exit_codes
from results.bad_input import BadInput
from sweeps.manifests.machines import Machines
from sweeps.manifests.options import ANYWHERE, EXCLUSIVE, LABEL, Options, check

Fields = dict[str, Any]

JOB = "s"  # name of the only replicated job. It is short, because it is part of the coordinator's name
CONTAINER = "study"
PORT = 8476
CONNECT_SECONDS = 1800  # pods may start at different times: nodes are created, and pull the image
GRACE_SECONDS = 120  # nodes may grant less, such as 15 seconds to spot pods on GKE
DEADLINE_SECONDS = 900  # the deadline of a job is later than the study's own limit, so that the study ends by itself
MOST_CHARACTERS = 28  # of a JobSet's name: NAME-s-0-0.NAME, the coordinator, must have at most 63
_DIGITS = 8  # of the hash in the name of a JobSet
DRIVER = "/usr/local/nvidia/lib64"  # folder where GKE mounts the libraries of NVIDIA's driver


def check_name(name: str) -> None:
    """Raises BadInput if JobSets cannot be named after a prefix."""
    check("name", name, LABEL)
    limit = MOST_CHARACTERS - _DIGITS - 1
    if len(name) > limit:
        raise BadInput(
            f"name={name} has {len(name)} characters, but at most {limit} are possible, such as {_cut(name)}"
        )


def _cut(name: str) -> str:
    return name[: MOST_CHARACTERS - _DIGITS - 1].rstrip("-")


def name_of(study: str, prefix: str | None, content: object) -> str:
    """Returns the name of a study's JobSet: a readable prefix, followed by digits of a hash.

    Args:
      study: name of the study.
      prefix: prefix. By default, the name of the workload.
      content: everything that the manifest depends on. JobSets cannot be changed, so a change needs another name.
    """
    start = prefix or _cut(re.sub(r"[^a-z0-9]+", "-", study.rpartition("-")[0].lower()).strip("-"))
    if not start[:1].isalpha():
        start = _cut(f"s-{start}")
    return f"{start}-{hashlib.sha256(repr((study, content)).encode()).hexdigest()[:_DIGITS]}"


def coordinator(name: str) -> str:
    """Returns the host name at which the first pod of a JobSet can be reached."""
    return f"{name}-{JOB}-0-0.{name}"


def command(words: Sequence[str], store: str, machines: Machines, name: str) -> list[str]:
    """Returns the command of a pod.

    Args:
      words: words of `scaling-limits sweep` for one study.
      store: URL of the store.
      machines: hosts that run the study.
      name: name of the JobSet.
    """
    options = [f"store={store}"]
    if machines.hosts > 1:
        options += [
            "launcher=hosts",
            f"launcher.connect_seconds={CONNECT_SECONDS}",
            f"launcher.coordinator={coordinator(name)}:{PORT}",
            f"launcher.hosts={machines.hosts}",
        ]
    return ["scaling-limits", "sweep", *words, *options]


def jobset(
    study: str, words: Sequence[str], store: str, machines: Machines, options: Options, seconds: float | None
) -> Fields:
    """Returns the JobSet of a study as plain data.

    Args:
      study: name of the study.
      words: words of `scaling-limits sweep` for this study only.
      store: URL of the store.
      machines: hosts that run the study.
      options: options of the manifest.
      seconds: time limit of the study, if there is one.
    """
    name = name_of(study, options.name, (list(words), store, machines, options, seconds))
    late = DEADLINE_SECONDS + (CONNECT_SECONDS if machines.hosts > 1 else 0)
    deadline = None if seconds is None else math.ceil(seconds) + late
    is_queued = options.queue is not None
    placement = options.placement
    if placement is None:
        placement = EXCLUSIVE if machines.topology and machines.hosts > 1 else ANYWHERE
    labels = {
        "kueue.x-k8s.io/queue-name": options.queue,
        "kueue.x-k8s.io/priority-class": options.priority if is_queued else None,
        "kueue.x-k8s.io/max-exec-time-seconds": str(deadline) if is_queued and deadline is not None else None,
    }
    pool = "cloud.google.com/gke-nodepool" if placement == EXCLUSIVE else None
    about = {
        "name": name,
        "namespace": options.namespace,
        "labels": _given(labels),
        "annotations": _given({"alpha.jobset.sigs.k8s.io/exclusive-topology": pool}),
    }
    level = None if placement in (EXCLUSIVE, ANYWHERE) else placement
    of_pods = _given({"annotations": _given({"kueue.x-k8s.io/podset-required-topology": level})})
    pod_command = command(words, store, machines, name)
    job = {
        "completionMode": "Indexed",
        "completions": machines.hosts,
        "parallelism": machines.hosts,
        "backoffLimit": 0,
        "activeDeadlineSeconds": deadline,
        "podFailurePolicy": {"rules": pod_failure_rules()},
        "template": _given({"metadata": of_pods, "spec": _given(_pod(pod_command, machines, options))}),
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _given(about),
        "spec": {
            "failurePolicy": {"maxRestarts": options.restarts, "rules": failure_rules()},
            "coordinator": {"replicatedJob": JOB, "jobIndex": 0, "podIndex": 0},
            "replicatedJobs": [{"name": JOB, "replicas": 1, "template": {"spec": _given(job)}}],
        },
    }


def pod_failure_rules() -> list[Fields]:
    """Returns the rules for a pod's failure that make its job end with a free restart."""
    codes = {"containerName": CONTAINER, "operator": "In", "values": sorted(exit_codes.free_restarts)}
    return [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": codes},
    ]


def failure_rules() -> list[Fields]:
    """Returns the rules for a failed job. If no rule matches, the restart counts against ``maxRestarts``."""
    return [
        {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
        {"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]},
    ]


def _pod(words: Sequence[str], machines: Machines, options: Options) -> Fields:
    """Returns the specification of a pod. Fields that have no value are removed later."""
    by_index = machines.hosts > 1
    escaped = [word.replace("$", "$$") for word in words]  # Kubernetes replaces $(NAME)
    taints = {"cloud.google.com/gke-spot": "true"} if options.spot else {}
    selector = {**machines.labels, **taints, **options.selector}
    taints |= {"kubernetes.io/arch": "arm64"} if machines.arm else {}
    tolerated = [{"key": machines.resource, "operator": "Exists", "effect": "NoSchedule"}]
    for key, value in taints.items():
        tolerated.append({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"})
    volumes, mounts = _volumes(options)
    container = {
        "name": CONTAINER,
        "image": options.image,
        "command": [*escaped, "launcher.host=$(JOB_COMPLETION_INDEX)"] if by_index else escaped,
        "env": _environment(machines, options),
        "envFrom": [{"secretRef": {"name": options.secret}}] if options.secret else None,
        "securityContext": _security(machines, options),
        "resources": {"limits": {machines.resource: machines.devices}},
        "volumeMounts": mounts,
    }
    return {
        "restartPolicy": "Never",  # JobSet's default, OnFailure, cannot be combined with a pod failure policy
        "serviceAccountName": options.account,
        "priorityClassName": None if options.queue else options.priority,
        "hostNetwork": by_index or None,
        "dnsPolicy": "ClusterFirstWithHostNet" if by_index else None,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": selector,
        "tolerations": tolerated,
        "containers": [_given(container)],
        "volumes": volumes,
    }


def _environment(machines: Machines, options: Options) -> list[Fields]:
    """Returns environment variables. The driver of GPUs is outside the image, so its folder must be searched."""
    defaults = (
        {"JAX_PLATFORMS": "tpu,cpu"} if machines.topology else {"JAX_PLATFORMS": "cuda,cpu", "LD_LIBRARY_PATH": DRIVER}
    )
    given = {name: value.replace("$", "$$") for name, value in options.env.items()}
    return [{"name": name, "value": value} for name, value in {**defaults, **given}.items()]


def _security(machines: Machines, options: Options) -> Fields | None:
    """Returns the security context. TPUs need more locked memory, which root may allow itself with SYS_RESOURCE."""
    if options.privileged:
        return {"privileged": True, "runAsUser": 0}
    return {"runAsUser": 0, "capabilities": {"add": ["SYS_RESOURCE"]}} if machines.topology else None


def _volumes(options: Options) -> tuple[list[Fields], list[Fields]]:
    """Returns the volumes of a pod, and their mounts in the container."""
    volumes: list[Fields] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    for name, text in options.volume.items():
        source, _, path = text.partition(":")
        is_folder = source.startswith("/")
        claim = {"hostPath": {"path": source}} if is_folder else {"persistentVolumeClaim": {"claimName": source}}
        volumes.append({"name": name, **claim})
        mounts.append({"name": name, "mountPath": path})
    return volumes, mounts


def _given(fields: Mapping[str, Any]) -> Fields:
    return {key: value for key, value in fields.items() if value not in (None, {})}
