"""Step times: measured or predicted seconds per step against devices and batch size.

Measured times come from the runs in a store. Predicted times come from a file or from the times of one device: if a
batch is split across n devices, a step takes at least as long as one device needs for its share. Such a prediction is
called *without communication*.

Batch sizes between timed ones are used too. Between neighbours up to a factor of 4 apart, ln seconds are interpolated
in ln batch size. The allowed curvature is at most that of a fixed time plus a time per example. Between neighbours that
are farther apart, there is a gap. In gaps, and for shares outside the timed batch sizes, there are only bounds: a step
with more examples takes at least as long in total, and at most as long per example.
"""

import itertools
import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from analysis.cores.core_counts import CoreCurve
from analysis.cores.scaling import BETWEEN_RUNS, spread
from results.aliases import Json, Strings
from results.store import Commit, read_table

Basis = Literal["measured", "predicted", "published"]
MEASURED: Basis = "measured"
PREDICTED: Basis = "predicted"
PUBLISHED: Basis = "published"
BASES = (MEASURED, PREDICTED, PUBLISHED)
WITHOUT_COMMUNICATION = "times of 1 device, without communication"
NUMBERS = ("devices", "batch_size", "seconds_per_step", "low", "high")  # file columns of numbers
NAMES = ("dataset", "model", "optimizer")  # optional file columns that name the workload
UPPER = 0.95  # confidence level of each end of a 90 % interval
FEWEST_ALONE = 2  # minimum batch sizes on one device for predicting more devices
FEWEST = 3  # minimum batch sizes for comparing a time with its neighbours
INDEPENDENT = 18 / 35  # fraction of residuals that count as independent, for evenly spaced batch sizes
GAP = 4.0  # a larger factor between neighbouring batch sizes leaves a gap
BEND = 0.25  # maximum second derivative of ln(fixed + each · B) by ln B
PER_OCTAVE = 4  # per-device batch sizes to try per octave, between the timed ones
OWN = math.log(1.12)  # 90 % bound of a prediction's row-specific error
SAME = 1 + 1e-9  # tolerance for equal numbers


class StepTimes(NamedTuple):
    """Seconds per step on one device kind, r rows.

    Attributes:
      device_kind: JAX's name for the device.
      basis: measured, predicted or published, for all rows.
      by: source of the prediction, or empty if measured in a store.
      devices, batch_size, seconds: float64[r]. Batch sizes are in examples, or NaN if a step uses all data.
      below, above: float64[r], lower and upper 90 % bounds on the error of ln seconds.
      shared: float64[2], the parts of ``below`` and ``above`` that all rows share.
      notes: notes for the user.
      divided: whether all rows are for one device. If so, n devices are assumed to take as long as one device with its
        share of the batch.
    """

    device_kind: str
    basis: Basis
    by: str
    devices: np.ndarray
    batch_size: np.ndarray
    seconds: np.ndarray
    below: np.ndarray
    above: np.ndarray
    shared: np.ndarray
    notes: Strings = ()
    divided: bool = False

    def own(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns ``below`` and ``above`` without the error shared by all rows, which cancels in ratios."""
        ends = zip((self.below, self.above), self.shared, strict=True)
        lower_error, upper_error = (np.sqrt(np.maximum(widths**2 - shared**2, 0)) for widths, shared in ends)
        return lower_error, upper_error

    def within(self, smallest: float, largest: float) -> "StepTimes":
        """Returns the rows within a curve's batch sizes, or within shares of them. Outside, the steps are unknown."""
        return self.at(((self.batch_size >= smallest) | self.divided) & (self.batch_size <= largest))

    def at(self, rows: np.ndarray) -> "StepTimes":
        """Selects rows by a mask, bool[r]."""
        fields = ("devices", "batch_size", "seconds", "below", "above")
        return self._replace(**{name: getattr(self, name)[rows] for name in fields})

    def gaps(self) -> list[tuple[float, float, float]]:
        """Returns the gaps, each as a device count and the batch sizes on either side."""
        gaps = []
        for count in np.unique(self.devices):
            sizes = np.sort(self.batch_size[self.devices == count])
            gaps += [(count, a, b) for a, b in itertools.pairwise(sizes.tolist()) if b > GAP * a * SAME]
        return gaps

    def choices(self, smallest: float, largest: float) -> "dict[float, Choices]":
        """Returns the batch sizes available for each device count, within the range of a curve.

        Args:
          smallest, largest: range of the curve's batch sizes (ignored if a step uses all data).
        """
        if np.isnan(self.batch_size).any():
            steps = zip(self.devices, np.log(self.seconds)[:, None], np.eye(len(self.devices))[:, None], strict=True)
            return {float(n): Choices(np.array([np.nan]), time, time, time, weight) for n, time, weight in steps}
        even = np.round(2 ** (np.arange(PER_OCTAVE * math.log2(largest) + 1) / PER_OCTAVE))
        numbers = 2.0 ** np.arange(math.log2(largest) + 1) if self.divided else np.unique(self.devices)
        choices = {}
        for count in numbers.tolist():
            rows = np.flatnonzero(self.divided | (self.devices == count))
            rows = rows[np.argsort(self.batch_size[rows])]
            timed = self.batch_size[rows] * (count if self.divided else 1)
            sizes = np.union1d(timed, count * even)
            sizes = sizes[(sizes >= smallest / SAME) & (sizes <= largest * SAME)]
            inside = (sizes >= timed[0] / SAME) & (sizes <= timed[-1] * SAME)
            if inside.any():
                sizes = sizes if self.divided else sizes[inside]
                choices[count] = self._interpolated(rows, np.log(timed), sizes)
        return choices

    def _interpolated(self, rows: np.ndarray, x: np.ndarray, sizes: np.ndarray) -> "Choices":
        """Interpolates ln seconds at batch sizes [m] from rows at the ascending ln batch sizes ``x``."""
        y, ln_size = np.log(self.seconds[rows]), np.log(sizes)
        before = np.clip(np.searchsorted(x, ln_size * SAME, "right") - 1, 0, max(len(x) - 2, 0))
        after = np.minimum(before + 1, len(x) - 1)
        distance = np.maximum(x[after] - x[before], 1e-300)
        share = np.clip((ln_size - x[before]) / distance, 0, 1)
        middle = (1 - share) * y[before] + share * y[after]
        bend = BEND / 2 * share * (1 - share) * distance**2
        no_less = np.maximum(y[before], y[after] - (x[after] - ln_size))
        no_more = np.minimum(y[before] + (ln_size - x[before]), y[after])
        wide = distance > math.log(GAP * SAME)
        low = np.where(wide, np.minimum(no_less, middle), middle - bend)
        high = np.where(wide, np.maximum(no_more, middle), middle + bend)
        is_smaller, over = ln_size < x[0] - (SAME - 1), ln_size > x[-1] + (SAME - 1)
        low = np.where(is_smaller, y[0] - (x[0] - ln_size), np.where(over, y[-1], low))
        middle, high = (np.where(is_smaller | over, np.inf, bound) for bound in (middle, high))
        weights = np.zeros((len(ln_size), len(self.devices)))
        weights[np.arange(len(ln_size)), rows[before]] += 1 - share
        weights[np.arange(len(ln_size)), rows[after]] += share
        return Choices(sizes, middle, low, high, weights)


class Choices(NamedTuple):
    """Batch sizes available for a device count, with ln seconds per step. All arrays are float64.

    Attributes:
      batch_size: [m], batch sizes in examples, or NaN if a step uses all data.
      middle: [m], ln seconds, or infinite if there is only a lower bound.
      low, high: [m], bounds on ln seconds, without the errors of the rows.
      weights: [m, r], weight of each row in ``middle``.
    """

    batch_size: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    weights: np.ndarray


def of_commits(commits: Iterable[Commit]) -> list[StepTimes]:
    """Returns the times measured by the runs of a workload, one item per device kind, sorted by name.

    Steps with the same number of devices and batch size are averaged. Times of emulated devices are not used. Steps in
    which several trials ran concurrently (batched lanes, or device groups with separate trials) are not used either,
    because they measure throughput.
    """
    runs: dict[str, dict[tuple[int, int], list[float]]] = {}
    throughput = False
    for commit in commits:
        for run in read_table(commit, "studies").to_pylist():
            devices = run["device_count"]
            if run["emulated"] is not False or not devices or not run["trial_steps"] or not run["train_seconds"]:
                continue
            if ((run["lanes"] or 1) > 1 and run["lane_strategy"] != "map") or (run["shards"] or 1) != devices:
                throughput = True
                continue
            total = runs.setdefault(_kind(run), {}).setdefault((devices, run["batch_size"]), [0.0, 0.0])
            total[0] += run["train_seconds"]
            total[1] += run["trial_steps"]
    notes = ("steps of several trials at once measure throughput and are not used",) if throughput else ()
    return [_measured(kind, cells, notes) for kind, cells in sorted(runs.items())]


def _kind(run: Json) -> str:
    """Returns the device kind. For a CPU, it includes the number of cores per device if there are several."""
    cores = (run["physical_cores"] or 1) // run["device_count"] if run["backend"] == "cpu" else 1
    kind = run["device_kind"] or "unknown"
    return f"{kind}, {cores} cores each" if cores > 1 else kind


def _measured(kind: str, cells: dict[tuple[int, int], list[float]], notes: Strings) -> StepTimes:
    places = sorted(cells)
    devices, batch_size = np.array(places, np.float64).T
    seconds = np.array([cells[place][0] / cells[place][1] for place in places])
    width, is_estimated = noise(devices, batch_size, seconds)
    if not is_estimated:
        notes += (f"too few batch sizes were timed to estimate their noise, so it is assumed to be {BETWEEN_RUNS:.0%}",)
    widths = np.full(len(places), width)
    return StepTimes(kind, MEASURED, "", devices, batch_size, seconds, widths, widths, np.zeros(2), notes)


def noise(devices: np.ndarray, batch_size: np.ndarray, seconds: np.ndarray) -> tuple[float, bool]:
    """Returns the 90 % bound on the error of the ln measured times, and whether it is estimated from the times [r].

    The estimate uses each time's distance from the straight line, in log space, between its two neighbours in batch
    size. This estimator by Gasser, Sroka and Jennen-Steinmetz (1986, doi 10.1093/biomet/73.3.625) does not need a law
    for seconds against batch size, and includes slowdowns of a shared machine.
    """
    squares, count = 0.0, 0
    for device_count in np.unique(devices):
        order = np.argsort(batch_size[devices == device_count])
        x, y = (np.log(values[devices == device_count])[order] for values in (batch_size, seconds))
        if len(x) < FEWEST:
            continue
        after = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])  # weight of the larger neighbour
        deviation = y[1:-1] - after * y[2:] - (1 - after) * y[:-2]
        squares += float((deviation**2 / (1 + after**2 + (1 - after) ** 2)).sum())
        count += len(deviation)
    if not count:
        return float(ndtri(UPPER)) * BETWEEN_RUNS, False
    # Neighbouring residuals share points: c of them have the degrees of freedom of 18/35 c independent ones.
    return float(stdtrit(max(1.0, INDEPENDENT * count), UPPER)) * max(math.sqrt(squares / count), BETWEEN_RUNS), True


def without_communication(measured: StepTimes) -> StepTimes | None:
    """Predicts times of n devices, each with 1/n of the batch, from the times of one, if there are enough times."""
    alone = measured.at(measured.devices == 1)
    if np.isnan(alone.batch_size).any() or len(np.unique(alone.batch_size)) < FEWEST_ALONE:
        return None
    return alone._replace(basis=PREDICTED, by=WITHOUT_COMMUNICATION, divided=True)


def of_core_curve(curve: CoreCurve) -> StepTimes | None:
    """Returns a factorization's seconds per epoch on real cores as step times, or None if they are missing."""
    if not curve.members:
        return None
    of_epochs = spread([member.seconds for member in curve.members])
    widths = np.full(len(curve.members), float(ndtri(UPPER)) * math.hypot(of_epochs, BETWEEN_RUNS))
    kind = curve.representative.device or "unknown"
    nothing = np.full(len(curve.members), np.nan)
    return StepTimes(kind, MEASURED, "", curve.cores, nothing, curve.seconds, widths, widths, np.zeros(2))


def of_rows(rows: pd.DataFrame, source: str) -> list[StepTimes]:
    """Returns the step times in the rows from ``time_files.read``, one item per device kind and basis.

    Predicted rows share an error as large as the smallest of their ranges. If this error is large enough, each row
    keeps a separate error of × or / 1.12, which does not cancel in ratios.
    """
    result = []
    for kind, basis in itertools.product(sorted(set(rows["device_kind"])), BASES):
        matching = rows[(rows["device_kind"] == kind) & (rows["basis"] == basis)]
        if matching.empty:
            continue
        devices, batch_size, seconds, low, high = (matching[name].to_numpy(np.float64) for name in NUMBERS)
        lower_error, upper_error = np.log(seconds / low), np.log(high / seconds)
        smallest = np.array([lower_error.min(), upper_error.min()]) if basis == PREDICTED else np.zeros(2)
        shared = np.sqrt(np.maximum(smallest**2 - OWN**2, 0))
        result.append(StepTimes(kind, basis, source, devices, batch_size, seconds, lower_error, upper_error, shared))
    return result
