"""Prior curves: a fixed random sample of curves of steps to target. The data determine the weight of each curve.

A curve has one to three knees between perfect scaling and a plateau. Its slope at small batch sizes may be shallower
than -1, and its plateau may rise or fall. The knee lies anywhere from 3 octaves below the data to 3 above. The sample
is fixed, so equal points always give equal answers. docs/statistics/method.md describes every step.
"""

import functools
from typing import NamedTuple

import numpy as np

from analysis.fitting.profiles import OCTAVE, excess

CURVES = 150_000
SEED = 0
BEYOND = 3.0  # octaves beyond the data in which the knee may lie
MOST_KNEES = 3
APART = 1.5  # standard deviation of the distance between knees, in octaves
SOFTEST, SHARPEST = 0.4, 6.0  # range of sharpness, uniform in ln
PERFECT, SHALLOWER, SHALLOWEST = 0.6, 0.07, 0.3  # probability of slope -1, else its mean change, and its limit
TILTED, TILT = 0.7, 0.15  # probability that the plateau has a slope, and its standard deviation
TILT_STARTS = (-1.0, 3.0)  # octaves above the knee from which the plateau may be tilted


class PriorCurves(NamedTuple):
    """C curves at n batch sizes.

    Attributes:
      ln_batch: float64[n], sorted.
      ln_steps: float64[n, C], up to a constant for each curve.
      squared: float64[n, C], squares of ``ln_steps``.
    """

    ln_batch: np.ndarray
    ln_steps: np.ndarray
    squared: np.ndarray


class _Draws(NamedTuple):
    """The random numbers behind C curves with up to K knees. They do not depend on the batch sizes.

    Attributes:
      knees: int[C], the number of knees.
      place: float64[C], position of the center of the knees within its possible range, as a fraction.
      offsets: float64[C, K], offset of each knee from the center, in ln B.
      shares: float64[C, K], share of the total change in slope at each knee. Shares sum to 1.
      sharpness: float64[C, K].
      slope: float64[C], slope at small batch sizes, relative to perfect scaling.
      tilt: float64[C], the slope of the plateau.
      tilt_start: float64[C], the point at which this slope starts, in ln B above the center.
    """

    knees: np.ndarray
    place: np.ndarray
    offsets: np.ndarray
    shares: np.ndarray
    sharpness: np.ndarray
    slope: np.ndarray
    tilt: np.ndarray
    tilt_start: np.ndarray


@functools.cache
def _draws() -> _Draws:
    rng = np.random.default_rng(SEED)
    # The order of these draws is part of the method.
    knees = rng.integers(1, MOST_KNEES, CURVES, endpoint=True)
    place = rng.random(CURVES)
    offsets = OCTAVE * rng.normal(0, APART, (CURVES, MOST_KNEES))
    shares = rng.exponential(1, (CURVES, MOST_KNEES))
    sharpness = np.exp(rng.uniform(np.log(SOFTEST), np.log(SHARPEST), (CURVES, MOST_KNEES)))
    is_shallower = rng.random(CURVES) >= PERFECT
    slope = np.where(is_shallower, np.maximum(1 - rng.exponential(SHALLOWER, CURVES), SHALLOWEST), 1.0)
    tilt = np.where(rng.random(CURVES) < TILTED, rng.normal(0, TILT, CURVES), 0.0)
    tilt_start = OCTAVE * rng.uniform(*TILT_STARTS, CURVES)

    shares[np.arange(MOST_KNEES) >= knees[:, None]] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    offsets -= (shares * offsets).sum(axis=1, keepdims=True)  # perfect scaling meets the plateau at the center
    return _Draws(knees, place, offsets, shares, sharpness, slope, tilt, tilt_start)


@functools.lru_cache(maxsize=8)
def sample(batch_size: tuple[float, ...]) -> PriorCurves:
    """Returns the prior curves at sorted batch sizes. The arrays are read-only and shared between callers."""
    ln_batch = np.log(batch_size)
    draws = _draws()
    first, last = ln_batch[0] - BEYOND * OCTAVE, ln_batch[-1] + BEYOND * OCTAVE
    center = first + (last - first) * draws.place
    ln_steps = np.zeros((len(ln_batch), CURVES))
    for j in range(MOST_KNEES):
        having_knee = slice(None) if j == 0 else draws.knees > j  # the curves that have this knee
        below_knee = center[having_knee] + draws.offsets[having_knee, j] - ln_batch[:, None]
        ln_steps[:, having_knee] += draws.shares[having_knee, j] * excess(below_knee, draws.sharpness[having_knee, j])
    ln_steps *= draws.slope
    ln_steps += draws.tilt * np.maximum(ln_batch[:, None] - (center + draws.tilt_start), 0)
    squared = ln_steps**2
    for array in (ln_batch, ln_steps, squared):
        array.flags.writeable = False
    return PriorCurves(ln_batch, ln_steps, squared)
