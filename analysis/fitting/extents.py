"""Extents: how far larger batches pay off and stay efficient, for any shape of the curve.

Steps to target S are interpolated between batch sizes, linearly in log-log space. *Pays up to* is the batch size B
after the last doubling with S(B / 2) / S(B) - 1 of at least the gain, if all doublings before it also do.
*Efficient up to* is the largest B for which B S(B) is at most 1.2 times its minimum over the measured batch sizes. The
critical batch size of Zhang et al. 2024, arXiv 2410.21676, is similar, but refers to B = 256 instead of the minimum.

The answers are weighted quantiles over the curves of ``curve_prior``. The weight of a curve is exp(-misfit / 2), and
its height is free. The noise of a point has three parts: selection noise from its trials, the distance between
evaluations, and a floor.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analysis import text
from analysis.fitting import curve_prior
from analysis.fitting.profiles import OCTAVE
from analysis.fitting.regimes import from_zero

PAYS, EFFICIENT = NAMES = ("pays", "efficient")

GAIN = 0.2  # speed-up by a doubling that counts as paying off
SLACK = 1.2  # multiple of the fewest examples that counts as efficient
QUANTILES = (0.05, 0.5, 0.95)
MARGINS = {PAYS: (0.10, 0.25), EFFICIENT: (0.10, 0.20)}  # octaves by which each end is moved outwards
LUCK_TIMES = 1.27  # ratio of the noise of the best of k to the luck, which is that of the best of k / 2
FLOOR = 0.03  # noise of ln steps besides luck and evaluations
VARIES = 4.0  # luck^2 at a batch size is within this factor of its mean
# Noise is averaged over these values of luck where it is unknown, with equal weights.
UNKNOWN_LUCK = np.geomspace(0.01, 0.4, 6)


class Extent(NamedTuple):
    """The largest batch size, in examples, up to which a property holds.

    Attributes:
      best: median, or NaN if the median is beyond the data.
      low, high: ends of the 90 % interval, or NaN if open. Each end is a 95 % bound.
      verdict: identified if both ends are inside the data, at_least (low), at_most (high) or not_identified.
    """

    best: float
    low: float
    high: float
    verdict: text.Verdict


UNKNOWN = Extent(float("nan"), float("nan"), float("nan"), "not_identified")


class Extents(NamedTuple):
    """The extents up to which larger batches pay off and stay efficient."""

    pays: Extent
    efficient: Extent


class Data(NamedTuple):
    """The points of a curve. See ``estimate``.

    Attributes:
      batch_size: float64[n], sorted.
      low, high: float64[n], bounds on the steps to target, which lie in (low, high].
      variance: float64[n], missing if the selection noise is unknown.
      share: float64[n].
    """

    batch_size: np.ndarray
    low: np.ndarray
    high: np.ndarray
    variance: np.ndarray | None
    share: np.ndarray


class _Answers(NamedTuple):
    """Answers of the prior curves, sorted: ln B, float64[C], and the index of each answer's curve, int[C]."""

    ln_answer: np.ndarray
    order: np.ndarray


def estimate(
    batch_size: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    variance: np.ndarray | None = None,
    gain: float = GAIN,
    share: np.ndarray | None = None,
) -> Extents:
    """Estimates the extents of a curve.

    Args:
      batch_size: [n], batch sizes in examples, n >= 3, sorted and all different.
      low, high: [n], bounds on the steps to target, which lie in (low, high]. They are equal if the steps are exact. A
        low of 0 counts as 0.5.
      variance: [n], jackknife variances from ``weights.minimum_variance``, or None or all NaN if unknown.
      gain: required speed-up per doubling, as a fraction.
      share: [n], fraction of the selection variance that remains if a point is the expected best of a subset of its
        trials (see ``narrowing.shares``). By default, every point is the best of all its trials.
    """
    probability = posterior(batch_size, low, high, variance, share)
    return Extents(*(interval(probability, batch_size, name, gain) for name in NAMES))


def posterior(
    batch_size: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    variance: np.ndarray | None = None,
    share: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the weight of each prior curve, up to a common factor: float64[C]. See ``estimate``."""
    low = from_zero(low)
    prior = curve_prior.sample(tuple(np.asarray(batch_size, np.float64).tolist()))
    rows = noises(prior.ln_batch, low, high, variance, share)
    return np.asarray(probabilities(prior, np.log((low + high) / 2), rows).sum(axis=0))


def interval(probability: np.ndarray, batch_size: np.ndarray, name: str, gain: float) -> Extent:
    """Returns the answer ``name``, one of ``NAMES``, given the weights of the prior curves at ``batch_size``."""
    first, middle, last = quantiles(probability, batch_size, name, gain)[0]
    down, up = MARGINS[name]
    return extent(middle, first - down * OCTAVE, last + up * OCTAVE, batch_size[0], batch_size[-1])


def deviation(probability: np.ndarray, batch_size: np.ndarray, name: str, gain: float) -> float:
    """Returns the standard deviation of an answer in ln B. Answers beyond the data count as ``curve_prior.BEYOND``."""
    answers = _answers(tuple(np.asarray(batch_size, np.float64).tolist()), name, gain)
    farthest = np.log(batch_size[-1]) + curve_prior.BEYOND * OCTAVE
    ln_answer, share = np.minimum(answers.ln_answer, farthest), probability[answers.order] / probability.sum()
    mean = share @ ln_answer
    return float(np.sqrt(share @ (ln_answer - mean) ** 2))


def quantiles(
    probability: np.ndarray, batch_size: np.ndarray, name: str, gain: float, levels: Sequence[float] = QUANTILES
) -> tuple[np.ndarray, np.ndarray]:
    """Returns quantiles of an answer over the prior curves, and the corresponding curves.

    Args:
      probability: float64[C], the weight of each prior curve, up to a common factor.
      batch_size: [n], batch sizes of the prior curves.
      name: one of ``NAMES``.
      gain: required speed-up per doubling, as a fraction.
      levels: q quantiles, from 0 to 1.

    Returns:
      The answers in ln B, float64[q], and the indices of the curves, int[q].
    """
    answers = _answers(tuple(np.asarray(batch_size, np.float64).tolist()), name, gain)
    cumulated = np.cumsum(probability[answers.order])
    places = np.minimum(np.searchsorted(cumulated, np.multiply(levels, cumulated[-1])), len(cumulated) - 1)
    return answers.ln_answer[places], answers.order[places]


def noise(
    batch_size: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    variance: np.ndarray | None = None,
    share: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the variance of ln steps at each batch size, float64[n], for the arguments of ``estimate``.

    If the selection noise is unknown, the variance is a mean over possible noise levels. Each level is weighted by how
    well the prior curves fit at that level.
    """
    low = from_zero(low)
    prior = curve_prior.sample(tuple(np.asarray(batch_size, np.float64).tolist()))
    rows = noises(prior.ln_batch, low, high, variance, share)
    if len(rows) == 1:
        return rows[0]
    shares = probabilities(prior, np.log((low + high) / 2), rows).sum(axis=1)
    return np.asarray(shares @ rows / shares.sum())


def mean_curve(
    prior: curve_prior.PriorCurves,
    low: np.ndarray,
    high: np.ndarray,
    variance: np.ndarray | None,
    share: np.ndarray | None = None,
) -> np.ndarray:
    """Returns ln steps [n] of the mean prior curve, weighted by quality of fit. Requires low > 0."""
    ln_steps = np.log((low + high) / 2)
    rows = noises(prior.ln_batch, low, high, variance, share)
    probability = probabilities(prior, ln_steps, rows).sum(axis=0)
    shape = prior.ln_steps @ probability / probability.sum()
    precision = 1 / rows.mean(axis=0)
    return np.asarray(shape + precision @ (ln_steps - shape) / precision.sum())


def noises(
    ln_batch: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    variance: np.ndarray | None,
    share: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the variances of ln steps at n batch sizes, one row for each selection-noise level: float64[m, n].

    There is a single row if the noise level is known.
    """
    rest = np.log(high / low) ** 2 / 12 + FLOOR**2
    left = np.ones(len(ln_batch)) if share is None else share
    if variance is None or not (variance > 0).any():
        return UNKNOWN_LUCK[:, None] ** 2 * left + rest
    return (LUCK_TIMES**2 * smoothed(ln_batch, variance) * left + rest)[None]


def smoothed(ln_batch: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Fits a straight line in ln B to the known ``variance`` [n]. Returns its values, within a factor of the mean."""
    is_known = variance > 0
    mean = variance[is_known].mean()
    if is_known.sum() < 3:
        return np.full(len(ln_batch), mean)
    line = np.polynomial.polynomial.polyfit(ln_batch[is_known], variance[is_known], 1)
    return np.clip(np.polynomial.polynomial.polyval(ln_batch, line), mean / VARIES, mean * VARIES)


def probabilities(prior: curve_prior.PriorCurves, ln_steps: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Returns the weight of each prior curve for each row of ``variances`` [m, n], up to a common factor: [m, C]."""
    precision = 1 / variances  # [m, n]
    total = precision.sum(axis=1, keepdims=True)
    centered = ln_steps - precision @ ln_steps[:, None] / total
    # The square is expanded to avoid creating an array [m, n, C] of residuals.
    ln_weight = precision @ prior.squared
    ln_weight -= (2 * precision * centered) @ prior.ln_steps
    ln_weight -= (precision @ prior.ln_steps) ** 2 / total
    ln_weight += (precision * centered**2).sum(axis=1, keepdims=True)  # [m, C], the misfit at the best height
    ln_weight /= -2
    # Integrated over the height. These factors only matter between rows.
    ln_weight += (np.log(precision).sum(axis=1, keepdims=True) - np.log(total)) / 2
    return np.asarray(np.exp(ln_weight - ln_weight.max()))


@functools.lru_cache(maxsize=16)
def _answers(batch_size: tuple[float, ...], name: str, gain: float) -> _Answers:
    prior = curve_prior.sample(batch_size)
    if name == PAYS:
        ln_answer = pays_up_to(prior.ln_batch, prior.ln_steps.T, gain)
    else:
        ln_answer = efficient_up_to(prior.ln_batch, prior.ln_steps.T)
    order = np.argsort(ln_answer, kind="stable")
    return _Answers(ln_answer[order], order)


def pays_up_to(ln_batch: np.ndarray, ln_steps: np.ndarray, gain: float = GAIN) -> np.ndarray:
    """Returns ln of the batch size after the last doubling that gains at least ``gain``, as all before it do.

    Args:
      ln_batch: float64[n], sorted.
      ln_steps: float64[c, n], piecewise linear in ``ln_batch``.
      gain: fraction.

    Returns:
      float64[c]: the smallest batch size if the first doubling within the data already gains too little, and infinity
      if all doublings gain enough.
    """
    # The gain is linear between these places.
    places = np.unique(np.concatenate([ln_batch, ln_batch + OCTAVE]))
    places = places[(places >= ln_batch[0] + OCTAVE - 1e-9) & (places <= ln_batch[-1] + 1e-9)]
    if not len(places):
        return np.full(len(ln_steps), np.inf)
    gained = ln_steps @ (interpolation(ln_batch, places - OCTAVE) - interpolation(ln_batch, places))
    missing = np.log1p(gain) - gained  # float64[c, m], positive if too little
    too_little = missing > 1e-9
    first = np.argmax(too_little, axis=1)
    crossing = _crossing(places, missing, np.maximum(first - 1, 0), first)
    crossing = np.where(first == 0, ln_batch[0], crossing)
    return np.where(too_little.any(axis=1), crossing, np.inf)


def efficient_up_to(ln_batch: np.ndarray, ln_steps: np.ndarray) -> np.ndarray:
    """Returns ln of the largest batch size that needs at most ``SLACK`` times the fewest examples.

    Args:
      ln_batch: float64[n], sorted.
      ln_steps: float64[c, n], piecewise linear in ``ln_batch``.

    Returns:
      float64[c], infinite if the largest batch size qualifies.
    """
    ln_examples = ln_steps + ln_batch
    excess = ln_examples - ln_examples.min(axis=1, keepdims=True) - np.log(SLACK)
    last = len(ln_batch) - 1 - np.argmax(excess[:, ::-1] <= 1e-9, axis=1)
    at_end = last == len(ln_batch) - 1
    crossing = _crossing(ln_batch, excess, last, np.minimum(last + 1, len(ln_batch) - 1))
    return np.where(at_end, np.inf, crossing)


def _crossing(places: np.ndarray, values: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Returns zeros of ``values`` [c, m], interpolated in ``places`` [m] between two indices [c], or the lower one."""
    rows = np.arange(len(values))
    start, end = values[rows, before], values[rows, after]
    share = np.where(end > start, -start / np.where(end > start, end - start, 1), 0)
    return places[before] + (places[after] - places[before]) * np.clip(share, 0, 1)


def interpolation(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Returns the matrix [n, m] that linearly interpolates values at x [n] to the ``positions`` [m]."""
    return np.stack([np.interp(positions, x, unit) for unit in np.eye(len(x))])


def extent(ln_best: float, ln_low: float, ln_high: float, first: float, last: float) -> Extent:
    """Returns an extent from logarithms, given the smallest and the largest batch size.

    Ends outside the data are open. A low end above the data becomes the largest batch size.
    """
    has_low, has_high = bool(ln_low > np.log(first) + 1e-9), bool(ln_high < np.log(last) - 1e-9)
    return Extent(
        best=float(np.exp(ln_best)) if np.isfinite(ln_best) else float("nan"),
        low=float(min(np.exp(ln_low), last)) if has_low else float("nan"),
        high=float(np.exp(ln_high)) if has_high else float("nan"),
        verdict=text.verdict(has_low, has_high),
    )
