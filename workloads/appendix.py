"""Details from the appendix of Shallue et al. (2018), given from memory and not yet confirmed.

``appendix=remembered`` applies all of them to a task. Each detail is also a separate option of a model or a data set,
so plans record which details are in use.
"""

from collections.abc import Mapping
from typing import Any

from workloads.models.options import SIZES

NAMES = ("remembered",)
# Options by model family, for the models of the paper.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "simple_cnn": {"dropout": 0.4},
    "resnet": {"form": "pre_activated"},
    "lstm_projected": {"read_out": "untied_bias"},
}
# Data sets that replace others.
DATASETS: Mapping[str, str] = {
    "shallue2018_lm1b": "shallue2018_lm1b_remembered",
    "common_crawl": "common_crawl_remembered",
}


def remembered(task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a task with all remembered details of its data set and model. Options that the task sets are kept."""
    model = dict(task["model"])
    family = SIZES.get(model.get("name", ""), ("", {}))[0]
    dataset = DATASETS.get(task["dataset"], task["dataset"])
    return {**task, "dataset": dataset, "model": {**OPTIONS.get(family, {}), **model}}
