"""How kinds of studies appear in tables, figures and reports: their descriptions and figures."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from results.plans.plan import HasKind, Plan

# Figure sources.
BATCH, CORES, LAYOUTS, PAPER = "batch", "cores", "layouts", "paper"


class Presentation(NamedTuple):
    """How studies of one kind are presented.

    Attributes:
      title: title in the report.
      question: question that the studies answer, as a sentence.
      answers: whether tables list their steps to target.
      figures: sources of their figures, keys of ``figures.registry.LOADERS``: ``batch`` (curves of steps to target over
        batch sizes), ``cores`` (factorizations over cores), ``layouts`` (layouts on meshes) and ``paper`` (a paper's
        workloads).
      optimizer_label: function that returns a plan's optimizer, for the report's filters.
    """

    title: str
    question: str
    answers: bool = False
    figures: tuple[str, ...] = ()
    optimizer_label: Callable[[Any], str] = lambda study: study.labels.optimizer


STEPS_TO_TARGET = (BATCH, PAPER)

PRESENTATIONS = {
    "batch": Presentation(
        "batch sizes, measured by scaling-limits",
        "Steps to a target error against batch size, with metaparameters tuned separately at every batch size.",
        answers=True,
        figures=STEPS_TO_TARGET,
    ),
    "recorded": Presentation(
        "batch sizes, published by others",
        "Published results of others, in the same tables.",
        answers=True,
        figures=STEPS_TO_TARGET,
    ),
    "cores": Presentation(
        "factorizations over cores",
        "Seconds per epoch and recall of implicit factorizations against cores.",
        answers=True,
        figures=(CORES,),
        optimizer_label=lambda study: f"als, {study.solver}",
    ),
    "layout": Presentation(
        "layouts of one step on meshes of devices",
        "The cost of one step of a Transformer for each mesh and layout, which do not change its result.",
        figures=(LAYOUTS,),
    ),
}


def kinds_drawn_as(figures: str) -> tuple[str, ...]:
    """Returns the kinds with figures from this source."""
    return tuple(kind for kind, row in PRESENTATIONS.items() if figures in row.figures)


def drawn(commits: Iterable[HasKind]) -> set[str]:
    """Returns the figure sources for the kinds of these studies."""
    return {source for commit in commits for source in PRESENTATIONS[commit.kind].figures}


def labels(study: Plan) -> tuple[str, str, str]:
    """Returns the data set, model and optimizer for filters."""
    return *study.labels[:2], PRESENTATIONS[study.kind].optimizer_label(study)
