"""Narrowing: the number of trials needed to halve the interval of *pays up to* or *efficient up to*.

If the number of trials is multiplied by m, each point is still the expected best of k trials, so its value does not
depend on m. Only its noise decreases. The expected widths assume points with this noise on the mean of the prior curves
that fit the data. ``narrowing_simulation`` compares these widths with simulated ones.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analysis.fitting import curve_prior, extents, weights
from analysis.fitting.extents import GAIN, Extent
from analysis.fitting.profiles import OCTAVE
from analysis.fitting.regimes import from_zero

MULTIPLES = np.array([1.0, 2, 4, 8, 16, 32])


class Narrowing(NamedTuple):
    """Expected interval widths in octaves at ``MULTIPLES`` of the trials, float64[6] each, NaN if an end is open."""

    pays: np.ndarray
    efficient: np.ndarray

    @property
    def halved_by(self) -> tuple[float, float]:
        """The multiple of the trials that halves each interval, infinite if too large, and NaN if an end is open."""
        return halved_by(self.pays), halved_by(self.efficient)


def expected(
    batch_size: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    variance: np.ndarray,
    gain: float = GAIN,
    share: np.ndarray | None = None,
) -> Narrowing:
    """Returns the expected widths, given the arguments of ``extents.estimate``. The selection noise must be known."""
    low = from_zero(low)
    prior = curve_prior.sample(tuple(np.asarray(batch_size, np.float64).tolist()))
    steps = np.exp(extents.mean_curve(prior, low, high, variance, share))
    half = np.log(high / low) / 2
    widths = []
    for left in shares(MULTIPLES):
        ratio = np.exp(half * np.sqrt(left))
        answers = extents.estimate(batch_size, steps / ratio, steps * ratio, variance * left, gain, share)
        widths.append([_octaves(extent) for extent in answers])
    return Narrowing(*np.transpose(widths))


def shares(multiple: np.ndarray) -> np.ndarray:
    """Returns the variance of the expected best of k, estimated from ``multiple`` times k trials, relative to k trials.

    The result is exact for large k if ln steps above the minimum are exponentially distributed. In this case, the gaps
    between ordered trials are independent, and each gap is weighted by the probability that the best of k lies above
    it.
    """
    return 1 / (2 * multiple - 1)


def expected_best(
    low: np.ndarray, high: np.ndarray, all_steps: Sequence[np.ndarray], some: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replaces points with more than ``some`` trials by their expected best of ``some``, and returns ``shares``.

    Args:
      low, high: float64[n], bounds on the best of the first ``some`` trials, which lies in (low, high]. low > 0.
      all_steps: [n], the steps to target of all trials at each batch size: the geometric middle of each interval, so
        that trials that share an interval stay inside it. Infinite if not reached. Empty if all have ``some`` trials.
      some: number of trials.

    Returns:
      low, high and shares, float64[n] each. The error due to the distance between evaluations counts less if trials
      reached the target at different evaluations (see ``weights.evaluations_share``).
    """
    low, high, share = low.copy(), high.copy(), np.ones(len(low))
    for i, steps in enumerate(all_steps):
        if len(steps) > some:
            middle = np.exp(weights.best_of_some(steps[None], some)[0])
            ratio = (high[i] / low[i]) ** (np.sqrt(weights.evaluations_share(steps, some)) / 2)
            low[i], high[i] = middle / ratio, middle * ratio
            share[i] = shares(np.array(len(steps) / some))
    return low, high, share


def _octaves(extent: Extent) -> float:
    return float(np.log(extent.high / extent.low) / OCTAVE)


def halved_by(octaves: np.ndarray) -> float:
    """Returns the multiple of the trials that halves the width, given widths at ``MULTIPLES``. See ``Narrowing``."""
    if np.isnan(octaves[0]):
        return float("nan")
    half = octaves[0] / 2
    if octaves[-1] > half:
        return float("inf")
    return float(np.exp(np.interp(-half, -octaves, np.log(MULTIPLES))))
