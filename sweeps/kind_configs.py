"""Configuration readers for each kind of study, with the keys that they accept."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness.kinds import RUNNERS
from results.aliases import Strings
from results.plans import kinds
from sweeps import factorization_config, layout_config, network_config, schema
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


READERS = {
    "batch": Reader(
        "network",
        schema.NetworkConfig,
        ("task",),
        network_config.read,
        "steps",
        network_config.notes,
        network_config.data_lines,
        make_ready=network_config.make_ready,
    ),
    "cores": Reader(
        "factorization",
        schema.FactorizationConfig,
        ("ratings", "als", "cores"),
        factorization_config.read,
        "epochs",
        factorization_config.notes,
        examples=factorization_config.links,
        make_ready=factorization_config.make_ready,
    ),
    "layout": Reader("layout", layout_config.Keys, ("step",), layout_config.read, "layouts", layout_config.notes),
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
