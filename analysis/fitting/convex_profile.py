"""Convex profile: estimates extents without a prior, by least squares over all convex curves.

Curves are convex in log-log space, with slopes between -1 and 0.3. An extent's interval ends at the value below which
(or above which) even the best curve fits significantly worse than the best of all curves. Each of these curves is the
exact solution of a least-squares problem with linear constraints.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import nnls

from analysis.fitting import extents
from analysis.fitting.extents import GAIN, SLACK, Extent, Extents
from analysis.fitting.profiles import OCTAVE
from analysis.fitting.regimes import from_zero

STEEPEST, RISES = -1.0, 0.3  # range of slopes
CHANCE = 2.706  # 90 % quantile of chi-squared with one degree of freedom
HALVINGS = 20  # of the range in which an end lies

# Returns row and limit of the linear condition row . ln_steps >= limit, under which a convex curve reaches ln B.
Reach = Callable[[float], tuple[np.ndarray, float]]


def estimate(
    batch_size: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    variance: np.ndarray | None = None,
    gain: float = GAIN,
    share: np.ndarray | None = None,
) -> Extents:
    """Estimates the extents of a curve. Takes the same arguments as ``extents.estimate``."""
    low = from_zero(low)
    ln_batch, ln_steps = np.log(np.asarray(batch_size, np.float64)), np.log((low + high) / 2)
    curves = _ConvexCurves(ln_batch, ln_steps, extents.noise(batch_size, low, high, variance, share))
    best, least_misfit = curves.best()
    first = ln_batch[0]

    def at(ln_size: float) -> np.ndarray:
        return extents.interpolation(ln_batch, np.array([ln_size]))[:, 0]

    def pays(ln_size: float) -> tuple[np.ndarray, float]:
        return at(ln_size - OCTAVE) - at(ln_size), float(np.log1p(gain))

    def efficient(ln_size: float) -> tuple[np.ndarray, float]:
        return at(first) - at(ln_size), float(ln_size - first - np.log(SLACK))

    bound = least_misfit + CHANCE
    return Extents(
        _profile(curves, pays, extents.pays_up_to(ln_batch, best[None], gain)[0], bound, first + OCTAVE),
        _profile(curves, efficient, extents.efficient_up_to(ln_batch, best[None])[0], bound, first + 1e-6),
    )


class _ConvexCurves:
    """All convex curves at n batch sizes, and their misfit to one data set."""

    def __init__(self, ln_batch: np.ndarray, ln_steps: np.ndarray, variance: np.ndarray):
        n = len(ln_batch)
        self.ln_batch = ln_batch
        self._ln_steps, self._spread = ln_steps, np.sqrt(variance)
        slopes = np.diff(np.eye(n), axis=0) / np.diff(ln_batch)[:, None]  # [n - 1, n]
        self._rows = np.concatenate([slopes[:1], -slopes[-1:], np.diff(slopes, axis=0)])
        self._limits = np.concatenate([[STEEPEST, -RISES], np.zeros(n - 2)])

    def best(self, row: np.ndarray | None = None, limit: float = 0.0) -> tuple[np.ndarray, float]:
        """Returns the best curve's ln steps [n] and misfit, optionally subject to ``row . ln_steps >= limit``."""
        rows, limits = self._rows, self._limits
        if row is not None:
            rows, limits = np.concatenate([rows, row[None]]), np.append(limits, limit)
        # The shortest vector z of scaled residuals with G z >= h (Lawson and Hanson 1974, chapter 23).
        rows, limits = rows * self._spread, limits - rows @ self._ln_steps
        dual = np.concatenate([rows.T, limits[None]])
        target = np.zeros(len(dual))
        target[-1] = 1
        solution, length = nnls(dual, target)
        if length < 1e-9:
            return self._ln_steps, np.inf  # no such curve
        residual = dual @ solution - target
        scaled = residual[:-1] / -residual[-1]
        return self._ln_steps + self._spread * scaled, float(scaled @ scaled)


def _profile(curves: _ConvexCurves, reach: Reach, ln_best: float, bound: float, start: float) -> Extent:
    """Returns an extent with ends between ``start`` and the largest batch size."""
    first, last = curves.ln_batch[0], curves.ln_batch[-1]

    def falls_short(ln_size: float) -> bool:  # a plausible curve reaches no further than this
        row, limit = reach(ln_size)
        return curves.best(-row, -limit)[1] <= bound

    def reaches(ln_size: float) -> bool:  # a plausible curve reaches at least this
        return curves.best(*reach(ln_size))[1] <= bound

    low = first if falls_short(start) else _first(falls_short, start, last)
    high = np.inf if reaches(last) else _first(lambda ln_size: not reaches(ln_size), start, last)
    if not reaches(start):
        high = first
    return extents.extent(ln_best, low, max(high, ln_best), *np.exp([first, last]))


def _first(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Returns the smallest point in (low, high] at which a monotone condition holds, or ``high`` if it never holds."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
