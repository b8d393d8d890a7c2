"""Targets that reruns can reach: an easier target for each data set and model, derived from the stored curves.

The best of many trials usually had a lucky seed, so its reruns may never reach the search's target. The rule is:

1. For each workload, take the smallest value that all reporting repeats reach at every batch size. At up to
   ``SINGLE_MISSES`` batch sizes, one repeat may miss it.
2. Round it up to two significant digits. If the search's own target is larger, use that instead.
3. To make workloads comparable, use the largest of these values over all workloads with the same data set, model and
   metric. A workload that needs more than ``EASIEST`` times its own target is omitted.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from analysis import workload_studies
from analysis.workload_studies import WorkloadStudies
from results import store
from results.bad_input import BadInput
from results.catalog.overview import Overview
from results.plans.study import Target
from results.rules import confirmation
from results.rules.confirmation import CONFIRM
from results.rules.descriptions import StudyDescription
from results.store import Commit, read_columns

SINGLE_MISSES = 2
EASIEST = 1.5


class _Reachable(NamedTuple):
    """The value that all reruns of a workload can reach."""

    workload: WorkloadStudies
    value: float


def targets(overview: Overview) -> dict[Target, list[StudyDescription]]:
    """Returns each target that reruns can reach, with its studies.

    Raises:
      BadInput: no workload has repeats at every batch size.
    """
    commits = [commit for commit in store.catalogue(overview.folder) if commit.name in overview.descriptions]
    studies_by_target = {
        target: [overview.descriptions[commit.name] for workload in workloads for commit in workload.commits]
        for target, workloads in of_workloads(workload_studies.group(commits)).items()
    }
    if not studies_by_target:
        raise BadInput("no workload was rerun at every batch size. --target reruns needs a sweep with confirm=3.")
    return studies_by_target


def of_workloads(workloads: Sequence[WorkloadStudies]) -> dict[Target, list[WorkloadStudies]]:
    """Returns each target that reruns can reach, with its workloads. Other workloads are omitted."""
    alike: dict[tuple[str, str, str], list[_Reachable]] = {}
    for workload in workloads:
        targets_of_plan = workload.commits[0].study.search.targets[:1]
        if (
            targets_of_plan
            and (value := _reachable(workload, targets_of_plan[0])) <= EASIEST * targets_of_plan[0].value
        ):
            alike.setdefault((workload.dataset, workload.model, targets_of_plan[0].metric), []).append(
                _Reachable(workload, value)
            )
    return {
        Target(metric, max(reachable.value for reachable in members)): [reachable.workload for reachable in members]
        for (_, _, metric), members in alike.items()
    }


def _reachable(workload: WorkloadStudies, own_target: Target) -> float:
    """Returns the smallest value that reruns reach and for which the search trained long enough, or infinity."""
    lowest = [sorted(_lowest(commit, own_target.metric)) for commit in workload.commits]
    if any(len(values) < 2 for values in lowest):
        return math.inf
    missed_once = sorted((values[-1] for values in lowest), reverse=True)
    value = max(values[-2] for values in lowest)
    value = max([value, *missed_once[SINGLE_MISSES : SINGLE_MISSES + 1]])
    return max(_rounded_up(value), own_target.value)


def _lowest(commit: Commit, metric: str) -> Iterator[float]:
    """Yields the lowest value of each reporting repeat, or infinity if there is none."""
    if not commit.repeats.confirm or metric not in commit.metrics:
        return
    trials = read_columns(commit, "trials", ["trial", "role"])
    is_repeat = trials["role"].to_numpy(zero_copy_only=False) == CONFIRM
    measured = read_columns(commit, "measurements", ["trial", metric])
    trial, value = (measured[name].to_numpy() for name in ("trial", metric))
    for repeat in confirmation.reporting_ids(commit.request, trials["trial"].to_numpy()[is_repeat].tolist()):
        yield float(np.nanmin(value[trial == repeat], initial=np.inf))


def _rounded_up(value: float) -> float:
    """Returns the smallest number with two significant digits that is at least ``value``."""
    if not 0 < value < math.inf:
        return value
    digits = 1 - math.floor(math.log10(value))
    return round(math.ceil(value * 10.0**digits - 1e-6) / 10.0**digits, digits)
