"""Programs of all models of Shallue et al. 2018 at their sizes, lowered for slices of TPUs from shapes alone."""

import re

import pytest
from jax.sharding import AbstractMesh, AxisType

from harness import programs
from harness.mesh import TRIAL
from tests.harness.sizes import SIZES, workload
from workloads.models import sizes
from workloads.workload import DATA

CORES = {"v5e:2x2": 4, "v3:8x16": 256}


def test_every_model_has_a_size() -> None:
    assert set(SIZES) == set(sizes.SIZES)


@pytest.mark.parametrize("topology", list(CORES))
@pytest.mark.parametrize("name", list(SIZES))
def test_a_step_is_lowered_for_a_slice_of_tpus_from_shapes_alone(name: str, topology: str) -> None:
    cores, size = CORES[topology], SIZES[name]
    on = AbstractMesh((1, cores), (TRIAL, DATA), axis_types=(AxisType.Auto, AxisType.Auto))
    of = workload(name, "bfloat16")
    shapes = programs.shapes(of, on, 1)
    text = programs.lower_train(
        of, on, "vmap", shapes, size.batch_size, size.microbatches if cores == 4 else 1
    ).as_text()
    assert f'["{TRIAL}"=1, "{DATA}"={cores}]' in text
    # The branch of TPUs has been chosen: convolutions are no products of matrices.
    assert ("stablehlo.convolution" in text) == name.startswith(("simple", "resnet", "vgg"))
    assert re.search(r"stablehlo.(dot_general|convolution).*bf16", text)
    own = size.batch_size // cores
    if of.feed:
        assert of.shapes.train is not None
        example = "x".join(map(str, of.shapes.train.inputs.shape[1:]))
        steps = programs.most_steps(of, "vmap", 1, size.batch_size)
        assert f"tensor<1x{steps}x{size.batch_size}x{example}x" in text
        assert f"tensor<1x{steps}x{own}x{example}x" in text
