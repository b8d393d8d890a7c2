"""The registries: a name in a YAML file is a key of exactly one of these dicts."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from workloads import losses, optimizers, schedules
from workloads.datasets import in_memory
from workloads.models.fully_connected import fully_connected
from workloads.workload import Array, Dataset, Examples, Model, Optimizer, Params, Workload

DATASETS: dict[str, Dataset] = {
    "digits": Dataset(in_memory.digits, train_examples=1437, classes=10, splits=("train", "validation")),
}

MODELS: dict[str, Callable[..., Model]] = {
    "fully_connected": fully_connected,
}

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer(optimizers.heavy_ball, ("learning_rate",), {"momentum": 0.0, "nesterov": 0.0}),
    "momentum": Optimizer(optimizers.heavy_ball, ("learning_rate", "momentum"), {"nesterov": 0.0}),
    "nesterov": Optimizer(optimizers.heavy_ball, ("learning_rate", "momentum"), {"nesterov": 1.0}),
}


def model_options(model: str) -> tuple[str, ...]:
    """Names of the options a model takes from a task."""
    return tuple(name for name in inspect.signature(MODELS[model]).parameters if name != "classes")


def tuned(optimizer: str, schedule: str) -> tuple[str, ...]:
    """Names of the metaparameters a search space must give, no more and no fewer."""
    return OPTIMIZERS[optimizer].tuned + (() if schedule == "constant" else schedules.TUNED)


def metrics(dataset: str) -> tuple[str, ...]:
    """Names of the metrics measured on a data set, in the order of their columns."""
    return tuple(f"{split}_{kind}" for split in DATASETS[dataset].splits for kind in ("loss", "error"))


def workload(dataset: str, model: str, options: Mapping[str, Any], optimizer: str) -> Workload:
    """Builds a workload from names; loads its data.

    Args:
      dataset, model, optimizer: keys of the registries.
      options: of the model.
    """
    row = DATASETS[dataset]
    network = MODELS[model](classes=row.classes, **options)

    def loss(params: Params, examples: Examples) -> Array:
        return losses.softmax_cross_entropy(network.apply(params, examples.inputs), examples.labels)

    def measure(params: Params, examples: Examples) -> dict[str, Array]:
        logits = network.apply(params, examples.inputs)
        return {
            "loss": losses.softmax_cross_entropy(logits, examples.labels),
            "error": losses.classification_error(logits, examples.labels),
        }

    return Workload(network.init, loss, measure, row.load(), OPTIMIZERS[optimizer].update_rule)
