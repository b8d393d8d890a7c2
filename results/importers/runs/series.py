"""Series: a logged metric of a run, without repeated steps and averaged over windows, and seconds per step."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

GROWTH = 10  # percent by which the ends of windows grow, like our own evaluations
DENSE = 0.02  # a metric logged more often than once in this fraction of the steps is averaged
FEW = 0.8  # windows per row, above which averaging would change nothing
SKIPPED = 5  # differences between logged steps that are left out of the seconds per step, at the start
FEWEST_TIMES = 3  # differences that a time needs
FEWEST_IN_REVERSE = 3  # rows, below which their order cannot be seen
RESTART_SPACING = 0.25  # fraction of the median spacing of a log, below which lower steps are not a restart
RESTART = "before a restart"  # reasons for which rows are left out
STRAY = "out of order"


class Series(NamedTuple):
    """One logged metric of a run, in the order of the log.

    Attributes:
      step: int64[n], steps.
      seconds: float64[n], time in seconds, or NaN if it was not logged.
      value: float64[n], values.
      order: float64[n], places in the log: rows of a table, or times of events.
    """

    step: np.ndarray
    seconds: np.ndarray
    value: np.ndarray
    order: np.ndarray

    def where(self, kept: np.ndarray) -> "Series":
        """Returns the rows selected by a mask or by indices."""
        return Series(*(column[kept] for column in self))

    def in_order(self) -> "Series":
        """Returns the rows in the order of the log."""
        return self.where(np.argsort(self.order, kind="stable"))

    def starts(self, longer: "Series") -> bool:
        """Returns whether all rows are equal to the first rows of another series."""
        return self.shared(longer) == len(self.step)

    def shared(self, longer: "Series") -> int:
        """Returns the number of equal rows at the start of two series."""
        n = min(len(self.step), len(longer.step))
        missing = np.isnan(self.value[:n]) & np.isnan(longer.value[:n])
        equal = (self.step[:n] == longer.step[:n]) & ((self.value[:n] == longer.value[:n]) | missing)
        return n if equal.all() else int(np.argmin(equal))


Curves: TypeAlias = Mapping[str, Series]  # rows by metric or tag
NO_ROWS = Series(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


def joined(parts: Iterable[Series]) -> Series:
    """Returns the rows of several series, in their order."""
    return Series(*map(np.concatenate, zip(*parts, strict=True)))


def oldest_first(log: Curves) -> Curves:
    """Returns the metrics of a run with their rows in the order of training. Some tools export the newest row first."""
    step = max((rows.step for rows in log.values()), key=len, default=np.zeros(0))
    if len(step) < FEWEST_IN_REVERSE:
        return log
    changes = np.diff(step[: np.argmax(step == step[-1])])  # a last row at step 0 proves nothing
    if (changes < 0).sum() <= (changes > 0).sum():
        return log
    return {tag: rows.where(np.arange(len(rows.step))[::-1]) for tag, rows in log.items()}


def without_restarts(series: Series) -> tuple[Series, Mapping[str, int]]:
    """Returns the rows that count, which have increasing steps, and the number of other rows by reason.

    A run that is restarted from a checkpoint logs some steps twice. Rows that were logged before the restart, at the
    same or later steps, do not count. Lower steps that do not continue like the rest of the log are not a restart, and
    do not count themselves. For example, some loggers write the final evaluation at step 0.
    """
    if not len(series.step):
        return series, {}
    stray = _stray(series.step)
    ordered = series.where(~stray)
    first_after = np.minimum.accumulate(ordered.step[::-1])[::-1]  # the smallest step from this row on
    kept = np.append(ordered.step[:-1] < first_after[1:], True)
    return ordered.where(kept), {RESTART: int((~kept).sum()), STRAY: int(stray.sum())}


def _stray(step: np.ndarray) -> np.ndarray:
    """Returns whether each row has a lower step than an earlier row without being part of a restart: bool[n].

    A restart repeats at least two steps, with at least ``RESTART_SPACING`` of the log's median spacing.
    """
    changes = np.diff(step)
    starts = np.flatnonzero(changes < 0) + 1
    stray = np.zeros(len(step), bool)
    if not len(starts):
        return stray
    spacing = np.median(changes[changes > 0]) if (changes > 0).any() else 0.0
    highest = np.maximum.accumulate(step)[starts - 1]
    for start, steps, top in zip(starts, np.split(step, starts)[1:], highest, strict=True):
        repeated = steps[: np.searchsorted(steps, top, "right")]
        distinct = np.unique(repeated)
        is_stray = len(distinct) < 2 or np.diff(distinct).mean() < RESTART_SPACING * spacing
        stray[start : start + len(repeated)] = is_stray
    return stray


def averaged(series: Series) -> tuple[Series, bool]:
    """Averages a densely logged metric over windows whose ends grow by ``GROWTH`` percent.

    The first time that a noisy metric crosses a target is biased: among many rows, one is low by chance. Each window
    becomes one row with the mean of its values and the rounded mean of its steps.

    Args:
      series: rows with increasing steps.

    Returns:
      The series, and whether it was averaged.
    """
    if len(series.step) < 2 or not is_dense(series.step):
        return series, False
    window = windows(series.step)
    if window[-1] + 1 > FEW * len(series.step):  # logged at steps that grow like the windows
        return series, False
    counts = np.bincount(window)
    means = Series(*(np.bincount(window, column) / counts for column in series))
    return means._replace(step=np.rint(means.step).astype(np.int64)), True


def is_dense(step: np.ndarray) -> bool:
    """Returns whether the median spacing of increasing steps [n] is below the fraction ``DENSE`` of the last step."""
    return bool(np.median(np.diff(step)) < DENSE * step[-1])


def windows(step: np.ndarray) -> np.ndarray:
    """Returns the window number of each row, int[n], for increasing steps [n]. There are no empty windows."""
    ends = [int(step[0])]
    while ends[-1] < step[-1]:
        ends.append(ends[-1] + max(1, -(-ends[-1] * GROWTH // 100)))  # rounded up
    inside = np.searchsorted(ends, step)
    return np.unique(inside, return_inverse=True)[1]


def seconds_per_step(series: Series, evaluations: np.ndarray) -> float | None:
    """Returns the median seconds per step between logged steps, or None if there are too few times.

    Differences that include an evaluation or a restart do not count. The first ``SKIPPED`` differences do not count
    either.

    Args:
      series: rows in the order of the log.
      evaluations: int[m], steps at which the run evaluated, sorted.
    """
    steps, seconds = np.diff(series.step), np.diff(series.seconds)
    evaluated = np.searchsorted(evaluations, series.step, "right")
    calm = (steps > 0) & (seconds > 0) & np.isfinite(seconds) & (np.diff(evaluated) == 0)
    # An evaluation at the first row of a difference happens after that row was logged.
    calm &= ~np.isin(series.step[:-1], evaluations)
    calm[:SKIPPED] = False
    if calm.sum() < FEWEST_TIMES:
        return None
    return float(np.median(seconds[calm] / steps[calm]))
