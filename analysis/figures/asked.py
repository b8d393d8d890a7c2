"""What is asked of a kind of figure: of which targets, by what, within which budgets."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis.figures import definitions
from analysis.plotting.picture import Skipped
from analysis.workloads import WorkloadStudies
from results.bad_input import BadInput, check_choice
from results.plans.kinds import KINDS
from results.plans.study import Target
from results.rules.answers import MINIMUM, Rule
from results.rules.choice import check_chooses

PRUNED = "its trials were pruned, so what they would have come to is not known; sweep with pruning=off"


class Asked(NamedTuple):
    """What is to be drawn.

    Attributes:
      kind: of ``figures.KINDS``.
      where: conditions on studies, as in ``workloads.of_store``.
      by: what lines differ in: dataset, model or optimizer (compare), or a metaparameter (split, and scatter).
      metric, values: of targets other than the studies' own.
      rule: which trials count for steps to target.
      steps: budgets, the most steps of a trial that are looked at; empty: none, or chosen from what was planned.
      best_of: trials of a search; empty: powers of two.
    """

    kind: str
    where: tuple[str, ...] = ()
    by: str | None = None
    metric: str | None = None
    values: tuple[float, ...] = ()
    rule: Rule = MINIMUM
    steps: tuple[int, ...] = ()
    best_of: tuple[int, ...] = ()


def with_targets(found: Sequence[WorkloadStudies], asked: Asked) -> tuple[list[WorkloadStudies], list[Skipped]]:
    """The workloads that have what is asked of them, and a line about each of the others.

    Raises:
      BadInput: there is no workload, or none has it.
    """
    if not found:
        raise BadInput("the store has no study over batch sizes that has run")
    recorded = sorted({metric for one in found for commit in one.commits for metric in commit.metrics})
    if asked.metric is not None:
        check_choice("metric", asked.metric, recorded)
        for commit in (commit for one in found for commit in one.commits if asked.metric in commit.metrics):
            if not KINDS[commit.kind].recorded:
                check_chooses(asked.metric, commit.metrics)
    there = [one for one in found if (list(metrics([one], asked)) if asked.kind == "budget" else targets(one, asked))]
    if not there:
        raise BadInput(
            f"{found[0].title} has no target; give --metric and --value (recorded metrics: {', '.join(recorded)})"
        )
    without = [one for one in found if one not in there]
    return there, [
        Skipped(f"{asked.kind} of {one.title}", "it has no target; give --metric, --value") for one in without
    ]


def each(found: Sequence[WorkloadStudies], asked: Asked) -> Iterator[tuple[WorkloadStudies, Target]]:
    """Every workload with every target that is asked of it."""
    for workload in found:
        for target in targets(workload, asked):
            yield workload, target


def targets(workload: WorkloadStudies, asked: Asked) -> list[Target]:
    """Targets asked for, or else the workload's own, or else the first that a figure of a paper has for it."""
    if asked.metric is not None and asked.values:
        there = any(asked.metric in commit.metrics for commit in workload.commits)
        return [Target(asked.metric, value) for value in sorted(asked.values)] if there else []
    own = list(workload.commits[0].study.targets)
    chosen = own or definitions.targets(workload.dataset, workload.model, workload.optimizer)[:1]
    return [target for target in chosen if asked.metric in (None, target.metric)]


def metrics(found: Sequence[WorkloadStudies], asked: Asked) -> Iterator[tuple[WorkloadStudies, str]]:
    """Every workload with the metric asked for, or else those of its targets, or of figures of a paper."""
    for workload in found:
        if asked.metric is None:
            own = [target.metric for target in targets(workload, asked)]
            looks = (workload.dataset, workload.model, workload.optimizer)
            for metric in dict.fromkeys(own or definitions.metrics(*looks)):
                yield workload, metric
        elif any(asked.metric in commit.metrics for commit in workload.commits):
            yield workload, asked.metric
