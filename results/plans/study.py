"""Types shared by all kinds of studies: metrics, targets and trials, and the hash of a plan."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import numpy as np

from results.aliases import Fields
from results.bad_input import BadInput, check_choice
from results.plans.search_space import finite

# Major.Minor of the release that these results are comparable with (CHANGELOG.md). Part of every plan.
COMPARABLE = "0.2"

# Kinds of errors. Lower is always better: a quality q in [0, 1] is stored as the error 1 − q.
METRIC_KINDS = {
    "loss": "the loss that training minimizes, without regularization",
    "error": "fraction of examples classified wrongly",
    "squared_error": "mean squared error of a predicted number, in its squared unit",
    "r2_error": "1 − R² of a predicted number: its squared error relative to that of the mean of the same examples",
    "average_precision_error": "1 − average precision",
    "word_error_rate": "word errors per word of the reference",
    "ssim_error": "1 − structural similarity",
    "bleu_error": "1 − BLEU, with BLEU in [0, 1]",
    "recall_20_error": "1 − Recall@20 of held-out links",
    "recall_50_error": "1 − Recall@50 of held-out links",
    "objective": "the objective that a factorization minimizes, with its ridge",
    "shortfall": "0 once a benchmark's own quality target is met, for sources that report only that",
}
# No kind can be below 0. These kinds are also at most 1, from the start of every trial.
SHARES = ("error", "average_precision_error", "bleu_error", "recall_20_error", "recall_50_error")
SPLITS = ("train", "validation", "test")
METRICS = tuple(f"{split}_{kind}" for split in SPLITS for kind in METRIC_KINDS)

REASONS = ("pruned", "time_limit", "lost", "failed", "unstated")  # unstated: the source gives no reason
# Trials that ended for one of these reasons are run again when the study is requested again.
REASONS_TO_RERUN = ("time_limit", "lost", "failed")
ACCIDENTS = ("lost", "failed")  # reasons caused by the machine or this software, not by the trial

RERUNS: Final = "reruns"
# A metric and a value, the targets that reruns reach, or each study's own targets.
TargetRequest: TypeAlias = tuple[str, float] | Literal["reruns"] | None

MOST_STEPS = 2**31 - 1  # also the maximum of other integer columns

DIGITS = (8, 16)  # hex digits of a plan's sha256 at the end of a study's name, in older stores and today


def decimal(value: float) -> str:
    """Formats a number with six digits, or with full precision if six digits are not exact."""
    text = f"{value:g}"
    return text if float(text) == value else repr(float(value))


def check_int(what: str, value: object, least: int, most: int | None = None) -> int:
    """Returns ``value`` as an int. Raises BadInput, with the name ``what``, if it is not in ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BadInput(f"{what} must be an integer of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise BadInput(f"{what} must be at most {most}, not {str(value)[:20]}")
    return int(value)


def in_type(value: float, dtype: type[np.floating]) -> np.floating:
    """Converts the value of a target to a column's type. Values beyond the type's range become its largest number."""
    with np.errstate(over="ignore"):
        return min(dtype(value), dtype(np.finfo(dtype).max))


@dataclasses.dataclass(frozen=True)
class Target:
    """A metric and its target value. Every metric is an error, so values at or below the target reach it."""

    metric: str
    value: float

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        object.__setattr__(self, "value", finite(f"target on {self.metric}", self.value))

    def check_possible(self, where: str) -> None:
        """Raises BadInput for a value that no trial can reach, or that every trial reaches at the start.

        Only new requests are checked. Stored studies can have any targets.

        Args:
          where: the option by which the value was set.
        """
        if self.value < 0:
            raise BadInput(
                f"{where}: {self.metric} is never below 0, so {self.value:g} cannot be reached. Use 0 or more."
            )
        if self.value > 1 and self.metric.partition("_")[2] in SHARES:
            raise BadInput(
                f"{where}: {self.metric} is never above 1, so {self.value:g} is not a target. Write 5 % as 0.05."
            )

    def reached(self, measured: np.ndarray, *, strict: bool = False) -> np.ndarray:
        """Returns whether each value is at or below the target, in the column's type. NaN never reaches it.

        Args:
          measured: values of the metric, any shape, float32 or float64.
          strict: whether values must be below the target.

        Returns:
          bool array of the same shape.
        """
        measured = np.asarray(measured)
        value = in_type(self.value, measured.dtype.type)
        return measured < value if strict else measured <= value


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training run, given by its number within the study, its seed (uint32) and its metaparameters."""

    id: int
    seed: int
    metaparameters: Mapping[str, float]


def unreadable(plan: Fields, why: str) -> str:
    """Returns the error message for a plan from another version. ``why`` lists unexpected and missing fields."""
    return f"scaling-limits {COMPARABLE} cannot read a plan of version {plan.get('comparable')}: unexpected {why}"


def canonical(plan: Fields) -> str:
    """Returns plain data as JSON with sorted keys and no spaces."""
    return json.dumps(plan, sort_keys=True, separators=(",", ":"))


def digest(plan: Fields) -> str:
    """Returns the hex sha256 of plain data in canonical form."""
    return hashlib.sha256(canonical(plan).encode()).hexdigest()
