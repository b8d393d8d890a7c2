"""Counted operations against arithmetic by hand, and against what the compiler counts where it has no loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from harness.flops import matrix_flops


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, np.float32)


def test_products_batches_and_loops() -> None:
    assert matrix_flops(jax.make_jaxpr(jnp.matmul)(shape(3, 5), shape(5, 7))) == 2 * 3 * 5 * 7
    assert matrix_flops(jax.make_jaxpr(jnp.matmul)(shape(2, 3, 5), shape(2, 5, 7))) == 2 * 2 * 3 * 5 * 7
    repeated = jax.make_jaxpr(lambda a: jax.lax.scan(lambda c, _: (c @ c, None), a, None, length=6))(shape(4, 4))
    assert matrix_flops(repeated) == 6 * 2 * 4**3
    chosen = jax.make_jaxpr(lambda p, a: jax.lax.cond(p, lambda b: b @ b, lambda b: b + b, a))(True, shape(4, 4))
    assert matrix_flops(chosen) == 2 * 4**3


def test_a_network_costs_three_passes_but_for_the_first_gradient() -> None:
    def loss(weights: list[jax.Array], inputs: jax.Array) -> jax.Array:
        for w in weights:
            inputs = jnp.tanh(inputs @ w)
        return jnp.sum(inputs)

    sizes = [(64, 32), (32, 16)]
    counted = matrix_flops(jax.make_jaxpr(jax.grad(loss))([shape(*s) for s in sizes], shape(8, 64)))
    assert counted == 2 * 8 * (64 * 32 * 2 + 32 * 16 * 3)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation"), [(1, "VALID", 1), (2, "SAME", 1), (1, "SAME", 2), (3, "SAME", 1)]
)
def test_convolutions_and_their_gradients_count_as_the_compiler_counts(
    stride: int, padding: str, dilation: int
) -> None:
    def convolved(images: jax.Array, kernel: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            images, kernel, (stride, stride), padding, rhs_dilation=(dilation, dilation), dimension_numbers=numbers
        )

    images, kernel = shape(2, 16, 16, 6), shape(3, 3, 6, 8)
    assert matrix_flops(jax.make_jaxpr(convolved)(images, kernel)) == analysed(convolved, images, kernel)
    for argument in (0, 1):
        gradient = jax.value_and_grad(lambda *both: jnp.sum(jnp.square(convolved(*both))), argument)
        counted = matrix_flops(jax.make_jaxpr(gradient)(images, kernel))
        assert counted == pytest.approx(analysed(gradient, images, kernel), rel=0.02)


def analysed(function: object, *arguments: jax.ShapeDtypeStruct) -> float:
    """The FLOPs that XLA finds in a program before it is optimized."""
    return float(jax.jit(function).lower(*arguments).cost_analysis()["flops"])  # type: ignore[arg-type]
