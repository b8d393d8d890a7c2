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
from workloads.losses import product, softmax_cross_entropy
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
    Case(
        "resnet",
        {"blocks": [2], "width": 4, "norm": "ghost", "group": 3},
        images(6, 16, 16, 3),
        (49 * 3 + 2) * 4 + 2 * (13 * 4**2 + 12 * 4) + (4 + 16) * 4 + 4 * 16 + 8 * 4 + 17 * CLASSES,
    ),
    Case(
        "transformer_base",
        {"layers": 2, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 0.1},
        tokens(6, 5),
        CLASSES * 8 + 2 * (4 * 8**2 + 2 * 8 * 16 + 16 + 5 * 8) + 2 * 8,
    ),
]
every_case = pytest.mark.parametrize("index", range(len(CASES)), ids=[case.model for case in CASES])


class Built(NamedTuple):
    """A case, its network, compiled, and initial parameters and state."""

    case: Case
    init: Callable[[Any], Any]
    apply: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any], Any]
    params: Any
    state: Any


def logits_of(model: Model, state: Any, params: Any, inputs: Any) -> Any:
    """What the network gives in an evaluation."""
    return product(model.apply(params, state, inputs, None, False)[0])


@functools.cache
def build(index: int) -> Built:
    case = CASES[index]
    model = registry.MODELS[case.model](classes=CLASSES, **case.options)
    init = jax.jit(lambda key: model.init(key, case.inputs[:1]))
    # Labels that inputs decide: of images their index, of tokens the token itself.
    labels = case.inputs if case.inputs.dtype == np.int32 else np.arange(len(case.inputs), dtype=np.int32)
    keys = jax.random.split(jax.random.key(2), len(labels))

    def loss(params: Any, state: Any) -> Any:
        outputs, state = model.apply(params, state, case.inputs, keys, True)
        return jnp.mean(softmax_cross_entropy(product(outputs), labels)), state

    params, state = init(jax.random.key(0))
    return Built(case, init, jax.jit(functools.partial(logits_of, model, state)), loss, params, state)


def test_every_network_has_a_case() -> None:
    assert {case.model for case in CASES} == set(registry.MODELS) - {"quadratic"}  # which gives losses, not logits


@every_case
def test_logits_and_number_of_parameters(index: int) -> None:
    case, _, apply, _, params, _ = build(index)
    logits = apply(params, case.inputs)
    shape = (case.inputs.shape if case.inputs.dtype == np.int32 else case.inputs.shape[:1]) + (CLASSES,)
    assert (logits.shape, logits.dtype) == (shape, np.float32)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == case.parameters
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}
    assert np.std(logits) < 3  # a fresh network is not sure of anything


@every_case
def test_initial_parameters_depend_on_the_key_alone(index: int) -> None:
    case, init, _, _, params, state = build(index)
    model = registry.MODELS[case.model](classes=CLASSES, **case.options)
    again = jax.jit(model.init)(jax.random.key(0), case.inputs)
    jax.tree.map(np.testing.assert_array_equal, again, (params, state))
    other, _ = init(jax.random.key(1))
    assert not all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (other, params)), strict=True))


@every_case
def test_training_learns_and_a_compiled_loop_changes_nothing(index: int) -> None:
    case, _, _, loss, params, state = build(index)
    rate = 0.5 if case.inputs.dtype == np.int32 else 0.1

    @jax.jit
    def step(carry: Any) -> tuple[Any, Any, Any]:
        params, state = carry
        (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(params, state)
        return (jax.tree.map(lambda p, g: p - rate * g, params, gradient), state), value, gradient

    looped = jax.jit(lambda carry: lax.fori_loop(0, 20, lambda _, c: step(c)[0], carry))((params, state))
    alone, first, _ = step((params, state))
    for _ in range(19):
        alone, _, gradient = step(alone)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.isfinite(leaf).all() and np.any(leaf != 0), path
    assert step(looped)[1] < 0.9 * first
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), looped, alone)


@pytest.mark.parametrize("model", ["transformer", "transformer_base", "lstm"])
def test_logits_depend_on_no_later_token(model: str) -> None:
    case, _, apply, _, params, _ = build([case.model for case in CASES].index(model))
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
        ("resnet", {"blocks": [], "width": 8, "norm": "ghost", "group": 8}),
        ("resnet", {"blocks": "2", "width": 8, "norm": "ghost", "group": 8}),
        ("resnet", {"blocks": [2, 0], "width": 8, "norm": "ghost", "group": 8}),
        ("resnet", {"blocks": [2], "width": 8.0, "norm": "ghost", "group": 8}),
        ("resnet", {"blocks": [2], "width": 8, "norm": "batch", "group": 8}),
        ("resnet", {"blocks": [2], "width": 8, "norm": "ghost", "group": 1}),
        ("resnet", {"blocks": [2], "width": 8, "norm": "ghost", "group": None}),
        ("resnet", {"blocks": [2], "width": 8, "norm": "group", "group": 32}),
        ("transformer_base", {"layers": 0, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 0.1}),
        ("transformer_base", {"layers": 1, "d_model": 8, "heads": 3, "d_ff": 16, "dropout": 0.1}),
        ("transformer_base", {"layers": 1, "d_model": 8, "heads": 2, "d_ff": "16", "dropout": 0.1}),
        ("transformer_base", {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 1}),
        ("transformer_base", {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": "0.1"}),
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
    case, _, apply, _, params, _ = build([case.model for case in CASES].index("simple_cnn"))
    layers = params["params"]

    x = case.inputs
    for name, features in zip(("Conv_0", "Conv_1"), case.options["channels"], strict=True):
        x = nn.Conv(features, (3, 3)).apply({"params": layers[name]}, x)
        x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
    x = nn.relu(nn.Dense(8).apply({"params": layers["Dense_0"]}, x.reshape(len(x), -1)))
    logits = nn.Dense(CLASSES).apply({"params": layers["Dense_1"]}, x)
    np.testing.assert_allclose(apply(params, case.inputs), logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["ghost", "group"])
def test_resnet_50_has_the_parameters_of_he_et_al(norm: str) -> None:
    group = 32 if norm == "ghost" else 1
    model = registry.MODELS["resnet"](classes=1000, blocks=[3, 4, 6, 3], width=64, norm=norm, group=group)
    image = jax.ShapeDtypeStruct((1, 224, 224, 3), np.float32)
    params, state = jax.eval_shape(model.init, jax.random.key(0), image)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 25_557_032
    # A mean and a variance for each of the channels that are normalized.
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == (53_120 if norm == "ghost" else 0)
    assert {leaf.dtype for leaf in jax.tree.leaves((params, state))} == {np.dtype("float32")}
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 64))
    images = jax.ShapeDtypeStruct((64, 224, 224, 3), np.float32)
    logits, new = jax.eval_shape(functools.partial(model.apply, train=True), params, state, images, keys)
    assert (logits.shape, logits.dtype) == ((64, 1000), np.float32)
    assert jax.tree.map(lambda leaf: leaf.shape, new) == jax.tree.map(lambda leaf: leaf.shape, state)
    assert model.group == group


def test_the_base_transformer_has_the_parameters_of_its_matrices() -> None:
    V, D, F, layers, T = 32_768, 512, 2048, 6, 256
    model = registry.MODELS["transformer_base"](classes=V, layers=layers, d_model=D, heads=8, d_ff=F, dropout=0.1)
    tokens = jax.ShapeDtypeStruct((1, T), np.int32)
    params, state = jax.eval_shape(model.init, jax.random.key(0), tokens)
    norm, attention, feed_forward = 2 * D, 4 * D * D, D * F + F + F * D + D
    assert (
        sum(leaf.size for leaf in jax.tree.leaves(params))
        == (V * D + layers * (norm + attention + norm + feed_forward) + norm)
        == 35_680_256
    )
    outputs, _ = jax.eval_shape(functools.partial(model.apply, keys=None, train=False), params, state, tokens)
    assert (outputs.features.shape, outputs.kernel.shape) == ((1, T, D), (D, V))


@every_case
def test_bfloat16_gives_logits_of_float32(index: int) -> None:
    case, _, apply, _, params, _ = build(index)
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    inputs = case.inputs if case.inputs.dtype == np.int32 else jnp.asarray(case.inputs, jnp.bfloat16)
    logits, expected = apply(rounded, inputs), apply(params, case.inputs)
    assert logits.dtype == np.float32
    assert not np.array_equal(logits, logits.astype(jnp.bfloat16).astype(np.float32))
    np.testing.assert_allclose(logits, expected, atol=0.1)
