"""The user's own table, with one row per example, for predicting one column from the others.

**Label.** Texts, integers and booleans are treated as classes, and other numbers as a regression target. ``task``
overrides this.

**Split.** ⌈share · rows⌉ random rows are drawn for validation and for test, seeded by ``seed``. In a classification,
every split gets its share of each class (by largest remainders), and at least one row. Rows within a split are in
random order.

**Inputs.** Numbers are standardized by their mean and standard deviation in the training split. Columns that are
constant there become 0. A column of texts is one-hot encoded, with one input for each text in the training split. Texts
that occur only in the validation or test split are encoded as zeros.

**Regression labels** are standardized in the same way, and the loss is the mean squared error. ``squared_error`` is in
squared units of the original label, and ``r2_error`` is 1 − R².
"""

import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads import losses, memory
from workloads.base import BadInput, check_choice, durable, nearest, number_of
from workloads.datasets import table_facts, table_files
from workloads.datasets.table_facts import Facts
from workloads.datasets.table_files import HOW, Column, Numbers, Texts
from workloads.factorization.ratings import random_bits
from workloads.workload import Dataset, Examples, Names, Splits

READER = 1  # version of this module and table_files; part of the data's identity
TASKS = ("classification", "regression")
MODELS = ("fully_connected",)  # models that accept vectors as inputs
LEAST_ROWS = 10
MOST_TEXTS = 100  # maximum number of distinct texts per column
MOST_EVALUATED = 10_000  # maximum number of evaluated rows per split, in random order
NPZ_LABEL = "y"
# Limits of a label's deviation, so that its squares are well within float32.
FINEST = 1e-15
LARGEST = 1e15


class Options(NamedTuple):
    """The options of a table. See ``dataset``."""

    path: Path
    label: str | None
    task: str | None
    drop: Names
    text: Names
    validation: float
    test: float
    seed: int


def dataset(
    path: str | None = None,
    label: str | None = None,
    task: str | None = None,
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
    validation: float = 0.2,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Returns the registry row of a table. Each process reads, splits and checks the file once, unless it changes.

    Args:
      path: CSV, Parquet or ``.npz`` file. See ``table_files``.
      label: column to predict. Defaults to ``y`` for an ``.npz``.
      task: classification or regression. By default, the label determines it.
      drop: columns to ignore.
      text: columns to read as texts, even if they look like numbers.
      validation, test: fractions of the rows. ``test`` may be 0.
      seed: seed of the split.

    Raises:
      BadInput: the options or the file are invalid.
    """
    if not path:
        raise BadInput(f"table.path is missing. It must name a file: {HOW}.")
    if task is not None:
        check_choice("table.task", task, TASKS)
    if seed < 0:
        raise BadInput(f"table.seed must be an integer of at least 0, not {seed}")
    if not (0 < validation < 1 and 0 <= test < 1 and validation + test < 1):
        raise BadInput(
            f"table.validation={validation:g} and table.test={test:g} are not shares of the rows. Validation must be "
            "above 0, test at least 0, and their sum below 1."
        )
    options = Options(durable.local(path), label, task, tuple(drop), tuple(text), validation, test, seed)
    facts = _facts(options, *_stamp(options.path))
    is_class = facts.task == "classification"
    return Dataset(
        functools.partial(_load, options, facts.version),
        lambda: facts.version,
        train_examples=facts.rows["train"],
        evaluation_examples=_evaluated(facts.rows),
        classes=len(facts.classes) if is_class else 1,
        splits=tuple(facts.rows),
        loss=losses.softmax_cross_entropy if is_class else losses.squared_error,
        metrics=losses.CLASSIFICATION if is_class else losses.regression(facts.deviation),
        tuned=("label_smoothing",) if is_class else (),
        options={"label": facts.label, "task": facts.task, "validation": validation, "test": test, "seed": seed},
        models=MODELS,
        targets=table_facts.targets(facts),
        lines=table_facts.lines(options.path, facts),
        targets_line=table_facts.targets_line(facts),
    )


def _stamp(file: Path) -> tuple[int, int]:
    """Returns the size and modification time of a file, or zeros if it does not exist."""
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


@functools.lru_cache(maxsize=256)
def _facts(options: Options, size: int, time: int) -> Facts:
    return _prepared(options, size, time)[0]


def _load(options: Options, version: str) -> Splits:
    facts, splits = _prepared(options, *_stamp(options.path))
    if facts.version != version:
        raise BadInput(f"{options.path} has changed since the study was planned. Run the same command again.")
    return splits


@functools.lru_cache(maxsize=1)
def _prepared(options: Options, size: int, time: int) -> tuple[Facts, Splits]:
    """Reads, checks and splits a table."""
    columns = table_files.read(options.path, options.drop, options.text)
    label = _label(options, list(columns))
    count = len(columns[label][0])
    if count < LEAST_ROWS:
        raise BadInput(f"{options.path} has {number_of(count, 'row')}. It needs at least {LEAST_ROWS}.")
    version = _version(columns, label)
    target = columns.pop(label)
    if not columns:
        raise BadInput(f"{options.path} only has the column {label}. Separate columns by commas, semicolons or tabs.")
    task = options.task or ("classification" if isinstance(target, Texts) or target.whole else "regression")
    classes, labels = _classes(options, label, target) if task == "classification" else ((), None)
    rows = _split(options, count, labels)
    inputs = _inputs(options.path, columns, rows["train"])
    deviation = 1.0
    if labels is None:
        labels, deviation = _standardized_label(options, label, target, rows)
    splits = {split: Examples(inputs[chosen], labels[chosen]) for split, chosen in rows.items()}
    numbers = sum(isinstance(column, Numbers) for column in columns.values())
    facts = Facts(
        version=version,
        label=label,
        task=task,
        rows={split: len(chosen) for split, chosen in rows.items()},
        columns=(numbers, len(columns) - numbers),
        inputs=inputs.shape[1],
        classes=classes,
        deviation=deviation,
        constant=_constant(splits, len(classes)),
    )
    return facts, Splits(splits["train"], splits["validation"], splits.get("test"))


def _evaluated(rows: Mapping[str, int]) -> int:
    return min(MOST_EVALUATED, max(rows["validation"], rows.get("test", 0)))


def _label(options: Options, names: list[str]) -> str:
    """Returns the name of the label column."""
    label = options.label
    if label is None and names[-1:] == [NPZ_LABEL] and table_files.is_arrays(options.path):
        return NPZ_LABEL
    if label is None:
        raise BadInput(f"table.label is missing. Choose the column to predict: {', '.join(names[:12])}")
    if label not in names:
        what = "is left out by table.drop" if label in options.drop else "is no column"
        raise BadInput(f"table.label={label} {what} of {options.path}; {nearest(label, names)}")
    return label


def _version(columns: Mapping[str, Column], label: str) -> str:
    """Returns the hash of all columns in use. The hash does not depend on the machine's byte order."""
    digest = hashlib.sha256(f"{READER} {label}".encode())
    for name, column in columns.items():
        texts = column.texts if isinstance(column, Texts) else None
        digest.update(json.dumps([name, len(column[0]), texts]).encode())
        array = column[0]
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return f"sha256:{digest.hexdigest()[:16]}"


def _classes(options: Options, label: str, column: Column) -> tuple[Names, np.ndarray]:
    """Returns the classes as texts, and the class of each row, int32[rows]."""
    if isinstance(column, Texts):
        classes = column.texts
        labels = column.codes
    else:
        if not np.array_equal(column.values, np.rint(column.values)):
            row = int((column.values != np.rint(column.values)).argmax())
            raise BadInput(
                f"{options.path}: row {row + 1} has {column.values[row]:g} in column {label}, which is not a "
                "class. Use table.task=regression."
            )
        values, labels = np.unique(column.values, return_inverse=True)
        classes = tuple(f"{value:.0f}" for value in values)
    if len(classes) < 2:
        raise BadInput(f"{options.path}: every row has {classes[0]!r} in column {label}. Choose another table.label.")
    counts = np.bincount(labels, minlength=len(classes))
    splits = 2 + (options.test > 0)
    if counts.min() < splits:
        number = " (to predict a number: table.task=regression)" if isinstance(column, Numbers) else ""
        raise BadInput(
            f"{options.path}: class {classes[counts.argmin()]!r} of {label} has {number_of(int(counts.min()), 'row')}, "
            f"and there are {splits} splits, each of which needs one. Remove the class or join it with another{number}."
        )
    return classes, labels.astype(np.int32)


def _split(options: Options, count: int, labels: np.ndarray | None) -> dict[str, np.ndarray]:
    """Returns the rows of each split, int64[...], in random order."""
    of_class = np.zeros(count, np.int32) if labels is None else labels
    sizes = np.bincount(of_class)
    validation = _shares(sizes, math.ceil(round(options.validation * count, 9)), spare=1 + (options.test > 0))
    test = _shares(sizes, math.ceil(round(options.test * count, 9)), spare=0)
    test = np.minimum(test, sizes - validation - 1)
    order = np.argsort(random_bits(options.seed, count), kind="stable")
    by_class = order[np.argsort(of_class[order], kind="stable")]  # preserves the random order within a class
    place = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    last_validation = np.repeat(validation, sizes)
    last_test = last_validation + np.repeat(test, sizes)
    split = np.empty(count, np.int8)
    split[by_class] = np.where(place < last_validation, 1, np.where(place < last_test, 2, 0))
    names = ("train", "validation", "test") if options.test else ("train", "validation")
    return {name: order[split[order] == i] for i, name in enumerate(names)}


def _shares(sizes: np.ndarray, total: int, spare: int) -> np.ndarray:
    """Splits ``total`` rows among classes by largest remainders: at least 1 per class, at most all but ``spare``."""
    if not total:
        return np.zeros_like(sizes)
    exact = sizes * total / sizes.sum()
    rows = np.floor(exact).astype(np.int64)
    rows[np.argsort(rows - exact, kind="stable")[: total - rows.sum()]] += 1
    return np.minimum(np.maximum(rows, 1), np.maximum(sizes - spare, 1))


def _inputs(file: Path, columns: Mapping[str, Column], train: np.ndarray) -> np.ndarray:
    """Returns inputs float32[rows, D]: standardized numbers and one-hot encoded texts, in column order."""
    seen = {name: np.unique(column.codes[train]) for name, column in columns.items() if isinstance(column, Texts)}
    for name, column in columns.items():
        if isinstance(column, Texts) and len(column.texts) > MOST_TEXTS:
            raise BadInput(
                f"{file}: column {name} has {len(column.texts):,} different texts, and at most {MOST_TEXTS} become "
                f"inputs. Leave it out with {table_files.chosen('drop', name)}."
            )
    width = sum(len(seen[name]) if name in seen else 1 for name in columns)
    count = len(next(iter(columns.values()))[0])
    memory.require(2 * count * width * 4, f"{file} with {count:,} rows and {width:,} inputs", "Use fewer of them")
    inputs = np.zeros((count, width), np.float32)
    place = 0
    for name, column in columns.items():
        if isinstance(column, Texts):
            for code in seen[name]:
                inputs[:, place] = column.codes == code
                place += 1
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            mean = column.values[train].mean()
            deviation = column.values[train].std()
            if deviation > 0 and column.values[train].min() < column.values[train].max():
                inputs[:, place] = (column.values - mean) / deviation
        if not (np.isfinite(deviation) and np.isfinite(inputs[:, place]).all()):
            raise BadInput(
                f"{file}: column {name} has values too far apart to be standardized, up to "
                f"{np.abs(column.values).max():g}. Rescale it, or leave it out with {table_files.chosen('drop', name)}."
            )
        place += 1
    return inputs


def _standardized_label(
    options: Options, label: str, column: Column, rows: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, float]:
    """Returns standardized labels float32[rows], and their standard deviation in the training split."""
    if isinstance(column, Texts):
        raise BadInput(
            f"{options.path}: row 1 has {column.texts[column.codes[0]]!r} in column {label}, and a regression predicts "
            "a number. Use table.task=classification."
        )
    evaluated = _evaluated({split: len(chosen) for split, chosen in rows.items()})
    for split, chosen in rows.items():
        values = column.values[chosen[:evaluated]]
        if values.min() == values.max():
            raise BadInput(
                f"{options.path}: {label} is {values[0]:g} in {number_of(len(values), f'{split} row')}, all that are "
                "evaluated, but R² needs different values. Use larger shares or another table.seed."
            )
    train = column.values[rows["train"]]
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(train.mean())
        deviation = float(train.std())
    if not FINEST < deviation < LARGEST:
        raise BadInput(
            f"{options.path}: {label} has a standard deviation of {deviation:g}. Rescale it to lie between {FINEST:g} "
            f"and {LARGEST:g}."
        )
    return ((column.values - mean) / deviation).astype(np.float32), deviation


def _constant(splits: Mapping[str, Examples], classes: int) -> tuple[str, float]:
    """Returns the target metric, and the validation error of the constant that is best on the training split."""
    if not classes:
        return "validation_r2_error", 1.0
    share = np.bincount(splits["train"].labels, minlength=classes) / len(splits["train"].labels)
    evaluated = splits["validation"].labels[:MOST_EVALUATED]
    counts = np.bincount(evaluated, minlength=classes)
    return "validation_loss", float(-(counts @ np.log(share)) / len(evaluated))
