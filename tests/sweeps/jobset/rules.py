"""Errors in a JobSet: by the schema of its CRD, and by rules of webhooks and of GKE that a schema cannot express."""

import functools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA = Path(__file__).with_name("schema.json")
MOST_POD_SETS = 18  # of a workload of Kueue v0.19; v0.18 has 10, and earlier versions 8
MOST = 63  # characters of a name in DNS
_METADATA = {"name", "namespace", "labels", "annotations"}


def errors(jobset: dict[str, Any]) -> list[str]:
    """All errors in a JobSet."""
    return [*(str(each.message) for each in _validator().iter_errors(jobset)), *further(jobset)]


@functools.cache
def _validator() -> Any:
    schema = _closed(json.loads(SCHEMA.read_text()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def _closed(schema: Any) -> Any:
    """Refuses unknown fields, which the API server drops with a warning at most."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    is_open = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not is_open:
        closed["additionalProperties"] = False
    return closed


def further(jobset: dict[str, Any]) -> Iterator[str]:
    """Errors that the schema does not find."""
    about, spec = jobset["metadata"], jobset["spec"]
    name = about["name"]
    if set(about) - _METADATA:
        yield f"unknown metadata {set(about) - _METADATA}"
    for key, value in about.get("labels", {}).items():
        if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value):
            yield f"{key}={value} is not the value of a label"
    if len(spec["replicatedJobs"]) > MOST_POD_SETS:
        yield "too many pod sets"
    for job in spec["replicatedJobs"]:
        yield from _job(name, job)
    where = spec["coordinator"]
    subdomain = spec.get("network", {}).get("subdomain", name)
    host = f"{name}-{where['replicatedJob']}-{where['jobIndex']}-{where['podIndex']}.{subdomain}"
    if len(host) > MOST:
        yield f"the coordinator {host} has {len(host)} characters"
    exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology" in about.get("annotations", {})
    pods = [job["template"]["spec"]["template"] for job in spec["replicatedJobs"]]
    by_kueue = any("podset" in key for pod in pods for key in pod.get("metadata", {}).get("annotations", {}))
    if exclusive and by_kueue:
        yield "exclusive placement and a topology of Kueue"


def _job(name: str, job: dict[str, Any]) -> Iterator[str]:
    spec = job["template"]["spec"]
    hosts = spec["completions"]
    longest = f"{name}-{job['name']}-{job['replicas'] - 1}-{hosts - 1}-abcde"
    if len(longest) > MOST or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", longest):
        yield f"{longest} is not a name of a pod"
    if spec["parallelism"] != hosts or spec["completionMode"] != "Indexed":
        yield "completions are not parallelism"
    pod = spec["template"]["spec"]
    if pod["restartPolicy"] != "Never":
        yield "restartPolicy is not Never, which the pod failure policy needs"
    if spec["backoffLimit"] != 0:
        yield "backoffLimit is not 0"
    names = [each["name"] for each in pod["containers"]]
    for rule in spec["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes")
        if codes and (codes["containerName"] not in names or codes["values"] != sorted(set(codes["values"]) - {0})):
            yield f"invalid exit codes {codes}"
    if bool(pod.get("hostNetwork")) != (pod.get("dnsPolicy") == "ClusterFirstWithHostNet"):
        yield "hostNetwork without its dnsPolicy, so that the coordinator's name cannot be resolved"
    limits = pod["containers"][0]["resources"]["limits"]
    topology = pod["nodeSelector"].get("cloud.google.com/gke-tpu-topology")
    if topology and math.prod(map(int, topology.split("x"))) != hosts * limits["google.com/tpu"]:
        yield f"{topology} does not have {hosts} times {limits['google.com/tpu']} chips"
