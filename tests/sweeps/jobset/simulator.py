"""A small simulator of a JobSet with one job: what its failure policies make of the ends of pods.

It follows the documented rules of Kubernetes' Jobs, and `pkg/controllers/failure_policy.go` of JobSet at 08dfbdfd.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

DISRUPTED = "DisruptionTarget"
DEADLINE = "DeadlineExceeded"


class State(NamedTuple):
    """The state of a JobSet: counts of restarts, and whether it has completed or failed."""

    restarts: int = 0
    counted: int = 0
    ended: str | None = None


def run(jobset: dict[str, Any], *attempts: Sequence[int | str]) -> State:
    """The state after some attempts.

    Args:
      jobset: the JobSet.
      attempts: for each attempt, exit codes of pods in the order in which the job sees them. ``DISRUPTED`` is a pod
        that ends by a disruption, and ``DEADLINE`` is the end of the job by its deadline.
    """
    state = State()
    (job,) = jobset["spec"]["replicatedJobs"]
    for ends in attempts:
        assert state.ended is None, f"an attempt after the JobSet {state.ended}"
        reason = _reason(job["template"]["spec"], ends)
        state = state._replace(ended="Completed") if reason is None else _after(jobset, state, reason)
    return state


def _reason(job: dict[str, Any], ends: Sequence[int | str]) -> str | None:
    """Why a job fails, or None if it completes. The first pod that fails decides, because backoffLimit is 0."""
    assert job["backoffLimit"] == 0
    for end in ends:
        if end == DEADLINE:
            return DEADLINE
        if end != 0:
            rules = job["podFailurePolicy"]["rules"]
            action = next((rule["action"] for rule in rules if _matches(rule, end)), "Count")
            return {"FailJob": "PodFailurePolicy", "Count": "BackoffLimitExceeded"}[action]
    return None


def _matches(rule: dict[str, Any], end: int | str) -> bool:
    if "onPodConditions" in rule:
        return any(each["type"] == end and each["status"] == "True" for each in rule["onPodConditions"])
    codes = rule["onExitCodes"]
    return isinstance(end, int) and (end in codes["values"]) == (codes["operator"] == "In")


def _after(jobset: dict[str, Any], state: State, reason: str) -> State:
    policy = jobset["spec"]["failurePolicy"]
    matching = (each["action"] for each in policy["rules"] if reason in each.get("onJobFailureReasons", [reason]))
    action = next(matching, "RestartJobSet")
    if action == "FailJobSet" or (action == "RestartJobSet" and state.counted >= policy["maxRestarts"]):
        return state._replace(ended="Failed")
    return State(state.restarts + 1, state.counted + (action == "RestartJobSet"))
