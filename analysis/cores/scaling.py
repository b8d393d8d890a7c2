"""How far more cores pay off: a law of seconds per epoch over cores, with honest 90 % intervals.

The law is T(c) = serial + parallel / c + communication · (c − 1), the universal scalability law (Gunther 2008,
arXiv 0808.1431) in seconds. Why (c − 1): an all_gather of a table brings (c − 1)/c of it into every core. Where cores
share one memory, that is c − 1 tables through it in all. Where every core has links of its own, a ring takes c − 1 hops
(Thakur et al. 2005, doi 10.1177/1094342005051521), and the bytes into one core, (c − 1)/c of a table, cannot be told
from ``serial`` at all, as 1 − 1/c is made of the other two terms: they are counted there, and taken off ``parallel``.

The law is linear in its three times, none of which is negative, and fitted by least squares of relative errors. What is
known to be inside the interval of a time, or of a number of cores, is found by profile: the other two are fitted anew.
The noise of a point is the spread of its epochs and ``BETWEEN_RUNS``. Neither is divided by the number of epochs: what
slows an epoch down on a shared machine lasts for many. More misfit than that widens the intervals.

``critical_cores`` is where an epoch takes twice what perfect scaling from one core would make of it: half of the cores'
time is lost. Like the critical batch size it lies between perfect scaling and no gain.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq, nnls
from scipy.special import chdtri

Verdict = Literal["identified", "at_least", "at_most", "not_identified"]

FEWEST_COUNTS = 3  # of cores, one for each time
LEVEL = 0.90
BETWEEN_RUNS = 0.03  # relative; medians of two processes that do the same differ by about as much
NEGLIGIBLE = 1e-9  # a time below this share of every epoch is rounding
MOST = 2.0**40  # cores; beyond, none are looked for


class Interval(NamedTuple):
    """The best value and its 90 % interval; an end that is open is infinite."""

    best: float
    low: float
    high: float


class Fit(NamedTuple):
    """What the seconds per epoch at n >= 3 numbers of cores say.

    Attributes:
      serial: seconds that every core takes, however many there are.
      parallel: seconds that are shared among the cores.
      communication: seconds for every core beside the first.
      critical_cores: see above; infinite where no time is lost.
      verdict: identified, at_least (low), at_most (high) or not_identified, of ``critical_cores`` within the numbers of
        cores that were measured.
      fastest_cores: where an epoch is shortest by the best law; infinite where more cores never slow it down.
    """

    serial: Interval
    parallel: Interval
    communication: Interval
    critical_cores: Interval
    verdict: Verdict
    fastest_cores: float

    def seconds(self, cores: np.ndarray) -> np.ndarray:
        """The best law at ``cores``; float64 of its shape."""
        return self.serial.best + self.parallel.best / cores + self.communication.best * (cores - 1)


class _Points(NamedTuple):
    """Relative and weighed: ``terms`` [n, 3] times the three times come to ``ones`` [n] where the law holds."""

    terms: np.ndarray
    ones: np.ndarray
    bound: float  # of the misfit, within the 90 % region


def fit(cores: np.ndarray, seconds: np.ndarray, spread: float) -> Fit:
    """Fits the law to the seconds per epoch at n >= 3 numbers of cores, in any order.

    Args:
      cores: [n], all different.
      seconds: [n], positive.
      spread: relative standard deviation of an epoch's time, see ``spread``.
    """
    if len(cores) < FEWEST_COUNTS:
        raise ValueError(f"a fit needs {FEWEST_COUNTS} numbers of cores, not {len(cores)}")
    count, seconds = np.asarray(cores, np.float64), np.asarray(seconds, np.float64)
    noise = float(np.hypot(spread, BETWEEN_RUNS))
    terms = np.stack([np.ones_like(count), 1 / count, count - 1], axis=1) / (seconds * noise)[:, None]
    ones = np.full(len(count), 1 / noise)
    times, root = nnls(terms, ones)
    times[times * terms.max(axis=0) < NEGLIGIBLE * ones[0]] = 0.0
    least = root**2
    inflation = max(1.0, least / (len(count) - len(times))) if len(count) > len(times) else 1.0
    points = _Points(terms, ones, least + chdtri(1, 1 - LEVEL) * inflation)
    serial, parallel, communication = (_of_time(points, i, float(time)) for i, time in enumerate(times))
    critical = _of_cores(points, _critical(*times.tolist()))
    verdict, critical = _verdict(critical, count)
    fastest = max(1.0, math.sqrt(times[1] / times[2])) if times[2] > 0 else math.inf
    return Fit(serial, parallel, communication, critical, verdict, fastest)


def spread(epochs: Sequence[np.ndarray]) -> float:
    """Relative standard deviation of an epoch's time, from the epochs at every number of cores.

    From mean absolute deviations, which single slow epochs move little; 0 where every number has but one epoch.
    """
    several = [seconds / np.median(seconds) for seconds in epochs if len(seconds) > 1]
    if not several:
        return 0.0
    # Of k values around their own median the deviations are too small by about √(1 − 1/k).
    sizes = [np.abs(relative - 1) * np.sqrt(len(relative) / (len(relative) - 1)) for relative in several]
    return float(np.sqrt(np.pi / 2) * np.concatenate(sizes).mean())


def _misfit(points: _Points, rays: np.ndarray, offset: np.ndarray | None = None) -> float:
    """The least misfit of times that are ``offset`` [3] and any non-negative sum of ``rays`` [3, r]."""
    ones = points.ones if offset is None else points.ones - points.terms @ offset
    return float(nnls(points.terms @ rays, ones)[1] ** 2)


def _of_time(points: _Points, i: int, best: float) -> Interval:
    """The interval of the i-th time. The misfit is convex in it."""
    others = np.delete(np.eye(3), i, axis=1)

    def excess(value: float) -> float:
        return _misfit(points, others, np.eye(3)[i] * value) - points.bound

    # A time as long as a whole epoch, and half as long again, fits none.
    high = 1.0 / np.max(points.terms[:, i] / points.ones)
    while excess(high) <= 0:
        high *= 2
    low = 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, best, rtol=1e-9))
    return Interval(best, low, float(brentq(excess, best, high, rtol=1e-9)))


def _critical(serial: float, parallel: float, communication: float) -> float:
    """Where c T(c) = 2 T(1): the root of communication c² + (serial − communication) c = 2 serial + parallel."""
    linear, constant = serial - communication, 2 * serial + parallel
    if communication > 0:
        # Of the two forms of the root the one without cancellation.
        root = math.sqrt(linear**2 + 4 * communication * constant)
        return 2 * constant / (linear + root) if linear > 0 else (root - linear) / (2 * communication)
    return constant / serial if serial > 0 else math.inf


def _of_cores(points: _Points, best: float) -> Interval:
    """The interval of ``critical_cores``. Times with more of them make a half space, so that the misfit has one dip."""

    def excess(ln_cores: float) -> float:
        return _misfit(points, _rays(math.exp(ln_cores))) - points.bound

    most = math.log(MOST)
    ln_best = float(np.clip(np.log(best), 1e-6, most))
    low = float(brentq(excess, 1e-6, ln_best, rtol=1e-9)) if excess(1e-6) > 0 else 0.0
    high = math.inf if excess(most) <= 0 else math.exp(brentq(excess, ln_best, most, rtol=1e-9))
    return Interval(best, math.exp(low), high)


def _rays(cores: float) -> np.ndarray:
    """The times (serial, parallel, communication) whose critical number of cores is ``cores``: sums of two columns."""
    squared = cores * (cores - 1)
    if cores >= 2:
        return np.array([[1.0, 0.0], [cores - 2, squared], [0.0, 1.0]])
    return np.array([[squared, 0.0], [0.0, squared], [2 - cores, 1.0]])


def _verdict(critical: Interval, cores: np.ndarray) -> tuple[Verdict, Interval]:
    """What the interval proves. Nothing beyond the cores that were measured is claimed."""
    least, most = float(cores.min()), float(cores.max())
    above, below = critical.low >= least, critical.high <= most
    if above and below:
        return "identified", critical
    if above:
        return "at_least", critical._replace(low=min(critical.low, most))
    return ("at_most" if below else "not_identified"), critical
