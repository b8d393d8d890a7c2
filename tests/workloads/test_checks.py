"""Mistakes in a user's own data sets and models: each is one line before anything is compiled."""

import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from results.bad_input import BadInput
from sweeps import overrides, planning
from workloads import checks, losses, packages, registry
from workloads.workload import Dataset, Examples, Model, Splits, shapes_of

CLASSES = 3
Change = Callable[[Any, Any], tuple[Any, Any]]


def splits(change: Change = lambda x, y: (x, y), validation: Change | None = None) -> Splits:
    """Returns 30 training examples and 10 validation examples. The label is the index of the largest input."""
    inputs = np.random.default_rng(0).normal(size=(40, CLASSES)).astype(np.float32)
    labels = np.argmax(inputs, axis=1).astype(np.int32)
    train = Examples(*change(inputs[:30], labels[:30]))
    return Splits(train, Examples(*(validation or change)(inputs[30:], labels[30:])), None)


def dataset(load: Callable[[], Any] = splits, **changes: Any) -> Dataset:
    own = Dataset(
        load,
        lambda: "1",
        train_examples=30,
        evaluation_examples=10,
        classes=CLASSES,
        splits=("train", "validation"),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
    )
    return own._replace(**changes)


def of(change: Change, validation: Change | None = None, **changes: Any) -> Dataset:
    return dataset(lambda: splits(change, validation), **changes)


def with_value(value: object, dtype: str, field: str = "inputs") -> Dataset:
    """Returns a data set with one other input or label."""

    def change(x: Any, y: Any) -> tuple[Any, Any]:
        arrays = {"inputs": x, "labels": y}
        arrays[field] = arrays[field].astype(dtype)
        arrays[field].flat[4] = value
        return arrays["inputs"], arrays["labels"]

    return of(change)


def multi_label(x: Any, y: Any) -> tuple[Any, Any]:
    return x, np.eye(CLASSES, dtype=np.uint8)[y] * 2


SIGMOID: dict[str, Any] = {"loss": losses.sigmoid_cross_entropy, "metrics": losses.MULTI_LABEL}
DATA: dict[str, tuple[Dataset, str]] = {
    "fewer labels": (of(lambda x, y: (x, y[:-5])), "train split of own:data has 30 inputs but 25"),
    "fewer validation labels": (
        of(lambda x, y: (x, y), lambda x, y: (x, y[:-5])),
        "validation split of own:data has 10",
    ),
    "labels from one": (of(lambda x, y: (x, y + 1)), "label 3 is not a class. Labels of 3 classes are 0 to 2"),
    "labels beyond": (of(lambda x, y: (x, y + 3)), "is not a class"),
    "negative label": (with_value(-1, "int32", "labels"), "label -1 is not a class"),
    "large label": (with_value(2**32, "int64", "labels"), "which do not fit in int32"),
    "float labels": (
        of(lambda x, y: (x, y.astype("float32"))),
        "labels are float32, but classes are integers",
    ),
    "NaN": (with_value(np.nan, "float32"), "inputs of the train split of own:data are not finite: nan at [1, 1]"),
    "infinite": (with_value(-np.inf, "float64"), "not finite: -inf"),
    "infinite in float32": (with_value(1e39, "float64"), "not finite: 1e+39"),
    "large integers": (with_value(2**40, "int64"), "which do not fit in int32"),
    "lists": (of(lambda x, y: (x.tolist(), y)), "inputs of the train split of own:data are list, not a NumPy array"),
    "generator": (of(lambda x, y: (x, iter(y))), "not a NumPy array of numbers"),
    "objects": (of(lambda x, y: (x.astype(object), y)), "ndarray of object, not a NumPy array of numbers"),
    "texts": (of(lambda x, y: (x, y.astype(str))), "not a NumPy array of numbers"),
    "scalar": (of(lambda x, y: (x, np.int32(1))), "with a row per example"),
    "empty validation": (of(lambda x, y: (x, y), lambda x, y: (x[:0], y[:0])), "validation split of own:data is empty"),
    "no features": (of(lambda x, y: (x[:, :0], y)), "is empty"),
    "other width": (of(lambda x, y: (x, y), lambda x, y: (x[:, :2], y)), "float32[N, 3] is float32[N, 2] in the val"),
    "other dtype": (of(lambda x, y: (x, y), lambda x, y: (x.astype("uint8"), y)), "is uint8[N, 3] in the validation"),
    "declared": (dataset(train_examples=900), "declares train_examples=900, but has 30"),
    "stream with epochs": (dataset(train_examples=None), "declares train_examples=None, but has 30"),
    "evaluated": (dataset(evaluation_examples=31), "declares evaluation_examples=31, but has 30"),
    "no test split": (dataset(splits=("validation", "test")), "needs a test split"),
    "no train split": (dataset(lambda: splits()._replace(train=None)), "needs a train split"),
    "padding only": (dataset(lambda: splits(lambda x, y: (x, 0 * y)), padding=0), "all labels are padding"),
    "two of two classes": (of(multi_label, **SIGMOID), "label 2 is not a class"),
    "tuple of splits": (dataset(lambda: tuple(splits())), "load returns tuple, not workloads.workload.Splits"),
    "tuple of arrays": (dataset(lambda: splits()._replace(train=(1, 2))), "is tuple, not workloads.workload.Examples"),
    "missing file": (dataset(lambda: np.load("no.npz")), "cannot be loaded (FileNotFoundError: "),
}


@pytest.mark.parametrize("mistake", DATA)
def test_a_mistake_in_own_data_is_one_line(mistake: str) -> None:
    row, message = DATA[mistake]
    with pytest.raises(BadInput) as raised:
        checks.load("own:data", row)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_valid_own_data_are_loaded_unchanged() -> None:
    """Other layouts in memory, wide dtypes, padding and other losses are valid."""
    expected = splits()
    for change in (
        lambda x, y: (x, y),
        lambda x, y: (np.asfortranarray(x), np.repeat(y, 2)[::2]),
        lambda x, y: (x.astype("float64"), y.astype("int64")),
        lambda x, y: (jnp.asarray(x), jnp.asarray(y)),
    ):
        loaded = checks.load("own:data", of(change))
        jax.tree.map(np.testing.assert_array_equal, loaded, expected)
        assert shapes_of(loaded) == shapes_of(expected)
    ones = lambda x, y: (x, np.eye(CLASSES, dtype=np.uint8)[y])  # noqa: E731
    numbers = {"loss": losses.squared_error, "classes": 1, "metrics": losses.regression(1.0)}
    for row in (of(ones, **SIGMOID), of(lambda x, y: (x, 9.0 - y), **numbers), of(lambda x, y: (x, y - 1), padding=-1)):
        assert checks.load("own:data", row).train is not None
    streamed = dataset(
        lambda: splits()._replace(train=None), feed=lambda *_: splits().validation, splits=("validation",)
    )
    assert checks.load("own:data", streamed).train is None


def test_doubtful_own_data_are_noted() -> None:
    same = of(lambda x, y: (x[:10], 0 * y[:10] + 2))
    assert list(checks.notes(same, same.load())) == [
        "all labels of the train split are 2",
        "all labels of the validation split are 2",
    ]
    twice = splits()._replace(test=splits().train)
    assert list(checks.notes(dataset(), twice)) == ["the train and test splits have the same inputs"]


def linear(change: Callable[[Any], Any] = lambda y: y, width: int = CLASSES, state: Any = (), **changes: Any) -> Model:
    def init(key: Any, x: Any) -> Any:
        return [jax.random.normal(key, (CLASSES, width))], state

    def apply(params: Any, state: Any, x: Any, keys: Any, train: bool) -> Any:
        return change(x @ params[0]), state

    return Model(init, apply)._replace(**changes)


def at_step(params: Any, state: Any, x: Any, keys: Any, train: bool) -> Any:
    return x @ params[0], {"steps": jnp.float32(1)} if train else state


COLUMNS = of(lambda x, y: (x, y[:, None]))
MODELS: dict[str, tuple[Dataset, Model, str]] = {
    "flat": (dataset(), linear(lambda y: y[:, 0]), "outputs float32[N] do not fit labels int32[N] of 3 classes"),
    "more outputs": (dataset(), linear(width=6), "outputs float32[N, 6] do not fit labels int32[N] of 3 classes"),
    "column labels": (COLUMNS, linear(), "outputs float32[N, 3] do not fit labels int32[N, 1] of 3 classes"),
    "sum over examples": (dataset(), linear(lambda y: y.sum(axis=0)), "do not fit labels"),
    "other inputs": (
        of(lambda x, y: (np.hstack([x, x]), y)),
        linear(),
        "fails for inputs float32[N, 6] (",
    ),
    "integers": (dataset(), linear(init=lambda key, x: (jnp.ones((3, 3), int), ())), "fails for inputs"),
    "no state": (dataset(), linear(init=lambda key, x: jnp.ones((3, 3))), "fails for inputs float32[N, 3] (ValueError"),
    "other state": (dataset(), linear(apply=at_step, state={}), "apply changes the structure, shapes or dtypes of the"),
    "loss of a batch": (dataset(loss=lambda p, y, s: p.mean()), linear(), "do not fit labels"),
}


@pytest.mark.parametrize("mistake", MODELS)
def test_a_mistake_in_an_own_model_is_one_line(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, model, message = MODELS[mistake]
    monkeypatch.setitem(registry.MODELS, "own:net", lambda classes: model)
    monkeypatch.setattr(packages, "is_qualified", lambda name: False)
    with pytest.raises(BadInput) as raised:
        checks.check_network(row, registry.workload(row, "own:net", {}, "sgd"), "own:net")
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "named"), [(lambda y: y, False), (jax.nn.softmax, True), (jax.nn.log_softmax, False)]
)
def test_outputs_that_are_probabilities_are_named(
    change: Callable[[Any], Any], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.MODELS, "net", lambda classes: linear(change))
    note = checks.outputs_note(dataset(), registry.workload(dataset(), "net", {}, "sgd"), "net")
    assert (note is not None and "sum to 1 like probabilities" in note) == named


def test_own_code_is_checked_when_a_sweep_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("own_checked")
    monkeypatch.setitem(sys.modules, "own_checked", module)
    vars(module).update(data=dataset(), one_nan=with_value(np.nan, "float32"), net=lambda classes: linear())
    vars(module).update(flat=lambda classes: linear(lambda y: y[:, 0]))

    def request(data: str, model: str) -> planning.Request:
        words = [f"task.dataset=own_checked:{data}", f"model={{name: 'own_checked:{model}'}}", "batch_size=10"]
        return planning.request(overrides.command_line([*words, "task=digits_fc", "store=none"]))

    told: list[str] = []
    planning.make_ready((valid := request("data", "net")), valid.studies, told.append)
    assert told == []
    for data, model, message in (("one_nan", "net", "not finite: nan"), ("data", "flat", "do not fit labels")):
        with pytest.raises(BadInput, match=message):
            request(data, model)
