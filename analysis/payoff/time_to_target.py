"""Time to target (steps to target times seconds per step) and its cost, against the number of devices.

Steps are taken from all curves of steps against batch size that the data allow. These are the curves in the 90 % region
of ``fitting.regimes``, each with the heights that the points allow. The region does not include the model error.
Therefore, copies of the curves are moved to the ends of the interval of the critical batch size. The 90 % interval of a
number ends at its extremes over these curves.

Each device count uses the fastest of the curve's batch sizes in the timed range. Every interval includes three
uncertainties: the possible shapes of the curve, the bounds on interpolated seconds per step, and the errors of the
given seconds per step. The last is independent of the others, so the widths (of logarithms) are added in quadrature. A
gain is the ratio of two times, so shared errors cancel.
"""

import math
from typing import NamedTuple

import numpy as np

from analysis import text
from analysis.fitting import profiles
from analysis.fitting.extents import UNKNOWN, Extent
from analysis.fitting.regimes import Fit
from analysis.payoff.step_times import PREDICTED, StepTimes

LOWER, UPPER = ("identified", "at_least"), ("identified", "at_most")  # verdicts with a lower end and with an upper end
OF_GAIN = math.log(1.08)  # minimum 90 % bound on the error of a predicted gain, as published pairs of chip counts show
SAME = 1e-9  # relative tolerance for equal numbers


class StepCurves(NamedTuple):
    """Curves ln S = height + ln(1 + (B*/B)^a) / a, with the fitted curve first. Arrays are float64[c].

    Attributes:
      ln_critical, sharpness: ln B* (with B* in examples), and the sharpness a.
      ln_height: ln steps of the plateau.
      slack: bound on the error of ln steps, in both directions.
      smallest, largest: range of the curve's batch sizes. Outside this range, steps are unknown.
    """

    ln_critical: np.ndarray
    sharpness: np.ndarray
    ln_height: np.ndarray
    slack: np.ndarray
    smallest: float
    largest: float

    def ln_steps(self, batch_size: np.ndarray) -> np.ndarray:
        """Returns ln steps to target at ``batch_size`` [b] in examples: float64[c, b]."""
        ln_distance = self.ln_critical[:, None] - np.log(batch_size)
        return self.ln_height[:, None] + profiles.excess(ln_distance, self.sharpness[:, None])


def step_curves(fit: Fit) -> StepCurves:
    """Returns the curves that a fit allows."""
    ln_batch = np.log(fit.batch_size)
    n = len(ln_batch)
    ln_critical, sharpness = fit.allowed
    moves = {0.0: None}  # without duplicates, in order
    if len(ln_critical) and np.isfinite(fit.low):
        moves[min(0.0, np.log(fit.low) - ln_critical.min())] = None
    if len(ln_critical) and np.isfinite(fit.high):
        moves[max(0.0, np.log(fit.high) - ln_critical.max())] = None
    criticals = np.concatenate([[fit.best[0]], *(ln_critical + move for move in moves)])
    shapes = np.concatenate([[fit.best[1]], *[sharpness] * len(moves)])
    ln_height, misfit = profiles.floors(ln_batch, fit.ln_steps, fit.weights, criticals, shapes)
    # Moving a curve up or down by slack adds n slack² times its prior to its misfit.
    room = np.maximum(fit.bound - misfit, 0)
    slack = np.sqrt(room / (n * profiles.prior(shapes, n)))
    return StepCurves(criticals, shapes, ln_height, slack, float(fit.batch_size[0]), float(fit.batch_size[-1]))


def stated(answer: Extent) -> Extent:
    """Returns an answer, keeping only the ends that its verdict reports."""
    low = answer.low if answer.verdict in LOWER else math.nan
    return answer._replace(low=low, high=answer.high if answer.verdict in UPPER else math.nan)


class Gains(NamedTuple):
    """Gains from doublings: the time on n devices divided by the time on 2 n devices. All are float64[p].

    Attributes:
      devices: device counts n, ascending.
      best, low, high: gain with its 90 % interval (2 is perfect).
    """

    devices: np.ndarray
    best: np.ndarray
    low: np.ndarray
    high: np.ndarray


class PayOff(NamedTuple):
    """Time to target for k device counts, ascending. All are float64[k] except ``gains`` and ``last``.

    Attributes:
      devices: device counts.
      batch_size: fastest batch size for each device count, in examples. NaN if steps use all data.
      seconds, low, high: seconds to target, with a 90 % interval.
      gains: gains from doublings.
      last: device count after the last doubling that gains enough, provided that all earlier doublings do. Its best
        estimate is from the best curve and times, whatever the verdict. It is the largest device count in the data if
        the doubling to it still pays off, and NaN if no doubling is in the data.
      before, runs: seconds before the first step, which are included in ``seconds``, and number of pooled runs. Only
        set for runs with given steps.
    """

    devices: np.ndarray
    batch_size: np.ndarray
    seconds: np.ndarray
    low: np.ndarray
    high: np.ndarray
    gains: Gains
    last: Extent
    before: np.ndarray | None = None
    runs: np.ndarray | None = None

    @property
    def device_hours(self) -> np.ndarray:
        return self.devices * self.seconds / 3600

    @property
    def last_in_words(self) -> str:
        """``last`` as ``64 [32, 128]``, ``at least 64 (best 96)`` or ``unknown (best 64)``."""
        return text.answer(*self.last, form=text.count)


def pay_off(times: StepTimes, curves: StepCurves | float, gain: float, verdict: text.Verdict) -> PayOff | None:
    """Returns the time to target, given seconds per step, or None if no step was timed within the curve.

    Args:
      times: seconds per step.
      curves: steps to target over batch size, or an exact number of steps.
      gain: required speed-up per doubling, as a fraction.
      verdict: verdict on the curve, which determines which ends of ``last`` can be reported.
    """
    if isinstance(curves, StepCurves):
        times, slack = times.within(curves.smallest, curves.largest), curves.slack
        offered = times.choices(curves.smallest, curves.largest) if len(times.devices) else {}
    else:
        offered, slack = times.choices(np.nan, np.nan), np.zeros(1)
    if not offered:
        return None
    devices, batch_size = np.array(list(offered)), []
    ends, weights = [], []
    for choices in offered.values():
        steps = curves.ln_steps(choices.batch_size) if isinstance(curves, StepCurves) else np.log([[curves]])
        ends.append([(steps + ln_seconds).min(axis=1) for ln_seconds in (choices.low, choices.middle, choices.high)])
        chosen = int(np.argmin(steps[0] + choices.middle))
        batch_size.append(choices.batch_size[chosen])
        weights.append(choices.weights[chosen])
    soonest, ln_time, latest = np.array(ends).transpose(1, 2, 0)  # [c, k]
    errors = _errors(times, np.array(weights), times.shared)
    middle = ln_time[0]
    low = middle - np.hypot(middle - (soonest - slack[:, None]).min(axis=0), errors[0])
    high = middle + np.hypot((latest + slack[:, None]).max(axis=0) - middle, errors[1])
    gains = _gains(devices, (soonest, ln_time, latest), times, np.array(weights))
    return PayOff(
        devices,
        np.array(batch_size),
        np.exp(middle),
        np.exp(low),
        np.exp(high),
        gains,
        last_doubling(gains, judged(devices), gain, verdict),
    )


def _errors(times: StepTimes, weights: np.ndarray, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns lower and upper bounds on the error of weighted sums of ln seconds, with weights [k, r]: [k] each."""
    lower_error, upper_error = times.own()
    down, up = np.maximum(weights, 0), np.maximum(-weights, 0)
    ends = ((lower_error, upper_error, shared[0]), (upper_error, lower_error, shared[1]))
    first, second = (np.sqrt(((down * a) ** 2 + (up * b) ** 2).sum(axis=1) + c**2) for a, b, c in ends)
    return first, second


def _gains(
    devices: np.ndarray, ln_times: tuple[np.ndarray, np.ndarray, np.ndarray], times: StepTimes, weights: np.ndarray
) -> Gains:
    """Returns the gains from doublings among k device counts, given low, middle and high times [c, k] and weights.

    Errors shared by both times cancel in their ratio. A predicted gain keeps an error of at least × or / 1.08, because
    predictions are not exact for both device counts.
    """
    i, j = doublings(devices)
    soonest, ln_time, latest = ln_times
    middle = ln_time[0, i] - ln_time[0, j]
    minimum = OF_GAIN if times.basis == PREDICTED else 0.0
    errors = [np.maximum(bounds, minimum) for bounds in _errors(times, weights[i] - weights[j], np.zeros(2))]
    low = middle - np.hypot(middle - (soonest[:, i] - latest[:, j]).min(axis=0), errors[0])
    high = middle + np.hypot((latest[:, i] - soonest[:, j]).max(axis=0) - middle, errors[1])
    return Gains(devices[i], np.exp(middle), np.exp(low), np.exp(high))


def doublings(devices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions in ``devices`` of each pair of device counts n and 2 n."""
    pairs = [(i, j) for i, n in enumerate(devices) for j in np.flatnonzero(devices == 2 * n)]
    first, second = (np.array([pair[side] for pair in pairs], int) for side in (0, 1))
    return first, second


def judged(devices: np.ndarray) -> np.ndarray:
    """Returns the device counts n, 2 n, 4 n ... up to the first one whose double is missing: [d], ascending.

    n is the smallest count whose double exists. If a doubling is missing below n, only the smallest device count is
    returned.
    """
    counts = set(devices.tolist())
    first = next((n for n in sorted(counts) if 2 * n in counts), min(counts))
    chain = [first]
    while 2 * chain[-1] in counts:
        chain.append(2 * chain[-1])
    return np.array(chain if 2 * min(counts) > first else [min(counts)])


def last_doubling(gains: Gains, numbers: np.ndarray, gain: float, verdict: text.Verdict) -> Extent:
    """Returns the device count after the last doubling that gains enough, provided that all earlier doublings do.

    An end is reported if it lies within the data and the curve's ``verdict`` reports an end on this side. At the
    largest measured device count, further doublings may still pay off. At the smallest, fewer devices may be enough.

    Args:
      gains: gains from doublings.
      numbers: device counts from ``judged``.
      gain: required gain, as a fraction.
      verdict: verdict on the curve.
    """
    if len(numbers) < 2:
        return UNKNOWN
    rows = np.searchsorted(gains.devices, numbers[:-1])
    best, low, high = (_up_to(numbers, values[rows], gain) for values in (gains.best, gains.low, gains.high))
    claim = text.verdict(verdict in LOWER and low > numbers[0], verdict in UPPER and high < numbers[-1])
    return stated(Extent(best, low, high, claim))


def _up_to(numbers: np.ndarray, gains: np.ndarray, gain: float) -> float:
    """Returns the device count up to which all doublings gain enough."""
    enough = gains >= (1 + gain) * (1 - SAME)
    return float(numbers[len(enough) if enough.all() else int(np.argmin(enough))])


def on_front(seconds: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Returns whether each choice is on the Pareto front of time and cost, bool[k]."""
    faster = seconds[:, None] < seconds * (1 - SAME)  # [other, one]
    cheaper = cost[:, None] < cost * (1 - SAME)
    no_slower = seconds[:, None] <= seconds * (1 + SAME)
    no_dearer = cost[:, None] <= cost * (1 + SAME)
    return np.asarray(~((faster & no_dearer) | (cheaper & no_slower)).any(axis=0))
