import functools
import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from workloads import registry
from workloads.losses import product, softmax_cross_entropy
from workloads.models.options import SIZES
from workloads.workload import Model

CLASSES = 11
# LLVM optimizes nothing, which halves the time to compile. Networks are the same.
compiled = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)


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
        "transformer_decoder",
        {"layers": 2, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 0.1},
        tokens(6, 5),
        CLASSES * 8 + 2 * (4 * 8**2 + 2 * 8 * 16 + 16 + 5 * 8) + 2 * 8,
    ),
    Case(
        "resnet_basic",
        {"blocks": [1, 2], "width": 4, "norm": "group"},
        images(6, 8, 8, 3),
        27 * 4 + 2 * (8 + 36 * 4) + (8 + 36 * 8 + 16 + 72 * 8) + 2 * (16 + 72 * 8) + 16 + 9 * CLASSES,
    ),
    Case(
        "vgg",
        {"stages": [[4], [6, 8]], "widths": [16], "dropout": 0.1},
        images(6, 8, 8, 3),
        28 * 4 + 37 * 6 + 55 * 8 + (2 * 2 * 8 + 1) * 16 + 17 * CLASSES,
    ),
    Case(
        "lstm_projected",
        {"d_model": 8, "width": 12, "dropout": 0.1},
        tokens(6, 5),
        CLASSES * 8 + 4 * 12 * (2 * 8 + 1) + 12 * 8,
    ),
    Case(
        "transformer_rotary",
        {"layers": 2, "d_model": 8, "heads": 2, "kv": 4, "d_ff": 16, "gated": True, "tied": False},
        tokens(6, 5),
        2 * CLASSES * 8 + 2 * (4 * 8**2 + 3 * 8 * 16 + 2 * 8) + 8,
    ),
    Case(
        "transformer_rotary",
        {"layers": 2, "d_model": 8, "heads": 4, "kv": 4, "d_ff": 16, "gated": False, "tied": True}
        | {"key_heads": 2, "window": 3, "attention_block": 2},
        tokens(6, 5),
        CLASSES * 8 + 2 * (2 * 8 * (4 + 2) * 4 + 2 * 8 * 16 + 2 * 8) + 8,
    ),
    # The forms of Shallue et al. 2018, as far as they are options.
    Case(
        "simple_cnn",
        {"channels": [4, 6], "width": 8, "kernel": 5, "dropout": 0.4},
        images(6, 8, 8, 1),
        26 * 4 + 101 * 6 + (2 * 2 * 6 + 1) * 8 + 9 * CLASSES,
    ),
    Case(
        "resnet",
        {"blocks": [2], "width": 4, "norm": "ghost", "group": 3, "form": "pre_activated"},
        images(6, 16, 16, 3),
        49 * 3 * 4 + 2 * (13 * 4**2 + 4 * 4) + (4 + 16) * 4 + 2 * (4 + 16) + 4 * 16 + 2 * 16 + 17 * CLASSES,
    ),
    Case(
        "transformer_decoder",
        {"layers": 2, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 0.1, "read_out": "untied"},
        tokens(6, 5),
        2 * CLASSES * 8 + 2 * (4 * 8**2 + 2 * 8 * 16 + 16 + 5 * 8) + 2 * 8,
    ),
    Case(
        "lstm_projected",
        {"d_model": 8, "width": 12, "dropout": 0.1, "read_out": "untied_bias"},
        tokens(6, 5),
        2 * CLASSES * 8 + CLASSES + 4 * 12 * (2 * 8 + 1) + 12 * 8,
    ),
]
every_case = pytest.mark.parametrize("index", range(len(CASES)), ids=[case.model for case in CASES])
# A layer, a stack of layers and a recurrence. Compiling the other cases is slow.
QUICK = {"fully_connected", "transformer_rotary", "lstm"}
TRAINED = QUICK | {"vgg", "resnet_basic"}  # gradients of the others are compared in test_reference.py


def few_cases(models: Collection[str]) -> Any:
    """Returns the parametrization over all cases; only the first case of each of the given models is not slow."""
    first = {next(i for i, case in enumerate(CASES) if case.model == model) for model in models}
    marks = {i: () if i in first else pytest.mark.slow for i in range(len(CASES))}
    return pytest.mark.parametrize(
        "index", [pytest.param(i, id=case.model, marks=marks[i]) for i, case in enumerate(CASES)]
    )


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
    init = compiled(lambda key: model.init(key, case.inputs[:1]))
    # Labels that inputs decide: of images their index, of tokens the token itself.
    labels = case.inputs if case.inputs.dtype == np.int32 else np.arange(len(case.inputs), dtype=np.int32)
    keys = jax.random.split(jax.random.key(2), len(labels))

    def loss(params: Any, state: Any) -> Any:
        outputs, state = model.apply(params, state, case.inputs, keys, True)
        return jnp.mean(softmax_cross_entropy(product(outputs), labels)), state

    params, state = init(jax.random.key(0))
    return Built(case, init, compiled(functools.partial(logits_of, model, state)), loss, params, state)


def test_every_network_has_a_case() -> None:
    families = set(registry.MODELS) - set(SIZES)
    assert {case.model for case in CASES} == families - {"quadratic"}  # which gives losses, not logits


@every_case
def test_logits_and_number_of_parameters(index: int) -> None:
    case = CASES[index]
    model = registry.MODELS[case.model](classes=CLASSES, **case.options)
    params, state = jax.eval_shape(model.init, jax.random.key(0), case.inputs[:1])
    logits = jax.eval_shape(functools.partial(logits_of, model), state, params, case.inputs)
    shape = (case.inputs.shape if case.inputs.dtype == np.int32 else case.inputs.shape[:1]) + (CLASSES,)
    assert (logits.shape, logits.dtype) == (shape, np.float32)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == case.parameters
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}


@few_cases(TRAINED)
def test_a_fresh_network_is_not_sure_of_anything(index: int) -> None:
    case, _, apply, _, params, _ = build(index)
    assert np.std(apply(params, case.inputs)) < 3


@few_cases(QUICK)
def test_initial_parameters_depend_on_the_key_alone(index: int) -> None:
    case, init, _, _, params, state = build(index)
    model = registry.MODELS[case.model](classes=CLASSES, **case.options)
    again = compiled(model.init)(jax.random.key(0), case.inputs)
    jax.tree.map(np.testing.assert_array_equal, again, (params, state))
    other, _ = init(jax.random.key(1))
    assert not all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (other, params)), strict=True))


def step_of(index: int) -> Callable[[Any, None], Any]:
    """Returns a step of gradient descent, as ``lax.scan`` takes it, with its loss and gradient."""
    case, _, _, loss, _, _ = build(index)
    rate = 0.5 if case.inputs.dtype == np.int32 else 0.1

    def step(carry: Any, _: None) -> Any:
        params, state = carry
        (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(params, state)
        return (jax.tree.map(lambda p, g: p - rate * g, params, gradient), state), (value, gradient)

    return step


@few_cases(TRAINED)
def test_training_learns(index: int) -> None:
    _, _, _, _, params, state = build(index)
    train = compiled(lambda carry: lax.scan(step_of(index), carry, length=21))
    _, (losses, gradients) = train((params, state))
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.isfinite(leaf).all() and np.any(leaf[-1] != 0), path
    assert losses[-1] < 0.9 * losses[0]


@few_cases({"fully_connected", "lstm"})
def test_a_compiled_loop_changes_nothing(index: int) -> None:
    _, _, _, _, params, state = build(index)
    looped, _ = compiled(lambda carry: lax.scan(step_of(index), carry, length=20))((params, state))
    step, alone = compiled(lambda carry: step_of(index)(carry, None)[0]), (params, state)
    for _ in range(20):
        alone = step(alone)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), looped, alone)


@pytest.mark.parametrize(
    "model",
    [
        "transformer_rotary",
        "lstm",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("transformer", "transformer_decoder")),
        "lstm_projected",
    ],
)
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


_ROTARY = {"layers": 1, "d_model": 8, "heads": 2, "kv": 4, "d_ff": 16, "gated": False, "tied": True}
_DECODER = {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 0.1}


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
        ("transformer_rotary", _ROTARY | {"kv": 3}),
        ("transformer_rotary", _ROTARY | {"gated": 1}),
        ("transformer_rotary", _ROTARY | {"key_heads": 3}),
        ("transformer_rotary", _ROTARY | {"window": -1}),
        ("transformer_rotary", _ROTARY | {"attention_block": True}),
        ("transformer_decoder", _DECODER | {"attention_block": 1.5}),
        ("transformer_decoder", {"layers": 0, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 0.1}),
        ("transformer_decoder", {"layers": 1, "d_model": 8, "heads": 3, "d_ff": 16, "dropout": 0.1}),
        ("transformer_decoder", {"layers": 1, "d_model": 8, "heads": 2, "d_ff": "16", "dropout": 0.1}),
        ("transformer_decoder", {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 1}),
        ("transformer_decoder", {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": "0.1"}),
        ("resnet_basic", {"blocks": [], "width": 8, "norm": "none"}),
        ("resnet_basic", {"blocks": [1], "width": 0, "norm": "none"}),
        ("resnet_basic", {"blocks": [1], "width": 8, "norm": "ghost"}),
        ("vgg", {"stages": [8], "widths": [8], "dropout": 0.5}),
        ("vgg", {"stages": [[]], "widths": [8], "dropout": 0.5}),
        ("vgg", {"stages": [[8]], "widths": "8", "dropout": 0.5}),
        ("vgg", {"stages": [[8]], "widths": [8], "dropout": 1.0}),
        ("lstm_projected", {"d_model": 8, "width": 0, "dropout": 0.0}),
        ("lstm_projected", {"d_model": 8, "width": 8, "dropout": -0.1}),
        ("lstm_projected", {"d_model": 8, "width": 8, "dropout": 0.0, "read_out": "bias"}),
        ("transformer_decoder", _DECODER | {"read_out": True}),
        ("simple_cnn", {"channels": [8], "width": 8, "kernel": 0}),
        ("simple_cnn", {"channels": [8], "width": 8, "dropout": 1.0}),
        ("resnet", {"blocks": [2], "width": 8, "norm": "group", "group": 1, "form": "v2"}),
        ("transformer_wide", {"read_out": "none"}),
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


@pytest.mark.parametrize("norm", [pytest.param("ghost", marks=pytest.mark.slow), "group"])
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


MNIST, CIFAR, IMAGENET, TEXT = (28, 28, 1), (32, 32, 3), (224, 224, 3), (256,)
V = 32_768


def fully_connected_parameters(*widths: int) -> int:
    layers = (784, *widths, 10)
    return sum((i + 1) * o for i, o in itertools.pairwise(layers))


def decoder_parameters(layers: int, D: int, F: int) -> int:
    norm, attention, feed_forward = 2 * D, 4 * D * D, D * F + F + F * D + D
    return V * D + layers * (norm + attention + norm + feed_forward) + norm


# Parameters of each named model, by sums over its matrices; numbers are those that others publish.
NAMED: dict[str, tuple[tuple[int, ...], int, int]] = {
    "fc_1024": (MNIST, 10, fully_connected_parameters(1024)),
    "fc_1024_1024": (MNIST, 10, fully_connected_parameters(1024, 1024)),
    "fc_64_64_64": (MNIST, 10, fully_connected_parameters(64, 64, 64)),
    "fc_128_128_128": (MNIST, 10, fully_connected_parameters(128, 128, 128)),
    "fc_256_256_256": (MNIST, 10, fully_connected_parameters(256, 256, 256)),
    "fc_512_512_512": (MNIST, 10, fully_connected_parameters(512, 512, 512)),
    "fc_1024_1024_1024": (MNIST, 10, fully_connected_parameters(1024, 1024, 1024)),
    "fc_2048_2048_2048": (MNIST, 10, fully_connected_parameters(2048, 2048, 2048)),
    "simple_cnn_narrow": (MNIST, 10, 10 * 16 + 145 * 32 + (49 * 32 + 1) * 512 + 513 * 10),
    "simple_cnn_base": (MNIST, 10, 10 * 32 + 289 * 64 + (49 * 64 + 1) * 1024 + 1025 * 10),
    "simple_cnn_wide": (MNIST, 10, 10 * 64 + 577 * 128 + (49 * 128 + 1) * 2048 + 2049 * 10),
    "resnet_8": (
        CIFAR,
        10,
        28 * 16 + 2 * 145 * 16 + (145 + 289) * 32 + (289 + 577) * 64 + 65 * 10,
    ),
    "resnet_50": (IMAGENET, 1000, 25_557_032),
    "vgg_11": (IMAGENET, 1000, 132_863_336),
    "lstm_base": (TEXT, V, V * 512 + 4 * 2048 * (512 + 512 + 1) + 2048 * 512),
    "transformer_base": (TEXT, V, decoder_parameters(6, 512, 2048)),
    "transformer_narrow_and_shallow": (TEXT, V, decoder_parameters(2, 256, 1024)),
    "transformer_shallow": (TEXT, V, decoder_parameters(2, 512, 2048)),
    "transformer_wide": (TEXT, V, decoder_parameters(6, 1024, 4096)),
}


# The options that a family adds, in the forms of Shallue et al. 2018, and the parameters that these add by name.
FORMS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "simple_cnn": (
        {"kernel": 5, "dropout": 0.4},
        {
            "simple_cnn_narrow": 16 * (16 + 16 * 32),
            "simple_cnn_base": 16 * (32 + 32 * 64),
            "simple_cnn_wide": 16 * (64 + 64 * 128),
        },
    ),
    "resnet": ({"form": "pre_activated"}, {"resnet_50": 25_549_352 - 25_557_032}),
    "transformer_decoder": (
        {"read_out": "untied"},
        {
            "transformer_base": V * 512,
            "transformer_narrow_and_shallow": V * 256,
            "transformer_shallow": V * 512,
            "transformer_wide": V * 1024,
        },
    ),
    "lstm_projected": ({"read_out": "untied_bias"}, {"lstm_base": V * 512 + V}),
}


def small_names(names: Iterable[str]) -> list[Any]:
    """Returns cases of models by name; only those of 50 layers are slow."""
    return [pytest.param(name, marks=pytest.mark.slow if name == "resnet_50" else ()) for name in names]


@pytest.mark.parametrize("name", small_names(name for _, (_, added) in FORMS.items() for name in added))
def test_forms_of_the_paper_have_the_expected_parameters(name: str) -> None:
    shape, classes, parameters = NAMED[name]
    options, added = FORMS[SIZES[name][0]]
    assert set(registry.model_options(name)) - {"attention_block"} == set(options)
    model = registry.MODELS[name](classes=classes, **options)
    inputs = jax.ShapeDtypeStruct((1, *shape), np.int32 if shape == TEXT else np.float32)
    params, _ = jax.eval_shape(model.init, jax.random.key(0), inputs)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameters + added[name]


@pytest.mark.parametrize("name", small_names(SIZES))
def test_models_by_name_have_the_parameters_of_their_matrices(name: str) -> None:
    shape, classes, parameters = NAMED[name]
    model = registry.MODELS[name](classes=classes)
    fixed = SIZES[name][1]
    assert set(registry.model_options(name)) == set(registry.model_options(SIZES[name][0])) - set(fixed)
    assert registry.model_options(name) == tuple(registry.model_defaults(name))
    inputs = jax.ShapeDtypeStruct((1, *shape), np.int32 if shape == TEXT else np.float32)
    params, state = jax.eval_shape(model.init, jax.random.key(0), inputs)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == parameters
    outputs, _ = jax.eval_shape(functools.partial(model.apply, keys=None, train=False), params, state, inputs)
    if shape == TEXT:
        assert (outputs.features.shape[:2], outputs.kernel.shape[1]) == ((1, 256), V)
    else:
        assert (outputs.shape, outputs.dtype) == ((1, classes), np.float32)


def test_base_transformer_has_the_published_parameters() -> None:
    assert decoder_parameters(6, 512, 2048) == 35_680_256
    assert NAMED["resnet_8"][2] == 75_050


def test_lstm_projected_is_the_recurrence_in_plain_numpy() -> None:
    """Of Sak et al. (2014) with the forget gate's bias of 1, in float64, from the definition."""
    case, _, apply, _, params, _ = build([case.model for case in CASES].index("lstm_projected"))
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)["params"]
    embedding, W = p["Embed_0"]["embedding"], case.options["width"]

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    memory, h = np.zeros((6, W)), np.zeros((6, 8))
    for t in range(case.inputs.shape[1]):
        x = embedding[case.inputs[:, t]] * np.sqrt(8)
        gates = x @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"] + h @ p["recurrent"]
        write, keep, new, show = (gates[:, i * W : (i + 1) * W] for i in range(4))
        memory = sigmoid(keep + 1) * memory + sigmoid(write) * np.tanh(new)
        h = (sigmoid(show) * np.tanh(memory)) @ p["projection"]
        np.testing.assert_allclose(apply(params, case.inputs)[:, t], h @ embedding.T, rtol=1e-4, atol=1e-5)


def test_resnet_basic_shortcuts_pad_new_channels_with_zeros() -> None:
    """With the second convolutions at zero, as fresh networks without norms have them, blocks are their shortcuts."""
    x = images(6, 8, 8, 3)
    model = registry.MODELS["resnet_basic"](classes=CLASSES, blocks=[1, 2], width=4, norm="none")
    params, state = compiled(model.init)(jax.random.key(0), x)
    layers = params["params"]
    assert not np.any(layers["Conv_2"]["kernel"]) and np.any(layers["Conv_1"]["kernel"])
    x_BxHxWx4 = nn.relu(nn.Conv(4, (3, 3)).apply({"params": layers["Conv_0"]}, x))
    x_Bx4 = np.asarray(x_BxHxWx4)[:, ::2, ::2].mean(axis=(1, 2))
    logits = nn.Dense(CLASSES).apply({"params": layers["Dense_0"]}, np.pad(x_Bx4, ((0, 0), (0, 4))))
    ours = compiled(functools.partial(logits_of, model, state))(params, x)
    np.testing.assert_allclose(ours, logits, rtol=1e-4, atol=1e-5)


@few_cases({"fully_connected", "transformer_rotary"})
def test_bfloat16_gives_logits_of_float32(index: int) -> None:
    case, _, apply, _, params, _ = build(index)
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    inputs = case.inputs if case.inputs.dtype == np.int32 else jnp.asarray(case.inputs, jnp.bfloat16)
    logits, expected = apply(rounded, inputs), apply(params, case.inputs)
    assert logits.dtype == np.float32
    is_rounded = np.array_equal(logits, logits.astype(jnp.bfloat16).astype(np.float32))
    assert is_rounded == (case.model == "transformer_rotary")  # as its docstring says
    np.testing.assert_allclose(logits, expected, atol=0.1)
