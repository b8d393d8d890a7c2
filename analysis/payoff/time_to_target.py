"""Time to target: steps to target times seconds per step, against the number of devices, and what they cost.

On every number of devices the batch size is the one that is there soonest, of those that were timed on so many and lie
within the curve. Two uncertainties are in every interval, independent of each other, so that their widths (of
logarithms) add in quadrature: that of the curve, whose possible forms ``step_curves`` has, and that of the seconds per
step. In a gain, the ratio of two times, what all times have in common cancels.
"""

from typing import NamedTuple

import numpy as np

from analysis import text
from analysis.payoff.step_curves import LOWER, NOTHING, UPPER, LastDoubling, StepCurves, stated
from analysis.payoff.step_times import StepTimes

SAME = 1e-9  # relative; numbers as close are the same


class Gains(NamedTuple):
    """Gains of doublings: the time on n devices over that on 2 n. All float64[p].

    Attributes:
      devices: n, rising.
      best, low, high: with their 90 % interval; 2 is perfect.
    """

    devices: np.ndarray
    best: np.ndarray
    low: np.ndarray
    high: np.ndarray


class PayOff(NamedTuple):
    """Time to target on k numbers of devices, rising. All float64[k] but ``gains`` and ``last``.

    Attributes:
      devices: how many.
      batch_size: examples, with which they are there soonest; NaN where there is no batch.
      seconds, low, high: to the target, with a 90 % interval.
      gains: of doublings.
      last: the number of devices that the last doubling leads to which gains enough, as all before it do.
    """

    devices: np.ndarray
    batch_size: np.ndarray
    seconds: np.ndarray
    low: np.ndarray
    high: np.ndarray
    gains: Gains
    last: LastDoubling

    @property
    def device_hours(self) -> np.ndarray:
        return self.devices * self.seconds / 3600


def pay_off(times: StepTimes, curves: StepCurves | float, gain: float, verdict: text.Verdict) -> PayOff:
    """Time to target by seconds per step.

    Args:
      times: seconds per step, at least a row; those at batch sizes beyond the curve are gone.
      curves: steps to target over batch size, or how many steps it takes, known exactly.
      gain: by which a doubling has to make it faster, as a share.
      verdict: of the curve; which ends of ``last`` may be stated.
    """
    if isinstance(curves, StepCurves):
        ln_steps, slack = curves.ln_steps(times.batch_size), curves.slack
    else:
        ln_steps, slack = np.full((1, len(times.devices)), np.log(curves)), np.zeros(1)
    ln_times = ln_steps + np.log(times.seconds)  # [c, r]
    devices = np.unique(times.devices)
    ln_best, chosen = [], []
    for count in devices:
        rows = np.flatnonzero(times.devices == count)
        ln_best.append(ln_times[:, rows].min(axis=1))
        chosen.append(int(rows[np.argmin(ln_times[0, rows])]))
    ln_time = np.stack(ln_best, axis=1)  # [c, k]
    below, above = times.below[chosen], times.above[chosen]
    middle = ln_time[0]
    low = middle - np.hypot(middle - (ln_time - slack[:, None]).min(axis=0), below)
    high = middle + np.hypot((ln_time + slack[:, None]).max(axis=0) - middle, above)
    gains = _gains(devices, ln_time, *times.own(chosen), times.source[chosen])
    return PayOff(
        devices,
        times.batch_size[chosen],
        np.exp(middle),
        np.exp(low),
        np.exp(high),
        gains,
        last_doubling(gains, gain, verdict),
    )


def _gains(devices: np.ndarray, ln_time: np.ndarray, below: np.ndarray, above: np.ndarray, source: np.ndarray) -> Gains:
    """Gains of all doublings from [k] numbers of devices to others of them; times [c, k], widths of its own [k]."""
    pairs = [(i, j) for i, n in enumerate(devices) for j in np.flatnonzero(devices == 2 * n)]
    i, j = (np.array([pair[side] for pair in pairs], int) for side in (0, 1))
    ln_gain = ln_time[:, i] - ln_time[:, j]  # [c, p]
    middle = ln_gain[0]
    differ = source[i] != source[j]  # the error of one time is no error of its ratio to itself
    low = middle - np.hypot(middle - ln_gain.min(axis=0), np.hypot(below[i], above[j]) * differ)
    high = middle + np.hypot(ln_gain.max(axis=0) - middle, np.hypot(above[i], below[j]) * differ)
    return Gains(devices[i], np.exp(middle), np.exp(low), np.exp(high))


def last_doubling(gains: Gains, gain: float, verdict: text.Verdict) -> LastDoubling:
    """The number of devices that the last doubling leads to which gains enough, as all before it do.

    An end is stated where the data hold it, and the ``verdict`` of the curve states one on this side: at the largest
    number of devices further doublings may pay off, at the smallest fewer devices may be enough.
    """
    if not len(gains.devices):
        return NOTHING
    first, most = float(gains.devices[0]), float(2 * gains.devices[-1])
    best, low, high = (_up_to(gains.devices, each, gain) for each in (gains.best, gains.low, gains.high))
    claim = text.verdict(verdict in LOWER and low > first, verdict in UPPER and high < most)
    return stated(LastDoubling(best, low, high, claim))


def _up_to(devices: np.ndarray, gains: np.ndarray, gain: float) -> float:
    """How far all doublings gain enough."""
    enough = gains >= (1 + gain) * (1 - SAME)
    pairs = len(enough) if enough.all() else int(np.argmin(enough))
    return float(2 * devices[pairs - 1] if pairs else devices[0])


def on_front(seconds: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Which of k choices no other beats in time and cost, being better in one and no worse in the other: bool[k]."""
    faster = seconds[:, None] < seconds * (1 - SAME)  # [other, one]
    cheaper = cost[:, None] < cost * (1 - SAME)
    no_slower = seconds[:, None] <= seconds * (1 + SAME)
    no_dearer = cost[:, None] <= cost * (1 + SAME)
    return np.asarray(~((faster & no_dearer) | (cheaper & no_slower)).any(axis=0))
