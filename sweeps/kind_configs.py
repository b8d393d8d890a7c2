"""Configuration readers for each kind of study, with the keys that they accept."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness.kinds import RUNNERS
from results.aliases import Strings
from results.lazy import lazy
from results.plans import kinds
from sweeps import schema
from sweeps.configured_study import Config, ConfiguredStudy, Say


class Reader(NamedTuple):
    """A reader for the configurations of one kind of study.

    Attributes:
      noun: noun for these studies in messages.
      shape: dataclass of the keys that are specific to this kind, in addition to the keys of all studies.
      sections: keys that only tasks of this kind set. In studies of other kinds, they are null.
      read: function that reads a configuration (plain data) into a study. Raises BadInput if it is invalid.
      command: command of ``python -m analysis`` that analyzes the results.
      notes: function that returns notes on some studies, for users who read their plans.
      data_lines: function that returns lines for the user about the data of studies. It is called before they run.
      examples: function that returns the number of examples or links in a step of a study, or infinity if unknown.
      make_ready: function that prepares the data of studies and reports on them line by line.
    """

    noun: str
    shape: type
    sections: Strings
    read: Callable[[Config], ConfiguredStudy[Any]]
    command: str
    notes: Callable[[Sequence[Any]], list[str]] = lambda studies: []
    data_lines: Callable[[Sequence[ConfiguredStudy[Any]]], list[str]] = lambda studies: []
    examples: Callable[[ConfiguredStudy[Any]], float] = lambda one: RUNNERS[one.study.kind].examples(one.study)
    make_ready: Callable[[Sequence[ConfiguredStudy[Any]], Say], None] = lambda studies, say: None


def _reader(noun: str, shape: type, sections: Strings, command: str, *names: str) -> Reader:
    """Returns a reader with functions of ``sweeps.NOUN_config``, which is imported when one of them is first called."""
    functions: dict[str, Any] = {name: lazy(f"sweeps.{noun}_config", name) for name in ("read", "notes", *names)}
    return Reader(noun, shape, sections, command=command, **functions)


READERS = {
    "batch": _reader("network", schema.NetworkConfig, ("task",), "steps", "data_lines", "make_ready"),
    "cores": _reader(
        "factorization", schema.FactorizationConfig, ("ratings", "als", "cores"), "epochs", "examples", "make_ready"
    ),
    "layout": _reader("layout", schema.LayoutConfig, ("step",), "layouts"),
}


@functools.cache
def config() -> type:
    """Returns a dataclass that has the keys of all kinds of studies."""
    shapes = (schema.StudyConfig, *(reader.shape for reader in READERS.values()))
    return dataclasses.dataclass(type("Config", shapes[::-1], {}))  # fields of the last base come first


def takes(kind: str, key: str) -> bool:
    """Returns whether studies of a kind accept a key, which may be dotted or the name of a group."""
    if key in ("task", "experiment"):  # these determine the kind
        return True
    if key == "launcher.workers":
        return not kinds.KINDS[kind].alone
    first = key.split(".")[0]
    shapes = (schema.StudyConfig, READERS[kind].shape)
    return first != "kind" and any(field.name == first for shape in shapes for field in dataclasses.fields(shape))
