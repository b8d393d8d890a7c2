"""The work of programs and networks against arithmetic by hand, against what the compiler counts, and their traffic."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P

from harness.compiled import jaxpr_cost
from harness.compiled.jaxpr_cost import matrix_flops
from harness.costs import network_costs
from tests.harness import on_tpu
from tests.harness.divided import generated


def shape(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, np.float32)


def resnet_50(stride_on_3x3: bool) -> int:
    """Multiply-adds of ResNet-50 on one image of 224 × 224, layer by layer."""
    total, side, channels = 112 * 112 * 49 * 3 * 64, 56, 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            halves = stage > 0 and block == 0
            small = side // 2 if halves else side
            first = side if stride_on_3x3 else small  # where the first 1×1 is computed
            total += first**2 * channels * width + small**2 * (9 * width**2 + 4 * width**2)
            if block == 0:
                total += small**2 * channels * 4 * width
            side, channels = small, 4 * width
    return total + channels * 1000


def transformer_base() -> int:
    """Of six layers on 128 tokens, with 32,768 words."""
    tokens, d, f, words = 128, 512, 2048, 32_768
    layer = 4 * d * d + 2 * d * f + 2 * tokens * d
    return tokens * (6 * layer + words * d)


def vgg_11() -> int:
    total, side, channels = 0, 224, 3
    for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for features in stage:
            total += side**2 * 9 * channels * features
            channels = features
        side //= 2
    return total + 7 * 7 * 512 * 4096 + 4096 * 4096 + 4096 * 1000


def lstm_base() -> int:
    """2,048 units projected to 512, on 128 tokens."""
    return 128 * (4 * 2048 * (512 + 512) + 2048 * 512 + 512 * 32_768)


BY_HAND: dict[str, Callable[[], int]] = {
    "resnet_50": lambda: resnet_50(stride_on_3x3=True),  # as its docstring says: v1.5
    "transformer_base": transformer_base,
    "vgg_11": vgg_11,
    "lstm_base": lstm_base,
    "fc_1024": lambda: 784 * 1024 + 1024 * 10,
    "simple_cnn_base": lambda: 28**2 * 25 * 32 + 14**2 * 25 * 32 * 64 + 7**2 * 64 * 1024 + 1024 * 10,
}


def test_the_count_by_hand_is_what_is_published() -> None:
    assert resnet_50(stride_on_3x3=True) == pytest.approx(4.09e9, rel=0.002)
    assert resnet_50(stride_on_3x3=False) == pytest.approx(3.86e9, rel=0.002)
    assert vgg_11() == pytest.approx(7.61e9, rel=0.001)


@pytest.mark.parametrize("name", list(BY_HAND))
def test_multiply_adds_of_a_pass_forward(name: str) -> None:
    of = on_tpu.workload(name, "float32")
    params, state = jax.eval_shape(of.init, jax.random.key(0))
    inputs = of.shapes.train.inputs
    image = jax.ShapeDtypeStruct((1, *inputs.shape[1:]), inputs.dtype)
    counted = matrix_flops(jax.make_jaxpr(of.predict)(params, state, image)) / 2
    assert counted == pytest.approx(BY_HAND[name](), rel=0.01)


@pytest.mark.parametrize("name", ["transformer_base", "vgg_11"])
def test_a_step_is_three_passes(name: str) -> None:
    of = on_tpu.workload(name, "float32")
    examples = 2
    whole = jaxpr_cost.of(network_costs.step_jaxpr(of, examples))
    first = 224**2 * 9 * 3 * 64 if name == "vgg_11" else 0  # of whose inputs nobody takes a gradient
    assert whole.flops == pytest.approx(2 * examples * (3 * BY_HAND[name]() - first), rel=0.01)
    # Microbatches are a loop, which is counted as often as it turns.
    parts = jaxpr_cost.of(network_costs.step_jaxpr(of, examples, 2))
    assert parts.flops == pytest.approx(whole.flops, rel=0.001)
    assert parts.operations > 1.5 * whole.operations


def test_a_shard_of_a_normalized_group_is_its_share_of_the_step() -> None:
    workload, _ = generated("resnet", 16)
    whole = jaxpr_cost.of(network_costs.step_jaxpr(workload, 16))
    share = jaxpr_cost.of(network_costs.step_jaxpr(workload, 4, shards=4))
    assert share.flops == pytest.approx(whole.flops / 4)


def test_traffic_of_products_sums_and_gathers() -> None:
    def program(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.tanh(a @ b) * 2 + 1

    found = jaxpr_cost.of(jax.make_jaxpr(program)(shape(8, 16), shape(16, 4)))
    assert found.flops == 2 * 8 * 16 * 4
    assert found.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4) and found.operations == 4
    # A gather reads as much as it gives, however large the table is.
    table = jaxpr_cost.of(
        jax.make_jaxpr(lambda t, i: t.at[i].get(mode="promise_in_bounds"))(shape(10**6, 8), np.arange(5))
    )
    assert table.bytes == table.other_bytes < 1000
    looped = jax.make_jaxpr(lambda a: jax.lax.scan(lambda c, _: (c @ c, None), a, None, length=7)[0])(shape(4, 4))
    assert jaxpr_cost.of(looped).bytes == 7 * 3 * 4 * 16


def test_held_bytes_are_those_of_arrays_that_live_at_once() -> None:
    def chain(a: jax.Array) -> jax.Array:
        for _ in range(10):
            a = jnp.sin(a)
        return a

    one = 4 * 1000
    assert jaxpr_cost.held_bytes(jax.make_jaxpr(chain)(shape(1000))) == 3 * one  # the argument, and two of a chain
    grad = jax.make_jaxpr(jax.grad(lambda a: chain(a).sum()))(shape(1000))
    assert 11 * one <= jaxpr_cost.held_bytes(grad) <= 14 * one  # every cosine is kept

    def peak(a: jax.Array) -> jax.Array:
        return (a[:, None] * a[None, :]).sum()

    assert jaxpr_cost.held_bytes(jax.make_jaxpr(peak)(shape(500))) >= 4 * 500 * 500


def test_of_what_is_divided_over_devices_a_share_is_held() -> None:
    mesh = AbstractMesh((8,), ("cores",), (AxisType.Auto,))

    def share(a: jax.Array) -> jax.Array:
        return jnp.sin(a)

    divided = jax.jit(jax.shard_map(share, mesh=mesh, in_specs=P("cores"), out_specs=P("cores")))
    assert jaxpr_cost.held_bytes(jax.make_jaxpr(divided)(shape(8000))) == 2 * 4 * 1000


def test_dropped_zeros_of_dilated_gradients_are_not_counted() -> None:
    def convolved(images: jax.Array, kernel: jax.Array) -> jax.Array:
        out = jax.lax.conv_general_dilated(images, kernel, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.sum(out**2)

    images, kernel = shape(1, 9, 9, 3), shape(3, 3, 3, 5)
    forward = 2 * 4 * 4 * 9 * 3 * 5
    both = jaxpr_cost.of(jax.make_jaxpr(jax.grad(convolved, (0, 1)))(images, kernel)).flops
    assert both == pytest.approx(3 * forward, rel=0.01)  # with zeros it were 3 to 4 times as many
    assert math.isfinite(both)


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
