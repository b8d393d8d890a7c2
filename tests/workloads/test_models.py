import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from workloads import registry
from workloads.losses import softmax_cross_entropy
from workloads.workload import Model

CLASSES = 11


class Case(NamedTuple):
    """A row of the registry with small options, and how many parameters it says it then has."""

    model: str
    options: dict[str, Any]
    inputs: np.ndarray
    parameters: int


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


def tokens(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, CLASSES, shape, np.int32)


CASES = [
    Case("fully_connected", {"widths": [16]}, images(6, 8, 8, 1), 65 * 16 + 17 * CLASSES),
    Case(
        "simple_cnn",
        {"channels": [4, 6], "width": 8},
        images(6, 8, 8, 1),
        10 * 4 + 37 * 6 + (2 * 2 * 6 + 1) * 8 + 9 * CLASSES,
    ),
    Case(
        "simple_cnn",
        {"channels": [4], "width": 8},
        images(6, 7, 9, 3),
        28 * 4 + (3 * 4 * 4 + 1) * 8 + 9 * CLASSES,
    ),
    Case(
        "transformer",
        {"layers": 2, "d_model": 8, "heads": 2},
        tokens(6, 5),
        (CLASSES + 5) * 8 + 2 * (12 * 8**2 + 2 * 8) + 8,
    ),
    Case("lstm", {"d_model": 8}, tokens(6, 5), CLASSES * 8 + 4 * 8 * (2 * 8 + 1) + 9 * CLASSES),
]
every_case = pytest.mark.parametrize("index", range(len(CASES)), ids=[case.model for case in CASES])


class Built(NamedTuple):
    """A case, its network, compiled, and initial parameters."""

    case: Case
    init: Callable[[Any], Any]
    apply: Callable[[Any, Any], Any]
    loss: Callable[[Any], Any]
    params: Any


def logits_of(model: Model, params: Any, inputs: Any) -> Any:
    """What the network gives in an evaluation."""
    return model.apply(params, (), inputs, None, False)[0]


@functools.cache
def build(index: int) -> Built:
    case = CASES[index]
    model = registry.MODELS[case.model](classes=CLASSES, **case.options)
    init = jax.jit(lambda key: model.init(key, case.inputs[:1])[0])
    # Labels that inputs decide: of images their index, of tokens the token itself.
    labels = case.inputs if case.inputs.dtype == np.int32 else np.arange(len(case.inputs), dtype=np.int32)

    def loss(params: Any) -> Any:
        return jnp.mean(softmax_cross_entropy(logits_of(model, params, case.inputs), labels))

    return Built(case, init, jax.jit(functools.partial(logits_of, model)), loss, init(jax.random.key(0)))


def test_every_network_has_a_case() -> None:
    assert {case.model for case in CASES} == set(registry.MODELS) - {"quadratic"}  # which gives losses, not logits


@every_case
def test_logits_and_number_of_parameters(index: int) -> None:
    case, _, apply, _, params = build(index)
    logits = apply(params, case.inputs)
    shape = (case.inputs.shape if case.inputs.dtype == np.int32 else case.inputs.shape[:1]) + (CLASSES,)
    assert (logits.shape, logits.dtype) == (shape, np.float32)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == case.parameters
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}
    assert np.std(logits) < 3  # a fresh network is not sure of anything


@every_case
def test_initial_parameters_depend_on_the_key_alone(index: int) -> None:
    case, init, _, _, params = build(index)
    model = registry.MODELS[case.model](classes=CLASSES, **case.options)
    again, _ = jax.jit(model.init)(jax.random.key(0), case.inputs)
    jax.tree.map(np.testing.assert_array_equal, again, params)
    other = init(jax.random.key(1))
    assert not all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (other, params)), strict=True))


@every_case
def test_training_learns_and_a_compiled_loop_changes_nothing(index: int) -> None:
    case, _, _, loss, params = build(index)
    rate = 0.5 if case.inputs.dtype == np.int32 else 0.1

    @jax.jit
    def step(params: Any) -> tuple[Any, Any, Any]:
        value, gradient = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradient), value, gradient

    looped = jax.jit(lambda params: lax.fori_loop(0, 20, lambda _, p: step(p)[0], params))(params)
    alone, first, gradient = step(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.isfinite(leaf).all() and np.any(leaf != 0), path
    for _ in range(19):
        alone, _, _ = step(alone)
    assert step(looped)[1] < 0.9 * first
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), looped, alone)


@pytest.mark.parametrize("model", ["transformer", "lstm"])
def test_logits_depend_on_no_later_token(model: str) -> None:
    case, _, apply, _, params = build([case.model for case in CASES].index(model))
    before = apply(params, case.inputs)
    for at in range(case.inputs.shape[1]):
        changed = case.inputs.copy()
        changed[:, at] = (changed[:, at] + 1) % CLASSES
        after = apply(params, changed)
        np.testing.assert_allclose(after[:, :at], before[:, :at], rtol=0, atol=1e-6)
        # All later ones do change: the network remembers.
        assert np.all(np.max(np.abs(after - before)[:, at:], axis=(0, 2)) > 1e-5)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("simple_cnn", {"channels": [], "width": 8}),
        ("simple_cnn", {"channels": "88", "width": 8}),
        ("simple_cnn", {"channels": [8, 0], "width": 8}),
        ("simple_cnn", {"channels": 8, "width": 8}),
        ("simple_cnn", {"channels": [8], "width": 0}),
        ("simple_cnn", {"channels": [8], "width": 8.0}),
        ("transformer", {"layers": 0, "d_model": 8, "heads": 2}),
        ("transformer", {"layers": 1, "d_model": "8", "heads": 2}),
        ("transformer", {"layers": 1, "d_model": 8, "heads": -2}),
        ("transformer", {"layers": 1, "d_model": 8, "heads": 3}),
        ("lstm", {"d_model": 0}),
        ("lstm", {"d_model": None}),
    ],
)
def test_senseless_options_are_refused_in_one_line(model: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as refused:
        registry.MODELS[model](classes=CLASSES, **options)
    assert any(name in str(refused.value) for name in options)


def test_images_too_small_to_pool_are_refused() -> None:
    model = registry.MODELS["simple_cnn"](classes=CLASSES, channels=[4, 4, 4, 4], width=8)
    with pytest.raises(ValueError, match="1×1"):
        jax.eval_shape(model.init, jax.random.key(0), images(1, 8, 8, 1))


def test_simple_cnn_is_the_plain_composition_of_flax_layers() -> None:
    case, _, apply, _, params = build([case.model for case in CASES].index("simple_cnn"))
    layers = params["params"]

    x = case.inputs
    for name, features in zip(("Conv_0", "Conv_1"), case.options["channels"], strict=True):
        x = nn.Conv(features, (3, 3)).apply({"params": layers[name]}, x)
        x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
    x = nn.relu(nn.Dense(8).apply({"params": layers["Dense_0"]}, x.reshape(len(x), -1)))
    logits = nn.Dense(CLASSES).apply({"params": layers["Dense_1"]}, x)
    np.testing.assert_allclose(apply(params, case.inputs), logits, rtol=1e-4, atol=1e-5)
