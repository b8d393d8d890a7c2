"""A small simulator of a JobSet with one job: what its failure policies make of the ends of pods.

It follows the documented rules of Kubernetes' Jobs, and `pkg/controllers/failure_policy.go` of JobSet at 08dfbdfd. The
Job controller gathers the events of up to a second, in any order, so some ends of pods have several possible outcomes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

DISRUPTED = "DisruptionTarget"
DEADLINE = "DeadlineExceeded"


class State(NamedTuple):
    """The state of a JobSet: counts of restarts, and whether it has completed or failed."""

    restarts: int = 0
    counted: int = 0
    ended: str | None = None


def run(jobset: dict[str, Any], *attempts: Sequence[int | str]) -> set[State]:
    """All states that are possible after some attempts.

    Args:
      jobset: the JobSet.
      attempts: for each attempt, the exit codes of pods that end within a second. ``DISRUPTED`` is a pod that ends by a
        disruption, and ``DEADLINE`` is the end of the job by its deadline.
    """
    states = {State()}
    (job,) = jobset["spec"]["replicatedJobs"]
    for ends in attempts:
        running = [state for state in states if state.ended is None]
        assert running, f"an attempt after {states}"
        reasons = set(_reasons(job["template"]["spec"], ends))
        states -= set(running)
        states |= {_after(jobset, state, reason) for state in running for reason in reasons}
    return states


def _reasons(job: dict[str, Any], ends: Sequence[int | str]) -> Iterator[str | None]:
    """Yields each possible reason why a job fails, or None if it completes.

    Because backoffLimit is 0, the job fails as soon as the controller sees a failed pod. Any of the pods that end
    within a second may be the first that it sees. If it sees several at once, one that matches a rule is enough.
    """
    assert job["backoffLimit"] == 0
    failed = [end for end in ends if end != 0]
    if not failed:
        yield None
    for end in failed:
        rules = job["podFailurePolicy"]["rules"]
        action = next((rule["action"] for rule in rules if _matches(rule, end)), "Count")
        reason = {"FailJob": "PodFailurePolicy", "Count": "BackoffLimitExceeded"}[action]
        yield DEADLINE if end == DEADLINE else reason


def _matches(rule: dict[str, Any], end: int | str) -> bool:
    if "onPodConditions" in rule:
        return any(each["type"] == end and each["status"] == "True" for each in rule["onPodConditions"])
    codes = rule["onExitCodes"]
    return isinstance(end, int) and (end in codes["values"]) == (codes["operator"] == "In")


def _after(jobset: dict[str, Any], state: State, reason: str | None) -> State:
    if reason is None:
        return state._replace(ended="Completed")
    policy = jobset["spec"]["failurePolicy"]
    matching = (each["action"] for each in policy["rules"] if reason in each.get("onJobFailureReasons", [reason]))
    action = next(matching, "RestartJobSet")
    if action == "FailJobSet" or (action == "RestartJobSet" and state.counted >= policy["maxRestarts"]):
        return state._replace(ended="Failed")
    return State(state.restarts + 1, state.counted + (action == "RestartJobSet"))
