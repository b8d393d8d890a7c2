"""Every model under layouts that divide parameters, tensors or both: gradients, metrics and costs of one device."""

from typing import Any

import pytest

from tests.harness.sharded import planned
from tests.harness.test_mesh import program
from workloads import registry
from workloads.models.options import SIZES

_HEADS = "heads:model;mlp:model;vocab:model"
_ROTARY = "{name:transformer_rotary,layers:2,d_model:32,heads:2,kv:8,d_ff:64,gated:true,tied:false}"
_GROUPED = "pydoc_transformer model=" + _ROTARY[:-1].replace("heads:2", "heads:4") + ",key_heads:2,window:24"
# For each model, and for its forms by options: a task, with options of its model, an optimizer, the axes of its
# parameters and of its tensors that divide.
MODELS = {
    "fully_connected": ("digits_fc", "adam", "inputs:data", "mlp:model"),
    "simple_cnn": ("tiny/simple_cnn", "momentum", "embed:data", "mlp:model"),
    "vgg": ("tiny/vgg", "adamw", "embed:data", "mlp:model"),
    "resnet": ("tiny/resnet", "lars", "embed:data", "mlp:model"),
    "resnet_basic": ("tiny/resnet_basic", "lamb", "embed:data", "mlp:model"),
    "lstm": ("pydoc_lstm", "adam", "embed:data", "mlp:model"),
    "lstm_projected": ("tiny/lstm_projected", "schedule_free", "embed:data", "mlp:model;vocab:model"),
    "transformer": ("pydoc_transformer", "adamw", "embed:data", _HEADS),
    "transformer_decoder": ("tiny/transformer_decoder", "adam", "embed:data", _HEADS),
    "transformer_rotary": (f"pydoc_transformer model={_ROTARY}", "adamw", "embed:data", _HEADS),
    "transformer_blocks": ("pydoc_transformer +task.model.attention_block=16", "adamw", "embed:data", _HEADS),
    "decoder_blocks": ("tiny/transformer_decoder +task.model.attention_block=16", "adam", "embed:data", _HEADS),
    "rotary_grouped": (_GROUPED + "}", "adamw", "embed:data", f"{_HEADS};key_heads:model"),
    "rotary_blocks": (_GROUPED + ",attention_block:16}", "adamw", "embed:data", f"{_HEADS};key_heads:model"),
    "simple_cnn_dropout": (
        "tiny/simple_cnn +task.model.kernel=5 +task.model.dropout=0.1",
        "momentum",
        "embed:data",
        "mlp:model",
    ),
    "resnet_pre_activated": ("tiny/resnet +task.model.form=pre_activated", "lars", "embed:data", "mlp:model"),
    "resnet_basic_group": (
        "tiny/resnet_basic task.model.norm=group task.model.blocks=[1]",
        "lamb",
        "embed:data",
        "mlp:model",
    ),
    "lstm_untied_bias": (
        "tiny/lstm_projected +task.model.read_out=untied_bias",
        "schedule_free",
        "embed:data",
        "mlp:model;vocab:model",
    ),
    "decoder_untied": ("tiny/transformer_decoder +task.model.read_out=untied", "adam", "embed:data", _HEADS),
    "quadratic": ("noisy_quadratic", "momentum", "embed:data", "embed:model"),
}
QUICK = ("fully_connected",)


def layouts(parameters: str, tensors: str) -> tuple[str, ...]:
    """Layouts that divide parameters, tensors, and both if they divide different axes."""
    both = () if parameters.split(":")[0] == tensors.split(":")[0] else (f"data:4;model:2/{parameters};{tensors}",)
    return f"data:4/{parameters}", f"data:4;model:2/{tensors}", *both


@pytest.mark.parametrize(
    ("model", "only"),
    [
        *(pytest.param(name, slice(-1, None), id=f"{name}-both") for name in QUICK),
        *(pytest.param(name, slice(None), id=name, marks=pytest.mark.slow) for name in MODELS),
    ],
)
def test_a_step_under_a_layout_is_that_of_one_device(model: str, only: slice) -> None:
    task, optimizer, parameters, tensors = MODELS[model]
    asked = layouts(parameters, tensors)[only]
    found: dict[str, Any] = program("sharded", task, optimizer, *asked)
    assert len(found) == len(asked)
    for layout, numbers in found.items():
        # Emulated devices sum in the order in which their threads arrive.
        assert numbers["gradients"] <= 2e-5, (layout, numbers)
        assert numbers["metrics"] <= 1e-5, (layout, numbers)
        assert numbers["redundancy"] <= 1.02, (layout, numbers)
        assert numbers["held"] < 0.9, (layout, numbers)
        gathers = {kind for kind in numbers["collectives"] if kind.endswith(" data")}
        divided = parameters in layout
        assert ({"all-gather data", "reduce-scatter data"} <= gathers) == divided, (layout, numbers)


def test_every_model_and_default_option_is_in_the_table() -> None:
    studies = [planned(task, optimizer) for task, optimizer, *_ in MODELS.values()]
    assert {study.model for study in studies} == registry.MODELS.keys() - SIZES.keys()
    for name in registry.MODELS.keys() - SIZES.keys():
        given = {option for study in studies if study.model == name for option in study.model_options}
        assert given >= registry.model_defaults(name).keys(), name  # plans have only options that are not the default
