"""Requests for figures: a kind, its workloads and targets, and its options."""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis.figures import paper_lines
from analysis.plotting.picture import Skipped
from analysis.workload_studies import WorkloadStudies
from results.aliases import Strings
from results.bad_input import BadInput, check_choice
from results.plans.kinds import KINDS
from results.plans.study import Target
from results.rules.answers import MINIMUM, Rule, check_chooses

PRUNED = "its trials were pruned, so their final results are not known. Sweep with pruning=off."


class FigureRequest(NamedTuple):
    """A request for figures of one kind.

    Attributes:
      kind: a kind in ``registry.KINDS``.
      where: conditions on studies (see ``workload_studies.of_store``).
      by: dataset, model or optimizer (for compare), or a metaparameter (for split and scatter).
      metric, values: targets to use instead of the studies' own.
      rule: rule that determines which trials count for steps to target.
      steps: step budgets per trial. If empty, there is no budget, or budgets are derived from the plans.
    """

    kind: str
    where: Strings = ()
    by: str | None = None
    metric: str | None = None
    values: tuple[float, ...] = ()
    rule: Rule = MINIMUM
    steps: tuple[int, ...] = ()


def from_options(options: argparse.Namespace) -> FigureRequest:
    """Returns the request made by the `figures` command. Raises BadInput if its options contradict each other."""
    if options.name is not None:
        raise BadInput("--name and --kind exclude each other. A figure by name already has a kind.")
    if options.value and options.metric is None:
        raise BadInput("--value needs --metric, such as --metric test_error --value 0.05")
    if options.first is not None and (options.rule != "released" or options.first < 1):
        raise BadInput("--first must be at least 1 and needs --rule released")
    if min(options.steps, default=1) < 1:
        raise BadInput(f"--steps must be at least 1, not {min(options.steps)}")
    rule = Rule("released", options.first or 100) if options.rule == "released" else MINIMUM
    where, values, steps = tuple(options.where), tuple(options.value), tuple(sorted(set(options.steps)))
    return FigureRequest(options.kind, where, options.by, options.metric, values, rule, steps)


def check_unused(options: argparse.Namespace) -> None:
    """Raises BadInput for options that are not supported if figures are selected by name."""
    for name in ("where", "by", "steps"):
        if getattr(options, name):
            raise BadInput(f"--{name} needs --kind, such as --kind steps. `--list` lists the kinds.")
    if options.rule or options.first:
        raise BadInput("--rule and --first need --kind. Figures by name have a fixed rule.")
    if (options.metric is None) != (not options.value) or len(options.value) > 1:
        raise BadInput("--metric and --value go together, once each, such as --metric test_error --value 0.05")


def with_targets(
    workloads: Sequence[WorkloadStudies], request: FigureRequest
) -> tuple[list[WorkloadStudies], list[Skipped]]:
    """Returns the workloads that have the requested targets, and ``Skipped`` for each other workload.

    Raises:
      BadInput: there are no workloads, or all of them lack the targets.
    """
    if not workloads:
        raise BadInput("no study over batch sizes in the store has run")
    commits = [commit for workload in workloads for commit in workload.commits]
    recorded = sorted({metric for commit in commits for metric in commit.metrics})
    if request.metric is not None:
        check_choice("metric", request.metric, recorded)
        for value in request.values:
            Target(request.metric, value).check_possible("--value")
        for commit in commits:
            if request.metric in commit.metrics and not KINDS[commit.kind].recorded:
                check_chooses(request.metric, commit.metrics)
    goals = [
        list(metrics([workload], request)) if request.kind == "budget" else targets(workload, request)
        for workload in workloads
    ]
    if not any(goals):
        raise BadInput(
            f"{workloads[0].title} has no target. Give --metric and --value (recorded metrics: {', '.join(recorded)})."
        )
    drawn, without = [], []
    for workload, goal in zip(workloads, goals, strict=True):
        if goal:
            drawn.append(workload)
        else:
            without.append(
                Skipped(f"{request.kind} of {workload.title}", "it has no target. Give --metric and --value.")
            )
    return drawn, without


def each(workloads: Sequence[WorkloadStudies], request: FigureRequest) -> Iterator[tuple[WorkloadStudies, Target]]:
    """Yields each workload with each of its requested targets."""
    for workload in workloads:
        for target in targets(workload, request):
            yield workload, target


def targets(workload: WorkloadStudies, request: FigureRequest) -> list[Target]:
    """Returns the requested targets or, failing that, the workload's own, or the first target in a paper's figures."""
    if request.metric is not None and request.values:
        measured = any(request.metric in commit.metrics for commit in workload.commits)
        return [Target(request.metric, value) for value in sorted(request.values)] if measured else []
    own_targets = list(workload.commits[0].study.search.targets)
    chosen = own_targets or paper_lines.targets(workload.dataset, workload.model, workload.optimizer)[:1]
    return [target for target in chosen if request.metric in (None, target.metric)]


def metrics(workloads: Sequence[WorkloadStudies], request: FigureRequest) -> Iterator[tuple[WorkloadStudies, str]]:
    """Yields each workload with the requested metric, or else the metrics of its targets or of a paper's figures."""
    for workload in workloads:
        if request.metric is None:
            own_metrics = [target.metric for target in targets(workload, request)]
            names = (workload.dataset, workload.model, workload.optimizer)
            for metric in dict.fromkeys(own_metrics or paper_lines.metrics(*names)):
                yield workload, metric
        elif any(request.metric in commit.metrics for commit in workload.commits):
            yield workload, request.metric
