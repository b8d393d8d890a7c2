"""Line patterns: suggests patterns for the lines of a text log, such as ``step {step}: val loss {validation_loss}``."""

import re

from results.importers.runs import text_lines, vocabulary

MOST_LINES = 20_000
_PAIR = re.compile(
    r"(?P<name>[A-Za-z_][\w./@ -]*?)(?P<sign>[\x22']?\s*[:=\[(#]\s*|\s+)"
    r"(?P<number>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])"
)
_SPLIT = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(vocabulary.SPLITS))})(?![a-z])", re.IGNORECASE)
KINDS = {"loss": {"loss"}, "accuracy": {"accuracy", "acc", "top1", "acc1"}, "error": {"error", "err"}}


def suggest(data: bytes) -> list[str]:
    """Returns patterns for the lines that hold a step and a loss or an accuracy. Lines about evaluations come first."""
    shapes = {}
    for line in data[: 4 << 20].decode("utf-8", "replace").splitlines()[:MOST_LINES]:
        values = _values(line) if len(line) <= text_lines.LONGEST else {}
        if len(values) > 1:
            shapes["*".join(f"{text}{{{name}}}" for name, text in values.items())] = set(values)
    patterns, covered = [], set[str]()
    for pattern in sorted(shapes, key=lambda pattern: ("validation" not in pattern, "test" not in pattern)):
        if shapes[pattern] - covered - {"step"}:
            patterns.append(pattern)
            covered |= shapes[pattern]
    return patterns


def _values(line: str) -> dict[str, str]:
    """Returns the texts before the step or epoch, the metrics and the batch size in a line. Empty without a step."""
    values = {}
    label = ""
    for pair in _PAIR.finditer(line):
        words = pair["name"].lower().split()
        name = "_".join(words[-3:])
        if words[-1] in vocabulary.STEPS.split():
            name = "step"
        elif words[-1] in vocabulary.EPOCHS.split():
            name = "epoch"
        elif name not in vocabulary.GLOBAL.split():
            before = _SPLIT.search(line[: pair.start()])
            name = metric(pair["name"], before[0] if before else "")
            if name and before and not _SPLIT.search(pair["name"]):
                label = before[0]
        if name and name not in values:
            values[name] = " ".join(f"{pair['name']}{pair['sign']}|".split())[:-1]
    if "step" in values:
        values.pop("epoch", None)
    elif "epoch" not in values:
        return {}
    first = next(iter(values))
    if label and label not in values[first]:  # lines of training and of evaluations look the same otherwise
        values[first] = f"{label}*{values[first]}"
    return values


def metric(tag: str, before: str = "") -> str:
    """Returns the name of a metric from a tag, or from a word before it such as Test. Empty if it is not a metric."""
    words = set(re.split(r"[^a-z0-9]+", tag.lower()))
    kind = next((kind for kind, names in KINDS.items() if names & words), "")
    splits = [
        split for texts in (words, {before.lower()}) for split, names in vocabulary.SPLIT_NAMES.items() if names & texts
    ]
    return kind and f"{[*splits, 'train'][0]}_{kind}"
