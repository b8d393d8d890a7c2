"""The registries: dicts that map the names used in YAML files to models, optimizers and data sets."""

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from workloads import checks, losses, optimizers, packages
from workloads.base import BadInput, check_choice
from workloads.datasets.rows import DATASETS, OWN_DATASETS
from workloads.models import image_options, text_options
from workloads.models.options import SIZES, ModelOptions
from workloads.models.quadratic import quadratic
from workloads.workload import (
    Array,
    Dataset,
    Examples,
    Model,
    Names,
    Optimizer,
    Params,
    State,
    Variables,
    Workload,
    shapes_of,
)

Options = Mapping[str, Any]


def _flax(options: type[ModelOptions]) -> Callable[..., Model]:
    """Returns a model as a function of its options."""

    @functools.wraps(options, updated=())
    def model(*arguments: Any, **named: Any) -> Model:
        return options(*arguments, **named).model()

    return model


MODELS: dict[str, Callable[..., Model]] = {
    "quadratic": quadratic,
    "fully_connected": _flax(image_options.FullyConnected),
    "simple_cnn": _flax(image_options.SimpleCNN),
    "transformer": _flax(text_options.Transformer),
    "lstm": _flax(text_options.LSTM),
    "resnet": _flax(image_options.ResNet),
    "resnet_basic": _flax(image_options.ResNetBasic),
    "vgg": _flax(image_options.VGG),
    "lstm_projected": _flax(text_options.LSTMProjected),
    "transformer_decoder": _flax(text_options.TransformerDecoder),
    "transformer_rotary": _flax(text_options.TransformerRotary),
}
MODELS |= {name: functools.partial(MODELS[model], **options) for name, (model, options) in SIZES.items()}

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

# Metaparameters that a search space may contain in addition to those that an optimizer requires.
OPTIONAL = ("weight_decay", "b2", "eps", "trust_coefficient")


def check(kind: str, name: str) -> None:
    """Raises BadInput for an unknown name of a data set, model or optimizer. Imports the object of a qualified name."""
    choices = {"dataset": (*DATASETS, *OWN_DATASETS), "model": tuple(MODELS), "optimizer": tuple(OPTIMIZERS)}[kind]
    if packages.is_qualified(name):
        packages.find(kind, name)
    elif name not in choices:  # finding the names of packages takes milliseconds
        check_choice(kind, name, [*choices, *packages.names(kind)])


def get_model(name: str) -> Callable[..., Model]:
    """Returns a model as a function of the number of classes and the options. See ``check`` for unknown names."""
    return packages.find("model", name).value if packages.is_qualified(name) else MODELS[name]


def get_optimizer(name: str) -> Optimizer:
    """Returns an optimizer. See ``check`` for unknown names."""
    if not packages.is_qualified(name):
        return OPTIMIZERS[name]
    return _checked(f"optimizer {name}", packages.find("optimizer", name).value, Optimizer)


def _checked(what: str, target: Any, expected: type) -> Any:
    """Returns an object of another package. Raises BadInput unless it has the ``expected`` type."""
    if not isinstance(target, expected):
        raise BadInput(f"{what} is {type(target).__name__}, not workloads.workload.{expected.__name__}")
    return target


def package_identities(dataset: str, model: str, optimizer: str) -> dict[str, Any]:
    """Returns the identity of the code that each qualified name refers to. See ``packages.identity``."""
    named = {"dataset": dataset, "model": model, "optimizer": optimizer}
    return {name: packages.identity(kind, name) for kind, name in named.items() if packages.is_qualified(name)}


def model_options(name: str) -> Names:
    """Returns the names of a model's options that a task may set."""
    return tuple(option for option in _parameters(name) if option != "classes")


def model_defaults(name: str) -> dict[str, Any]:
    """Returns those options of a model that have defaults."""
    empty = inspect.Parameter.empty
    return {
        option: parameter.default for option, parameter in _parameters(name).items() if parameter.default is not empty
    }


def plan_options(name: str, given: Options) -> dict[str, Any]:
    """Returns the options of a model as listed in a plan.

    Plans list default values only for models from other packages. Defaults of this package's models are omitted,
    because options that are added later must not change existing plans.
    """
    defaults = model_defaults(name)
    if packages.is_qualified(name):
        return defaults | dict(given)
    return {option: value for option, value in given.items() if option not in defaults or value != defaults[option]}


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    parameters: Mapping[str, inspect.Parameter] = {}
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(get_model(name)).parameters
    if "classes" not in parameters:
        raise BadInput(f"model {name} is not a function with the argument classes, the number of classes")
    fixed = SIZES[name][1] if name in SIZES else ()
    return {option: parameter for option, parameter in parameters.items() if option not in fixed}


def tuned(optimizer: str, schedule: str) -> Names:
    """Returns the names of the metaparameters that a search space must contain."""
    return get_optimizer(optimizer).tuned + (() if schedule == "constant" else optimizers.TUNED_DECAY)


def dataset(name: str, source: Options | None = None) -> Dataset:
    """Returns the registry row of a data set. Data sets of other packages are checked whenever they are loaded.

    Args:
      name: a key of DATASETS or OWN_DATASETS, or a qualified name.
      source: options of the data set, if the name is a key of OWN_DATASETS.

    Raises:
      BadInput: the user's own data, or the options of these data, are invalid.
    """
    if name in OWN_DATASETS:
        return OWN_DATASETS[name](**source or {})
    if not packages.is_qualified(name):
        return DATASETS[name]
    target = packages.find("dataset", name).value
    row = target if isinstance(target, Dataset) else checks.called(f"dataset {name} cannot be built", target)
    row = _checked(f"dataset {name}", row, Dataset)
    return row._replace(load=functools.partial(checks.load, name, row))


@functools.lru_cache(maxsize=32)
def check_own(dataset_name: str, model: str, optimizer: str, source: str, options: str) -> None:
    """Raises BadInput if names of other packages refer to a data set and a model that cannot be trained.

    Args:
      dataset_name, model, optimizer: names.
      source, options: options of the data set and of the model, as JSON.
    """
    row = dataset(dataset_name, json.loads(source))
    checks.check_network(row, workload(row, model, json.loads(options), optimizer), model)


def tunable(row: Dataset, optimizer: str, schedule: str) -> Names:
    """Returns the names of the metaparameters that a search space may contain."""
    optional = tuple(name for name in OPTIONAL if name in get_optimizer(optimizer).defaults)
    return tuned(optimizer, schedule) + optional + row.tuned


def metrics(row: Dataset) -> Names:
    """Returns the names of the metrics measured on a data set, in column order."""
    return tuple(f"{split}_{kind}" for split in row.splits for kind in row.metrics)


def workload(row: Dataset, model: str, options: Options, optimizer: str, precision: str = "float32") -> Workload:
    """Builds a workload from a data set and names. The data are read only if the data set has no ``shapes``.

    Args:
      row: registry row of the data set.
      model, optimizer: keys of the registries.
      options: options for the model.
      precision: float32 or bfloat16. With bfloat16, the network uses rounded parameters and inputs. Stored parameters,
        and all computations on the network's outputs, are float32.

    Returns:
      The workload.

    Raises:
      ValueError: an option of the model is invalid.
    """
    import jax
    import jax.numpy as jnp

    from workloads import axes

    network = get_model(model)(classes=row.classes, **options)
    shapes = row.shapes() if row.shapes else shapes_of(row.load())

    def outputs(params: Params, state: State, inputs: Array, keys: Array | None, *, train: bool) -> tuple[Any, State]:
        if inputs.dtype == jnp.uint8:
            inputs = inputs.astype(jnp.float32) / 255.0
        inputs = axes.rounded(inputs, precision)
        return network.apply(axes.gathered(params, precision), state, inputs, keys, train)

    shape, dtype = shapes.validation.inputs
    example = (1, *shape[1:]), jnp.float32 if dtype == jnp.uint8 else dtype

    def init(key: Array) -> Variables:
        return network.init(key, jnp.zeros(*example))

    def loss(
        params: Params, state: State, examples: Examples, weights: Array | None, keys: Array, label_smoothing: Array
    ) -> tuple[Array, State]:
        predicted, state = outputs(params, state, examples.inputs, keys, train=True)
        return losses.total_loss(row.loss, predicted, examples.labels, weights, label_smoothing), state

    def predict(params: Params, state: State, inputs: Array) -> Array:
        return losses.product(outputs(params, state, inputs, None, train=False)[0])

    rule = get_optimizer(optimizer)
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
        precision=precision,
        axes=None if network.axes is None else functools.partial(network.axes, jax.ShapeDtypeStruct(*example)),
    )
