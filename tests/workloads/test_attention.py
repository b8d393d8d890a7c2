"""Attention in blocks, with grouped queries and windows: NumPy in float64, memory, and the counts of decoders."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from optax.tree_utils import tree_get

from harness.compiled import jaxpr_cost
from harness.step.partitioned import PartitionedStep, drawn, partitioned
from results.costs import decoder_counts
from results.costs.decoder_counts import ATTENTION, NAMES, Decoder
from tests.workloads import reference
from workloads import axes, registry
from workloads.layouts import shapes
from workloads.layouts.shapes import Shape
from workloads.models.attention import Band, causal_attention

GROUPED = Shape(2, 16, 4, 6, 24, 32, gated=True, key_heads=2, window=5)
PLAIN = Shape(3, 16, 4, 4, 24, 32, tied=True)


def arrays(length: int, heads: int, key_heads: int, dtype: Any = np.float32) -> list[Any]:
    """Queries, keys, values, and a gradient of the output."""
    random = np.random.default_rng(0)
    return [jnp.asarray(random.normal(size=(2, length, n, 6)), dtype) for n in (heads, key_heads, key_heads, heads)]


def pulled(block: int, window: int, q: Any, k: Any, v: Any, gradient: Any) -> Any:
    """The output and its three gradients."""
    attention = functools.partial(causal_attention, window=window, block=block)
    output, backward = jax.vjp(attention, q, k, v)
    return output, *backward(gradient)


@given(
    length=st.integers(1, 20),
    heads=st.sampled_from([(1, 1), (4, 4), (4, 2), (4, 1)]),
    window=st.integers(0, 22),
    block=st.integers(1, 22),
)
@settings(max_examples=3, deadline=None)
def test_blocks_have_the_output_and_the_gradients_of_all_scores(
    length: int, heads: tuple[int, int], window: int, block: int
) -> None:
    given = arrays(length, *heads)
    expected = reference.attention(*(np.asarray(a, np.float64) for a in given[:3]), window)
    whole, blocked = (jax.jit(functools.partial(pulled, b, window))(*given) for b in (0, block))
    np.testing.assert_allclose(blocked[0], expected, rtol=0, atol=2e-6)
    for one, other in zip(blocked, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_blocks_in_bfloat16_are_as_exact_as_all_scores() -> None:
    given = arrays(48, 4, 2, jnp.bfloat16)
    exact = jax.jit(functools.partial(pulled, 0, 7))(*(a.astype(jnp.float32) for a in given))
    whole, blocked = (jax.jit(functools.partial(pulled, b, 7))(*given) for b in (0, 8))
    for one, all_scores, blocks in zip(exact, whole, blocked, strict=True):
        assert blocks.dtype == jnp.bfloat16
        errors = [float(np.abs(np.asarray(each, np.float32) - one).max()) for each in (all_scores, blocks)]
        assert errors[1] < 1.5 * errors[0]


@given(length=st.integers(1, 40), block=st.integers(1, 40), window=st.integers(0, 45))
def test_every_score_is_in_exactly_one_pair_of_blocks(length: int, block: int, window: int) -> None:
    pairs = Band(block, window).pairs(length).tolist()
    needed = {
        (t // block, s // block)
        for t in range(-(-length // block) * block)
        for s in range(t + 1)
        if not window or t - s < window
    }
    assert len(pairs) == len(needed) and set(map(tuple, pairs)) == needed


def test_memory_in_blocks_grows_linearly_with_the_length() -> None:
    def held(length: int, block: int) -> int:
        program = jax.make_jaxpr(functools.partial(pulled, block, 0))(*arrays(length, 4, 2))
        return jaxpr_cost.held_bytes(program)

    assert held(1024, 64) < 2.1 * held(512, 64)
    assert held(1024, 0) > 3.5 * held(512, 0)
    assert held(1024, 64) < 0.1 * held(1024, 0)
    compiled = [
        jax.jit(functools.partial(pulled, block, 0)).lower(*arrays(1024, 4, 2)).compile().memory_analysis()
        for block in (0, 64)
    ]
    assert compiled[1].temp_size_in_bytes < 0.2 * compiled[0].temp_size_in_bytes


def step(shape: Shape, length: int, block: int, kept: tuple[str, ...] | None) -> PartitionedStep:
    row = shapes.dataset(shape, length)
    workload = registry.workload(row, "transformer_rotary", shape.options | {"attention_block": block}, "adam")
    again = kept is not None
    return partitioned(workload, "adam", {"data": 1}, {}, jax.devices(), rematerialized=again, kept=kept or ())


def decoder(shape: Shape) -> Decoder:
    """The same shape without JAX."""
    return Decoder(
        layers=shape.layers,
        width=shape.embed,
        heads=shape.heads,
        key_heads=shape.key_heads or shape.heads,
        head_width=shape.kv,
        hidden=shape.mlp,
        vocabulary=shape.vocab,
        gated=shape.gated,
        tied=shape.tied,
        window=shape.window,
    )


KEPT = [None, (), (ATTENTION,), (ATTENTION, "out"), ("query", "gate", "up"), NAMES]


@pytest.mark.parametrize(
    "kept",
    [pytest.param(kept, marks=() if kept in (None, (ATTENTION, "out")) else pytest.mark.slow) for kept in KEPT],
    ids=lambda kept: "none" if kept is None else "+".join(kept) or "full",
)
@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        pytest.param(GROUPED, [(13, 4)], id="grouped"),
        pytest.param(GROUPED, [(24, 6), (8, 64)], id="grouped-all", marks=pytest.mark.slow),
        pytest.param(PLAIN, [(13, 4), (24, 6), (8, 64)], id="plain-all", marks=pytest.mark.slow),
    ],
)
def test_counts_of_decoders_are_those_of_the_program(
    shape: Shape, blocks: list[tuple[int, int]], kept: tuple[str, ...] | None
) -> None:
    for length, block in blocks:
        on = step(shape, length, block, kept)
        program = on.jaxpr(3)
        known, names = decoder(shape), NAMES if kept is None else kept
        attention = decoder_counts.attention_flops(known, length, block=block) * decoder_counts.attention_passes(names)
        products = decoder_counts.product_flops(known, names)
        assert jaxpr_cost.matrix_flops(program) == pytest.approx(3 * length * (products + attention), rel=1e-12)


@pytest.mark.parametrize("shape", [GROUPED, PLAIN], ids=["grouped", "plain"])
def test_counts_without_blocks_have_all_scores(shape: Shape) -> None:
    known = decoder(shape)._replace(window=0)
    for kept, passes in ((None, 3), ((), 4)):
        on = step(shape, 12, 0, kept)
        program = on.jaxpr(3)
        attention = decoder_counts.attention_flops(known, 12, causal=False) * passes
        products = decoder_counts.product_flops(known, NAMES if kept is None else kept)
        assert jaxpr_cost.matrix_flops(program) == 36 * (products + attention)


@pytest.mark.parametrize("shape", [GROUPED, PLAIN], ids=["grouped", "plain"])
def test_parameters_of_decoders_are_those_of_the_model(shape: Shape) -> None:
    norms = shape.embed * (2 * shape.layers + 1)
    leaves = jax.tree.leaves(step(shape, 12, 4, None).carry.params)
    assert sum(leaf.size for leaf in leaves) == shape.parameters
    assert shape.parameters == decoder_counts.stored_parameters(decoder(shape)) + norms


@pytest.mark.parametrize("gated", [False, True])
def test_all_named_tensors_of_a_decoder_can_be_kept(gated: bool) -> None:
    workload = step(Shape(2, 16, 4, 6, 24, 32, gated=gated), 12, 4, None).workload
    variables = jax.eval_shape(lambda: workload.init(jax.random.key(0)))
    tokens = jax.ShapeDtypeStruct((1, 12), np.int32)
    assert set(axes.kept_names(workload.predict, *variables, tokens)) == set(NAMES) - (set() if gated else {"gate"})


@pytest.mark.slow
def test_kept_tensors_change_no_gradient_and_cost_memory() -> None:
    held, gradients = [], []
    for kept in ((), (ATTENTION, "out"), NAMES, None):
        on = step(GROUPED, 24, 6, kept)
        held.append(jaxpr_cost.held_bytes(on.jaxpr(3)))
        if kept in ((ATTENTION, "out"), None):
            given = on.start(on.spans(1)), drawn(on.workload, GROUPED.vocab, 3, 1, 0), on.spans(1)
            after, _ = jax.jit(on.step)(*given)
            gradients.append(tree_get(after.optimizer, "mu"))
    assert held == sorted(held) and len(set(held)) == 4
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-6), *gradients)
