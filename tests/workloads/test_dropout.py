from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from harness import streams
from workloads import registry
from workloads.models.dropout import dropout

SEED, STEP = np.uint32(7), np.int32(3)


def keys(positions: Any) -> Any:
    return streams.example_keys(SEED, STEP, np.asarray(positions, np.int32))


def test_masks_belong_to_the_places_in_a_batch_however_it_is_divided() -> None:
    x = np.ones((12, 5, 7), np.float32)
    whole = dropout(x, keys(range(12)), 0.3, 2)
    for parts in (2, 3, 12):
        own = 12 // parts
        divided = [dropout(x[:own], keys(range(i * own, (i + 1) * own)), 0.3, 2) for i in range(parts)]
        np.testing.assert_array_equal(np.concatenate(divided), whole)
    np.testing.assert_array_equal(jax.jit(dropout, static_argnums=2)(x, keys(range(12)), 0.3, jnp.int32(2)), whole)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("rate", [0.1, 0.5])
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
    later = streams.example_keys(SEED, STEP + 1, np.arange(4, dtype=np.int32))
    other = streams.example_keys(SEED + 1, STEP, np.arange(4, dtype=np.int32))
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
