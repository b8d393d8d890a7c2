"""Kinds of studies in tables, figures and reports: their descriptions, and the figures they are drawn in."""

from collections.abc import Callable
from typing import Any, NamedTuple

from results.plans.plan import Plan

# What figures are drawn from.
BATCH, CORES, LAYOUTS, PAPER = "batch", "cores", "layouts", "paper"


class Presentation(NamedTuple):
    """Presentation of studies of a kind.

    Attributes:
      title: what the report calls them.
      question: that they answer, in a sentence.
      answers: whether tables tell their steps to target.
      figures: what of them is drawn, keys of ``figures.registry.LOADERS``: ``batch``, curves of steps to target over
        batch sizes; ``cores``, factorizations over cores; ``layouts``, layouts on meshes; ``paper``, the workloads of
        a paper.
      optimizer_label: of a plan, what filters of the report call its optimizer.
    """

    title: str
    question: str
    answers: bool = False
    figures: tuple[str, ...] = ()
    optimizer_label: Callable[[Any], str] = lambda study: str(study.optimizer)


STEPS_TO_TARGET = (BATCH, PAPER)

PRESENTATIONS: dict[str, Presentation] = {
    "batch": Presentation(
        "batch sizes, measured by scaling-limits",
        "Steps to a target error against batch size, with metaparameters tuned afresh at every batch size.",
        answers=True,
        figures=STEPS_TO_TARGET,
    ),
    "recorded": Presentation(
        "batch sizes, published by others",
        "What others published of it, read into the same tables.",
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
        "What one step of a Transformer costs under each mesh and layout, which change nothing that it computes.",
        figures=(LAYOUTS,),
    ),
}


def kinds_drawn_as(figures: str) -> tuple[str, ...]:
    """The kinds that such figures are drawn from."""
    return tuple(kind for kind, row in PRESENTATIONS.items() if figures in row.figures)


def labels(study: Plan) -> tuple[str, str, str]:
    """Data set, model and optimizer as filters call them."""
    return study.dataset, study.model_label, PRESENTATIONS[study.kind].optimizer_label(study)
