"""The work of programs and networks against arithmetic by hand, against what the compiler counts, and their traffic."""

import dataclasses
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
from results.costs import closed_forms, decoder_counts
from results.costs.closed_forms import closed_form
from results.costs.decoder_counts import Decoder
from tests.harness import on_tpu
from tests.harness.counted import step_work
from tests.harness.divided import generated
from workloads import registry
from workloads.layouts.shapes import SHAPES, dataset, parameters
from workloads.models.convolution import convolution


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
def test_convolution_flops_are_those_of_the_compiler(stride: int, padding: str, dilation: int) -> None:
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


@pytest.mark.parametrize(("gated", "tied"), [(False, False), (True, True)])
def test_decoder_traffic_is_that_of_hand_and_closed_forms(gated: bool, tied: bool) -> None:
    """Each matmul has three products. Each product reads or writes both activations and the weight once."""
    small = dataclasses.replace(SHAPES["small"], gated=gated, tied=tied)
    layers, wide, hidden, vocabulary, heads = 4, 128, 512, 1024, 8
    batch, length = 16, 64
    tokens, matrices = batch * length, 3 if gated else 2
    of_layer = 4 * 2 * wide + matrices * (wide + hidden) + 2 * 2 * wide  # projections, hidden layer, attention
    activations = 2 * 3 * tokens * (layers * of_layer + wide + vocabulary)
    weights = 2 * 3 * (layers * (4 * wide**2 + matrices * wide * hidden) + wide * vocabulary)
    scores = 2 * 6 * layers * batch * heads * length**2
    workload = registry.workload(dataset(small, length), "transformer_rotary", small.options, "adam", "bfloat16")
    work = step_work(workload, batch)
    closed = closed_forms.work(small.sizes(batch, length), {"data": 1}, {}, gated=gated, tied=tied, width=2)
    assert work[:4] == closed[:4] == (small.flops(batch, length), activations, scores, weights)
    assert closed_forms.sizes_of(dataclasses.asdict(small), batch, length) == small.sizes(batch, length)
    # The shape of a decoder with blocked attention has half a pass more of attention, and no scores.
    known = Decoder(layers, wide, heads, heads, small.kv, hidden, vocabulary, gated, tied)
    kept = frozenset(decoder_counts.NAMES)
    attention = 2 * tokens * layers * 0.5 * 4 * wide
    assert 2 * tokens * decoder_counts.activation_traffic(known, 1, kept) == activations + attention
    assert 2 * decoder_counts.weight_traffic(known, 1, 1, kept) == weights


@pytest.mark.parametrize(("key_heads", "window", "block"), [(2, 0, 0), (0, 16, 0), (0, 0, 64), (2, 24, 16)])
def test_closed_forms_count_blocks_windows_and_key_heads(key_heads: int, window: int, block: int) -> None:
    """FLOPs and weights are those of the program. By hand: half of the scores and the diagonal, five times."""
    small = dataclasses.replace(SHAPES["small"], key_heads=key_heads, window=window)
    options = small.options | ({"attention_block": block} if block else {})
    workload = registry.workload(dataset(small, 128), "transformer_rotary", options, "adam", "bfloat16")
    work = step_work(workload, 4)
    sizes = small.sizes(4, 128)
    closed = closed_form(sizes, parameters(small), {"data": 1}, {}, width=2, attention_block=block, window=window)
    assert (closed.work.flops, closed.work.weight_bytes) == (work.flops, work.weight_bytes)
    assert closed.work.score_bytes == (0 if block else work.score_bytes)
    assert closed_forms.sizes_of(dataclasses.asdict(small), 4, 128) == sizes
    if block == 64:
        scores = 2 * 4 * small.layers * small.heads * small.kv * (128**2 / 2 + 128 * block / 2)
        matmuls = small.flops(4, 128) - 6 * 2 * 4 * small.layers * small.heads * small.kv * 128**2
        assert closed.work.flops == matmuls + 7 * scores


def test_convolutions_move_operands_without_windows() -> None:
    """A convolution 3 × 3 of 8 × 8 images, with the gradient of its kernel, and of its input."""

    def loss(kernel: jax.Array, images: jax.Array) -> jax.Array:
        return jnp.sum(convolution(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))

    program = jax.make_jaxpr(jax.grad(loss, (0, 1)))(shape(3, 3, 16, 32), shape(4, 8, 8, 16))
    work = jaxpr_cost.of(program, parameters=1)
    images, kernel, features = 4 * 8 * 8 * 16, 9 * 16 * 32, 4 * 8 * 8 * 32
    assert work.activation_bytes == 4 * 3 * (images + features)
    assert (work.weight_bytes, work.score_bytes) == (4 * 3 * kernel, 0)
    assert work.other_bytes > 4 * 9 * images  # the windows


def test_a_layout_reads_the_weights_of_its_batch_on_every_device() -> None:
    """Two ways of data times four of tensors: a device reads a quarter of the weights, and an eighth of the rest."""
    mesh, layout = {"data": 2, "model": 4}, {"batch": "data", "heads": "model", "mlp": "model", "vocab": "model"}
    small = SHAPES["small"]
    sizes = small.sizes(16, 64)
    one = closed_forms.work(sizes, {"data": 1}, {}, gated=False, tied=False)
    eight = closed_forms.work(sizes, mesh, layout, gated=False, tied=False)
    assert (8 * eight.flops, 8 * eight.score_bytes, 4 * eight.weight_bytes) == (
        one.flops,
        one.score_bytes,
        one.weight_bytes,
    )
    assert one.activation_bytes / 8 < eight.activation_bytes < one.activation_bytes / 2  # the stream is on each of four
