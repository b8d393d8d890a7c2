"""Line patterns: suggests patterns for the lines of a text log, such as ``step {step}: val loss {validation_loss}``."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from results.importers.runs import text_lines, vocabulary

MOST_LINES = 20_000
_PAIR = re.compile(
    r"(?P<name>[A-Za-z_][\w./@ -]*?)(?P<sign>[\x22']?\s*[:=\[(#]\s*|\s+)"
    r"(?P<number>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])"
)
_EPOCHS = ("epoch", "epochs")


class Value(NamedTuple):
    """A named number in a line: the text before it, and the name in a pattern."""

    text: str
    name: str


def suggest(data: bytes) -> list[str]:
    """Returns patterns for the lines that hold a step and a loss or an accuracy. Lines about evaluations come first."""
    shapes: dict[str, set[str]] = {}
    for line in data[: 4 << 20].decode("utf-8", "replace").splitlines()[:MOST_LINES]:
        values = _values(line) if len(line) <= text_lines.LONGEST else []
        if len(values) > 1:
            shapes.setdefault(_pattern(values), {value.name for value in values})
    patterns, covered = [], set[str]()
    for pattern in sorted(shapes, key=lambda pattern: ("validation" not in pattern, "test" not in pattern)):
        if shapes[pattern] - covered - {"step"}:
            patterns.append(pattern)
            covered |= shapes[pattern]
    return patterns


def _values(line: str) -> list[Value]:
    """Returns the step or epoch, the metrics and the batch size in a line, in their order. Empty without a step."""
    values = dict[str, Value]()
    for pair in _PAIR.finditer(line):
        words = pair["name"].lower().split()
        name = "_".join(words[-3:])
        before = set(re.split(r"[^a-z]+", line[: pair.start("number")].lower()))
        if words[-1] in vocabulary.STEPS:
            name = "step"
        elif words[-1] in _EPOCHS:
            name = "epoch"
        elif name not in vocabulary.GLOBAL:
            name = metric(before, set(re.split(r"[^a-z0-9]+", pair["name"].lower())))
        if name and name not in values:
            values[name] = Value(" ".join(f"{pair['name']}{pair['sign']}|".split())[:-1], name)
    if "step" in values:
        values.pop("epoch", None)
    return list(values.values()) if {"step", "epoch"} & values.keys() else []


def metric(before: set[str], words: set[str]) -> str:
    """Returns the name of a metric in words of its name, and of the line before it, or an empty string."""
    kinds = {"loss": {"loss"}, "accuracy": {"accuracy", "acc", "top1"}, "error": {"error", "err"}}
    kind = next((kind for kind, names in kinds.items() if names & words), "")
    split = next((ours for ours, theirs in vocabulary.SPLIT_NAMES.items() if theirs & words), "")
    split = split or next((ours for ours, theirs in vocabulary.SPLIT_NAMES.items() if theirs & before), "train")
    return kind and f"{split}_{kind}"


def _pattern(values: Sequence[Value]) -> str:
    return "*".join(f"{value.text}{{{value.name}}}" for value in values)
