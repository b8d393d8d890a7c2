import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from workloads.models.convolution import convolution, max_pool, max_pool_3x3

NHWC = ("NHWC", "HWIO", "NHWC")


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


@pytest.mark.parametrize(
    ("image", "kernel", "strides", "padding"),
    [
        ((3, 9, 8, 2), (3, 3, 2, 5), (2, 2), "SAME"),
        ((2, 7, 7, 2), (5, 4, 2, 3), (1, 3), ((0, 2), (3, 1))),
        ((2, 8, 8, 2), (2, 2, 2, 3), (3, 3), "VALID"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ((2, 8, 8, 1), (3, 3, 1, 4), (1, 1), "SAME"),
                ((2, 8, 8, 2), (3, 3, 2, 4), (1, 1), "VALID"),
                ((1, 7, 5, 3), (3, 2, 3, 4), (1, 1), ((2, 0), (1, 3))),
                ((3, 9, 8, 2), (3, 4, 2, 5), (2, 2), "VALID"),
                ((2, 6, 9, 2), (1, 1, 2, 3), (2, 1), "SAME"),
            )
        ),
    ],
)
def test_convolution_is_that_of_lax(
    image: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, int], padding: Any
) -> None:
    x, k = images(*image), images(*kernel) - 0.5
    ours = functools.partial(convolution, window_strides=strides, padding=padding, dimension_numbers=NHWC)
    theirs = functools.partial(
        lax.conv_general_dilated, window_strides=strides, padding=padding, dimension_numbers=NHWC
    )
    weights = np.random.default_rng(1).standard_normal(theirs(x, k).shape, np.float32)

    def value_and_gradients(convolve: Any) -> Any:
        return convolve(x, k), jax.grad(lambda x, k: jnp.sum(weights * convolve(x, k)), argnums=(0, 1))(x, k)

    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(close, jax.jit(lambda: value_and_gradients(ours))(), jax.jit(lambda: value_and_gradients(theirs))())


def test_convolution_over_lanes_is_that_of_each() -> None:
    x, k = images(3, 2, 6, 6, 2), images(3, 3, 3, 2, 4)
    one = functools.partial(convolution, window_strides=(1, 1), padding="SAME", dimension_numbers=NHWC)
    np.testing.assert_allclose(jax.vmap(one)(x, k), [one(*lane) for lane in zip(x, k, strict=True)], rtol=1e-5)


@pytest.mark.parametrize(("platform", "convolutions"), [("cpu", 0), ("tpu", 3), ("cuda", 3)])
def test_the_platform_a_program_is_for_decides_how_it_convolves(platform: str, convolutions: int) -> None:
    one = functools.partial(convolution, window_strides=(1, 1), padding="SAME", dimension_numbers=NHWC)
    gradient = jax.jit(jax.value_and_grad(lambda x, k: jnp.sum(one(x, k) ** 2), argnums=(0, 1)))
    traced = gradient.trace(images(2, 6, 6, 2), images(3, 3, 2, 4))
    assert traced.lower(lowering_platforms=(platform,)).as_text().count("stablehlo.convolution") == convolutions


@pytest.mark.parametrize(
    "unsupported",
    [
        {"lhs_dilation": (2, 1)},
        {"rhs_dilation": (1, 2)},
        {"feature_group_count": 2},
        {"dimension_numbers": ("NCHW", "OIHW", "NCHW")},
        {"dimension_numbers": None},
    ],
)
def test_convolution_refuses_what_it_does_not_support(unsupported: dict[str, Any]) -> None:
    arguments = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC} | unsupported
    with pytest.raises(ValueError, match="convolution takes"):
        convolution(images(1, 4, 4, 4), images(4, 4, 4, 4), **arguments)


@pytest.mark.parametrize(
    "shape", [(2, 7, 5, 3), *(pytest.param(s, marks=pytest.mark.slow) for s in ((3, 8, 8, 2), (1, 2, 2, 1)))]
)
def test_max_pool_is_that_of_flax(shape: tuple[int, ...]) -> None:
    x, weights = images(*shape), images(shape[0], shape[1] // 2, shape[2] // 2, shape[3])

    def theirs(x: Any) -> Any:
        return nn.max_pool(x, (2, 2), (2, 2))

    np.testing.assert_array_equal(max_pool(x), theirs(x))
    ours, expected = (jax.grad(lambda x, pool=pool: jnp.sum(weights * pool(x)))(x) for pool in (max_pool, theirs))
    np.testing.assert_array_equal(ours, expected)


def test_equal_values_of_a_block_share_its_gradient() -> None:
    gradient = jax.grad(lambda x: jnp.sum(max_pool(x)))(np.ones((1, 2, 4, 1), np.float32))
    np.testing.assert_array_equal(gradient, np.full((1, 2, 4, 1), 0.25, np.float32))


@pytest.mark.parametrize(
    "shape", [(2, 7, 5, 3), *(pytest.param(s, marks=pytest.mark.slow) for s in ((3, 8, 8, 2), (1, 2, 1, 1)))]
)
def test_max_pool_of_windows_that_overlap_is_that_of_flax(shape: tuple[int, ...]) -> None:
    x = images(*shape) - 0.5

    def theirs(x: Any) -> Any:
        return nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))

    weights = images(*theirs(x).shape)
    np.testing.assert_array_equal(max_pool_3x3(x), theirs(x))
    ours, expected = (jax.grad(lambda x, pool=pool: jnp.sum(weights * pool(x)))(x) for pool in (max_pool_3x3, theirs))
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
