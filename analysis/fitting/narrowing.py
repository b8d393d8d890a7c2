"""Narrowing: how many more trials would halve the interval of *pays up to* or *efficient up to*.

More trials at each batch size measure the expected steps of the best of k more precisely: m times the trials divide
luck^2 by m. The curve is the average of the prior curves that fit the data, and its steps are known up to that noise.
"""

from typing import NamedTuple

import numpy as np

from analysis.fitting import curve_prior, extents
from analysis.fitting.extents import GAIN, Extent
from analysis.fitting.profiles import OCTAVE
from analysis.fitting.regimes import from_zero

MULTIPLES = np.array([1.0, 2, 4, 8, 16, 32])


class Narrowing(NamedTuple):
    """Expected widths in octaves at ``MULTIPLES`` of the trials, float64[6] each, NaN if an end is open."""

    pays: np.ndarray
    efficient: np.ndarray

    @property
    def halved_by(self) -> tuple[float, float]:
        """The multiple of the trials that halves each interval, infinite if above all, or NaN if an end is open."""
        return _halved_by(self.pays), _halved_by(self.efficient)


def expected(
    batch_size: np.ndarray, low: np.ndarray, high: np.ndarray, variance: np.ndarray, gain: float = GAIN
) -> Narrowing:
    """Returns the expected widths for the arguments of ``extents.estimate``, whose luck must be known."""
    low = from_zero(low)
    prior = curve_prior.sample(tuple(np.asarray(batch_size, np.float64).tolist()))
    steps = np.exp(extents.mean_curve(prior, low, high, variance))
    spacing = np.sqrt(high / low)
    widths = []
    for multiple in MULTIPLES:
        found = extents.estimate(batch_size, steps / spacing, steps * spacing, variance / multiple, gain)
        widths.append([_octaves(one) for one in found])
    return Narrowing(*np.transpose(widths))


def _octaves(one: Extent) -> float:
    return float(np.log(one.high / one.low) / OCTAVE)


def _halved_by(octaves: np.ndarray) -> float:
    if np.isnan(octaves[0]):
        return float("nan")
    half = octaves[0] / 2
    if octaves[-1] > half:
        return float("inf")
    return float(np.exp(np.interp(-half, -octaves, np.log(MULTIPLES))))
