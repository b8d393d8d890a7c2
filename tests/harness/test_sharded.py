"""Every model under layouts that divide parameters, tensors or both: gradients, metrics and costs of one device."""

from typing import Any

import pytest

from tests.harness.test_mesh import program
from workloads import registry

# For each model: a task, an optimizer, the axes of its parameters and of its tensors that divide.
MODELS = {
    "fully_connected": ("digits_fc", "adam", "inputs:data", "mlp:model"),
    "simple_cnn": ("tiny/simple_cnn", "momentum", "embed:data", "mlp:model"),
    "vgg": ("tiny/vgg", "adamw", "embed:data", "mlp:model"),
    "resnet": ("tiny/resnet", "lars", "embed:data", "mlp:model"),
    "resnet_basic": ("tiny/resnet_basic", "lamb", "embed:data", "mlp:model"),
    "lstm": ("pydoc_lstm", "adam", "embed:data", "mlp:model"),
    "lstm_projected": ("tiny/lstm_projected", "schedule_free", "embed:data", "mlp:model;vocab:model"),
    "transformer": ("pydoc_transformer", "adamw", "embed:data", "heads:model;mlp:model;vocab:model"),
    "transformer_decoder": ("tiny/transformer_decoder", "adam", "embed:data", "heads:model;mlp:model;vocab:model"),
    "quadratic": ("noisy_quadratic", "momentum", "embed:data", "embed:model"),
}
QUICK = ("fully_connected",)


def layouts(parameters: str, tensors: str) -> tuple[str, ...]:
    """Layouts that divide parameters, tensors, and both if they divide different axes."""
    both = () if parameters.split(":")[0] == tensors.split(":")[0] else (f"data:4;model:2/{parameters};{tensors}",)
    return f"data:4/{parameters}", f"data:4;model:2/{tensors}", *both


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]
)
def test_a_step_under_a_layout_is_that_of_one_device(model: str) -> None:
    task, optimizer, parameters, tensors = MODELS[model]
    found: dict[str, Any] = program("sharded", task, optimizer, *layouts(parameters, tensors))
    assert len(found) == (2 if model == "quadratic" else 3)
    for layout, numbers in found.items():
        assert numbers["gradients"] <= 1e-5, (layout, numbers)
        assert numbers["metrics"] <= 1e-5, (layout, numbers)
        assert numbers["redundancy"] <= 1.02, (layout, numbers)
        assert numbers["held"] < 0.9, (layout, numbers)
        gathers = {kind for kind in numbers["collectives"] if kind.endswith(" data")}
        divided = parameters in layout
        assert ({"all-gather data", "reduce-scatter data"} <= gathers) == divided, (layout, numbers)


def test_every_model_names_its_axes() -> None:
    sizes = {name for name in registry.MODELS if name in MODELS}
    assert sizes == set(MODELS)
