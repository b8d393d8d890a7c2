"""Types shared by studies of every kind: metrics, targets, trials, and the hash of a plan."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from results.bad_input import BadInput, check_choice
from results.plans.search_space import finite

# Major.Minor of the release whose results these are comparable with (CHANGELOG.md). Part of every plan.
COMPARABLE = "0.2"

# Kinds of errors; lower is better, always: a quality q in [0, 1] that is to grow is kept as the error 1 − q.
METRIC_KINDS = {
    "loss": "what training minimizes, without regularization",
    "error": "fraction of examples classified wrongly",
    "squared_error": "mean squared error of a predicted number, in the square of its unit",
    "r2_error": "1 − R² of a predicted number: its squared error over that of the mean of the same examples",
    "average_precision_error": "1 − average precision",
    "word_error_rate": "word errors per word of the reference",
    "ssim_error": "1 − structural similarity",
    "bleu_error": "1 − BLEU, with BLEU in [0, 1]",
    "recall_20_error": "1 − Recall@20 of held-out links",
    "recall_50_error": "1 − Recall@50 of held-out links",
    "objective": "what a factorization minimizes, with its ridge",
    "shortfall": "0 once a benchmark's own quality target is met; of sources that tell nothing else",
}
# No kind can be below 0; these are shares of 1, so that every trial is at 1 from its start.
SHARES = ("error", "average_precision_error", "bleu_error", "recall_20_error", "recall_50_error")
SPLITS = ("train", "validation", "test")
METRICS = tuple(f"{split}_{kind}" for split in SPLITS for kind in METRIC_KINDS)

REASONS = ("pruned", "time_limit", "lost", "failed", "unstated")  # unstated: a source that does not say why
# Trials that ended for one of these reasons are run again when the study is asked for again.
REASONS_TO_RERUN = ("time_limit", "lost", "failed")
ACCIDENTS = ("lost", "failed")  # reasons that tell nothing of a trial: its machine was at fault, or this software

MOST_STEPS = 2**31 - 1  # and most of whatever else is a column of whole numbers

DIGITS = (8, 16)  # hex digits of a plan's sha256 that end a study's name: those of older stores, and of today's


def decimal(value: float) -> str:
    """A number in six digits, or in as many as tell it from all others."""
    text = f"{value:g}"
    return text if float(text) == value else repr(float(value))


def check_int(what: str, value: object, least: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BadInput(f"{what} must be a whole number of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise BadInput(f"{what} must be at most {most}, not {str(value)[:20]}")
    return int(value)


def in_type(value: float, dtype: type[np.floating]) -> np.floating:
    """A target's value in a column's own type; one beyond its range is its largest finite number."""
    with np.errstate(over="ignore"):
        return min(dtype(value), dtype(np.finfo(dtype).max))


@dataclasses.dataclass(frozen=True)
class Target:
    """A metric and the value to reach; every metric is an error, so reaching is being at or below ``value``."""

    metric: str
    value: float

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        object.__setattr__(self, "value", finite(f"target on {self.metric}", self.value))

    def check_possible(self, where: str) -> None:
        """Raises BadInput for a value that no trial can come down to, or that is above all that a trial can be at.

        What is stored is read whatever its targets are, so only what is asked for anew is checked.

        Args:
          where: the option that the value is of.
        """
        if self.value < 0:
            raise BadInput(f"{where}: {self.metric} is never below 0, so {self.value:g} cannot be reached; 0 can be")
        if self.value > 1 and self.metric.partition("_")[2] in SHARES:
            raise BadInput(
                f"{where}: {self.metric} is never above 1, so {self.value:g} is no target; 5 % is written 0.05"
            )

    def reached(self, measured: np.ndarray) -> np.ndarray:
        """Whether each measured value is at or below the target, compared in the column's own type; NaN never is.

        Args:
          measured: values of the metric, any shape, float32 or float64.

        Returns:
          bool array of the same shape.
        """
        measured = np.asarray(measured)
        return measured <= in_type(self.value, measured.dtype.type)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training run: its number within the study, its seed (uint32) and its choice of metaparameters."""

    id: int
    seed: int
    metaparameters: Mapping[str, float]


def unreadable(plan: Mapping[str, Any], why: str) -> str:
    """Error message about a plan that another version wrote; ``why``: what it has, or lacks."""
    return f"scaling-limits {COMPARABLE} cannot read a plan of version {plan.get('comparable')}: unexpected {why}"


def canonical(plan: Mapping[str, Any]) -> str:
    """Plain data as JSON with sorted keys and no spaces."""
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def digest(plan: Mapping[str, Any]) -> str:
    """sha256 of plain data in its canonical form, as hex."""
    return hashlib.sha256(canonical(plan).encode()).hexdigest()
