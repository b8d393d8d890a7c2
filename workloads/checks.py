"""Checks of the user's own data sets and models. Each mistake is one line, before anything is compiled."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from results.bad_input import BadInput, first_line
from workloads import losses
from workloads.workload import Array, ArrayPair, Dataset, Examples, Splits, Workload

_OF_CLASSES = (losses.softmax_cross_entropy, losses.spread_cross_entropy)  # labels are numbers of classes
_TRACED = 11  # groups of examples in the step that is traced, a number that is hardly the size of another axis
_MOST_PARAMETERS = 10_000_000  # of a model whose outputs are computed


def load(name: str, row: Dataset) -> Splits:
    """Returns the splits of an own data set. Numbers of 8 bytes become numbers of 4 bytes, as on a device.

    Args:
      name: qualified name of the data set.
      row: the data set.

    Raises:
      BadInput: a split is missing or empty, its arrays do not match each other or the row, or a value is invalid.
    """
    given = _called(f"dataset {name} cannot be loaded", row.load)
    if not isinstance(given, Splits):
        raise BadInput(f"dataset {name}: load returns {type(given).__name__}, not workloads.workload.Splits")
    splits = Splits(*(of and _split(f"{split} split of {name}", row, of) for split, of in given._asdict().items()))
    streamed = row.feed or row.draw
    counts = {split: len(of.labels) for split, of in splits._asdict().items() if of}
    for split in ("validation", *row.splits, *(() if streamed else ("train",))):
        if split not in counts:
            raise BadInput(f"dataset {name} needs a {split} split. Let load return one.")
    if not streamed and row.train_examples != counts["train"]:
        raise BadInput(f"dataset {name} declares train_examples={row.train_examples}, but has {counts['train']:,}")
    most = max(counts[split] for split in ("validation", *row.splits))
    if not 1 <= row.evaluation_examples <= most:
        raise BadInput(f"dataset {name} declares evaluation_examples={row.evaluation_examples}, but has {most:,}")
    for split, of in splits._asdict().items():
        for own, other in zip(of or (), splits.validation, strict=False):
            if _shape(own) != _shape(other):
                raise BadInput(f"{split} split of {name}: {_shape(own)} is {_shape(other)} in the validation split")
    return splits


def notes(row: Dataset, splits: Splits) -> Iterator[str]:
    """Yields notes on valid data that are probably a mistake."""
    given = {split: of for split, of in splits._asdict().items() if of}
    for split, of in given.items():
        if row.loss in _OF_CLASSES and of.labels.min() == of.labels.max():
            yield f"all labels of the {split} split are {of.labels.min()}"
    for (split, of), (other, others) in itertools.combinations(given.items(), 2):
        if np.array_equal(of.inputs, others.inputs):
            yield f"the {split} and {other} splits have the same inputs"


def check_network(row: Dataset, workload: Workload, model: str) -> None:
    """Raises BadInput unless the gradient of a model can be traced, with outputs that fit the labels. Needs no device.

    Args:
      row, workload: the data set, and its workload with the model.
      model: name for messages.
    """
    import jax

    size = _TRACED * workload.group
    examples = Examples(*(jax.ShapeDtypeStruct((size, *a.shape[1:]), a.dtype) for a in workload.shapes.validation))
    smoothing = np.float32(0)

    def outputs_of(examples: Examples) -> tuple[Array, ...]:
        params, state = workload.init(jax.random.key(0))
        return params, state, workload.predict(params, state, examples.inputs)

    def losses_of(outputs: Array, labels: Array) -> ArrayPair:
        return row.loss(outputs, labels, smoothing), [each.sums(outputs, labels, None) for each in row.metrics.values()]

    def step(params: Any, state: Any, examples: Examples) -> Any:
        keys = jax.random.split(jax.random.key(0), size)
        return jax.value_and_grad(workload.loss, has_aux=True)(params, state, examples, None, keys, smoothing)

    def shapes_of(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)

    fails = f"model {model} fails for inputs {_shape(examples.inputs)}"
    params, state, outputs = _called(fails, jax.eval_shape, outputs_of, examples)
    wrong = (
        f"model {model}: outputs {_shape(outputs)} do not fit labels {_shape(examples.labels)} of {row.classes} "
        f"classes. The shape of outputs must be that of labels, followed by the number of classes"
    )
    if row.classes and outputs.shape[1:][-1:] != (row.classes,):
        raise BadInput(wrong)
    values, _ = _called(wrong, jax.eval_shape, losses_of, outputs, examples.labels)
    if values.shape != examples.labels.shape:
        raise BadInput(wrong)
    (_, after), _ = _called(fails, jax.eval_shape, step, params, state, examples)
    if shapes_of(state) != shapes_of(after):
        raise BadInput(f"model {model}: apply changes the structure, shapes or dtypes of the state")


def outputs_note(row: Dataset, workload: Workload, model: str) -> str | None:
    """Returns a note if the outputs of a small new model sum to 1, for inputs that are all 0 and all 1."""
    import jax

    variables = jax.eval_shape(lambda: workload.init(jax.random.key(0)))
    if row.loss not in _OF_CLASSES or sum(leaf.size for leaf in jax.tree.leaves(variables)) > _MOST_PARAMETERS:
        return None
    shape, dtype = workload.shapes.validation.inputs
    inputs = np.stack([np.zeros(shape[1:], dtype), np.ones(shape[1:], dtype)])
    outputs = jax.jit(lambda x: workload.predict(*workload.init(jax.random.key(0)), x))(inputs)
    if (outputs < 0).any() or not np.allclose(outputs.sum(axis=-1), 1, atol=1e-3):
        return None
    return f"outputs of {model} sum to 1 like probabilities, but the loss needs logits. Leave out the softmax."


def _called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of the user. Any exception becomes a BadInput that begins with ``what``."""
    try:
        return function(*arguments)
    except BadInput:
        raise
    except Exception as error:  # code of others can raise anything
        raise BadInput(f"{what} ({type(error).__name__}: {first_line(error)})") from None


def _split(where: str, row: Dataset, examples: Any) -> Examples:
    """Returns the examples of a split as arrays. ``where`` names the split in messages."""
    if not isinstance(examples, Examples):
        raise BadInput(f"{where} is {type(examples).__name__}, not workloads.workload.Examples")
    arrays = Examples(*(_array(f"{field} of the {where}", array) for field, array in examples._asdict().items()))
    inputs, labels = map(len, arrays)
    if inputs != labels:
        raise BadInput(f"{where} has {inputs:,} inputs but {labels:,} labels. Their lengths must be equal.")
    if not arrays.inputs.size:
        raise BadInput(f"{where} is empty")
    _check_labels(where, row, arrays.labels)
    return arrays


def _array(what: str, given: Any) -> np.ndarray:
    """Returns an array of numbers of at most 4 bytes. ``what`` names it in messages."""
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    if not kind or kind not in "biuf" or not given.shape:
        dtype = f" of {given.dtype}" if kind else ""
        raise BadInput(f"{what} are {type(given).__name__}{dtype}, not a NumPy array of numbers with a row per example")
    array = np.asarray(given)
    with np.errstate(over="ignore"):
        narrow = array.astype(f"{kind}4") if array.itemsize > 4 else array
    if not np.isfinite(narrow).all():
        place = tuple(np.argwhere(~np.isfinite(narrow))[0].tolist())
        raise BadInput(f"{what} are not finite: {array[place]} at {list(place)}. Look at the data.")
    if kind != "f" and not np.array_equal(narrow, array):
        raise BadInput(f"{what} have numbers from {array.min()} to {array.max()}, which do not fit in {narrow.dtype}")
    return narrow


def _check_labels(where: str, row: Dataset, labels: np.ndarray) -> None:
    """Raises BadInput if a label is not a class, or all labels are padding. Labels of an own loss may be any floats."""
    real = labels if row.padding is None else labels[labels != row.padding]
    if not real.size:
        raise BadInput(f"{where}: all labels are padding")
    whole = labels.dtype.kind in "iu"
    if row.loss is losses.squared_error or not (whole or row.loss in (*_OF_CLASSES, losses.sigmoid_cross_entropy)):
        return
    most = 1 if row.loss is losses.sigmoid_cross_entropy else row.classes - 1
    if row.loss in _OF_CLASSES and not whole:
        raise BadInput(f"{where}: labels are {labels.dtype}, but classes are integers. Use int32.")
    for label in (real.min(), real.max()):
        if most and not 0 <= label <= most:
            raise BadInput(f"{where}: label {label} is not a class. Labels of {row.classes} classes are 0 to {most}.")


def _shape(array: Any) -> str:
    """Returns the dtype and the shape of an array as text. The number of examples is N."""
    return f"{array.dtype}[{', '.join(('N', *map(str, array.shape[1:])))}]"
