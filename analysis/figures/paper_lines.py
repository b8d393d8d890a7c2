"""Definitions of the figures of Shallue et al. 2018, line by line, from a table in `results/papers`.

The table lists workloads, targets, budgets and normalization from the notebook released with arXiv 1811.03600.
"""

import csv
import functools
from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from results.aliases import StringMap
from results.plans.study import Target

FILE = resources.files("results") / "papers" / "shallue2018_figures.csv"
TITLES = {
    1: "Steps to target against batch size",
    2: "Steps to several targets",
    3: "Models, and sizes of models",
    4: "Optimizers",
    5: "Data sets",
    6: "Parts of data sets",
    7: "Label smoothing: ResNet-50 on ImageNet",
    8: "Effective learning rate of the best trial against batch size",
    9: "Which trials reach the goal: Transformer on LM1B",
    10: "Which trials reach the goal: four sizes of Transformers",
    11: "Best validation error within budgets of steps and epochs",
}
STEPS, BEST, METAPARAMETERS, TRIALS = "steps", "best", "metaparameters", "trials"


class PaperLine(NamedTuple):
    """One line in a panel of a figure in the paper.

    Attributes:
      position: row and column of the panel.
      title: title of the panel.
      series: name in the legend. Empty if the panel has only one line.
      draws: kind of plot, one of steps, best (errors within budgets), metaparameters, or trials (in a plane of
        metaparameters).
      dataset, model, optimizer: names in the archive.
      first: number of COMPLETE trials that count in each study. None counts all of them.
      metric: metric to draw, or metric of the target.
      value: target value, or None for best errors.
      batch_size: batch size of the study, or None if the line has several.
      step_budget, example_budget: maximum number of steps or examples per trial. None is unlimited.
      split: metaparameter and value by which trials are selected. None selects all trials.
      relative_to: batch size relative to which steps are drawn. None draws absolute steps.
      perfect: series for which perfect scaling is drawn, ``each`` for all series, or empty.
      note: note for the user, or empty.
    """

    position: tuple[int, int]
    title: str
    series: str
    draws: str
    dataset: str
    model: str
    optimizer: str
    first: int | None
    metric: str
    value: float | None
    batch_size: int | None
    step_budget: float | None
    example_budget: float | None
    split: tuple[str, float] | None
    relative_to: int | None
    perfect: str
    note: str

    @property
    def workload(self) -> tuple[str, str, str]:
        return self.dataset, self.model, self.optimizer

    @property
    def target(self) -> Target:
        assert self.value is not None, "best errors have no target"
        return Target(self.metric, self.value)


@functools.cache
def figures() -> dict[int, dict[tuple[int, int], Sequence[PaperLine]]]:
    """Returns the lines in every panel, by figure number and by the panel's row and column."""
    lines: dict[int, dict[tuple[int, int], list[PaperLine]]] = {}
    with FILE.open() as file:
        for row in csv.DictReader(file):
            line = _line(row)
            lines.setdefault(int(row["figure"]), {}).setdefault(line.position, []).append(line)
    return {
        number: {position: tuple(members) for position, members in panels.items()} for number, panels in lines.items()
    }


def targets(dataset: str, model: str, optimizer: str) -> list[Target]:
    """Returns the targets for which the figures show a workload, in the order of the figures."""
    lines = _lines(dataset, model, optimizer)
    return list(dict.fromkeys(line.target for line in lines if line.value is not None))


def metrics(dataset: str, model: str, optimizer: str) -> list[str]:
    """Returns the metrics for which the figures show a workload."""
    return list(dict.fromkeys(line.metric for line in _lines(dataset, model, optimizer)))


def _lines(*workload: str) -> list[PaperLine]:
    lines = (line for panels in figures().values() for members in panels.values() for line in members)
    return [line for line in lines if line.workload == workload]


def _line(row: StringMap) -> PaperLine:
    split = (row["metaparameter"], float(row["metaparameter_value"])) if row["metaparameter"] else None
    return PaperLine(
        position=(int(row["row"]), int(row["column"])),
        **{name: row[name] for name in ("title", "series", "draws", "dataset", "model", "optimizer", "metric")},
        first=_whole(row["first_trials"]),
        value=_number(row["target_value"]),
        batch_size=_whole(row["batch_size"]),
        step_budget=_number(row["step_budget"]),
        example_budget=_number(row["example_budget"]),
        split=split,
        relative_to=_whole(row["relative_to_batch_size"]),
        perfect=row["perfect_scaling"],
        note=row["note"],
    )


def _whole(text: str) -> int | None:
    return int(text) if text else None


def _number(text: str) -> float | None:
    return float(text) if text else None
