"""Suggestions: the additional runs that are expected to narrow *pays up to* most per unit of cost.

A candidate is a new batch size, or twice the number of trials at an existing one. Its data are simulated from the
current fit. A new batch size uses three of the prior curves that fit, and additional trials use the mean curve. A fit
that includes the simulated data gives the expected width. Trials can be added at a single batch size, because every
point remains the expected best of the same number of trials.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from analysis.fitting import curve_prior, extents, narrowing
from analysis.fitting.extents import GAIN, PAYS, Data, Extent
from analysis.fitting.profiles import OCTAVE

NEW, TRIALS, REPEATS = KINDS = ("batch size", "trials", "repeats")
OPEN = 10.0  # width of an interval with an open end, in octaves
SIMULATED = (1 / 6, 1 / 2, 5 / 6)  # quantiles of *pays up to* whose curves a new batch size is simulated from
APART = 0.9  # least octaves between neighbours that a new batch size can divide
AROUND = (-2.5, 1.5)  # octaves around the present interval in which neighbours are divided
WIDE = 2.1  # ratio of neighbours above which a gap is divided first
LEAST = 0.005  # fraction by which a suggestion must reduce the deviation
_UNSEEN = 1e9  # variance of a point without data

# Returns the cost of one trial, given its batch size and the steps to target there.
Cost = Callable[[float, float], float]


class Width(NamedTuple):
    """The uncertainty of *pays up to*.

    Attributes:
      octaves: width of the interval in octaves, or ``OPEN`` if an end is open.
      deviation: standard deviation in ln B, which can decrease even if an end stays open.
    """

    octaves: float
    deviation: float


class Suggestion(NamedTuple):
    """A suggestion of additional trials.

    Attributes:
      kind: one of ``KINDS``: a new batch size, more trials at an existing batch size, or repeats at all batch sizes.
      batch_size: batch size in the curve's unit, or NaN for repeats.
      trials: number of additional trials.
      width: expected width of the interval of *pays up to*.
      cost: expected cost of the trials, in the unit of ``Cost``.
    """

    kind: str
    batch_size: float
    trials: int
    width: Width
    cost: float


def suggest(
    data: Data,
    counts: Sequence[int],
    some: int,
    cost: Cost,
    sizes: Sequence[float],
    gain: float = GAIN,
    *,
    more_trials: bool = True,
    repeats: int = 0,
) -> list[Suggestion]:
    """Returns suggestions that narrow *pays up to*: first those that split a gap, then the most cost-effective.

    Args:
      data: the current points.
      counts: [n], number of trials at each batch size.
      some: number of trials k for the expected best at each point.
      cost: the cost of a trial.
      sizes: new batch sizes to consider (see ``new_sizes``).
      gain: required speed-up per doubling, as a fraction.
      more_trials: whether trials can be added at a batch size. This is not possible for pruned curves.
      repeats: number of repeats of the best trial to consider, at every batch size.
    """
    now = width(data, gain)
    candidates = []
    for size in sizes:
        expected, steps = _at_new_size(data, size, gain)
        candidates.append(Suggestion(NEW, size, some, expected, some * cost(size, steps)))
    middle = np.exp(extents.mean_curve(_prior(data), data.low, data.high, data.variance, data.share))
    pairs = list(zip(data.batch_size.tolist(), middle.tolist(), strict=True))
    for i, (size, steps) in enumerate(pairs if more_trials else []):
        expected = _with_trials(data, i, counts[i] * 2 / some, steps, gain)
        candidates.append(Suggestion(TRIALS, size, counts[i], expected, counts[i] * cost(size, steps)))
    if repeats:
        repeated = Data(data.batch_size, middle, middle, None, np.ones(len(middle)))
        spent = repeats * sum(cost(*pair) for pair in pairs)
        candidates.append(Suggestion(REPEATS, float("nan"), repeats * len(pairs), width(repeated, gain), spent))
    wide = gaps(data, gain)

    def divides(candidate: Suggestion) -> bool:
        return candidate.kind == NEW and any(smaller < candidate.batch_size < larger for smaller, larger in wide)

    def narrows(option: Suggestion) -> bool:
        return option.width.deviation < (1 - LEAST) * now.deviation and option.width.octaves <= now.octaves

    useful = [candidate for candidate in candidates if divides(candidate) or narrows(candidate)]
    return sorted(
        useful,
        key=lambda candidate: (not divides(candidate), (candidate.width.deviation - now.deviation) / candidate.cost),
    )


def gaps(data: Data, gain: float = GAIN) -> list[tuple[float, float]]:
    """Returns the neighbouring batch sizes that are more than an octave apart and affect the answer.

    Steps to target are interpolated between batch sizes, which is wrong if a wide gap contains a knee. The answer
    depends on the batch sizes in its interval and on those half as large.
    """
    pays = pays_up_to(data, gain)
    start = -np.inf if np.isnan(pays.low) else pays.low / 2
    end = np.inf if np.isnan(pays.high) else pays.high
    pairs = itertools.pairwise(data.batch_size.tolist())
    return [
        (smaller, larger) for smaller, larger in pairs if larger / smaller > WIDE and larger > start and smaller < end
    ]


def new_sizes(data: Data, gain: float = GAIN) -> list[float]:
    """Returns batch sizes to consider: between neighbours near the answer, above the largest and below the smallest."""
    pays = pays_up_to(data, gain)
    batch_size = data.batch_size
    low = batch_size[0] if np.isnan(pays.low) else pays.low
    high = batch_size[-1] if np.isnan(pays.high) else pays.high
    start, end = low * 2 ** AROUND[0], high * 2 ** AROUND[1]
    pairs = itertools.pairwise(batch_size.tolist())
    middles = [(smaller * larger) ** 0.5 for smaller, larger in pairs if np.log2(larger / smaller) >= APART]
    return [middle for middle in middles if start <= middle <= end] + [
        float(batch_size[-1] * 2),
        float(batch_size[-1] * 4),
        float(batch_size[0] / 2),
    ]


def pays_up_to(data: Data, gain: float = GAIN) -> Extent:
    """Returns *pays up to*."""
    return extents.interval(extents.posterior(*data), data.batch_size, PAYS, gain)


def width(data: Data, gain: float) -> Width:
    """Returns the uncertainty of *pays up to*."""
    probability = extents.posterior(*data)
    pays = extents.interval(probability, data.batch_size, PAYS, gain)
    return Width(octaves(pays), extents.deviation(probability, data.batch_size, PAYS, gain))


def octaves(extent: Extent) -> float:
    """Returns the width of an interval in octaves, or ``OPEN`` if an end is open."""
    return float(np.log(extent.high / extent.low) / OCTAVE) if extent.verdict == "identified" else OPEN


def _prior(data: Data) -> curve_prior.PriorCurves:
    return curve_prior.sample(tuple(data.batch_size.tolist()))


def _at_new_size(data: Data, size: float, gain: float) -> tuple[Width, float]:
    """Returns the expected width after adding a batch size, and the expected steps at that size."""
    half = float(np.median(np.log(data.high / data.low))) / 2
    grown, i = _inserted(data, size)
    prior = _prior(grown)
    rows = extents.noises(prior.ln_batch, *grown[1:])
    rows[:, i] = _UNSEEN
    ln_steps = np.log((grown.low + grown.high) / 2)
    probability = extents.probabilities(prior, ln_steps, rows).sum(axis=0)
    precision = 1 / rows.mean(axis=0)
    widths, expected = [], []
    for curve in extents.quantiles(probability, grown.batch_size, PAYS, gain, SIMULATED)[1]:
        shape = prior.ln_steps[:, curve]
        steps = float(np.exp(shape[i] + precision @ (ln_steps - shape) / precision.sum()))
        simulated = _replaced(grown, i, steps * np.exp(-half), steps * np.exp(half), 1.0)
        widths.append(width(simulated, gain))
        expected.append(steps)
    return Width(*np.mean(widths, axis=0).tolist()), float(np.median(expected))


def _with_trials(data: Data, i: int, multiple: float, steps: float, gain: float) -> Width:
    """Returns the expected width if a batch size, with these steps, had ``multiple`` times ``some`` trials."""
    share = float(narrowing.shares(np.array(multiple)))
    shrunk = np.sqrt(share / data.share[i])
    low, high = (steps * np.exp(shrunk * np.log(end[i] / steps)) for end in (data.low, data.high))
    return width(_replaced(data, i, low, high, share), gain)


def _inserted(data: Data, size: float) -> tuple[Data, int]:
    """Returns the data with an additional batch size, whose steps are set to 1, and its index."""
    i = int(np.searchsorted(data.batch_size, size))
    variance = None if data.variance is None else np.insert(data.variance, i, np.nan)
    low, high, share = (np.insert(numbers, i, 1.0) for numbers in (data.low, data.high, data.share))
    return Data(np.insert(data.batch_size, i, size), low, high, variance, share), i


def _replaced(data: Data, i: int, low: float, high: float, share: float) -> Data:
    """Returns the data with the point at index i replaced."""
    new = np.stack([data.low, data.high, data.share])
    new[:, i] = low, high, share
    return data._replace(low=new[0], high=new[1], share=new[2])
