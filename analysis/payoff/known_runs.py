"""Runs with given steps: time to target of systems for which both steps and seconds per step are given.

Such runs do not need a curve over batch sizes. Seconds to target are the seconds before the first step, plus steps
times seconds per step. Runs on the same system are pooled: the system's time is their median. The 90 % interval of a
system includes three errors, which are added in quadrature:

- the spread between runs: a standard deviation of ln seconds, pooled over all systems, with Student's t. It is at least
  as wide as the range of the system's own runs, including the totals that the runs report,
- the spacing of evaluations: the target may have been reached right after the previous evaluation,
- the error of the seconds per step, if the file contains it.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from analysis import text
from analysis.cores.scaling import BETWEEN_RUNS
from analysis.fitting import points_file
from analysis.fitting.fits import PointsFit
from analysis.payoff import time_to_target
from analysis.payoff.step_times import UPPER, Basis
from analysis.payoff.time_to_target import Gains, PayOff
from results.aliases import Json, Strings
from results.bad_input import number_of

SYSTEM = ["devices", "batch_size", "system"]  # columns that identify a system of one device kind
NOISELESS = 1e-12  # runs with a smaller variance of ln seconds are copies or rounded, so it is not their spread
DIFFERENT = 0.03  # relative difference between a run's stated time and its steps times seconds, to be noted
FEWEST = 3  # minimum batch sizes for an extrapolated hyperbola


class KnownTimes(NamedTuple):
    """Time to target of s systems on one device kind. Arrays are float64[s].

    Attributes:
      device_kind: name of the device.
      basis: measured or published.
      by: source of the rows.
      devices, batch_size: device count and batch size of each system. The batch size is NaN if a step uses all data.
      seconds: median seconds to target over the runs.
      stated: median of the seconds to target as reported by the runs, or of ``seconds`` if they do not report them.
      before: median seconds before the first step, which are included in ``seconds``.
      runs: number of runs.
      below, above: 90 % bounds on the error of ln seconds.
      notes: notes for the user.
    """

    device_kind: str
    basis: Basis
    by: str
    devices: np.ndarray
    batch_size: np.ndarray
    seconds: np.ndarray
    stated: np.ndarray
    before: np.ndarray
    runs: np.ndarray
    below: np.ndarray
    above: np.ndarray
    notes: Strings = ()

    def fastest(self) -> "KnownTimes":
        """Selects the fastest system for each device count by ``stated``, in ascending order of devices."""
        order = np.lexsort((self.stated, self.devices))
        chosen = order[np.unique(self.devices[order], return_index=True)[1]]
        names = ("devices", "batch_size", "seconds", "stated", "before", "runs", "below", "above")
        return self._replace(**{name: getattr(self, name)[chosen] for name in names})


def seconds(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns rows with float64 columns ``seconds``, ``earliest`` and ``stated``, one row per run.

    They are the seconds to target, the seconds to the previous evaluation, and the seconds to target as reported by the
    run (if any).
    """
    default: Json = {"seconds_before_first_step": 0.0, "seconds_to_target": np.nan, "system": ""}
    default["steps_low"] = rows["steps"]
    rows = rows.assign(**{name: value for name, value in default.items() if name not in rows})
    before, per_step = rows["seconds_before_first_step"], rows["seconds_per_step"]
    rows = rows.assign(seconds=before + rows["steps"] * per_step, earliest=before + rows["steps_low"] * per_step)
    return rows.assign(stated=rows["seconds_to_target"].fillna(rows["seconds"]))


def of_rows(rows: pd.DataFrame, source: str, notes: Strings = ()) -> list[KnownTimes]:
    """Returns the runs in the rows from ``time_files.read``, one item per device kind. All rows have the same basis.

    Args:
      rows: the rows, one per run.
      source: source of the rows.
      notes: notes on all runs.
    """
    rows = seconds(rows)
    width, shown = _between_runs(rows)
    if not shown:
        notes += (f"no two runs of a system differ, so the spread of runs is assumed to be {BETWEEN_RUNS:.0%}",)
    result = []
    for kind, runs_of_kind in rows.groupby("device_kind", sort=True):
        systems = [_system(runs, width) for _, runs in runs_of_kind.groupby(SYSTEM, dropna=False, sort=True)]
        arrays = {str(name): numbers.to_numpy(np.float64) for name, numbers in pd.DataFrame(systems).items()}
        remarks = (*notes, *_remarks(runs_of_kind, len(systems)))
        result.append(KnownTimes(str(kind), runs_of_kind["basis"].iloc[0], source, notes=remarks, **arrays))
    return result


def _between_runs(rows: pd.DataFrame) -> tuple[float, bool]:
    """Returns the 90 % bound on the error of ln seconds of one run, and whether it is estimated from repeated runs."""
    groups = np.log(rows["stated"]).groupby([rows["device_kind"], *(rows[name] for name in SYSTEM)], dropna=False)
    free = len(rows) - groups.ngroups
    squares = float(((np.log(rows["stated"]) - groups.transform("mean")) ** 2).sum())
    if not free or squares / free < NOISELESS:
        return float(ndtri(UPPER)) * BETWEEN_RUNS, False
    return float(stdtrit(free, UPPER)) * math.sqrt(squares / free), True


def _system(runs: pd.DataFrame, width: float) -> dict[str, float]:
    """Pools the runs of one system. ``width`` is the 90 % bound on the error of ln seconds of one run."""
    medians = runs[["seconds", "stated", "earliest", "seconds_before_first_step"]].median()
    middle, durations = float(medians["seconds"]), runs[["seconds", "stated"]].to_numpy(np.float64)
    pooled = width / math.sqrt(len(runs))
    spacing = math.log(middle / max(float(medians["earliest"]), 1e-9 * middle))
    lower_error, upper_error = (
        max(pooled, math.log(middle / durations.min())),
        max(pooled, math.log(durations.max() / middle)),
    )
    step_below, step_above = 0.0, 0.0
    if {"low", "high"} <= set(runs):
        step_below = float(np.median(np.log(runs["seconds_per_step"] / runs["low"])))
        step_above = float(np.median(np.log(runs["high"] / runs["seconds_per_step"])))
    return {
        "devices": runs["devices"].iloc[0],
        "batch_size": runs["batch_size"].iloc[0],
        "seconds": middle,
        "stated": medians["stated"],
        "before": medians["seconds_before_first_step"],
        "runs": len(runs),
        "below": math.hypot(lower_error, spacing, step_below),
        "above": math.hypot(upper_error, step_above),
    }


def _remarks(runs: pd.DataFrame, systems: int) -> list[str]:
    """Returns notes on a device kind's runs: the number of pooled runs, and runs whose reported time is longer."""
    basis = runs["basis"].iloc[0]
    words = [f"{basis}: {number_of(len(runs), 'run')} of {number_of(systems, 'system')}, with given steps"]
    longer = runs[np.abs(runs["seconds"] / runs["stated"] - 1) > DIFFERENT]
    if len(longer):
        longest = (longer["stated"] / longer["seconds"]).max() - 1
        words.append(
            f"{len(longer)} of these runs took up to {longest:.0%} longer than their steps times their seconds per "
            "step, which the intervals include"
        )
    return words


def pay_off(times: KnownTimes, gain: float) -> PayOff:
    """Returns the time to target on the fastest system for each device count, and the gains from doublings.

    Args:
      times: the runs.
      gain: required speed-up per doubling, as a fraction.
    """
    fastest = times.fastest()
    i, j = time_to_target.doublings(fastest.devices)
    middle = np.log(fastest.seconds[i] / fastest.seconds[j])
    low = middle - np.hypot(fastest.below[i], fastest.above[j])
    high = middle + np.hypot(fastest.above[i], fastest.below[j])
    gains = Gains(fastest.devices[i], np.exp(middle), np.exp(low), np.exp(high))
    return PayOff(
        fastest.devices,
        fastest.batch_size,
        fastest.seconds,
        fastest.seconds * np.exp(-fastest.below),
        fastest.seconds * np.exp(fastest.above),
        gains,
        time_to_target.last_doubling(gains, time_to_target.judged(fastest.devices), gain, "identified"),
        fastest.before,
        fastest.runs,
    )


def curve(rows: pd.DataFrame) -> PointsFit:
    """Fits steps to target against batch size, using the median over all runs at each batch size on any system."""
    rows = seconds(rows)
    medians = rows.groupby("batch_size")[["steps_low", "steps"]].median().reset_index()
    return points_file.of_steps(medians["batch_size"], medians["steps"], medians["steps_low"])


def hyperbola(rows: pd.DataFrame) -> tuple[float, float]:
    """Returns two estimates of the critical batch size B* in examples, if steps follow a hyperbola S (1 + B*/B).

    Both are least-squares fits to all runs. One fits examples to target against B, which is sensitive to large batch
    sizes. The other fits steps against 1/B, which is sensitive to small ones. An estimate is NaN if it is not positive.
    The estimates do not have intervals.
    """
    batch_size, steps = (rows[name].to_numpy(np.float64) for name in ("batch_size", "steps"))
    slope, start = np.polyfit(batch_size, batch_size * steps, 1)
    rate, plateau = np.polyfit(1 / batch_size, steps, 1)
    ratios = [top / bottom if min(top, bottom) > 0 else math.nan for top, bottom in ((start, slope), (rate, plateau))]
    return min(ratios), max(ratios)


def critical(rows: pd.DataFrame, steps: PointsFit) -> str:
    """Describes the critical batch size of runs, from their curve ``steps`` and from ``hyperbola``.

    Returns an empty string unless the hyperbola's estimate lies beyond the batch sizes of the runs.
    """
    sizes = rows["batch_size"].unique()
    if len(sizes) < FEWEST:
        return ""
    low, high = hyperbola(rows)
    extrapolation = low / float(sizes.max())
    if np.isnan(high) or not extrapolation > 1:
        return ""
    return (
        f"critical batch size: {steps.critical_in_words}. A hyperbola through all runs has it at "
        f"{text.number(low)} to {text.number(high)}, which extrapolates {extrapolation:.1f}-fold or more"
    )
