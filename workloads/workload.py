"""Dataset, Model, Optimizer, and the Workload that combines them: NamedTuples of pure functions and arrays."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a jax.Array or a tracer of one
ArrayPair = tuple[Array, Array]
Params = Any  # a pytree of arrays
State = Any  # a pytree of arrays
Names = tuple[str, ...]
Variables = tuple[Params, State]
DATA = "data"  # mesh axis that batches are divided over
STACKED = "stacked"  # prefix of parameters whose first axis is over layers that are compiled as one


class Examples(NamedTuple):
    """Examples with a shared leading axis: ``inputs`` [N, ...] and ``labels`` [N, ...].

    Labels are int32 for classes and float32 for numbers. Images may be uint8. ``registry.workload`` converts each batch
    of them to float32 in [0, 1].
    """

    inputs: Array
    labels: Array


Feed = Callable[[int, int, int, range], Examples]
Draw = Callable[[Array, int], Examples]
Loss = Callable[[Array, Array, Array], Array]


class Splits(NamedTuple):
    """The examples of a data set by split, as NumPy arrays. Missing splits are None."""

    train: Examples | None
    validation: Examples
    test: Examples | None


class ArrayShape(NamedTuple):
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: Any


class Metric(NamedTuple):
    """A metric that is derived from sums over examples, so it can be computed in parts.

    Attributes:
      sums: ``(outputs [B, ...], labels [B, ...], weights) -> pytree of float32``. The sums of several parts are added.
        Weights are float32[B] by example, float32[B, ...] by label, or None if all are 1.
      finish: ``(sums) -> float32[]``, which returns the metric.
    """

    sums: Callable[[Array, Array, Array | None], Any]
    finish: Callable[[Any], Array]


class Dataset(NamedTuple):
    """A registry row: the loader of a data set, and metadata that are available without loading it.

    Attributes:
      load: function that reads the splits. It may raise BadInput.
      version: fast function that returns the version of the data, which is part of every study's identity.
      train_examples: size of the training split, or None for an infinite stream.
      evaluation_examples: maximum number of examples per split that an evaluation uses.
      classes: size of the outputs, which is the number of classes, or 1 for numbers.
      splits: names of the evaluated splits, which are among train, validation and test.
      loss: ``(outputs [B, ...], labels [B, ...], label_smoothing float32[]) -> float32[B, ...]``, one value per label.
        Training minimizes its mean.
      metrics: metrics by kind (loss, error).
      shapes: function that returns the shapes of the splits, so programs can be compiled without the data. With None,
        the shapes of the loaded splits are used.
      tuned: metaparameters of the loss that a search space may contain.
      padding: label that marks padding, which the loss and metrics ignore, or None if there is no padding.
      draw: ``(key, batch_size) -> Examples``, which generates a batch of an infinite stream on the devices, or None for
        data with epochs.
      feed: ``(seed, step, batch_size, positions) -> Examples`` as NumPy arrays, for training data that are streamed to
        the devices. It returns some positions of the batch at a step of the trial with this seed, so each host can load
        only its own positions. In that case, ``load`` does not return a training split.
      check: function that raises BadInput if ``load`` would, without reading large files.
      options: options of a user's own data that are not part of ``version``, such as the split. Part of every study's
        identity.
      models: names of the models that accept the inputs, or None for all models.
      targets: default targets (metrics and values) for tasks without targets.
      lines: notes about the data for the user.
      targets_line: note for the user about the default targets, for studies that use them.
    """

    load: Callable[[], Splits]
    version: Callable[[], str]
    train_examples: int | None
    evaluation_examples: int
    classes: int
    splits: Names
    loss: Loss
    metrics: Mapping[str, Metric]
    shapes: Callable[[], Splits] | None = None
    tuned: Names = ()
    padding: int | None = None
    draw: Draw | None = None
    feed: Feed | None = None
    check: Callable[[], None] = lambda: None
    options: Mapping[str, Any] = MappingProxyType({})
    models: Names | None = None
    targets: tuple[tuple[str, float], ...] = ()
    lines: Names = ()
    targets_line: str = ""


class Product(NamedTuple):
    """Lazy outputs ``features @ kernel``. Losses evaluate large outputs in chunks.

    Attributes:
      features: array [B, ..., D].
      kernel: array [D, classes].
    """

    features: Array
    kernel: Array


class Model(NamedTuple):
    """A network as pure functions.

    Attributes:
      init: ``(key, inputs [B, ...]) -> (params, state)``. The state contains arrays that are updated without gradients,
        such as running statistics. It may be an empty tree.
      apply: ``(params, state, inputs [B, ...], keys [B], train) -> (outputs float32[B, ..., classes], state)``. Each
        example has a key for randomness during training. If ``train`` is False, keys are None. Outputs may be a
        Product.
      group: number of adjacent examples in a batch that are normalized together. Microbatches must not split a group,
        but shards may share one.
      axes: ``(inputs [B, ...]) -> pytree`` with the structure of the parameters: the axis names of each parameter as a
        ``PartitionSpec``. Inputs may be a ``jax.ShapeDtypeStruct``. Models without axes cannot be sharded. See
        ``workloads.axes``.
    """

    init: Callable[[Array, Array], Variables]
    apply: Callable[[Params, State, Array, Array | None, bool], tuple[Array | Product, State]]
    group: int = 1
    axes: Callable[[Array], Any] | None = None


class Optimizer(NamedTuple):
    """A registry row: an update rule and the names of its tuned metaparameters.

    Attributes:
      update_rule: ``(**metaparameters) -> optax.GradientTransformation``. Metaparameters are traced scalars. Optimizers
        that share an update rule and ``evaluated`` share compiled programs.
      tuned: names of the metaparameters that a search space must contain.
      defaults: values of the other metaparameters. A space may override those in ``registry.OPTIONAL``.
      evaluated: ``(params, state) -> params``, which returns the parameters to evaluate. Defaults to the trained
        parameters.
    """

    update_rule: Callable[..., Any]
    tuned: Names
    defaults: Mapping[str, float]
    evaluated: Callable[[Params, Any], Params] = lambda params, state: params


class Workload(NamedTuple):
    """A workload for the engine: functions that operate on data, and the shapes of the data.

    Attributes:
      shapes: shapes of all splits as ``ArrayShape``, including the training split of streamed data.
      padding, draw, feed: as in Dataset.
      group: as in Model.
      init: function ``(key) -> (params, state)``.
      loss: ``(params, state, Examples, weights, keys [B], label_smoothing float32[]) -> (float32[], state)``, the
        weighted sum of the losses of all labels. Weights are float32[B], or [B, ...] like the labels, or None if all
        are 1.
      predict: function ``(params, state, inputs) -> outputs`` for evaluations.
      metrics: metrics by kind for each of ``evaluated_splits``, in column order.
      evaluated_splits: names of the evaluated splits.
      evaluation_examples: maximum number of examples per split that an evaluation uses.
      update_rule, evaluated: as in Optimizer.
      precision: as in ``registry.workload``.
      axes: function that returns the names of the axes of all parameters, if the model names them.
    """

    shapes: Splits
    padding: int | None
    draw: Draw | None
    feed: Feed | None
    group: int
    init: Callable[[Array], Variables]
    loss: Callable[[Params, State, Examples, Array | None, Array, Array], tuple[Array, State]]
    predict: Callable[[Params, State, Array], Array]
    metrics: Mapping[str, Metric]
    evaluated_splits: Names
    evaluation_examples: int
    update_rule: Callable[..., Any]
    evaluated: Callable[[Params, Any], Params]
    precision: str = "float32"
    axes: Callable[[], Any] | None = None

    @property
    def variable_shapes(self) -> Any:
        """The shapes of the parameters and of the state, as a pair."""
        import jax

        return jax.eval_shape(lambda: self.init(jax.random.key(0)))


def shapes(counts: Sequence[int | None], inputs: ArrayShape, labels: ArrayShape) -> Splits:
    """Returns the shapes of splits.

    Args:
      counts: number of examples in the train, validation and test splits, or None for a missing split.
      inputs, labels: shapes of the input and the label of one example.
    """

    def of(count: int | None) -> Any:
        return count and Examples(*(ArrayShape((count, *array.shape), array.dtype) for array in (inputs, labels)))

    return Splits(*map(of, counts))


def shapes_of(splits: Splits) -> Splits:
    """Returns the shapes of all arrays in some splits."""

    def of(examples: Examples | None) -> Any:
        return examples and Examples(*(ArrayShape(array.shape, np.dtype(array.dtype)) for array in examples))

    return Splits(*map(of, splits))


def content(splits: Splits) -> str:
    """Returns a hash of all arrays of a data set, by split: ``sha256:`` followed by 16 hex digits.

    The hash does not depend on the machine's byte order.
    """
    digest = hashlib.sha256()
    for name, examples in splits._asdict().items():
        for field, array in examples._asdict().items() if examples else ():
            array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            digest.update(f"{name} {field} {array.dtype.name} {array.shape} ".encode())
            digest.update(array.tobytes())
    return f"sha256:{digest.hexdigest()[:16]}"
