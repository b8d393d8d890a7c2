"""Networks of Shallue et al. 2018 against NumPy in float64: logits, and gradients against its central differences."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.workloads import reference
from workloads import registry
from workloads.losses import product, softmax_cross_entropy
from workloads.models.options import READ_OUTS, SIZES

CLASSES = 11
DIRECTIONS = 8
GROUP = 4


class Case(NamedTuple):
    """A network, and its definition in NumPy.

    Attributes:
      model, options: row of the registry.
      inputs: a batch.
      logits: ``(params, inputs) -> float64[B, ..., classes]``.
      train: whether to call the model as in training.
    """

    model: str
    options: dict[str, Any]
    inputs: np.ndarray
    logits: Callable[[Any, np.ndarray], np.ndarray]
    train: bool = False


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


TOKENS = np.random.default_rng(0).integers(0, CLASSES, (3, 6), np.int32)
RESNET: dict[str, Any] = {"width": 4, "norm": "ghost", "group": GROUP, "form": "pre_activated"}
ROTARY = {"layers": 2, "d_model": 8, "heads": 4, "kv": 4, "d_ff": 16}
DECODER = {"layers": 2, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 0.0}


def keys(batch: int) -> Any:
    return jax.random.split(jax.random.key(2), batch)


def dropped_cnn(params: Any, inputs: np.ndarray) -> np.ndarray:
    """With the values that the keys of the batch drop."""
    width = params["Dense_0"]["bias"].size
    kept = [jax.random.bernoulli(jax.random.fold_in(key, 0), 0.6, (width,)) for key in keys(len(inputs))]
    return reference.simple_cnn(params, inputs, np.asarray(kept) / 0.6)


CASES = {
    "simple_cnn, 5×5": Case(
        "simple_cnn", {"channels": [3, 4], "width": 8, "kernel": 5}, images(4, 8, 9, 2), reference.simple_cnn
    ),
    "simple_cnn, 3×3": Case("simple_cnn", {"channels": [3, 4], "width": 8}, images(4, 8, 9, 2), reference.simple_cnn),
    "simple_cnn, dropout": Case(
        "simple_cnn",
        {"channels": [3, 4], "width": 8, "kernel": 5, "dropout": 0.4},
        images(4, 8, 9, 2),
        dropped_cnn,
        train=True,
    ),
    **{
        f"resnet, pre-activated, {blocks}": Case(
            "resnet",
            RESNET | {"blocks": blocks},
            images(8, 16, 16, 3),
            functools.partial(reference.pre_activated_resnet, blocks=blocks, group=GROUP),
            train=True,
        )
        for blocks in ([1], [2, 1])
    },
    **{
        f"transformer_decoder, {form}": Case(
            "transformer_decoder",
            DECODER | {"read_out": form},
            TOKENS,
            functools.partial(reference.transformer_decoder, heads=2),
        )
        for form in READ_OUTS
    },
    "transformer_decoder, blocks": Case(
        "transformer_decoder",
        DECODER | {"attention_block": 4},
        TOKENS,
        functools.partial(reference.transformer_decoder, heads=2),
    ),
    **{
        f"transformer, {block}": Case(
            "transformer",
            {"layers": 2, "d_model": 8, "heads": 2, "attention_block": block},
            TOKENS,
            functools.partial(reference.transformer, heads=2),
        )
        for block in (0, 4)
    },
    **{
        f"transformer_rotary, {options}": Case(
            "transformer_rotary",
            ROTARY | {"gated": gated, "tied": tied} | options,
            TOKENS,
            functools.partial(reference.transformer_rotary, window=options.get("window", 0), gated=gated, tied=tied),
        )
        for gated, tied, options in (
            (False, True, {}),
            (True, False, {"attention_block": 4}),
            (True, False, {"key_heads": 2, "window": 3}),
            (False, False, {"key_heads": 1, "attention_block": 2}),
            (True, True, {"key_heads": 2, "window": 3, "attention_block": 2}),
        )
    },
    **{
        f"lstm_projected, {form}": Case(
            "lstm_projected",
            {"d_model": 6, "width": 10, "dropout": 0.0, "read_out": form},
            TOKENS,
            reference.lstm_projected,
        )
        for form in READ_OUTS
    },
}


def varied(params: Any) -> Any:
    """Initial parameters with noise, so that no bias is 0 and no scale is 1."""
    random = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: np.asarray(leaf + 0.1 * random.normal(size=leaf.shape), np.float32), params)


def wide(params: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)["params"]


# Each form of a layer once. The other cases are slow.
QUICK = {
    "simple_cnn, 5×5",
    "simple_cnn, dropout",
    "resnet, pre-activated, [1]",
    "transformer_decoder, untied_bias",
    "transformer_decoder, blocks",
    "transformer, 0",
    "transformer_rotary, {}",
    "transformer_rotary, {'key_heads': 2, 'window': 3, 'attention_block': 2}",
    "lstm_projected, untied",
}


def test_quick_cases_are_among_all() -> None:
    assert CASES.keys() > QUICK


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES])
def test_logits_and_gradients_are_those_of_the_definition(name: str) -> None:
    case = CASES[name]
    model = registry.MODELS[case.model](classes=CLASSES, **case.options)
    initial, state = jax.jit(model.init)(jax.random.key(0), case.inputs[:1])
    params = varied(initial)
    labels = np.random.default_rng(3).integers(0, CLASSES, case.inputs.shape if case.inputs.ndim == 2 else 8, np.int32)
    labels = labels[: len(case.inputs)]
    of_batch = keys(len(case.inputs)) if case.train else None

    def outputs(params: Any) -> Any:
        return product(model.apply(params, state, case.inputs, of_batch, case.train)[0])

    def loss(params: Any) -> Any:
        return jnp.mean(softmax_cross_entropy(outputs(params), labels))

    inputs = case.inputs if case.inputs.dtype == np.int32 else np.asarray(case.inputs, np.float64)
    logits = case.logits(wide(params), inputs)
    found, gradient = jax.jit(lambda params: (outputs(params), jax.grad(loss)(params)))(params)
    # Programs that are not optimized, as in `make test`, round a little more often.
    np.testing.assert_allclose(found, logits, rtol=0, atol=2e-6 * max(1.0, np.abs(logits).max()))
    random = np.random.default_rng(4)
    for _ in range(DIRECTIONS):
        direction = jax.tree.map(lambda leaf: random.normal(size=leaf.shape), wide(params))
        norm = math.sqrt(sum(float(np.square(leaf).sum()) for leaf in jax.tree.leaves(direction)))

        def moved(step: float, direction: Any = direction, norm: float = norm) -> float:
            there = jax.tree.map(lambda p, d: p + step * d / norm, wide(params), direction)
            return reference.cross_entropy(case.logits(there, inputs), labels)

        numerical = (moved(1e-6) - moved(-1e-6)) / 2e-6
        along = jax.tree.map(lambda g, d: float(np.sum(np.asarray(g, np.float64) * d)), gradient["params"], direction)
        assert sum(jax.tree.leaves(along)) / norm == pytest.approx(numerical, rel=1e-5, abs=1e-5), name


LANGUAGE = [name for name, (family, _) in SIZES.items() if family in ("transformer_decoder", "lstm_projected")]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("transformer_narrow_and_shallow", "untied_bias"),
        *(pytest.param(name, form, marks=pytest.mark.slow) for name in LANGUAGE for form in ("untied", "untied_bias")),
    ],
)
def test_a_new_language_model_predicts_all_tokens_about_equally(name: str, form: str) -> None:
    """Also the token that it has just read, which a tied read-out predicts."""
    vocabulary = 32_768 if form == "untied" else 2_048
    model = registry.MODELS[name](classes=vocabulary, read_out=form)
    tokens = np.random.default_rng(0).integers(0, vocabulary, (2, 17), np.int32)

    @jax.jit
    def loss(key: Any) -> Any:
        params, state = model.init(key, tokens[:, :-1])
        logits = product(model.apply(params, state, tokens[:, :-1], None, False)[0])
        return jnp.mean(softmax_cross_entropy(logits, tokens[:, 1:]))

    assert float(loss(jax.random.key(0))) == pytest.approx(math.log(vocabulary), rel=0.02)
