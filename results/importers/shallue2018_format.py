"""Parsers for files in the archive of Shallue et al. 2018.

    batch_science/<dataset>/<model>/<optimizer>/<batch_size>/study.json
    batch_science/<dataset>/<model>/<optimizer>/<batch_size>/<trial_id>/metadata.json
    batch_science/<dataset>/<model>/<optimizer>/<batch_size>/<trial_id>/measurements.csv

`<dataset>` consists of one or two folders. If there are two, study.json omits the first, so only the path identifies
the study.
"""

import contextlib
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from results.aliases import Fields
from results.bad_input import BadInput
from results.importers import recording
from results.importers.untrusted import (
    MOST_METAPARAMETERS,
    Unusable,
    brief,
    int_or_none,
    json_object,
    no_number,
    number,
    numeric,
)
from results.plans import kinds
from results.plans.recorded import Recorded
from results.plans.search_space import Range, Scale, SearchSpace

SOURCE = "shallue2018"
TOP = "batch_science"
FILES = ("study.json", "metadata.json", "measurements.csv")
STATUSES = ("COMPLETE", "INCOMPLETE", "INFEASIBLE")
LONGEST_PATH = 200  # characters; the path becomes the study's name, and folder names can have 255 bytes

_WORD = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,79}"
_PATH = re.compile(
    rf"(?:\./)?{TOP}/(?P<study>(?P<dataset>{_WORD}(?:/{_WORD})?)/(?P<model>{_WORD})/(?P<optimizer>{_WORD})"
    r"/(?P<batch_size>[1-9][0-9]{0,8}))/(?:(?P<trial>0|[1-9][0-9]{0,8})/(?P<file>metadata\.json|measurements\.csv)"
    r"|study\.json)"
)
_SPLITS = {"train": "train", "val": "validation", "test": "test"}
_KINDS = {
    "cross_entropy_error": "loss",
    "classification_error": "error",
    "average_precision": "average_precision_error",
}
METRICS = {f"{s}/{k}": f"{split}_{kind}" for s, split in _SPLITS.items() for k, kind in _KINDS.items()}
_SCALES: dict[Any, Scale] = {
    "": "LINEAR",
    "LINEAR_SCALE": "LINEAR",
    "LOG_SCALE": "LOG",
    "REVERSE_LOG_SCALE": "REVERSE_LOG",
}


class ArchivePath(NamedTuple):
    """A parsed path: the study, the trial (None for study.json) and the file."""

    study: str
    trial: int | None
    file: str


class TrialMetadata(NamedTuple):
    """The content of a trial's metadata.json."""

    status: str
    steps: int | None
    metaparameters: Mapping[str, float]


def place(path: str) -> ArchivePath | None:
    """Parses a file path. Returns None for files that are not part of the format."""
    match = _PATH.fullmatch(path)
    if not match or len(match["study"]) > LONGEST_PATH:
        return None
    if match["trial"] is None:
        return ArchivePath(match["study"], None, "study.json")
    return ArchivePath(match["study"], int(match["trial"]), match["file"])


def study(path: str, data: bytes) -> Recorded:
    """Parses a folder's study.json. Raises Unusable if it is invalid."""
    dataset, model, optimizer, batch_size = path.rsplit("/", 3)
    content = json_object(data, _DECODER)
    size, stops, steps, configs = (
        content.get(name) for name in ("batch_size", "early_stopping", "train_steps", "parameter_configs")
    )
    if int_or_none(size, 1) != int(batch_size):
        raise Unusable(f"has batch_size {brief(size)}, but its folder is {batch_size}")
    if not isinstance(stops, bool):
        raise Unusable(f"has early_stopping {brief(stops)}, which is neither true nor false")
    if int_or_none(steps, 0) is None:
        raise Unusable(f"has train_steps {brief(steps)}, which is not a number of steps")
    if not isinstance(configs, dict) or not all(isinstance(config, dict) for config in configs.values()):
        raise Unusable("has parameter_configs of an unknown form")
    if "Infinity" in json.dumps(configs):  # for example 1e999
        raise Unusable("has parameter_configs with infinite numbers")
    details = {
        "train_steps": int_or_none(steps, 0),
        "early_stopping": stops,
        "parameter_configs": configs,
    }
    return Recorded(SOURCE, dataset, model, optimizer, int(batch_size), _space(configs), details, trials=0)


def outcome(trial: int, data: bytes) -> TrialMetadata:
    """Parses a trial's metadata.json. Raises Unusable if it is invalid."""
    content = json_object(data, _DECODER)
    if numeric(content.get("trial_id")) != trial:
        raise Unusable(f"has trial_id {brief(content.get('trial_id'))}")
    status = content.get("status")
    if status not in STATUSES:
        raise Unusable(f"has status {brief(status)}")
    steps = content.get("steps")
    if steps is not None and int_or_none(steps, 0) is None:
        raise Unusable(f"has steps {brief(steps)}")
    parameters = content.get("parameters")
    if not isinstance(parameters, dict) or len(parameters) > MOST_METAPARAMETERS:
        raise Unusable("has parameters of an unknown form")
    values = {}
    for name, value in parameters.items():
        column, numeric_value = metaparameter(name), numeric(value)
        if numeric_value is None or column in values:
            raise Unusable(f"has {brief(name)} = {brief(value)}, which is not a number")
        values[column] = numeric_value
    return TrialMetadata(status, int_or_none(steps, 0), values)


@functools.lru_cache(1024)
def metaparameter(name: str) -> str:
    """Returns the column name for a metaparameter: its own name, with a prefix if this name is reserved."""
    column = f"metaparameter_{name}" if name in kinds.reserved() else name
    if not recording.may_be_column(column):
        raise Unusable(f"has a metaparameter {brief(name)}, which is not a valid name")
    return column


def as_errors(curves: pa.Table) -> pa.Table:
    """Converts average precisions to errors."""
    for i, name in enumerate(curves.column_names):
        if name.endswith("average_precision_error"):
            precision = curves.column(i)
            error = pa.array(recording.complement(precision.to_numpy()), mask=precision.is_null().to_numpy())
            curves = curves.set_column(i, name, error)
    return curves


_DECODER = json.JSONDecoder(parse_constant=no_number)  # json.loads would create one per file


def _space(configs: Mapping[str, Fields]) -> SearchSpace:
    """Returns the ranges that a SearchSpace can express. The plan's details keep all ranges unchanged."""
    if len(configs) > MOST_METAPARAMETERS:
        raise Unusable(f"has {len(configs):,} metaparameters")
    ranges = {}
    for name, config in configs.items():
        with contextlib.suppress(BadInput, KeyError, TypeError):
            # The names of studies depend on integers without a scale.
            ranges[metaparameter(name)] = range_of({**config, "scale": ""} if config["type"] == "INTEGER" else config)
    return SearchSpace(ranges)


def range_of(config: Fields) -> Range:
    """Returns the range for an entry in ``parameter_configs``. An empty scale means linear.

    Raises:
      BadInput, KeyError, TypeError, AttributeError: the entry has an unknown format.
    """
    kind = config["type"]
    if kind == "DISCRETE":
        return Range(kind, values=tuple(config["feasible_points"]))
    scale, low, high = (
        _SCALES[config.get("scale") or ""],
        number(config.get("min_value")),
        number(config.get("max_value")),
    )
    if kind == "DOUBLE":
        return Range(scale, low, high)
    if kind != "INTEGER":
        raise BadInput(f"unknown type {kind!r}")
    return Range(kind, low, high) if scale == "LINEAR" else Range(scale, low, high, denominator=1)
