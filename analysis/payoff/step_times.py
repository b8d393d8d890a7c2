"""Step times: seconds per step against devices and batch size, measured or predicted, and never both in one table.

Measured ones come from the runs of a store, predicted ones from a file, or from times of one device: n devices, each
with its share of the batch, take at least as long as one with that share. That is *without communication*, which no
network can beat.
"""

import io
import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from analysis.cores.core_counts import CoreCurve
from analysis.cores.scaling import BETWEEN_RUNS, spread
from results import bounds
from results.bad_input import BadInput, meaning, nearest
from results.storage.commits import Commit, read_table

Says = Literal["measured", "predicted"]
MEASURED: Says = "measured"
PREDICTED: Says = "predicted"
SAYS = (MEASURED, PREDICTED)
WITHOUT_COMMUNICATION = "times of 1 device, without communication"
COLUMNS = ("device_kind", "devices", "batch_size", "seconds_per_step", "low", "high", "says")
NUMBERS = COLUMNS[1:6]
NAMES = ("dataset", "model", "optimizer")  # further columns of a file, which say whose times they are
UPPER = 0.95  # either end of a 90 % interval alone
FEWEST = 3  # batch sizes that show how far a time is from between its neighbours
INDEPENDENT = 18 / 35  # of residuals that share points, of evenly spaced batch sizes


class StepTimes(NamedTuple):
    """Seconds per step of a kind of device, r rows, all of them measured or all of them predicted.

    Attributes:
      device_kind: as JAX calls it.
      says: measured or predicted.
      by: who says so, where it is predicted.
      devices, batch_size, seconds: float64[r]; batch sizes in examples, NaN where a step takes all data.
      below, above: float64[r], how far ln seconds may be below and above, 90 % sure.
      source: int[r], what each was told by; rows of one source have one error.
      shared: float64[2], as much of ``below`` and ``above`` as all rows have in common.
      notes: what a reader has to know.
    """

    device_kind: str
    says: Says
    by: str
    devices: np.ndarray
    batch_size: np.ndarray
    seconds: np.ndarray
    below: np.ndarray
    above: np.ndarray
    source: np.ndarray
    shared: np.ndarray
    notes: tuple[str, ...] = ()

    def own(self, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """``below`` and ``above`` of some rows without what all have in common, which cancels in a ratio."""
        ends = zip((self.below[rows], self.above[rows]), self.shared, strict=True)
        below, above = (np.sqrt(np.maximum(widths**2 - shared**2, 0)) for widths, shared in ends)
        return below, above

    def within(self, smallest: float, largest: float) -> "StepTimes":
        """The rows at batch sizes of a curve, as nothing is known of steps beyond."""
        return self.at((self.batch_size >= smallest) & (self.batch_size <= largest))

    def at(self, rows: np.ndarray) -> "StepTimes":
        """Some of the rows, bool[r]."""
        fields = ("devices", "batch_size", "seconds", "below", "above", "source")
        return self._replace(**{name: getattr(self, name)[rows] for name in fields})


def of_commits(commits: Iterable[Commit]) -> list[StepTimes]:
    """Times that the runs of a workload measured, one for each kind of device, sorted by its name.

    Of every number of devices and batch size that of all steps together. Times of emulated devices say nothing, and
    where a step of several trials was one (lanes batched, or groups of devices with trials of their own) what is stored
    is the reciprocal of throughput: neither is used.
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
    notes = ("seconds of steps that several trials took at once are throughput, and not used",) * throughput
    return [_measured(kind, cells, notes) for kind, cells in sorted(runs.items())]


def _kind(run: dict[str, Any]) -> str:
    """The kind of device; a processor whose every device had several cores is another."""
    cores = (run["physical_cores"] or 1) // run["device_count"] if run["backend"] == "cpu" else 1
    return f"{run['device_kind'] or 'unknown'}{f', {cores} cores each' if cores > 1 else ''}"


def _measured(kind: str, cells: dict[tuple[int, int], list[float]], notes: tuple[str, ...]) -> StepTimes:
    places = sorted(cells)
    devices, batch_size = np.array(places, np.float64).T
    seconds = np.array([cells[place][0] / cells[place][1] for place in places])
    width, known = noise(devices, batch_size, seconds)
    if not known:
        notes += (f"too few batch sizes were timed to see their noise, which is taken to be {BETWEEN_RUNS:.0%}",)
    widths = np.full(len(places), width)
    return StepTimes(
        kind, MEASURED, "", devices, batch_size, seconds, widths, widths, np.arange(len(widths)), np.zeros(2), notes
    )


def noise(devices: np.ndarray, batch_size: np.ndarray, seconds: np.ndarray) -> tuple[float, bool]:
    """How far ln of a measured time may be off, 90 % sure, and whether the times [r] show it.

    It is how far each is from the straight line, in logarithms, between its two neighbours in batch size: the estimator
    of Gasser, Sroka and Jennen-Steinmetz (1986, doi 10.1093/biomet/73.3.625), which needs no law of seconds over batch
    size. What slows a run on a shared machine is in it.
    """
    squares, count = 0.0, 0
    for each in np.unique(devices):
        order = np.argsort(batch_size[devices == each])
        x, y = (np.log(values[devices == each])[order] for values in (batch_size, seconds))
        if len(x) < FEWEST:
            continue
        after = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])  # weight of the larger neighbour
        apart = y[1:-1] - after * y[2:] - (1 - after) * y[:-2]
        squares += float((apart**2 / (1 + after**2 + (1 - after) ** 2)).sum())
        count += len(apart)
    if not count:
        return float(ndtri(UPPER)) * BETWEEN_RUNS, False
    # Neighbouring residuals share points: c of them are worth as many degrees of freedom as 18/35 c independent ones.
    return float(stdtrit(max(1.0, INDEPENDENT * count), UPPER)) * max(math.sqrt(squares / count), BETWEEN_RUNS), True


def without_communication(measured: StepTimes) -> StepTimes | None:
    """Predicted times of n devices, each with an n-th of the batch, from those of one; None if it has too few."""
    alone = measured.at(measured.devices == 1)
    whole, part = (side.ravel() for side in np.meshgrid(np.arange(len(alone.devices)), np.arange(len(alone.devices))))
    ratio = alone.batch_size[whole] / alone.batch_size[part]
    even = ratio == np.round(ratio)
    if not (ratio[even] > 1).any():
        return None
    whole, part = whole[even], part[even]
    return alone.at(part)._replace(
        says=PREDICTED, by=WITHOUT_COMMUNICATION, devices=ratio[even], batch_size=alone.batch_size[whole]
    )


def of_core_curve(curve: CoreCurve) -> StepTimes | None:
    """Seconds per epoch of a factorization on numbers of real cores, as step times without a batch; None of none."""
    if not curve.members:
        return None
    hardware = curve.representative.hardware
    of_epochs = spread([one.seconds for one in curve.members])
    widths = np.full(len(curve.members), float(ndtri(UPPER)) * math.hypot(of_epochs, BETWEEN_RUNS))
    kind = (hardware.device_kind if hardware else None) or "unknown"
    nothing = np.full(len(curve.members), np.nan)
    return StepTimes(
        kind, MEASURED, "", curve.cores, nothing, curve.seconds, widths, widths, np.arange(len(widths)), np.zeros(2)
    )


def read(file: Path, says: Says) -> pd.DataFrame:
    """The rows of a file of step times, CSV or Parquet, with the columns ``COLUMNS`` and those of ``NAMES`` it has.

    Args:
      file: to read.
      says: what its rows have to say of themselves.

    Raises:
      BadInput: it cannot be read, lacks a column, holds anything but positive numbers in order, or a row says
        otherwise.
    """
    flag = f"--{says} {file}"
    try:
        rows = _parquet(file) if file.suffix == ".parquet" else pd.read_csv(io.BytesIO(bounds.text(file)))
    except OSError as error:
        raise BadInput(f"cannot read {flag} ({error.strerror or error}){meaning(file)}") from None
    except ValueError as error:  # empty, not text, ragged, or not Parquet
        raise BadInput(f"{flag} is not a table in CSV or Parquet ({str(error).strip().splitlines()[0]})") from None
    names = list(map(str, rows.columns))
    for column in COLUMNS:
        if column not in names:
            raise BadInput(f"{flag} lacks a column {column}; {nearest(column, names)}")
    if rows.empty:
        raise BadInput(f"{flag} has no rows")
    rows = rows[[name for name in (*NAMES, *COLUMNS) if name in names]].reset_index(drop=True)
    _check_words(rows, flag, says)
    _check_numbers(rows, flag)
    twice = rows.duplicated([name for name in rows if name not in NUMBERS[2:]])
    if twice.any():
        raise BadInput(f"{flag}: row {_row(twice)} is of the same devices and batch size as one before; keep one")
    return rows


def _parquet(file: Path) -> pd.DataFrame:
    with open(file, "rb") as opened:
        return bounds.Parquet(opened, bounds.allowed(file.stat().st_size)).read().to_pandas()


def _row(wrong: "pd.Series[bool] | np.ndarray") -> int:
    """The number of the first row that is wrong, from 1."""
    return int(np.argmax(wrong)) + 1


def _check_words(rows: pd.DataFrame, flag: str, says: Says) -> None:
    other = rows["says"] != says
    if other.any():
        row = _row(other)
        found = rows["says"].iloc[row - 1]
        right = f"give it by --{found}" if found in SAYS else f"it has to be {says}"
        raise BadInput(f"{flag}: row {row} says {found!r}, but --{says} takes {says} times alone; {right}")
    for name in ("device_kind", *(name for name in NAMES if name in rows)):
        if rows[name].isna().any():
            raise BadInput(f"{flag}: {name} in row {_row(rows[name].isna())} is empty; name it")
        rows[name] = rows[name].astype(str)


def _check_numbers(rows: pd.DataFrame, flag: str) -> None:
    for name in NUMBERS:
        numbers = pd.to_numeric(rows[name], errors="coerce").astype(np.float64)
        empty = rows[name].isna() & (name == "batch_size")  # of a factorization, whose steps take all data
        wrong = ~(np.isfinite(numbers) & (numbers > 0)) & ~empty
        if name == "devices":
            wrong = wrong | (numbers != np.round(numbers))
        if wrong.any():
            what = "a whole number" if name == "devices" else "a positive number"
            row = _row(wrong)
            raise BadInput(f"{flag}: {name} in row {row} is {str(rows[name].iloc[row - 1])!r}; {what} is needed")
        rows[name] = numbers
    disordered = (rows["low"] > rows["seconds_per_step"]) | (rows["seconds_per_step"] > rows["high"])
    if disordered.any():
        low, middle, high = rows[["low", "seconds_per_step", "high"]].iloc[_row(disordered) - 1]
        order = "low ≤ seconds_per_step ≤ high is needed"
        raise BadInput(f"{flag}: row {_row(disordered)} has {low:g}, {middle:g} and {high:g}; {order}")


def of_rows(rows: pd.DataFrame, by: str) -> list[StepTimes]:
    """Step times of rows that ``read`` gave, for each kind of device and what they say.

    Of predicted ones as much of the ranges as every row has at least is taken for an error that all share.
    """
    result = []
    for kind, says in itertools.product(sorted(set(rows["device_kind"])), SAYS):
        own = rows[(rows["device_kind"] == kind) & (rows["says"] == says)]
        if own.empty:
            continue
        devices, batch_size, seconds, low, high = (own[name].to_numpy(np.float64) for name in NUMBERS)
        below, above = np.log(seconds / low), np.log(high / seconds)
        shared = np.array([below.min(), above.min()]) if says == PREDICTED else np.zeros(2)
        result.append(
            StepTimes(kind, says, by, devices, batch_size, seconds, below, above, np.arange(len(own)), shared)
        )
    return result
