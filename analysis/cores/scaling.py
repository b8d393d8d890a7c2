"""How far more cores pay off: a law of seconds per epoch over cores, with honest 90 % intervals.

The law is T(c) = serial + parallel / c + communication · (c − 1), the universal scalability law (Gunther 2008,
arXiv 0808.1431) in seconds. Why (c − 1): an all_gather of a table brings (c − 1)/c of it into every core. Where cores
share one memory, that is c − 1 tables through it in all. Where every core has links of its own, a ring takes c − 1 hops
(Thakur et al. 2005, doi 10.1177/1094342005051521), and the bytes into one core, (c − 1)/c of a table, cannot be told
from ``serial`` at all, as 1 − 1/c is made of the other two terms: they are counted there, and taken off ``parallel``.

The law is linear in its three times, none of which is negative, and fitted by least squares of relative errors. The
interval of a time, or of a number of cores, is found by profile: all else is fitted anew, and as the law may not be the
true one, with terms that it lacks besides (``regions``). The noise of a point is the spread of its epochs and
``BETWEEN_RUNS``. Neither is divided by the number of epochs: what slows an epoch down on a shared machine lasts for
many. More misfit than that widens the intervals, and where a lacking term fits better than luck explains, or nothing
fits, ``misfit`` says so.

``critical_cores`` is where an epoch takes twice what perfect scaling from one core would make of it: half of the cores'
time is lost. Like the critical batch size it lies between perfect scaling and no gain.
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

FEWEST_COUNTS = 3  # of cores, one for each time
LEVEL = 0.90
LEVEL_UNSEEN = 0.95  # of as many counts as times, which cannot show that there is more noise
BETWEEN_RUNS = 0.03  # relative; medians of two processes that do the same differ by about as much
NEGLIGIBLE = 1e-9  # a time below this share of every epoch is rounding
CHANCE = 0.015  # that noise alone looks like a misfit of one kind
LAW = list(range(regions.REPORTED))
LACKING: dict[Misfit, int] = {"rounds": 3, "step": 4}  # terms beyond the law
MISFITS: dict[Misfit, str] = {
    "none": "",
    "rounds": "the law misfits: communication that grows as log2 c fits better",
    "step": "the law misfits: a step beyond half of the cores fits better",
    "scatter": "the law misfits: times are farther from it than noise takes them",
}


class Interval(NamedTuple):
    """The best value and its 90 % interval; an end that is open is infinite."""

    best: float
    low: float
    high: float


class LawFit(NamedTuple):
    """The law fitted to seconds per epoch at n >= 3 numbers of cores.

    Attributes:
      serial: seconds that every core takes, however many there are.
      parallel: seconds that are shared among the cores.
      communication: seconds for every core beside the first.
      critical_cores: see above; infinite where no time is lost.
      verdict: identified, at_least (low), at_most (high) or not_identified, of ``critical_cores`` within the numbers of
        cores that were measured.
      fastest_cores: where an epoch is shortest by the best law; infinite where more cores never slow it down.
      slows: whether the law needs communication to fit, so that enough cores slow an epoch down.
      misfit: what the law misses: rounds, step or scatter, in words ``doubt``; or none.
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
        """Evidence against the law, in words, or empty if there is none."""
        return MISFITS[self.misfit]

    def seconds(self, cores: np.ndarray) -> np.ndarray:
        """The best law at ``cores``; float64 of its shape."""
        return self.serial.best + self.parallel.best / cores + self.communication.best * (cores - 1)


def fit(cores: np.ndarray, seconds: np.ndarray, spread: float) -> LawFit:
    """Fits the law to the seconds per epoch at n >= 3 numbers of cores, in any order.

    Args:
      cores: [n], all different.
      seconds: [n], positive.
      spread: relative standard deviation of an epoch's time, see ``spread``.
    """
    if len(cores) < FEWEST_COUNTS:
        raise ValueError(f"a fit needs {FEWEST_COUNTS} numbers of cores, not {len(cores)}")
    count, seconds = np.asarray(cores, np.float64), np.asarray(seconds, np.float64)
    longest = float(seconds.max())
    points = regions.region(count, seconds / longest, float(np.hypot(spread, BETWEEN_RUNS)))
    shares, least = regions.best(points, LAW)
    shares[shares < NEGLIGIBLE] = 0.0
    points = points._replace(bound=least + _margin(least, len(count) - len(LAW)))
    ends = [(share, *regions.of_time(points, i, share)) for i, share in enumerate(shares.tolist())]
    serial, parallel, communication = (
        Interval(*(share / unit * longest for share in each)) for each, unit in zip(ends, points.unit, strict=False)
    )
    best = _critical(*(shares / points.unit[LAW]).tolist())
    verdict, critical = _verdict(Interval(best, *regions.of_cores(points, best)), count)
    fastest = max(1.0, math.sqrt(parallel.best / communication.best)) if communication.best > 0 else math.inf
    slows = regions.best(points, LAW[:2])[1] > points.bound
    misfit = _misfit(points, least, int(np.count_nonzero(shares)))
    return LawFit(serial, parallel, communication, critical, verdict, fastest, slows, misfit)


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


def _margin(least: float, free: int) -> float:
    """Allowance above the ``least`` misfit within the region, with ``free`` degrees of freedom."""
    if free == 0:
        return float(chdtri(1, 1 - LEVEL_UNSEEN))
    return float(chdtri(1, 1 - LEVEL)) * max(1.0, least / free)


def _misfit(points: Region, least: float, positive: int) -> Misfit:
    """Kind of misfit of the law, if any: compares its ``least`` misfit with that of one more term, and with noise.

    Args:
      points: that were fitted.
      least: misfit of the law.
      positive: how many of its three times are.
    """
    gains = {name: least - regions.best(points, [*LAW, term])[1] for name, term in LACKING.items()}
    likeliest = max(gains, key=lambda name: gains[name])
    if gains[likeliest] > chdtri(1, 2 * CHANCE):  # a term that cannot be negative: half of the chance is on this side
        return likeliest
    free = len(points.shares) - positive
    return "scatter" if free > 0 and least > chdtri(free, CHANCE) else "none"


def _critical(serial: float, parallel: float, communication: float) -> float:
    """Cores c with c T(c) = 2 T(1), the root of communication c² + (serial − communication) c = 2 serial + parallel."""
    linear, constant = serial - communication, 2 * serial + parallel
    if communication > 0:
        # Of the two forms of the root the one without cancellation.
        root = math.sqrt(linear**2 + 4 * communication * constant)
        return 2 * constant / (linear + root) if linear > 0 else (root - linear) / (2 * communication)
    return constant / serial if serial > 0 else math.inf


def _verdict(critical: Interval, cores: np.ndarray) -> tuple[Verdict, Interval]:
    """The verdict that an interval supports; nothing beyond the measured numbers of cores is claimed."""
    least, most = float(cores.min()), float(cores.max())
    verdict = text.verdict(critical.low >= least, critical.high <= most)
    return verdict, critical._replace(low=min(critical.low, most)) if verdict == "at_least" else critical
