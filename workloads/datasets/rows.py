"""The rows of the registry that are data sets: their loaders, and metadata that are available without loading."""

import functools
from collections.abc import Callable
from typing import Any

from workloads import losses
from workloads.base import lazy
from workloads.datasets import in_memory, noise, streamed_records, text, tfds_images
from workloads.workload import Dataset, Names

SHALLUE2018 = "shallue2018_"  # prefix of data sets with the splits and the label smoothing of Shallue et al. (2018)


def _row(
    module: Any, name: str, splits: Names, classes: int, *, many: bool = False, spread: bool = False, **fields: Any
) -> Dataset:
    """Returns the registry row of a data set whose labels are classes.

    Args:
      module: module of the data set. Its functions ``load``, ``version``, ``shapes`` and ``check`` take a name.
      name: the name that these functions take.
      splits, classes: as in Dataset.
      many: whether an example may have several classes.
      spread: whether label smoothing is spread only over the other classes, as in Shallue et al. (2018). Plans record
        this choice.
      fields: additional fields of Dataset.
    """
    calls = {call: functools.partial(getattr(module, call), name) for call in ("load", "version", "shapes", "check")}
    shapes = module.shapes(name)
    if spread:
        fields |= {"loss": losses.spread_cross_entropy, "options": {"label_smoothing": "other classes"}}
    else:
        fields["loss"] = losses.sigmoid_cross_entropy if many else losses.softmax_cross_entropy
    return Dataset(
        **calls | fields,
        train_examples=shapes.train.inputs.shape[0],
        evaluation_examples=shapes.validation.inputs.shape[0],
        classes=classes,
        splits=splits,
        metrics=losses.MULTI_LABEL if many else losses.CLASSIFICATION,
        tuned=("label_smoothing",),
    )


def _digits(name: str) -> Dataset:
    classes = len(in_memory.SUBSETS[name].classes) if name in in_memory.SUBSETS else 10
    return _row(in_memory, name, ("train", "validation"), classes)


def _streamed(name: str) -> Dataset:
    """Returns the registry row of streamed photographs or texts."""
    source = streamed_records.sources()[name]
    splits = tuple(split for split in source.parts if split != "train")
    feed = functools.partial(streamed_records.feed, name)
    spread = name.startswith(SHALLUE2018)
    return _row(
        streamed_records,
        name,
        splits,
        source.classes,
        many=source.many,
        spread=spread,
        padding=source.padding,
        feed=feed,
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
    **{name: _digits(name) for name in ("digits", *in_memory.SUBSETS)},
    "digit_tags": _row(in_memory, "digit_tags", ("train", "validation"), len(in_memory.TAGS), many=True),
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
    **{
        name: _row(tfds_images, name, ("train", "validation", "test"), 10)
        for name in (*tfds_images.SOURCES, *tfds_images.SUBSETS)
    },
    **{name: _streamed(name) for name in streamed_records.sources()},
}

# The user's own data sets, as functions of their options.
OWN_DATASETS: dict[str, Callable[..., Dataset]] = {"table": lazy("workloads.datasets.tables", "dataset")}
