"""Layers that models share, against their definitions: normalization, and dropout however a batch is divided."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.core import meta

from harness.step import rng
from workloads import registry
from workloads.models.layers import GhostNorm, GroupNorm, LayerNorm, channel_groups, dropout

EPSILON = 1e-5
SHAPES = [((8, 6), 2), ((8, 6), 8), ((12, 3, 5, 4), 4)]
SEED, STEP = np.uint32(7), np.int32(3)


def drawn(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(2) + np.float32(3)


def variables(channels: int) -> dict[str, Any]:
    """Parameters and running statistics that are not those of a fresh layer."""
    rng = np.random.default_rng(1)
    scale, bias, mean, variance = rng.uniform(0.5, 2, (4, channels)).astype(np.float32)
    return {"params": {"scale": scale, "bias": bias}, "statistics": {"mean": mean, "variance": variance}}


def in_float64(x: np.ndarray, group: int, before: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs in training, and the running mean and variance after it."""
    outputs, means, variances = [], [], []
    for first in range(0, len(x), group):
        part = np.asarray(x[first : first + group], np.float64)
        axes = tuple(range(part.ndim - 1))
        means.append(part.mean(axes))
        variances.append(part.var(axes))
        normal = (part - means[-1]) / np.sqrt(variances[-1] + EPSILON)
        outputs.append(normal * before["params"]["scale"] + before["params"]["bias"])
    running = (
        0.9 * np.asarray(before["statistics"][name], np.float64) + 0.1 * np.mean(each, axis=0)
        for name, each in (("mean", means), ("variance", variances))
    )
    return np.concatenate(outputs), *running


def trained(x: Any, group: int, before: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    outputs, changed = GhostNorm(group).apply(before, x, True, mutable=["statistics"])
    return outputs, changed["statistics"]


@pytest.mark.parametrize(("shape", "group"), SHAPES)
def test_training_normalizes_each_group_and_remembers_their_mean(shape: tuple[int, ...], group: int) -> None:
    x, before = drawn(shape), variables(shape[-1])
    outputs, statistics = trained(x, group, before)
    expected, mean, variance = in_float64(x, group, before)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(statistics["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(statistics["variance"], variance, rtol=1e-6)


def test_a_mean_that_is_large_costs_no_digits_of_the_variance() -> None:
    x, before = drawn((64, 4)) + np.float32(4096), variables(4)
    outputs, statistics = trained(x, 32, before)
    expected, _, variance = in_float64(x, 32, before)
    np.testing.assert_allclose(statistics["variance"], variance, rtol=1e-5)
    np.testing.assert_allclose(outputs, expected, atol=1e-3)


def test_the_gradient_is_that_of_differences_in_float64() -> None:
    x, before = drawn((6, 2, 3)), variables(3)
    weights = drawn(x.shape, seed=2)
    gradient = jax.grad(lambda x: jnp.sum(weights * trained(x, 3, before)[0]))(x)
    step = 1e-5

    def value(at: np.ndarray) -> float:
        return float(np.sum(weights * in_float64(at, 3, before)[0]))

    for place in np.ndindex(x.shape):
        moved = np.zeros(x.shape)
        moved[place] = step
        np.testing.assert_allclose(gradient[place], (value(x + moved) - value(x - moved)) / (2 * step), atol=1e-4)


def test_evaluations_use_running_statistics_and_change_none() -> None:
    x, before = drawn((5, 3, 4)), variables(4)
    outputs, changed = GhostNorm(2).apply(before, x, False, mutable=["statistics"])
    of, running = before["params"], before["statistics"]
    expected = (x - running["mean"]) / np.sqrt(running["variance"] + EPSILON) * of["scale"] + of["bias"]
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, changed["statistics"], running)


def test_a_fresh_layer_has_neither_mean_nor_scale() -> None:
    x = drawn((1, 4))
    fresh = meta.unbox(GhostNorm(32).init(jax.random.key(0), x, False))
    zeros, ones = np.zeros(4, np.float32), np.ones(4, np.float32)
    expected = {"params": {"scale": ones, "bias": zeros}, "statistics": {"mean": zeros, "variance": ones}}
    jax.tree.map(np.testing.assert_array_equal, fresh, expected)


def test_statistics_of_bfloat16_are_float32() -> None:
    before = variables(4)
    x = jnp.asarray(drawn((16, 3, 4)), jnp.bfloat16)
    rounded = before | {"params": jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), before["params"])}
    outputs, statistics = trained(x, 8, rounded)
    assert outputs.dtype == jnp.bfloat16
    expected, mean, variance = in_float64(np.asarray(x, np.float32), 8, jax.tree.map(np.float32, rounded))
    np.testing.assert_allclose(np.asarray(outputs, np.float32), expected, rtol=2**-8, atol=1e-5)
    assert {leaf.dtype for leaf in jax.tree.leaves(statistics)} == {np.dtype("float32")}
    np.testing.assert_allclose(statistics["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(statistics["variance"], variance, rtol=1e-6)
    for norm in (GroupNorm(), LayerNorm()):
        assert norm.apply({"params": rounded["params"]}, x).dtype == jnp.bfloat16


def test_lanes_are_normalized_each_alone() -> None:
    lanes, before = drawn((3, 8, 4)), variables(4)
    outputs, statistics = jax.vmap(lambda x: trained(x, 4, before))(lanes)
    for i, lane in enumerate(lanes):
        alone = trained(lane, 4, before)
        ours = outputs[i], jax.tree.map(lambda a, i=i: a[i], statistics)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), ours, alone)


@pytest.mark.parametrize(("examples", "message"), [(6, "6 examples"), (3, "3 examples"), (2, "2 shards of 2 examples")])
def test_a_part_of_a_batch_that_cuts_a_group_is_refused(examples: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trained(drawn((examples, 3)), 4, variables(3))


GROUPS = {1: 1, 2: 1, 8: 4, 12: 4, 32: 16, 64: 32, 2048: 32}


def test_channels_are_normalized_in_groups_of_their_number() -> None:
    assert {channels: channel_groups(channels) for channels in GROUPS} == GROUPS


@pytest.mark.parametrize(
    ("channels", "groups"), [(8, 4), *(pytest.param(c, g, marks=pytest.mark.slow) for c, g in GROUPS.items())]
)
def test_group_norm_is_that_of_flax(channels: int, groups: int) -> None:
    x, params = drawn((3, 2, 5, channels)), {"params": variables(channels)["params"]}
    theirs = nn.GroupNorm(groups, epsilon=EPSILON, use_fast_variance=False)
    np.testing.assert_allclose(GroupNorm().apply(params, x), theirs.apply(params, x), rtol=1e-5, atol=1e-5)


def test_layer_norm_is_that_of_flax() -> None:
    x, params = drawn((3, 5, 8)), {"params": variables(8)["params"]}
    theirs = nn.LayerNorm(use_fast_variance=False)
    np.testing.assert_allclose(LayerNorm().apply(params, x), theirs.apply(params, x), rtol=1e-5, atol=1e-5)


def keys(positions: Any) -> Any:
    return rng.example_keys(SEED, STEP, np.asarray(positions, np.int32))


def test_dropout_masks_do_not_depend_on_the_division() -> None:
    x = np.ones((12, 5, 7), np.float32)
    whole = dropout(x, keys(range(12)), 0.3, 2)
    for parts in (2, 3, 12):
        own = 12 // parts
        divided = [dropout(x[:own], keys(range(i * own, (i + 1) * own)), 0.3, 2) for i in range(parts)]
        np.testing.assert_array_equal(np.concatenate(divided), whole)
    np.testing.assert_array_equal(jax.jit(dropout, static_argnums=2)(x, keys(range(12)), 0.3, jnp.int32(2)), whole)


@pytest.mark.parametrize(
    ("rate", "dtype"),
    [
        (0.1, jnp.bfloat16),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.1, jnp.float32), (0.5, jnp.bfloat16))),
        (0.5, jnp.float32),
    ],
)
def test_the_share_that_is_dropped_and_the_mean(rate: float, dtype: Any) -> None:
    values = np.asarray(dropout(jnp.ones((64, 1000), dtype), keys(range(64)), rate, 0), np.float64)
    kept = values != 0
    deviation = np.sqrt(rate * (1 - rate) / kept.size)
    assert abs(kept.mean() - (1 - rate)) < 4 * deviation
    # Every place of an example, and every example, is as likely to be dropped.
    for axis in (0, 1):
        assert abs(kept.mean(axis) - (1 - rate)).max() < 5 * np.sqrt(rate * (1 - rate) / kept.shape[axis])
    # One value, rounded once, as there are no others.
    assert set(values[kept]) == {float(jnp.asarray(np.float32(1) / np.float32(1 - rate), dtype))}


def test_other_layers_examples_steps_and_trials_have_other_masks() -> None:
    x = np.ones((4, 256), np.float32)
    masks = [np.asarray(dropout(x, keys(range(4)), 0.5, layer)) != 0 for layer in range(3)]
    later = rng.example_keys(SEED, STEP + 1, np.arange(4, dtype=np.int32))
    other = rng.example_keys(SEED + 1, STEP, np.arange(4, dtype=np.int32))
    masks += [np.asarray(dropout(x, each, 0.5, 0)) != 0 for each in (later, other)]
    rows = np.concatenate(masks)
    agree = np.array([np.mean(a == b) for i, a in enumerate(rows) for b in rows[:i]])
    assert agree.min() > 0.3 and agree.max() < 0.7  # of 256 coins, half, within six deviations


def test_nothing_is_dropped_in_an_evaluation_or_at_rate_0() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4), np.float32)
    assert dropout(x, None, 0.5, 0) is x
    assert dropout(x, keys(range(3)), 0.0, 0) is x


def test_the_gradient_has_the_mask_of_the_value() -> None:
    x = np.random.default_rng(0).standard_normal((3, 64), np.float32)
    value, pull = jax.vjp(lambda x: dropout(x, keys(range(3)), 0.25, 1), x)
    (gradient,) = pull(jnp.ones_like(value))
    np.testing.assert_allclose(gradient, np.where(value != 0, np.float32(4 / 3), 0), rtol=1e-6)


def test_a_transformer_drops_in_training_alone_and_by_its_keys() -> None:
    model = registry.MODELS["transformer_decoder"](classes=7, layers=2, d_model=8, heads=2, d_ff=16, dropout=0.3)
    tokens = np.random.default_rng(0).integers(0, 7, (4, 5), np.int32)
    params, state = jax.jit(model.init)(jax.random.key(0), tokens)

    @jax.jit
    def trained(tokens: Any, keys: Any) -> Any:
        return model.apply(params, state, tokens, keys, True)[0].features

    evaluated = jax.jit(lambda: model.apply(params, state, tokens, None, False)[0].features)
    np.testing.assert_array_equal(evaluated(), evaluated())
    whole = trained(tokens, keys(range(4)))
    assert not np.allclose(whole, evaluated(), atol=0.1)
    assert not np.allclose(whole, trained(tokens, keys(range(4, 8))), atol=0.1)
    halves = [trained(tokens[i : i + 2], keys(range(i, i + 2))) for i in (0, 2)]
    np.testing.assert_allclose(np.concatenate(halves), whole, rtol=1e-5, atol=1e-5)
