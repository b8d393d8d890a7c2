"""Weights of batch sizes in a fit. Weights are smaller if evaluations are far apart relative to selection noise."""

import numpy as np
from scipy.special import gammaln


def relative_weights(low: np.ndarray, high: np.ndarray, trial_steps: np.ndarray) -> np.ndarray:
    """Returns weights with mean 1, proportional to 1 / (v + (ln width)^2 / 12).

    The width is the ratio of the ends of the evaluation interval, and v is the mean of ``minimum_variance`` over batch
    sizes. If v cannot be estimated (only one trial per batch size, or only one that reached the target), all weights
    are equal.

    Args:
      low, high: float64[..., n], ends of the answers' intervals in steps, low > 0.
      trial_steps: float64[..., n, k], steps to target of the k trials at each batch size, infinite if not reached.

    Returns:
      float64[..., n].
    """
    variance = minimum_variance(trial_steps)
    is_known = np.isfinite(variance)
    count = is_known.sum(axis=-1, keepdims=True)
    mean = np.where(is_known, variance, 0.0).sum(axis=-1, keepdims=True) / np.maximum(count, 1)
    spread = mean + np.log(high / low) ** 2 / 12
    has_variance = (count > 0) & (spread.min(axis=-1, keepdims=True) > 0)
    precision = 1 / np.where(has_variance, spread, 1.0)
    return precision / precision.mean(axis=-1, keepdims=True)


def minimum_variance(trial_steps: np.ndarray, some: int | None = None) -> np.ndarray:
    """Returns the jackknife variance of the expected ln minimum over half of the k trials.

    Args:
      trial_steps: float64[..., n, k], steps to target, infinite if not reached.
      some: number of trials (less than k) over which to take the minimum. The default is half.

    Returns:
      float64[..., n], or NaN if fewer than two trials reached the target.
    """
    k = trial_steps.shape[-1]
    if k < 2:
        return np.full(trial_steps.shape[:-1], np.nan)
    return (k - 1) * without_each(trial_steps, some).var(axis=-1)


def without_each(trial_steps: np.ndarray, some: int | None = None) -> np.ndarray:
    """Returns the expected ln minimum over k/2 trials, leaving out each of the k trials in turn.

    The expectation over all subsets of k/2 trials, or of ``some``, is a weighted sum of order statistics with
    closed-form weights. Trials that never reached the target have no steps. The expectation therefore covers only
    subsets whose best trial reached the target: the weights are renormalised over trials that did.

    Args:
      trial_steps: float64[..., n, k], steps to target, infinite if not reached.

    Returns:
      float64[..., n, k], the value without each trial, or NaN if fewer than two trials reached the target.
    """
    k = trial_steps.shape[-1]
    order = np.argsort(trial_steps, axis=-1, kind="stable")
    ordered = np.take_along_axis(trial_steps, order, axis=-1)
    reached = np.isfinite(ordered)
    ln_steps = np.log(np.where(reached, ordered, 1.0))
    weights = _first_of_subset(k - 1, some or k // 2)  # [k - 1], for the trials left after removing one
    # Without the trial of rank j, ranks before j keep their weights and later ones move up by one.
    before = np.append(weights, 0.0) * reached
    after = np.insert(weights, 0, 0.0) * reached
    sums = _before(before * ln_steps) + _after(after * ln_steps)  # [..., n, k]
    totals = _before(before) + _after(after)
    enough = reached.sum(axis=-1, keepdims=True) >= 2
    left_out = np.where(enough, sums / np.where(totals > 0, totals, 1.0), np.nan)
    expected = np.empty_like(left_out)
    np.put_along_axis(expected, order, left_out, axis=-1)
    return expected


def best_of_some(trial_steps: np.ndarray, some: int) -> np.ndarray:
    """Returns the expected ln minimum over ``some`` of the k trials, given that the best one reached the target.

    Args:
      trial_steps: float64[..., n, k], steps to target, infinite if not reached. At least one trial reached it at each
        batch size.
      some: 1 to k.

    Returns:
      float64[..., n].
    """
    k = trial_steps.shape[-1]
    ordered = np.sort(trial_steps, axis=-1)
    reached = np.isfinite(ordered)
    weights = _first_of_subset(k, some) * reached
    return (weights * np.log(np.where(reached, ordered, 1.0))).sum(axis=-1) / weights.sum(axis=-1)


def evaluations_share(trial_steps: np.ndarray, some: int) -> float:
    """Returns the fraction of an evaluation interval's variance that remains in the expected best of ``some`` trials.

    Trials that reached the target between the same two evaluations share the error of that interval. Other trials do
    not. The fraction is 1 if all trials share the error.

    Args:
      trial_steps: float64[k], steps to target, infinite if not reached. At least one trial reached it.
      some: 1 to k.
    """
    ordered = np.sort(trial_steps)
    reached = ordered[np.isfinite(ordered)]
    shares = _first_of_subset(len(ordered), some)[: len(reached)]
    return float((np.bincount(np.unique(reached, return_inverse=True)[1], shares) ** 2).sum() / shares.sum() ** 2)


def _first_of_subset(k: int, size: int) -> np.ndarray:
    """Returns the probability that each rank is the best of ``size`` trials drawn from ``k``: float64[k], sum 1."""
    rank = np.arange(1, k + 1)
    possible = k - rank >= size - 1
    worse = np.where(possible, k - rank, size - 1)  # trials left to fill the subset
    ln_choices = gammaln(worse + 1) - gammaln(size) - gammaln(worse - size + 2)
    ln_all = gammaln(k + 1) - gammaln(size + 1) - gammaln(k - size + 1)
    return np.where(possible, np.exp(ln_choices - ln_all), 0.0)


def _before(values: np.ndarray) -> np.ndarray:
    """Returns sums over all earlier columns."""
    return np.cumsum(values, axis=-1) - values


def _after(values: np.ndarray) -> np.ndarray:
    """Returns sums over all later columns."""
    return values.sum(axis=-1, keepdims=True) - np.cumsum(values, axis=-1)
