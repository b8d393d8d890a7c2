"""Readers: the function that reads the configuration of each kind of study, and the keys it takes."""

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from results.plans import kinds
from sweeps import factorizations, layouts, networks, schema
from sweeps.configured_study import ConfiguredStudy


class Reader(NamedTuple):
    """The reader of configurations of a kind.

    Attributes:
      noun: what messages call one of its studies.
      shape: the keys it takes beside those of every study, as a dataclass; it refuses those of other kinds.
      sections: keys of these that only its tasks give a value; null in the configuration of a study of another kind.
      read: the study of a configuration, plain data; BadInput for anything wrong with it.
      command: of ``python -m analysis``, that reads what was measured.
      notes: what a reader of plans of this kind has to know; takes those that were asked for.
      data_lines: lines for the user about the data of studies, before any of them is run.
      examples: that a step of a study takes, or links; infinity where nobody knows.
      make_ready: prepares the data of studies that are to be run, and tells a user about them, line by line.
    """

    noun: str
    shape: type
    sections: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], ConfiguredStudy[Any]]
    command: str
    notes: Callable[[Sequence[Any]], list[str]] = lambda studies: []
    data_lines: Callable[[Sequence[ConfiguredStudy[Any]]], list[str]] = lambda studies: []
    examples: Callable[[ConfiguredStudy[Any]], float] = lambda one: one.study.batch_size or 0.0
    make_ready: Callable[[Sequence[ConfiguredStudy[Any]], Callable[[str], None]], None] = lambda studies, say: None


READERS: dict[str, Reader] = {
    "batch": Reader(
        "network",
        schema.NetworkConfig,
        ("task",),
        networks.read,
        "steps",
        networks.notes,
        networks.data_lines,
        make_ready=networks.make_ready,
    ),
    "cores": Reader(
        "factorization",
        schema.FactorizationConfig,
        ("ratings", "als", "cores"),
        factorizations.read,
        "epochs",
        factorizations.notes,
        examples=factorizations.links,
        make_ready=factorizations.make_ready,
    ),
    "layout": Reader("layout", layouts.Keys, ("step", "mesh", "layout"), layouts.read, "layouts", layouts.notes),
}


@functools.cache
def config() -> type:
    """The shape of the configuration of a study of any kind: a dataclass with all keys there are."""
    shapes = (schema.StudyConfig, *(reader.shape for reader in READERS.values()))
    fields = {field.name: (field, shape) for shape in shapes for field in dataclasses.fields(shape)}
    return dataclasses.make_dataclass(
        "Config",
        [
            (
                name,
                typing.get_type_hints(shape)[name],
                dataclasses.field(default=field.default, default_factory=field.default_factory),
            )
            for name, (field, shape) in fields.items()
        ],
        kw_only=True,
    )


def takes(kind: str, key: str) -> bool:
    """Whether studies of a kind take a key; dotted, or the name of a group of configurations."""
    if key in ("task", "experiment"):  # which decide the kind
        return True
    if key == "launcher.workers":
        return not kinds.KINDS[kind].alone
    first = key.split(".")[0]
    shapes = (schema.StudyConfig, READERS[kind].shape)
    return first != "kind" and any(field.name == first for shape in shapes for field in dataclasses.fields(shape))
