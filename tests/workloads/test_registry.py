"""The registries: data sets and models are what their rows say, and plans name what there is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from results import als
from results.bad_input import BadInput
from results.plans import batch_study
from workloads import losses, optimizers, registry
from workloads.preparable import prepared_as
from workloads.workload import shapes_of


@pytest.mark.parametrize("name", list(registry.DATASETS))
def test_data_sets_are_what_the_registry_says(name: str) -> None:
    row = registry.DATASETS[name]
    absent = ""
    try:
        row.check()
    except BadInput as error:
        absent = str(error)
    if absent:
        assert f"python -m workloads.prepare {prepared_as(name)}" in absent
        return
    assert row.version()
    splits = row.load()
    assert row.shapes is not None and row.shapes() == shapes_of(splits)
    assert (splits.train is None) == (row.train_examples is None) == (row.draw is not None)
    if splits.train is not None:
        assert len(splits.train.labels) == len(splits.train.inputs) == row.train_examples
    for split in row.splits:
        examples = getattr(splits, split)
        assert len(examples.labels) == len(examples.inputs)
        assert examples.inputs.dtype in (np.float32, np.int32, np.uint8)
        assert examples.labels.dtype == (np.uint8 if row.metrics is losses.MULTI_LABEL else np.int32)
        assert examples.labels.min() >= 0
        assert examples.labels.max() < max(row.classes, 1)


@pytest.mark.parametrize(("widths", "count"), [([], 650), ([64], 4810), ([32, 16], 2778)])
def test_fully_connected_has_the_parameters_it_documents(widths: list[int], count: int) -> None:
    model = registry.MODELS["fully_connected"](classes=10, widths=widths)
    params, state = model.init(jax.random.key(0), np.zeros((1, 8, 8, 1), np.float32))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count
    assert model.apply(params, state, np.zeros((5, 8, 8, 1), np.float32), None, False)[0].shape == (5, 10)


def test_plans_name_the_schedules_that_there_are() -> None:
    assert tuple(optimizers.SCHEDULES) == batch_study.SCHEDULES


def test_plans_name_number_formats_as_jax_does() -> None:
    assert [jnp.dtype(name).name for name in als.DTYPES] == list(als.DTYPES)


def test_options_that_a_model_has_by_default_are_in_no_plan() -> None:
    """Plans from before an option was added keep their names."""
    old = {"channels": [32, 64], "width": 1024}
    assert registry.plan_options("simple_cnn", old | {"kernel": 3, "dropout": 0.0}) == old
    assert registry.plan_options("simple_cnn", old | {"kernel": 5}) == old | {"kernel": 5}
    assert registry.plan_options("transformer_wide", {"read_out": "tied"}) == {}
    assert registry.plan_options("transformer_wide", {"read_out": "untied"}) == {"read_out": "untied"}
    assert registry.plan_options("transformer_wide", {"attention_block": 0}) == {}
    assert registry.model_options("transformer_wide") == ("read_out", "attention_block")
