"""Layers that have another form on GPUs, on a stand-in for the device."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from workloads import devices, registry
from workloads.workload import Examples

OPTIONS = {
    "transformer_decoder": {"layers": 2, "d_model": 16, "heads": 2, "d_ff": 32, "dropout": 0.1},
    "resnet": {"blocks": [3], "width": 4, "norm": "group", "group": 1},
}


class Device(NamedTuple):
    """What JAX says about a device."""

    platform: str
    compute_capability: str


HOPPER = Device("gpu", "9.0")


@pytest.mark.parametrize("model", ["transformer_decoder", pytest.param("resnet", marks=pytest.mark.slow)])
def test_stacked_layers_unroll_on_a_gpu_with_equal_gradients(model: str) -> None:
    """Two loops over layers, forward and backward."""
    rng = np.random.default_rng(0)
    dataset = "pydoc" if model == "transformer_decoder" else "digits"
    workload = registry.workload(registry.DATASETS[dataset], model, OPTIONS[model], "momentum", "float32")
    train = registry.DATASETS[dataset].load().train
    batch: Examples = jax.tree.map(lambda array: array[rng.permutation(len(array))[:4]], train)
    params, state = workload.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 4)

    def gradient(params: Any) -> Any:
        return jax.grad(lambda params: workload.loss(params, state, batch, None, keys, np.float32(0))[0])(params)

    looped = jax.jit(gradient).lower(params)
    with devices.traced_for(HOPPER):
        unrolled = jax.jit(lambda params: gradient(params)).lower(params)
    assert looped.as_text().count("stablehlo.while") - unrolled.as_text().count("stablehlo.while") == 2
    found, expected = unrolled.compile()(params), looped.compile()(params)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=2e-4, atol=2e-5), found, expected)


@pytest.mark.parametrize(
    ("device", "flash"),
    [(None, False), (Device("cpu", "0"), False), (Device("gpu", "7.5"), False), (HOPPER, True)],
)
def test_flash_attention_needs_a_gpu_with_bfloat16(device: Device | None, flash: bool) -> None:
    with devices.traced_for(device):
        assert devices.has_flash_attention() is flash
    assert not devices.has_flash_attention()
