"""Dataset, Model, Optimizer, and the Workload they make: NamedTuples of pure functions and arrays."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a jax.Array or a tracer of one
Params = Any  # a pytree of arrays


class Examples(NamedTuple):
    """Examples with a shared leading axis: ``inputs`` [N, ...] and ``labels`` int32[N, ...]."""

    inputs: Array
    labels: Array


class Splits(NamedTuple):
    """The examples of a data set by split, as NumPy arrays; ``test`` is None where a data set has none."""

    train: Examples
    validation: Examples
    test: Examples | None


class Dataset(NamedTuple):
    """A row of the registry: how to get a data set and what is known of it without getting it.

    Attributes:
      load: reads the splits from where they are.
      train_examples: size of the training split.
      classes: number of values a label takes.
      splits: which splits it has, of train, validation, test.
    """

    load: Callable[[], Splits]
    train_examples: int
    classes: int
    splits: tuple[str, ...]


class Model(NamedTuple):
    """A network as pure functions.

    Attributes:
      init: ``(key, inputs [B, ...]) -> params``.
      apply: ``(params, inputs [B, ...]) -> logits float32[B, ..., classes]``.
    """

    init: Callable[[Array, Array], Params]
    apply: Callable[[Params, Array], Array]


class Optimizer(NamedTuple):
    """A row of the registry: an update rule and which of its metaparameters are tuned.

    Attributes:
      update_rule: ``(**metaparameters, all traced scalars) -> optax.GradientTransformation``. Optimizers that share
        an update rule share compiled programs.
      tuned: names of the metaparameters a search space must give.
      fixed: values of the others.
    """

    update_rule: Callable[..., Any]
    tuned: tuple[str, ...]
    fixed: Mapping[str, float]


class Workload(NamedTuple):
    """What the engine trains: data and the functions on it.

    Attributes:
      init: ``(key, inputs) -> params``.
      loss: ``(params, Examples) -> float32[]``, the mean to be minimized.
      metrics: ``(params, Examples) -> {"loss": float32[], "error": float32[]}``.
      splits: NumPy arrays.
      update_rule: as in Optimizer.
    """

    init: Callable[[Array, Array], Params]
    loss: Callable[[Params, Examples], Array]
    metrics: Callable[[Params, Examples], dict[str, Array]]
    splits: Splits
    update_rule: Callable[..., Any]


def first_examples(examples: Examples, count: int) -> Examples:
    """The first ``count`` examples, or all where there are fewer."""
    return Examples(np.asarray(examples.inputs[:count]), np.asarray(examples.labels[:count]))
