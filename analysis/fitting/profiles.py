"""Profiles: the misfit of the curve of steps against batch size, for every knee position on a grid.

The curve is ln S = m + ln(1 + (B*/B)^a) / a. For a given knee position B* and sharpness a, the best m and its misfit
have a closed form. Data sets at the same batch sizes share the curves on the grid, so data sets are profiled in
batches.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy.special import fdtri, stdtrit

LEVEL = 0.90
NEGLIGIBLE = 1e-3  # residuals below 0.1 % are not evidence of precision: steps are integers
ROUNDING = 1e-10  # rounding error in sums of squared logarithms
OCTAVE = float(np.log(2))
OCTAVES_SEARCHED = 6  # octaves beyond the data in which to search for B*
PER_OCTAVE = 16
LOWEST, HIGHEST, STEP = 0.35, 5.0, 0.05  # range of a; the step is in ln a


class Profile(NamedTuple):
    """The model evaluated on a grid with A sharpnesses and G critical batch sizes. All arrays are float64.

    Attributes:
      ln_critical: [G], ln of B* (in examples), evenly spaced.
      sharpness: [A], evenly spaced in log space.
      misfit: [A, G], weighted residual sum of squares of ln steps times exp((ln a)^2 / (n - 1)), which encodes the
        prior ln a ~ N(0, 1). The objective is Q = (n - 1) ln misfit.
    """

    ln_critical: np.ndarray
    sharpness: np.ndarray
    misfit: np.ndarray


class _Grid(NamedTuple):
    """Curves with m = 0 at n batch sizes: ``curves`` [n, A G], and their squares."""

    ln_critical: np.ndarray
    sharpness: np.ndarray
    curves: np.ndarray
    squared: np.ndarray


def profile(
    batch_size: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, per_octave: int = PER_OCTAVE
) -> list[Profile]:
    """Returns the misfit for B* from 6 octaves below the data to 6 above, and for a from 0.35 to 5 in 5 % steps.

    Args:
      batch_size: [n], examples, sorted.
      ln_steps, weights: [d, n], d data sets at these batch sizes, and the relative weights of their points.
      per_octave: grid points of ln B* per factor of two.

    Returns:
      The profiles of the d data sets.
    """
    grid = _grid(tuple(np.asarray(batch_size, np.float64).tolist()), per_octave)
    squares = misfits(grid.curves, grid.squared, ln_steps, weights)
    squares = squares.reshape(-1, len(grid.sharpness), len(grid.ln_critical))
    squares *= prior(grid.sharpness, len(batch_size))[:, None]
    return [Profile(grid.ln_critical, grid.sharpness, squares_of_data) for squares_of_data in squares]


def misfits(curves: np.ndarray, squared: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns weighted residual sums of squares of the data, for each curve at its best height, without a prior.

    Args:
      curves, squared: [n, c], ln steps of curves at n batch sizes, and their squares.
      ln_steps, weights: [d, n], data and weights. Weights may have any scale.

    Returns:
      float64[d, c], scaled to weights with mean 1.
    """
    n = len(curves)
    weights = weights / weights.mean(axis=1, keepdims=True)
    center = (weights * ln_steps).sum(axis=1, keepdims=True) / n
    rest = weights * (ln_steps - center)  # [d, n], centred to avoid cancellation between large squares
    # The square is expanded to avoid creating an array [d, n, c] of residuals.
    mean = _product(weights / n, curves)  # [d, c]
    misfit = _product(weights, squared)
    misfit -= _product(2 * rest, curves)
    misfit -= np.multiply(mean, n * mean, out=mean)
    misfit += (rest * (ln_steps - center)).sum(axis=1, keepdims=True)
    return np.maximum(misfit, 0, out=misfit)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Computes a matrix product without BLAS. For such small matrices, BLAS thread synchronization would dominate."""
    return np.einsum("dn,nc->dc", left, right)


def floors(
    ln_batch: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, ln_critical: np.ndarray, sharpness: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best m and misfit (see Profile) of one data set [n] for curves (ln B*, a) [c], on or off the grid."""
    residuals = ln_steps - excess(ln_critical[:, None] - ln_batch, sharpness[:, None])  # [c, n]
    ln_floor = residuals @ weights / weights.sum()
    residuals -= ln_floor[:, None]
    return ln_floor, np.square(residuals) @ weights * prior(sharpness, len(ln_batch))


def prior(sharpness: np.ndarray, n: int) -> np.ndarray:
    """Returns the factor by which the prior ln a ~ N(0, 1) multiplies the misfit of n points."""
    return np.exp(np.log(sharpness) ** 2 / (n - 1))


def excess(ln_below_knee: np.ndarray, sharpness: np.ndarray | float) -> np.ndarray:
    """Returns ln (S / S_min) = ln(1 + e^(a x)) / a with x = ln(B*/B), without overflow."""
    power = np.asarray(np.exp(-sharpness * np.abs(ln_below_knee)))
    power += 1
    np.log(power, out=power)
    power /= sharpness
    power += np.maximum(ln_below_knee, 0)
    return power


def slopes(ln_batch: np.ndarray, best: tuple[float, float, float]) -> np.ndarray:
    """Returns the derivatives of ln steps of the curve ``best`` (ln B*, a, m) in ln B*, ln a and m: float64[n, 3]."""
    ln_critical, sharpness, _ = best
    ln_below_knee = ln_critical - ln_batch
    perfect = 0.5 + 0.5 * np.tanh(0.5 * sharpness * ln_below_knee)  # minus the curve's slope
    return np.stack(
        [perfect, ln_below_knee * perfect - excess(ln_below_knee, sharpness), np.ones(len(ln_below_knee))], axis=1
    )


def interval(
    x: np.ndarray, misfit: np.ndarray, n: int, level: float = LEVEL, estimated: int = 3
) -> tuple[float, np.ndarray, float]:
    """Returns the best value of ``x``, the ends of its interval (infinite if open), and the largest misfit inside it.

    The condition Q - Q_min <= (n - 1) ln(1 + F / f), with f = n - estimated, means misfit <= misfit_min (1 + F / f).
    Near its minimum, the misfit is parabolic, even if the data are exact and Q has a spike. The minimum and the ends
    are interpolated with this parabola.

    Args:
      x: [g], evenly spaced.
      misfit: [g], smallest misfit for each value (see ``Profile``).
      n: number of fitted points.
      level: confidence level of the interval.
      estimated: number of fitted parameters, including x.
    """
    # The best grid point, moved to the vertex of the parabola through it and its neighbours.
    i = int(np.argmin(misfit))
    tied = misfit <= misfit[i] + ROUNDING  # without a knee, all distant knees fit equally well
    if tied[-1]:
        i = len(x) - 1
    elif tied[0]:
        i = 0
    best, least_misfit = x[i], misfit[i]
    if 0 < i < len(x) - 1:
        before, after = misfit[i - 1] - least_misfit, misfit[i + 1] - least_misfit
        if before + after > 0:
            best += (x[1] - x[0]) * (before - after) / (2 * (before + after))
            least_misfit -= (before - after) ** 2 / (8 * (before + after))
    least_misfit = max(least_misfit, n * NEGLIGIBLE**2)
    bound = least_misfit * (1 + fdtri(1, n - estimated, level) / (n - estimated))
    # Each end lies between the last grid point inside and the first one outside.
    inside = np.flatnonzero(misfit <= bound)
    first, last = (int(inside[0]), int(inside[-1])) if len(inside) else (i, i)
    height = np.sqrt(np.maximum(misfit - least_misfit, 0))  # straight on either side of a parabola's minimum
    edge = np.sqrt(bound - least_misfit)
    low = np.interp(edge, height[[first, first - 1]], x[[first, first - 1]]) if first > 0 else -np.inf
    high = np.interp(edge, height[[last, last + 1]], x[[last, last + 1]]) if last < len(x) - 1 else np.inf
    return float(best), np.array([min(low, best), max(high, best)]), float(bound)


def influence(
    ln_batch: np.ndarray, ln_steps: np.ndarray, weights: np.ndarray, best: tuple[float, float, float]
) -> np.ndarray:
    """Returns the derivatives of the fitted ln B* with respect to each ln steps, to first order: float64[n]."""
    moves = slopes(ln_batch, best)
    residuals = ln_steps - best[2] - excess(best[0] - ln_batch, best[1])
    curvature = (moves.T * weights) @ moves
    curvature[1, 1] += weights @ residuals**2 / (len(ln_batch) - 1)  # the prior's
    # Use a pseudoinverse, because the data may not determine a parameter, such as a plateau beyond them.
    return (np.linalg.pinv(curvature, hermitian=True) @ (moves.T * weights))[0]


def half_width(moves: np.ndarray, left_out: np.ndarray) -> float:
    """Returns the half-width of a 90 % interval of ln B*, from the delta method and a jackknife over shared points.

    Args:
      moves: [n], derivatives of ln B* with respect to ln steps.
      left_out: [n, k], ln steps without point i. NaN at batch sizes that have no answer without this point.
    """
    k = left_out.shape[1]
    if k < 2 or np.isnan(left_out).any():
        return np.inf
    # The shift of ln B* without each point.
    moved = moves @ (left_out - left_out.mean(axis=1, keepdims=True))  # [k]
    return float(stdtrit(k - 1, 1 - (1 - LEVEL) / 2) * np.sqrt((k - 1) / k * (moved**2).sum()))


@functools.lru_cache(maxsize=4)
def _grid(batch_size: tuple[float, ...], per_octave: int) -> _Grid:
    ln_batch = np.log(batch_size)
    octaves = np.ptp(ln_batch) / OCTAVE + 2 * OCTAVES_SEARCHED
    points = np.arange(int(octaves * per_octave + 1e-6) + 1)
    ln_critical = ln_batch.min() + OCTAVE * (points / per_octave - OCTAVES_SEARCHED)
    sharpness = np.exp(np.arange(np.log(LOWEST), np.log(HIGHEST), STEP))
    curves = excess(ln_critical - ln_batch[:, None, None], sharpness[:, None]).reshape(len(ln_batch), -1)
    return _Grid(ln_critical, sharpness, curves, curves**2)
