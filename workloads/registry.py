"""The registries: dicts whose keys are the names that YAML files use."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from workloads import losses, optimizers
from workloads.datasets import (
    in_memory,
    movielens,
    noise,
    rating_files,
    streamed_images,
    streamed_text,
    tables,
    text,
    tfds_images,
    web_graph,
    webgraph_synthetic,
)
from workloads.factorization.ratings import RatingsSource
from workloads.models.fully_connected import fully_connected
from workloads.models.lstm import lstm, lstm_projected
from workloads.models.options import SIZES
from workloads.models.quadratic import quadratic
from workloads.models.resnet import resnet, resnet_basic
from workloads.models.simple_cnn import simple_cnn
from workloads.models.transformer import transformer, transformer_decoder
from workloads.models.vgg import vgg
from workloads.workload import Array, Dataset, Examples, Model, Optimizer, Params, State, Workload, shapes_of


def _digits(name: str) -> Dataset:
    """The row of a part of the handwritten digits."""
    of = in_memory.SUBSETS[name]
    return Dataset(
        functools.partial(in_memory.subset, name),
        functools.partial(in_memory.subset_version, name),
        train_examples=of.train_examples,
        evaluation_examples=of.validation_examples,
        classes=len(of.classes),
        splits=("train", "validation"),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
        tuned=("label_smoothing",),
        shapes=functools.partial(in_memory.subset_shapes, name),
        check=in_memory.check,
    )


def _images(name: str) -> Dataset:
    """The row of an image data set of TFDS."""
    train_examples, validation_examples = tfds_images.sizes(name)
    return Dataset(
        functools.partial(tfds_images.load, name),
        functools.partial(tfds_images.version, name),
        train_examples=train_examples,
        evaluation_examples=validation_examples,
        classes=10,
        splits=("train", "validation", "test"),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
        tuned=("label_smoothing",),
        shapes=functools.partial(tfds_images.shapes, name),
        check=functools.partial(tfds_images.check, name),
    )


def _streamed_images(name: str) -> Dataset:
    """The row of photographs, of which an image has one label, or several."""
    source = streamed_images.SOURCES[name]
    return Dataset(
        functools.partial(streamed_images.load, name),
        functools.partial(streamed_images.version, name),
        train_examples=source.train_examples,
        evaluation_examples=source.validation_examples,
        classes=source.classes,
        splits=("validation",),
        loss=losses.sigmoid_cross_entropy if source.many else losses.softmax_cross_entropy,
        metrics=losses.MULTI_LABEL if source.many else losses.CLASSIFICATION,
        tuned=("label_smoothing",),
        shapes=functools.partial(streamed_images.shapes, name),
        check=functools.partial(streamed_images.check, name),
        feed=functools.partial(streamed_images.feed, name),
    )


def _streamed_text(name: str) -> Dataset:
    """The row of texts as subwords."""
    source = streamed_text.SOURCES[name]
    return Dataset(
        functools.partial(streamed_text.load, name),
        functools.partial(streamed_text.version, name),
        train_examples=source.train_examples,
        evaluation_examples=source.validation_examples,
        classes=source.vocabulary,
        splits=("validation",),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
        tuned=("label_smoothing",),
        padding=streamed_text.PADDING,
        shapes=functools.partial(streamed_text.shapes, name),
        check=functools.partial(streamed_text.check, name),
        feed=functools.partial(streamed_text.feed, name),
    )


DATASETS: dict[str, Dataset] = {
    "noise": Dataset(
        noise.load,
        lambda: str(noise.DIMENSIONS),
        train_examples=None,
        evaluation_examples=1,
        classes=0,
        splits=("validation",),
        loss=noise.loss,
        shapes=noise.shapes,
        metrics={"loss": losses.mean(noise.loss)},
        draw=noise.draw,
    ),
    "digits": Dataset(
        in_memory.digits,
        in_memory.version,
        train_examples=in_memory.TRAIN_EXAMPLES,
        evaluation_examples=in_memory.VALIDATION_EXAMPLES,
        classes=10,
        splits=("train", "validation"),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
        tuned=("label_smoothing",),
        shapes=in_memory.shapes,
        check=in_memory.check,
    ),
    "digit_tags": Dataset(
        in_memory.digit_tags,
        in_memory.tag_version,
        train_examples=in_memory.TRAIN_EXAMPLES,
        evaluation_examples=in_memory.VALIDATION_EXAMPLES,
        classes=len(in_memory.TAGS),
        splits=("train", "validation"),
        loss=losses.sigmoid_cross_entropy,
        metrics=losses.MULTI_LABEL,
        tuned=("label_smoothing",),
        shapes=in_memory.tag_shapes,
        check=in_memory.check,
    ),
    **{name: _digits(name) for name in in_memory.SUBSETS},
    "pydoc": Dataset(
        text.pydoc,
        text.version,
        train_examples=text.train_examples(),
        evaluation_examples=text.VALIDATION_EXAMPLES,
        classes=256,
        splits=("train", "validation"),
        loss=losses.softmax_cross_entropy,
        metrics=losses.CLASSIFICATION,
        shapes=text.shapes,
        tuned=("label_smoothing",),
    ),
    "mnist": _images("mnist"),
    "fashion_mnist": _images("fashion_mnist"),
    "cifar10": _images("cifar10"),
    **{name: _images(name) for name in tfds_images.SUBSETS},
    **{name: _streamed_images(name) for name in streamed_images.SOURCES},
    **{name: _streamed_text(name) for name in streamed_text.SOURCES},
}

# Data sets of a user's own, as functions of their options.
OWN_DATASETS: dict[str, Callable[..., Dataset]] = {"table": tables.dataset}

# Sources of ratings, as functions of their options.
RATINGS: dict[str, Callable[..., RatingsSource]] = {
    "webgraph_synthetic": webgraph_synthetic.source,
    "web_graph": web_graph.source,
    "movielens": movielens.source,
    "ratings": rating_files.source,
}
# Generated ratings: all parameters they are generated from, which are part of a study's plan.
GENERATED: dict[str, Callable[..., dict[str, float]]] = {
    "webgraph_synthetic": lambda **options: dataclasses.asdict(webgraph_synthetic.WebGraph(**options)),
}

MODELS: dict[str, Callable[..., Model]] = {
    "quadratic": quadratic,
    "fully_connected": fully_connected,
    "simple_cnn": simple_cnn,
    "transformer": transformer,
    "lstm": lstm,
    "resnet": resnet,
    "resnet_basic": resnet_basic,
    "vgg": vgg,
    "lstm_projected": lstm_projected,
    "transformer_decoder": transformer_decoder,
}


def _at_size(model: str, options: Mapping[str, Any]) -> Callable[..., Model]:
    """A model whose options are given."""
    return lambda classes: MODELS[model](classes=classes, **options)


MODELS |= {name: _at_size(*size) for name, size in SIZES.items()}

_ADAM = {"b2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
_HEAVY_BALL = {"weight_decay": 0.0, "nesterov": 0.0}

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer(optimizers.heavy_ball, ("learning_rate",), _HEAVY_BALL | {"momentum": 0.0}),
    "momentum": Optimizer(optimizers.heavy_ball, ("learning_rate", "momentum"), _HEAVY_BALL),
    "nesterov": Optimizer(optimizers.heavy_ball, ("learning_rate", "momentum"), _HEAVY_BALL | {"nesterov": 1.0}),
    "adam": Optimizer(optimizers.adam, ("learning_rate", "b1"), _ADAM),
    "adamw": Optimizer(optimizers.adamw, ("learning_rate", "b1", "weight_decay"), _ADAM),
    "lars": Optimizer(
        optimizers.lars, ("learning_rate", "momentum"), {"trust_coefficient": 0.001, "weight_decay": 0.0}
    ),
    "lamb": Optimizer(optimizers.lamb, ("learning_rate", "b1"), _ADAM | {"eps": 1e-6}),
    "muon": Optimizer(optimizers.muon, ("learning_rate", "beta"), {"weight_decay": 0.0}),
    "schedule_free": Optimizer(
        optimizers.schedule_free, ("learning_rate", "b1"), {"weight_decay": 0.0}, optimizers.average
    ),
}

# Metaparameters that a search space may give beside those an optimizer requires.
OPTIONAL = ("weight_decay", "b2", "eps", "trust_coefficient")


def model_options(model: str) -> tuple[str, ...]:
    """Names of the options a model takes from a task."""
    return tuple(name for name in inspect.signature(MODELS[model]).parameters if name != "classes")


def ratings_options(name: str) -> tuple[str, ...]:
    """Names of the options that ratings take from a task."""
    return tuple(inspect.signature(RATINGS[name]).parameters)


def ratings(choice: Mapping[str, Any]) -> RatingsSource:
    """The source of ratings.

    Args:
      choice: their ``name``, a key of RATINGS, and their options.
    """
    return RATINGS[choice["name"]](**{key: value for key, value in choice.items() if key != "name"})


def generated_from(choice: Mapping[str, Any]) -> dict[str, float]:
    """All parameters that ratings are generated from; empty for ratings that are not generated."""
    options = {key: value for key, value in choice.items() if key != "name"}
    return GENERATED[choice["name"]](**options) if choice["name"] in GENERATED else {}


def tuned(optimizer: str, schedule: str) -> tuple[str, ...]:
    """Names of the metaparameters a search space must give."""
    return OPTIMIZERS[optimizer].tuned + (() if schedule == "constant" else optimizers.TUNED_DECAY)


def dataset(name: str, source: Mapping[str, Any] | None = None) -> Dataset:
    """The row of a data set.

    Args:
      name: a key of DATASETS or OWN_DATASETS.
      source: the options of one of a user's own.

    Raises:
      BadInput: for options or data of a user's own that are wrong.
    """
    return OWN_DATASETS[name](**source or {}) if name in OWN_DATASETS else DATASETS[name]


def tunable(row: Dataset, optimizer: str, schedule: str) -> tuple[str, ...]:
    """Names of the metaparameters a search space may give."""
    further = tuple(name for name in OPTIONAL if name in OPTIMIZERS[optimizer].defaults)
    return tuned(optimizer, schedule) + further + row.tuned


def metrics(row: Dataset) -> tuple[str, ...]:
    """Names of the metrics measured on a data set, in the order of their columns."""
    return tuple(f"{split}_{kind}" for split in row.splits for kind in row.metrics)


def workload(
    row: Dataset, model: str, options: Mapping[str, Any], optimizer: str, precision: str = "float32"
) -> Workload:
    """Builds a workload from a data set and names; reads no data where the data set tells their shapes.

    Args:
      row: of the data set.
      model, optimizer: keys of the registries.
      options: of the model.
      precision: float32, or bfloat16: parameters and inputs are rounded to bfloat16 on their way through the network;
        kept parameters are float32, and so is all that is computed from what the network gives.
    """
    import jax
    import jax.numpy as jnp

    network = MODELS[model](classes=row.classes, **options)
    shapes = row.shapes() if row.shapes else shapes_of(row.load())

    def rounded(tree: Any) -> Any:
        if precision == "float32":
            return tree
        return jax.tree.map(lambda a: a.astype(jnp.bfloat16) if a.dtype == jnp.float32 else a, tree)

    def outputs(params: Params, state: State, inputs: Array, keys: Array | None, *, train: bool) -> tuple[Any, State]:
        if inputs.dtype == jnp.uint8:
            inputs = inputs.astype(jnp.float32) / 255.0
        return network.apply(rounded(params), state, rounded(inputs), keys, train)

    def init(key: Array) -> tuple[Params, State]:
        shape, dtype = shapes.validation.inputs
        return network.init(key, jnp.zeros((1, *shape[1:]), jnp.float32 if dtype == jnp.uint8 else dtype))

    def loss(
        params: Params, state: State, examples: Examples, weights: Array | None, keys: Array, label_smoothing: Array
    ) -> tuple[Array, State]:
        predicted, state = outputs(params, state, examples.inputs, keys, train=True)
        return losses.total_loss(row.loss, predicted, examples.labels, weights, label_smoothing), state

    def predict(params: Params, state: State, inputs: Array) -> Array:
        return losses.product(outputs(params, state, inputs, None, train=False)[0])

    rule = OPTIMIZERS[optimizer]
    return Workload(
        shapes=shapes,
        padding=row.padding,
        draw=row.draw,
        feed=row.feed,
        group=network.group,
        init=init,
        loss=loss,
        predict=predict,
        metrics=row.metrics,
        evaluated_splits=row.splits,
        evaluation_examples=row.evaluation_examples,
        update_rule=rule.update_rule,
        evaluated=rule.evaluated,
    )
