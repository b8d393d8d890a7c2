"""Dataset, Model, Optimizer, and the Workload they make: NamedTuples of pure functions and arrays."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a jax.Array or a tracer of one
Params = Any  # a pytree of arrays
State = Any  # likewise
DATA = "data"  # the axis of the mesh that a batch is divided over
STACKED = "stacked"  # how names of parameters begin whose first axis is that of layers compiled as one


class Examples(NamedTuple):
    """Examples with a shared leading axis: ``inputs`` [N, ...] and ``labels`` int32[N, ...], or float32 of numbers.

    Images may be uint8; ``registry.workload`` makes float32 in [0, 1] of them, batch by batch.
    """

    inputs: Array
    labels: Array


class Splits(NamedTuple):
    """The examples of a data set by split, as NumPy arrays; None for a split it does not have."""

    train: Examples | None
    validation: Examples
    test: Examples | None


class ArrayShape(NamedTuple):
    """Shape and dtype of an array that need not be there."""

    shape: tuple[int, ...]
    dtype: Any


class Metric(NamedTuple):
    """A metric as sums over examples, which may be taken in any parts.

    Attributes:
      sums: ``(outputs [B, ...], labels [B, ...], weights) -> pytree of float32``; those of several parts are added up.
        Weights are float32[B], of examples, [B, ...], of labels, or None for ones.
      finish: ``(sums) -> float32[]``.
    """

    sums: Callable[[Array, Array, Array | None], Any]
    finish: Callable[[Any], Array]


class Dataset(NamedTuple):
    """A row of the registry: the loader of a data set, and metadata available without loading it.

    Attributes:
      load: reads the splits from where they are; raises BadInput.
      version: identifies the data, quickly; part of every study's identity.
      train_examples: size of the training split; None for an endless stream.
      evaluation_examples: number of examples that an evaluation uses of each split, at most.
      classes: size of the outputs: number of values a label takes, 1 for a number.
      splits: which splits are evaluated, of train, validation, test.
      loss: ``(outputs [B, ...], labels [B, ...], label_smoothing float32[]) -> float32[B, ...]``, one for each label,
        whose mean training minimizes.
      metrics: by kind (loss, error).
      shapes: of the splits, so that programs are compiled without data; None: those of what ``load`` gives.
      tuned: metaparameters of the loss that a search space may give.
      padding: the label of what is no example: it counts in no loss and no metric. None if there is none.
      draw: of an endless stream, made on the devices, ``(key, batch_size) -> Examples``; None where there are epochs.
      feed: of training data that are streamed, not kept on the devices, ``(seed, step, batch_size, positions) ->
        Examples`` as NumPy arrays: some positions of the batch that a trial with that seed takes after so many steps,
        in which each host gets its own. ``load`` has no training split then.
      check: raises BadInput where ``load`` would, without reading anything large.
      options: what ``version`` does not say of a user's own data, such as the split; part of every study's identity.
      models: names of the models that take its inputs; None if it says nothing about that.
      targets: metrics and values, for a task that gives none.
      lines: about the data, for the user.
    """

    load: Callable[[], Splits]
    version: Callable[[], str]
    train_examples: int | None
    evaluation_examples: int
    classes: int
    splits: tuple[str, ...]
    loss: Callable[[Array, Array, Array], Array]
    metrics: Mapping[str, Metric]
    shapes: Callable[[], Splits] | None = None
    tuned: tuple[str, ...] = ()
    padding: int | None = None
    draw: Callable[[Array, int], Examples] | None = None
    feed: Callable[[int, int, int, range], Examples] | None = None
    check: Callable[[], None] = lambda: None
    options: Mapping[str, Any] = MappingProxyType({})
    models: tuple[str, ...] | None = None
    targets: tuple[tuple[str, float], ...] = ()
    lines: tuple[str, ...] = ()


class Product(NamedTuple):
    """Outputs features @ kernel, which nobody has computed yet: losses take them in parts where they are large.

    Attributes:
      features: [B, ..., D].
      kernel: [D, classes].
    """

    features: Array
    kernel: Array


class Model(NamedTuple):
    """A network as pure functions.

    Attributes:
      init: ``(key, inputs [B, ...]) -> (params, state)``; the state is what training changes without a gradient, such
        as running statistics; a tree without arrays for none.
      apply: ``(params, state, inputs [B, ...], keys [B], train) -> (outputs float32[B, ..., classes], state)``;
        the keys, one for each example, are for what is random in training; None where ``train`` is False. Outputs may
        be a Product.
      group: how many neighbours in a batch are normalized together; no part of a batch may cut such a group, but
        shards may share one.
    """

    init: Callable[[Array, Array], tuple[Params, State]]
    apply: Callable[[Params, State, Array, Array | None, bool], tuple[Array | Product, State]]
    group: int = 1


def flax_model(network: Callable[[], Any]) -> Model:
    """The model of a network of Flax without state, which is made once it is first used: plans need no Flax."""
    made = functools.cache(network)
    return Model(
        lambda key, inputs: (made().init(key, inputs), ()),
        lambda params, state, inputs, keys, train: (made().apply(params, inputs), state),
    )


def flax_model_in_training(network: Callable[[], Any], group: int = 1) -> Model:
    """The model of a network of Flax, called with (inputs, keys, train), that does something else in training.

    Args:
      network: makes it once it is first used. Its collections other than ``params`` are the state.
      group: as in Model.
    """
    made = functools.cache(network)

    def init(key: Array, inputs: Array) -> tuple[Params, State]:
        variables = dict(made().init(key, inputs, None, False))
        return {"params": variables.pop("params")}, variables

    def apply(
        params: Params, state: State, inputs: Array, keys: Array | None, train: bool
    ) -> tuple[Array | Product, State]:
        outputs, changed = made().apply({**params, **state}, inputs, keys, train, mutable=[*state] if train else [])
        return outputs, {**state, **changed}

    return Model(init, apply, group)


class Optimizer(NamedTuple):
    """A row of the registry: an update rule and which of its metaparameters are tuned.

    Attributes:
      update_rule: ``(**metaparameters, all traced scalars) -> optax.GradientTransformation``. Optimizers that share
        an update rule share compiled programs.
      tuned: names of the metaparameters a search space must give.
      defaults: values of the others; a space may give some of these, see ``registry.OPTIONAL``.
      evaluated: ``(params, state) -> params`` to evaluate, where they differ from the trained ones.
    """

    update_rule: Callable[..., Any]
    tuned: tuple[str, ...]
    defaults: Mapping[str, float]
    evaluated: Callable[[Params, Any], Params] = lambda params, state: params


class Workload(NamedTuple):
    """A workload as the engine trains it: functions of data, and the shapes of these.

    Attributes:
      shapes: of all splits, with ``ArrayShape`` for arrays; of fed data that of the training split, too.
      padding, draw, feed: as in Dataset.
      group: as in Model.
      init: ``(key) -> (params, state)``.
      loss: ``(params, state, Examples, weights, keys [B], label_smoothing float32[]) -> (float32[], state)``, the sum
        of the losses of all labels times their weights: float32[B], [B, ...] as the labels, or None for ones.
      predict: ``(params, state, inputs) -> outputs``, of evaluations.
      metrics: by kind, of each of the splits ``evaluated_splits``, in the order of their columns.
      evaluated_splits: names of splits.
      evaluation_examples: how many of each are evaluated, at most.
      update_rule, evaluated: as in Optimizer.
    """

    shapes: Splits
    padding: int | None
    draw: Callable[[Array, int], Examples] | None
    feed: Callable[[int, int, int, range], Examples] | None
    group: int
    init: Callable[[Array], tuple[Params, State]]
    loss: Callable[[Params, State, Examples, Array | None, Array, Array], tuple[Array, State]]
    predict: Callable[[Params, State, Array], Array]
    metrics: Mapping[str, Metric]
    evaluated_splits: tuple[str, ...]
    evaluation_examples: int
    update_rule: Callable[..., Any]
    evaluated: Callable[[Params, Any], Params]


def shapes(counts: Sequence[int | None], inputs: ArrayShape, labels: ArrayShape) -> Splits:
    """The shapes of splits.

    Args:
      counts: examples of train, validation and test; None for a split there is not.
      inputs, labels: of one example.
    """

    def of(count: int | None) -> Any:
        return count and Examples(*(ArrayShape((count, *one.shape), one.dtype) for one in (inputs, labels)))

    return Splits(*map(of, counts))


def shapes_of(splits: Splits) -> Splits:
    """The shapes of all arrays of some splits."""

    def of(examples: Examples | None) -> Any:
        return examples and Examples(*(ArrayShape(array.shape, np.dtype(array.dtype)) for array in examples))

    return Splits(*map(of, splits))


def content(splits: Splits) -> str:
    """The content of a data set as a hash of every array as it is split, so that no change goes unnoticed.

    ``sha256:`` and 16 hex digits; the same on machines of either byte order.
    """
    digest = hashlib.sha256()
    for name, examples in splits._asdict().items():
        for field, array in examples._asdict().items() if examples else ():
            array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            digest.update(f"{name} {field} {array.dtype.name} {array.shape} ".encode())
            digest.update(array.tobytes())
    return f"sha256:{digest.hexdigest()[:16]}"
