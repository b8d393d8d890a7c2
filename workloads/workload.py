"""Dataset, Model, Optimizer, and the Workload they make: NamedTuples of pure functions and arrays."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a jax.Array or a tracer of one
Params = Any  # a pytree of arrays


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


class Dataset(NamedTuple):
    """A row of the registry: the loader of a data set, and metadata available without loading it.

    Attributes:
      load: reads the splits from where they are; raises BadInput.
      version: identifies the data, quickly; part of every study's identity.
      train_examples: size of the training split; None for an endless stream.
      evaluation_examples: number of examples that an evaluation uses of each split, at most.
      classes: size of the outputs: number of values a label takes, 1 for a number.
      splits: which splits are evaluated, of train, validation, test.
      loss: ``(outputs [B, ...], labels [B, ...], label_smoothing float32[]) -> float32[]``, what training minimizes.
      metrics: by kind (loss, error), ``(outputs, labels) -> float32[]``.
      tuned: metaparameters of the loss that a search space may give.
      draw: of an endless stream, ``(key, batch_size) -> Examples``; None where there are epochs.
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
    metrics: Mapping[str, Callable[[Array, Array], Array]]
    tuned: tuple[str, ...] = ()
    draw: Callable[[Array, int], Examples] | None = None
    check: Callable[[], None] = lambda: None
    options: Mapping[str, Any] = MappingProxyType({})
    models: tuple[str, ...] | None = None
    targets: tuple[tuple[str, float], ...] = ()
    lines: tuple[str, ...] = ()


class Model(NamedTuple):
    """A network as pure functions.

    Attributes:
      init: ``(key, inputs [B, ...]) -> params``.
      apply: ``(params, inputs [B, ...]) -> logits float32[B, ..., classes]``.
    """

    init: Callable[[Array, Array], Params]
    apply: Callable[[Params, Array], Array]


def flax_model(network: Callable[[], Any]) -> Model:
    """The model of a network of Flax, which is made once it is first used: planning a study needs no Flax."""
    made = functools.cache(network)
    return Model(lambda key, inputs: made().init(key, inputs), lambda params, inputs: made().apply(params, inputs))


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
    """A workload as the engine trains it: data and functions of them.

    Attributes:
      splits: NumPy arrays.
      draw: as in Dataset.
      init: ``(key) -> params``.
      loss: ``(params, Examples, label_smoothing float32[]) -> float32[]``, the mean to be minimized.
      metrics: ``(params, Examples) -> float32[]`` by kind.
      update_rule, evaluated: as in Optimizer.
    """

    splits: Splits
    draw: Callable[[Array, int], Examples] | None
    init: Callable[[Array], Params]
    loss: Callable[[Params, Examples, Array], Array]
    metrics: Callable[[Params, Examples], dict[str, Array]]
    update_rule: Callable[..., Any]
    evaluated: Callable[[Params, Any], Params]


def first_examples(examples: Examples, count: int) -> Examples:
    """The first ``count`` examples, or all where there are fewer."""
    return Examples(np.asarray(examples.inputs[:count]), np.asarray(examples.labels[:count]))
