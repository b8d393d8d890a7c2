"""Writes a study as a JobSet of kubernetes-sigs/jobset (v1alpha2, as of commit 08dfbdfd), queued by Kueue."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from results import exit_codes
from results.bad_input import BadInput
from sweeps.manifests.machines import Machines

Fields = dict[str, Any]

EXCLUSIVE = "exclusive"
ANYWHERE = "any"
JOB = "s"  # name of the only replicated job. It is short, because it is part of the coordinator's name
CONTAINER = "study"
PORT = 8476
CONNECT_SECONDS = 600  # nodes may pull the image at different times
GRACE_SECONDS = 120  # nodes may grant less, such as 15 seconds to spot pods on GKE
DEADLINE_SECONDS = 900  # the deadline of a job is later than the study's own limit, so that the study ends by itself
MOST_CHARACTERS = 28  # of a JobSet's name: NAME-s-0-0.NAME, the coordinator, must have at most 63
_DIGITS = 8  # of the hash of the plan in the name of a JobSet
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # DNS-1035
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # a DNS-1123 subdomain
_KEY = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9._-]+")  # of a label with a prefix


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of all manifests of a sweep.

    Attributes:
      image: container image that contains the console script.
      queue: local queue of Kueue, if Kueue is used.
      priority: a WorkloadPriorityClass of Kueue if there is a queue, otherwise a PriorityClass of Kubernetes.
      spot: whether to use spot nodes of GKE.
      placement: ``exclusive`` (one node pool for each slice), ``any``, or a node label that is a topology level of
        Kueue. The default is exclusive for TPU slices with several hosts.
      account: service account of the pods, which can access the store.
      namespace: namespace. By default, the current namespace.
      name: prefix of the names of JobSets. By default, the name of the workload.
      restarts: maximum number of restarts, excluding free restarts.
    """

    image: str
    queue: str | None = None
    priority: str | None = None
    spot: bool = False
    placement: str | None = None
    account: str = "scaling-limits"
    namespace: str | None = None
    name: str | None = None
    restarts: int = 3

    def check(self) -> None:
        """Raises BadInput for invalid options."""
        if not re.fullmatch(r"[^\s@]+(@sha256:[0-9a-f]{64})?", self.image):
            raise BadInput(f"image={self.image} is not the name of an image, such as REGISTRY/scaling-limits:TAG")
        if self.queue is not None and not _LABEL.fullmatch(self.queue):
            raise BadInput(f"queue={self.queue} is not a name of a queue: use a-z, 0-9 and -, and start with a letter")
        for key in ("priority", "account", "namespace"):
            value = getattr(self, key)
            if value is not None and not _NAME.fullmatch(value):
                raise BadInput(f"{key}={value} is not a name: use a-z, 0-9, - and .")
        if self.placement not in (None, EXCLUSIVE, ANYWHERE):
            if not _KEY.fullmatch(self.placement or ""):
                raise BadInput(
                    f"placement={self.placement} must be {EXCLUSIVE}, {ANYWHERE} or a label such as example.com/rack"
                )
            if self.queue is None:
                raise BadInput(f"placement={self.placement} is a topology level of Kueue. Set queue= too.")
        if self.name is not None:
            _check_name(self.name)
        if self.restarts < 0:
            raise BadInput(f"restarts={self.restarts} must be at least 0")


def _check_name(name: str) -> None:
    most = MOST_CHARACTERS - _DIGITS - 1
    if not _LABEL.fullmatch(name) and len(name) <= most:
        raise BadInput(f"name={name} is not a name of a JobSet: use a-z, 0-9 and -, and start with a letter")
    if len(name) > most:
        raise BadInput(f"name={name} has {len(name)} characters, but at most {most} are possible, such as {_cut(name)}")


def _cut(name: str) -> str:
    return name[: MOST_CHARACTERS - _DIGITS - 1].rstrip("-")


def name_of(study: str, options: Options) -> str:
    """Returns the name of a study's JobSet: a readable prefix, followed by digits of the plan's hash."""
    slug, _, digits = study.rpartition("-")
    start = options.name or _cut(re.sub(r"[^a-z0-9]+", "-", slug.lower()).strip("-"))
    if not start[:1].isalpha():
        start = _cut(f"s-{start}")
    return f"{start}-{digits[:_DIGITS]}"


def coordinator(name: str) -> str:
    """Returns the host name at which the first pod of a JobSet can be reached."""
    return f"{name}-{JOB}-0-0.{name}"


def command(words: Sequence[str], store: str, machines: Machines, name: str | None) -> list[str]:
    """Returns the command of a pod.

    Args:
      words: words of `scaling-limits sweep` for one study.
      store: URL of the store.
      machines: hosts that run the study.
      name: name of the JobSet. If it is missing, hosts detect the cluster.
    """
    ours = [f"store={store}"]
    if machines.hosts > 1:
        ours += ["launcher=hosts", f"launcher.connect_seconds={CONNECT_SECONDS}"]
        if name is not None:
            ours += [f"launcher.coordinator={coordinator(name)}:{PORT}"]
        if name is not None or machines.topology is None:
            ours += [f"launcher.hosts={machines.hosts}"]
    return ["scaling-limits", "sweep", *words, *ours]


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
    name = name_of(study, options)
    most = None if seconds is None else math.ceil(seconds) + DEADLINE_SECONDS
    is_queued = options.queue is not None
    placement = options.placement
    if placement is None:
        placement = EXCLUSIVE if machines.topology and machines.hosts > 1 else ANYWHERE
    labels = {
        "kueue.x-k8s.io/queue-name": options.queue,
        "kueue.x-k8s.io/priority-class": options.priority if is_queued else None,
        "kueue.x-k8s.io/max-exec-time-seconds": str(most) if is_queued and most is not None else None,
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
    own = command(words, store, machines, name)
    job = {
        "completionMode": "Indexed",
        "completions": machines.hosts,
        "parallelism": machines.hosts,
        "backoffLimit": 0,
        "activeDeadlineSeconds": most,
        "podFailurePolicy": {"rules": pod_failure_rules()},
        "template": _given({"metadata": of_pods, "spec": _given(_pod(own, machines, options))}),
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
    spot = {"cloud.google.com/gke-spot": "true"} if options.spot else {}
    tolerated = [{"key": machines.resource, "operator": "Exists", "effect": "NoSchedule"}]
    for key, value in spot.items():
        tolerated.append({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"})
    container = {
        "name": CONTAINER,
        "image": options.image,
        "command": [*escaped, "launcher.host=$(JOB_COMPLETION_INDEX)"] if by_index else escaped,
        "env": [{"name": "JAX_PLATFORMS", "value": "tpu,cpu" if machines.topology else "cuda,cpu"}],
        "resources": {"limits": {machines.resource: machines.devices}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    return {
        "restartPolicy": "Never",  # JobSet's default, OnFailure, cannot be combined with a pod failure policy
        "serviceAccountName": options.account,
        "priorityClassName": None if options.queue else options.priority,
        "hostNetwork": by_index or None,
        "dnsPolicy": "ClusterFirstWithHostNet" if by_index else None,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": {**machines.labels, **spot},
        "tolerations": tolerated,
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }


def _given(fields: Mapping[str, Any]) -> Fields:
    return {key: value for key, value in fields.items() if value not in (None, {})}
