"""The counted work of steps, for tests that compare it with closed forms and with published times."""

import jax

from harness.compiled import jaxpr_cost
from harness.costs import network_costs
from harness.step import programs
from results.costs.counts import Work
from workloads.workload import Workload


def step_work(workload: Workload, examples: int) -> Work:
    """The work of a step on one device."""
    lane = programs.one_lane(workload)
    return jaxpr_cost.of(network_costs.step_jaxpr(workload, examples, lane=lane), len(jax.tree.leaves(lane[0].params)))
