from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from workloads import optimizers, registry
from workloads.models.options import SIZES
from workloads.optimizers import adaptation_mask, average, heavy_ball, lamb, lars, muon, schedule_free
from workloads.workload import STACKED


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_heavy_ball_is_optax_sgd(momentum: float, nesterov: bool) -> None:
    ours = heavy_ball(jnp.float32(0.1), jnp.float32(momentum), jnp.float32(nesterov), jnp.float32(0.01))
    sgd = optax.sgd(0.1, momentum=momentum or None, nesterov=nesterov)
    theirs = optax.chain(optax.add_decayed_weights(0.01), sgd)
    params = {"w": jnp.arange(6, dtype=jnp.float32), "b": jnp.ones(2)}
    state, their_state, their_params = ours.init(params), theirs.init(params), params
    for key in jax.random.split(jax.random.key(0), 20):
        grads = jax.tree.map(lambda p, key=key: jax.random.normal(key, p.shape), params)
        updates, state = ours.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        their_updates, their_state = theirs.update(grads, their_state, their_params)
        their_params = optax.apply_updates(their_params, their_updates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), params, their_params)


def test_schedule_free_is_evaluated_at_its_average() -> None:
    rule = schedule_free(jnp.float32(0.5), jnp.float32(0.9), jnp.float32(0.0))
    params = {"w": jnp.ones(3)}
    state = rule.init(params)
    history = []
    for _ in range(5):
        updates, state = rule.update(params, state, params)
        params = optax.apply_updates(params, updates)
        history.append(average(params, state)["w"][0])
    # y = 0.9 x + 0.1 z, with x the average of z so far: z = (y - 0.9 x) / 0.1.
    x, z = [1.0], [1.0]
    y = 1.0
    for t in range(5):
        z.append(z[-1] - 0.5 * y)
        x.append(x[-1] + (z[-1] - x[-1]) / (t + 1))
        y = 0.9 * x[-1] + 0.1 * z[-1]
    np.testing.assert_allclose(history, x[1:], rtol=1e-5)


@pytest.mark.parametrize("kind", list(optimizers.SCHEDULES))
def test_schedules_are_optax_schedules(kind: str) -> None:
    theirs = {
        "constant": optax.constant_schedule(1.0),
        "linear": optax.linear_schedule(1.0, 0.1, 80),
        "cosine": optax.cosine_decay_schedule(1.0, 80, alpha=0.1),
    }[kind]
    number = jnp.int32(optimizers.SCHEDULES[kind])
    for step in (0, 1, 40, 79, 80, 200):
        ours = optimizers.decay_factor(number, jnp.int32(step), jnp.float32(80), jnp.float32(0.1))
        assert float(ours) == pytest.approx(float(theirs(step)), rel=1e-5)


IMAGES, TOKENS = np.zeros((1, 8, 8, 1), np.float32), np.zeros((1, 5), np.int32)
# Every model with small options: what it is shown, and how many parameters of each name have no rate by layer.
BIASES_AND_NORMS: dict[str, tuple[dict[str, Any], np.ndarray, dict[str, int]]] = {
    "fully_connected": ({"widths": [4, 4]}, IMAGES, {"bias": 3}),
    "simple_cnn": ({"channels": [2], "width": 4}, IMAGES, {"bias": 3}),
    "transformer": ({"layers": 2, "d_model": 4, "heads": 2}, TOKENS, {"scale": 5}),
    "lstm": ({"d_model": 4}, TOKENS, {"bias": 2}),
    "quadratic": ({"noise": 0.0}, np.zeros((1, 6), np.float32), {}),
    "resnet": (
        {"blocks": [2, 1], "width": 2, "norm": "group", "group": 1},
        np.zeros((1, 32, 32, 1), np.float32),
        {"scale": 12, "bias": 13},
    ),
    "transformer_decoder": (
        {"layers": 2, "d_model": 4, "heads": 2, "d_ff": 8, "dropout": 0.1},
        TOKENS,
        {"scale": 3, "bias": 5},
    ),
    "transformer_rotary": (
        {"layers": 2, "d_model": 4, "heads": 2, "kv": 2, "d_ff": 8, "gated": True, "tied": True},
        TOKENS,
        {"scale": 3},
    ),
    "resnet_basic": (
        {"blocks": [1], "width": 2, "norm": "group"},
        np.zeros((1, 8, 8, 1), np.float32),
        {"scale": 3, "bias": 4},
    ),
    "vgg": ({"stages": [[2], [2]], "widths": [4], "dropout": 0.1}, IMAGES, {"bias": 4}),
    "lstm_projected": ({"d_model": 4, "width": 6, "dropout": 0.0}, TOKENS, {"bias": 1}),
}


@pytest.mark.parametrize("model", [name for name in registry.MODELS if name not in SIZES])
def test_only_biases_and_norms_have_no_layerwise_rate(model: str) -> None:
    options, inputs, expected = BIASES_AND_NORMS[model]
    init = registry.MODELS[model](classes=3, **options).init
    params, _ = jax.eval_shape(init, jax.random.key(0), inputs)
    left_out: dict[str, int] = {}
    for (path, by_layer), param in zip(
        jax.tree_util.tree_leaves_with_path(adaptation_mask(params)), jax.tree.leaves(params), strict=True
    ):
        stacked = any(one.key.startswith(STACKED) for one in path)
        assert by_layer == (param.ndim - stacked > 1 or model == "quadratic")
        if not by_layer:
            left_out[path[-1].key] = left_out.get(path[-1].key, 0) + 1
    assert left_out == expected


def _moved(rule: Any, param: np.ndarray, grad: np.ndarray, name: str) -> np.ndarray:
    """What the first update adds to a parameter of that name, beside others."""
    params = {"layer": {"kernel": np.ones((3, 2), np.float32), name: param}}
    grads = {"layer": {"kernel": np.ones((3, 2), np.float32), name: grad}}
    return np.asarray(rule.update(grads, rule.init(params), params)[0]["layer"][name])


@pytest.mark.parametrize("make", [lars, lamb])
def test_a_layer_has_its_rate_and_biases_and_norms_the_plain_one(make: Callable[..., Any]) -> None:
    param, grad = np.array([3.0, -1.0, 2.0], np.float32), np.array([0.5, 0.25, -1.0], np.float32)
    rate, decay, trust = 0.1, 0.2, 0.01
    if make is lars:
        further, direction = {"momentum": 0.9, "trust_coefficient": trust}, grad
    else:  # whose first step is the sign of a gradient
        further, direction, trust = {"b1": 0.9, "b2": 0.99, "eps": 1e-9}, np.sign(grad), 1.0
    rule = make(**{k: jnp.float32(v) for k, v in ({"learning_rate": rate, "weight_decay": decay} | further).items()})
    for name in ("bias", "scale"):
        np.testing.assert_allclose(_moved(rule, param, grad, name), -rate * direction, rtol=1e-5)
    decayed = direction + decay * param
    ratio = trust * np.linalg.norm(param) / np.linalg.norm(decayed)
    np.testing.assert_allclose(_moved(rule, param, grad, "kernel_2"), -rate * ratio * decayed, rtol=1e-5)


@pytest.mark.parametrize("make", [lars, lamb, muon])
def test_layers_compiled_as_one_have_their_own_rates(make: Callable[..., Any]) -> None:
    """Two updates of three stacked layers and one beside them are those of four that stand alone."""
    further = {
        lars: {"momentum": 0.9, "trust_coefficient": 0.01, "weight_decay": 0.2},
        lamb: {"b1": 0.9, "b2": 0.99, "eps": 1e-9, "weight_decay": 0.2},
        muon: {"beta": 0.9, "weight_decay": 0.2},
    }[make]
    rule = make(**{k: jnp.float32(v) for k, v in ({"learning_rate": 0.1} | further).items()})

    def layers(seed: int) -> list[dict[str, jax.Array]]:
        numbers = np.random.default_rng(seed).normal(size=(4, 5, 3)).astype(np.float32)
        return [{"kernel": jnp.asarray(one * (i + 1)), "bias": jnp.asarray(one[0])} for i, one in enumerate(numbers)]

    def as_one(alone: list[Any]) -> dict[str, Any]:
        return {f"{STACKED}_0": {"Dense_0": jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone[:3])}, "x": alone[3]}

    def apart(alone: list[Any]) -> dict[str, Any]:
        return {str(i): one for i, one in enumerate(alone)}

    states, update = (rule.init(as_one(layers(0))), rule.init(apart(layers(0)))), jax.jit(rule.update)
    for seed in (1, 2):
        ours, state = update(as_one(layers(seed)), states[0], as_one(layers(0)))
        theirs, their_state = update(apart(layers(seed)), states[1], apart(layers(0)))
        states = state, their_state
        expected = as_one([theirs[str(i)] for i in range(4)])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), ours, expected)


@pytest.mark.parametrize(
    "optimizer",
    [name if name == "lamb" else pytest.param(name, marks=pytest.mark.slow) for name in registry.OPTIMIZERS],
)
def test_an_update_depends_on_parameters_not_on_their_container(optimizer: str) -> None:
    """Own models may keep parameters in dicts, lists and tuples, or have only one array."""
    row = registry.OPTIMIZERS[optimizer]
    metaparameters = row.defaults | dict.fromkeys(row.tuned, 0.5) | {"weight_decay": 0.1}
    rule = row.update_rule(**{name: np.float32(value) for name, value in metaparameters.items()})
    numbers = np.random.default_rng(0).normal(size=(4, 3, 4)).astype(np.float32)
    first, second, *grads = map(jnp.asarray, numbers)

    def updated(container: Callable[[Any, Any], Any]) -> list[Any]:
        params, grad = container(first, second), container(*grads)
        updates, _ = rule.update(grad, rule.init(params), params)
        assert jax.tree.structure(updates) == jax.tree.structure(params)
        return jax.tree.leaves(updates)

    expected = updated(lambda a, b: {"a": a, "b": b})
    for container in (lambda a, b: [a, b], lambda a, b: {"layers": ({0: a}, [b])}, lambda a, b: a):
        updates = updated(container)
        np.testing.assert_allclose(np.stack(updates), np.stack(expected)[: len(updates)], rtol=1e-5)
