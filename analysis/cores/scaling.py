"""How many cores are worth using: a law for seconds per epoch over cores, with reliable 90 % intervals.

The law is T(c) = serial + parallel / c + communication · (c − 1), the universal scalability law (Gunther 2008, arXiv
0808.1431) in seconds. The factor (c − 1) comes from the all_gather, which brings (c − 1)/c of a table to every core. If
the cores share one memory, c − 1 tables pass through it. If every core has its own links, a ring takes c − 1 hops
(Thakur et al. 2005, doi 10.1177/1094342005051521). The time to send (c − 1)/c of a table to a core cannot be separated
from the other two terms, because 1 − 1/c is a combination of them. It is added to ``serial`` and subtracted from
``parallel``.

The law is linear in its three non-negative times and fitted by least squares on relative errors. The interval of a time
or a core count is a profile interval: all other times are refitted. Because the law may be incomplete, intervals allow
for terms that it lacks (``regions``). The noise of a point combines the spread of its epochs and ``BETWEEN_RUNS``. It
is not divided by the number of epochs, because a slowdown on a shared machine lasts for many epochs. A larger misfit
widens the intervals. ``misfit`` indicates whether an additional term fits significantly better, or whether no law fits.

At ``critical_cores``, an epoch takes twice as long as with perfect scaling from the fewest cores timed: half of the
cores' time is lost. Like the critical batch size, it marks the transition from perfect scaling to no gain.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import chdtri

from analysis import text
from analysis.cores import regions
from analysis.cores.regions import Region
from analysis.text import Verdict

Misfit = Literal["none", "rounds", "step", "scatter"]

FEWEST_COUNTS = 3  # minimum core counts, one for each time
LEVEL = 0.90
LEVEL_UNSEEN = 0.95  # level with three counts, which cannot show additional noise
BETWEEN_RUNS = 0.03  # relative difference between the medians of two identical processes
NEGLIGIBLE = 1e-9  # a time below this fraction of every epoch is rounding error
CHANCE = 0.015  # probability that noise looks like a misfit of one kind
LAW = list(range(regions.REPORTED))
LACKING: dict[Misfit, int] = {"rounds": 3, "step": 4}  # terms beyond the law
MISFITS: dict[Misfit, str] = {
    "none": "",
    "rounds": "the law misfits: communication that grows as log2 c fits better",
    "step": "the law misfits: a step beyond half of the cores fits better",
    "scatter": "the law misfits: times deviate from it by more than noise",
}


class Interval(NamedTuple):
    """A best value and its 90 % interval. Open ends are infinite."""

    best: float
    low: float
    high: float


class LawFit(NamedTuple):
    """The law fitted to seconds per epoch at n >= 3 core counts.

    Attributes:
      serial: seconds spent on every core, independent of the number of cores.
      parallel: seconds of work that is split across the cores.
      communication: additional seconds for each core after the first.
      critical_cores: critical core count (see the module docstring), infinite if no time is lost.
      verdict: identified, at_least (low), at_most (high) or not_identified, for ``critical_cores`` within the measured
        core counts.
      fastest_cores: core count with the shortest epoch under the best law, or infinite if more cores never slow an
        epoch down.
      slows: whether the law needs communication to fit. If so, epochs become slower beyond some core count.
      misfit: kind of misfit: rounds or step (a missing term), scatter, or none. ``doubt`` describes it.
    """

    serial: Interval
    parallel: Interval
    communication: Interval
    critical_cores: Interval
    verdict: Verdict
    fastest_cores: float
    slows: bool
    misfit: Misfit

    @property
    def doubt(self) -> str:
        """The evidence against the law as text, or an empty string."""
        return MISFITS[self.misfit]

    def seconds(self, cores: np.ndarray) -> np.ndarray:
        """Returns the seconds per epoch at ``cores`` under the best law, as float64 of the same shape."""
        return self.serial.best + self.parallel.best / cores + self.communication.best * (cores - 1)


def fit(cores: np.ndarray, seconds: np.ndarray, spread: float) -> LawFit:
    """Fits the law to the seconds per epoch at n >= 3 core counts, in any order.

    Args:
      cores: [n], all different.
      seconds: [n], positive.
      spread: relative standard deviation of an epoch's time (see ``spread``).
    """
    if len(cores) < FEWEST_COUNTS:
        raise ValueError(f"a fit needs {FEWEST_COUNTS} numbers of cores, not {len(cores)}")
    count, seconds = np.asarray(cores, np.float64), np.asarray(seconds, np.float64)
    longest = float(seconds.max())
    points = regions.region(count, seconds / longest, float(np.hypot(spread, BETWEEN_RUNS)))
    shares, least_misfit = regions.best(points, LAW)
    shares[shares < NEGLIGIBLE] = 0.0
    points = points._replace(bound=least_misfit + _margin(least_misfit, len(count) - len(LAW)))
    ends = [(share, *regions.of_time(points, i, share)) for i, share in enumerate(shares.tolist())]
    serial, parallel, communication = (
        Interval(*(share / unit * longest for share in interval_ends))
        for interval_ends, unit in zip(ends, points.unit, strict=False)
    )
    best = _critical(points.fewest, *(shares / points.unit[LAW]).tolist())
    verdict, critical = _verdict(Interval(best, *regions.of_cores(points, best)), count)
    fastest = max(1.0, math.sqrt(parallel.best / communication.best)) if communication.best > 0 else math.inf
    slows = regions.best(points, LAW[:2])[1] > points.bound
    misfit = _misfit(points, least_misfit, int(np.count_nonzero(shares)))
    return LawFit(serial, parallel, communication, critical, verdict, fastest, slows, misfit)


def spread(epochs: Sequence[np.ndarray]) -> float:
    """Returns the relative standard deviation of an epoch's time, from the epochs at each core count.

    The spread is based on mean absolute deviations, which are robust to single slow epochs. It is 0 if there is only
    one epoch at every core count.
    """
    several = [seconds / np.median(seconds) for seconds in epochs if len(seconds) > 1]
    if not several:
        return 0.0
    # Deviations of k values from their median are too small by about √(1 − 1/k).
    sizes = [np.abs(relative - 1) * np.sqrt(len(relative) / (len(relative) - 1)) for relative in several]
    return float(np.sqrt(np.pi / 2) * np.concatenate(sizes).mean())


def _margin(least_misfit: float, free: int) -> float:
    """Returns how far misfits in the region may exceed ``least_misfit``, given ``free`` degrees of freedom."""
    if free == 0:
        return float(chdtri(1, 1 - LEVEL_UNSEEN))
    return float(chdtri(1, 1 - LEVEL)) * max(1.0, least_misfit / free)


def _misfit(points: Region, least_misfit: float, positive: int) -> Misfit:
    """Returns the kind of misfit. Compares ``least_misfit`` to fits with one additional term, and to noise.

    Args:
      points: points to which the law was fitted.
      least_misfit: the law's misfit.
      positive: number of terms in the law with a positive time.
    """
    gains = {name: least_misfit - regions.best(points, [*LAW, term])[1] for name, term in LACKING.items()}
    likeliest = max(gains, key=lambda name: gains[name])
    if gains[likeliest] > chdtri(1, 2 * CHANCE):  # a term cannot be negative: half the chance is on this side
        return likeliest
    free = len(points.shares) - positive
    return "scatter" if free > 0 and least_misfit > chdtri(free, CHANCE) else "none"


def _critical(fewest: float, serial: float, parallel: float, communication: float) -> float:
    """Returns cores c with c T(c) = 2 f T(f), in which f is the ``fewest`` cores timed.

    From one core, this is communication c² + (serial − communication) c = 2 serial + parallel.
    """
    linear = serial - communication
    constant = 2 * fewest * (serial + communication * (fewest - 1)) + parallel
    if communication > 0:
        # The form of the root without cancellation.
        root = math.sqrt(linear**2 + 4 * communication * constant)
        return 2 * constant / (linear + root) if linear > 0 else (root - linear) / (2 * communication)
    return constant / serial if serial > 0 else math.inf


def _verdict(critical: Interval, cores: np.ndarray) -> tuple[Verdict, Interval]:
    """Returns the verdict that an interval supports, given the measured core counts."""
    fewest, largest = float(cores.min()), float(cores.max())
    verdict = text.verdict(critical.low >= fewest, critical.high <= largest)
    return verdict, critical._replace(low=min(critical.low, largest)) if verdict == "at_least" else critical
