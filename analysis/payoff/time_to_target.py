"""Time to target: steps to target times seconds per step, against the number of devices, and what they cost.

Of steps there is every curve over batch size that the data leave possible, as its fit tells. They are those of the 90 %
region of ``fitting.regimes``, each with the heights that the points allow it, and copies moved to the ends of the
interval of the critical batch size, whose model error the region lacks. The most and the least of a number among them
are the ends of its 90 % interval.

On every number of devices the batch size is the one that is there soonest, of those that were timed on so many and lie
within the curve. Two uncertainties are in every interval, independent of each other, so that their widths (of
logarithms) add in quadrature: that of the curve, by its possible forms, and that of the seconds per step. In a gain,
the ratio of two times, what all times have in common cancels.
"""

from typing import NamedTuple

import numpy as np

from analysis import text
from analysis.fitting import profiles
from analysis.fitting.regimes import Fit
from analysis.payoff.step_times import StepTimes

LOWER, UPPER = ("identified", "at_least"), ("identified", "at_most")  # verdicts that state a lower end, an upper one
SAME = 1e-9  # relative; numbers as close are the same


class StepCurves(NamedTuple):
    """Curves ln S = height + ln(1 + (B*/B)^a) / a, the fitted one first. All float64[c].

    Attributes:
      ln_critical, sharpness: ln B* in examples, and a.
      ln_height: ln steps of its plateau.
      slack: how far ln steps may lie above or below.
    """

    ln_critical: np.ndarray
    sharpness: np.ndarray
    ln_height: np.ndarray
    slack: np.ndarray

    def ln_steps(self, batch_size: np.ndarray) -> np.ndarray:
        """ln steps to target at ``batch_size`` [b], examples: float64[c, b]."""
        below = self.ln_critical[:, None] - np.log(batch_size)
        return self.ln_height[:, None] + profiles.excess(below, self.sharpness[:, None])


class LastDoubling(NamedTuple):
    """The number that the last doubling which pays off leads to, with its 90 % interval.

    Attributes:
      best: by the best curve and times; NaN unless identified.
      low, high: its ends; NaN where they are not stated.
      verdict: identified, at_least (low), at_most (high) or not_identified.
    """

    best: float
    low: float
    high: float
    verdict: text.Verdict

    def in_words(self) -> str:
        """Such as ``64 [32, 128]``, ``at least 64`` or ``not identified``."""
        return text.statement(self.verdict, *map(_count, (self.best, self.low, self.high)))


NOTHING = LastDoubling(float("nan"), float("nan"), float("nan"), "not_identified")


def step_curves(fit: Fit) -> StepCurves:
    """The curves that a fit leaves possible."""
    ln_batch = np.log(fit.batch_size)
    n = len(ln_batch)
    a, g = np.nonzero(fit.profile.misfit <= fit.bound)
    ln_critical, sharpness = fit.profile.ln_critical[g], fit.profile.sharpness[a]
    moves = [0.0]
    if len(ln_critical):
        moves += [min(0.0, np.log(fit.low) - ln_critical.min()) if np.isfinite(fit.low) else 0.0]
        moves += [max(0.0, np.log(fit.high) - ln_critical.max()) if np.isfinite(fit.high) else 0.0]
    every = np.concatenate([[fit.best[0]], *(ln_critical + move for move in dict.fromkeys(moves))])
    shapes = np.concatenate([[fit.best[1]], *(sharpness for _ in dict.fromkeys(moves))])
    ln_height, misfit = profiles.floors(ln_batch, fit.ln_steps, fit.weights, every, shapes)
    # The misfit of a curve grows by n slack² times its prior if the curve is moved up or down by slack.
    room = np.maximum(fit.bound - misfit, 0)
    return StepCurves(every, shapes, ln_height, np.sqrt(room / (n * profiles.prior(shapes, n))))


def last_batch_size(fit: Fit, gain: float) -> LastDoubling:
    """The batch size that the last doubling of the batch leads to which still saves steps enough.

    No hardware is in it: of devices whose seconds per step stay what they are while batch and devices are doubled
    together, doublings pay off up to this batch size. Nothing beyond the batch sizes of the curve is claimed.

    Args:
      fit: of the curve.
      gain: by which a doubling has to make it faster, as a share; in (0, 1).
    """
    ends = last_doublings(step_curves(fit), gain)
    first, last = float(fit.batch_size[0]), float(fit.batch_size[-1])
    low, high = float(ends.min()), float(ends.max())
    verdict = text.verdict(
        fit.verdict in LOWER and low >= first * (1 - 1e-9), fit.verdict in UPPER and high <= last * (1 + 1e-9)
    )
    return stated(LastDoubling(float(ends[0]), min(low, last), max(high, first), verdict))


def last_doublings(curves: StepCurves, gain: float) -> np.ndarray:
    """Where doublings of the batch cease to make it faster by ``gain``: the larger batch size of the last, float64[c].

    With u = (B*/B)^a the doubling from B gains ln(1 + u) / a − ln(1 + u / 2^a) / a, which is ln(1 + gain) at
    u = (r − 1) / (1 − r / 2^a), where r = (1 + gain)^a.
    """
    a = curves.sharpness
    ratio = (1 + gain) ** a
    below_knee = np.log((ratio - 1) / (1 - ratio / 2**a)) / a  # ln(B*/B)
    return np.asarray(2 * np.exp(curves.ln_critical - below_knee))


def stated(found: LastDoubling) -> LastDoubling:
    """An answer without the numbers that its verdict does not state."""
    return LastDoubling(
        found.best if found.verdict == "identified" else float("nan"),
        found.low if found.verdict in LOWER else float("nan"),
        found.high if found.verdict in UPPER else float("nan"),
        found.verdict,
    )


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else text.number(value)


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
