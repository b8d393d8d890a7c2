"""Checks of the user's own data sets and models. Each mistake is one line, before anything is compiled."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from workloads import losses
from workloads.base import BadInput, first_line
from workloads.workload import Dataset, Examples, Splits, Workload

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

    def checked() -> dict[str, Examples]:
        given = row.load()._asdict()
        return {
            split: _split(f"{split} split of {name}", row, examples)
            for split, examples in given.items()
            if examples is not None
        }

    splits = called(f"dataset {name} cannot be loaded", checked)
    streamed = row.feed or row.draw
    needed = ["validation", *row.splits]
    if not streamed:
        needed.append("train")
    for split in needed:
        if split not in splits:
            raise BadInput(f"dataset {name} needs a {split} split. Let load return one.")
    counts = {split: len(examples.labels) for split, examples in splits.items()}
    if not streamed and row.train_examples != counts["train"]:
        raise BadInput(f"dataset {name} declares train_examples={row.train_examples}, but has {counts['train']:,}")
    largest = max(counts[split] for split in ("validation", *row.splits))
    if not 1 <= row.evaluation_examples <= largest:
        raise BadInput(f"dataset {name} declares evaluation_examples={row.evaluation_examples}, but has {largest:,}")
    shapes = {split: " and ".join(map(_shape, examples)) for split, examples in splits.items()}
    for split, shape in shapes.items():
        if shape != shapes["validation"]:
            raise BadInput(f"{split} split of {name}: {shape} are {shapes['validation']} in the validation split")
    return Splits(*map(splits.get, Splits._fields))


def notes(row: Dataset, splits: Splits) -> Iterator[str]:
    """Yields notes on valid data that are probably a mistake."""
    if splits.train and np.array_equal(splits.train.inputs, splits.validation.inputs):
        yield "the train and validation splits have the same inputs"
    for split, examples in splits._asdict().items():
        if examples and row.loss in _OF_CLASSES and examples.labels.min() == examples.labels.max():
            yield f"all labels of the {split} split are {examples.labels.min()}"


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

    def predicted(examples: Examples) -> Any:
        params, state = workload.init(jax.random.key(0))
        return params, state, workload.predict(params, state, examples.inputs)

    def trained(params: Any, state: Any, outputs: Any, examples: Examples) -> Any:
        keys = jax.random.split(jax.random.key(0), size)
        step = jax.value_and_grad(workload.loss, has_aux=True)
        return row.loss(outputs, examples.labels, smoothing), step(params, state, examples, None, keys, smoothing)[0][1]

    inputs = _shape(examples.inputs)
    params, state, outputs = called(f"model {model} fails for inputs {inputs}", jax.eval_shape, predicted, examples)
    pair = f"model {model}: outputs {_shape(outputs)} do not fit labels {_shape(examples.labels)}"
    if row.classes and outputs.shape[1:][-1:] != (row.classes,):
        raise BadInput(f"{pair} of {row.classes} classes, the size of the last axis of outputs.")
    values, after = called(f"{pair}, or have no gradient", jax.eval_shape, trained, params, state, outputs, examples)
    if values.shape != examples.labels.shape:
        raise BadInput(f"{pair}. Without the last axis, the shape of outputs must be that of labels.")
    before, after = (jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (state, after))
    if before != after:
        raise BadInput(f"model {model}: apply changes the structure, shapes or dtypes of the state")


def outputs_note(row: Dataset, workload: Workload, model: str) -> str | None:
    """Returns a note if the outputs of a small new model sum to 1, for inputs that are all 0 and all 1."""
    import jax

    parameters = sum(leaf.size for leaf in jax.tree.leaves(workload.variable_shapes))
    if row.loss not in _OF_CLASSES or parameters > _MOST_PARAMETERS:
        return None
    shape, dtype = workload.shapes.validation.inputs
    inputs = np.stack([np.full(shape[1:], value, dtype) for value in (0, 1)])
    outputs = jax.jit(lambda x: workload.predict(*workload.init(jax.random.key(0)), x))(inputs)
    if outputs.min() < 0 or not np.allclose(outputs.sum(axis=-1), 1, atol=1e-3):
        return None
    return f"outputs of {model} sum to 1 like probabilities, but the loss needs logits. Leave out the softmax."


def called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of the user. Any exception becomes a BadInput that begins with ``what``."""
    try:
        return function(*arguments)
    except BadInput:
        raise
    except Exception as error:  # code of others can raise anything
        raise BadInput(f"{what} ({type(error).__name__}: {first_line(error)})") from None


def _split(where: str, row: Dataset, examples: Examples) -> Examples:
    """Returns the examples of a split as arrays. ``where`` names the split in messages."""
    inputs = _array(f"inputs of the {where}", examples.inputs)
    labels = _array(f"labels of the {where}", examples.labels)
    if len(inputs) != len(labels):
        raise BadInput(f"{where} has {len(inputs):,} inputs but {len(labels):,} labels. Their lengths must be equal.")
    if not inputs.size:
        raise BadInput(f"{where} is empty")
    _check_labels(where, row, labels)
    return Examples(inputs, labels)


def _array(what: str, given: Any) -> np.ndarray:
    """Returns an array of numbers of at most 4 bytes. ``what`` names it in messages."""
    dtype = getattr(given, "dtype", None)
    kind = getattr(dtype, "kind", "none")
    if kind not in "biuf" or not given.shape:
        raise BadInput(f"{what} are {type(given).__name__}, dtype {dtype}, not a NumPy array of numbers by example")
    array = np.asarray(given)
    with np.errstate(over="ignore"):
        narrow = array.astype(f"{kind}4") if array.itemsize > 4 else array
    wrong = ~np.isfinite(narrow) if kind == "f" else narrow != array
    if wrong.any():
        place = np.argwhere(wrong)[0].tolist()
        value = array[tuple(place)]
        raise BadInput(f"{what} have {value} at {place}, which is not a finite {narrow.dtype}. Look at the data.")
    return narrow


def _check_labels(where: str, row: Dataset, labels: np.ndarray) -> None:
    """Raises BadInput if a label is not a class, or all labels are padding. Labels of an own loss may be any floats."""
    real = labels if row.padding is None else labels[labels != row.padding]
    if not real.size:
        raise BadInput(f"{where}: all labels are padding")
    of_tags, of_classes = row.loss is losses.sigmoid_cross_entropy, row.loss in _OF_CLASSES
    is_whole = labels.dtype.kind in "iu"
    if row.loss is losses.squared_error or not (is_whole or of_tags or of_classes):
        return
    largest = 1 if of_tags else row.classes - 1
    if (of_classes and not is_whole) or (largest > 0 and not 0 <= real.min() <= real.max() <= largest):
        labels_text = f"{labels.dtype} from {real.min()} to {real.max()}"
        raise BadInput(
            f"{where}: labels of {row.classes} classes must be integers from 0 to {largest}, but are {labels_text}"
        )


def _shape(array: Any) -> str:
    """Returns the dtype and the shape of an array as text. The number of examples is N."""
    return f"{array.dtype}[{', '.join(('N', *map(str, array.shape[1:])))}]"
