"""The noisy quadratic: the expected result of a search with gradient descent, computed in closed form.

The loss has curvatures h = 1/1, 1/2, ... and gradients h θ + σ √h ε / √B. Starting from θ = 1, the coordinates stay
normally distributed. After t steps with learning rate α, their mean is (1 - αh)^t and their variance is α² σ² h / B (1
- q^t) / (1 - q), with q = (1 - αh)² (Zhang et al. 2019, arXiv 1907.04164). The loss is the sum of h θ² / 2.
"""

import dataclasses
import math

import numpy as np
from scipy.special import gammainc

from results.plans.batch_study import BatchStudy

RATES = 1200  # number of points that represent a range of learning rates
HALVINGS = 40
FEW, MANY = 0.25, 1e6  # ratios of batch size to noise variance, far from the knee on either side
LONGEST = 6000  # maximum steps to reach a loss of a tenth or more with little noise


def least_steps(study: BatchStudy) -> float:
    """Returns the fewest steps, over all learning rates, until the expected loss reaches the target, or +inf."""
    rates, curvature, goal = _rates(study), _curvature(study), study.targets[0].value
    low, high = np.zeros(len(rates)), np.full(len(rates), float(study.budget_steps))
    reaches = _expected(study, rates, high, curvature) <= goal
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_at_goal = _expected(study, rates, middle, curvature) <= goal
        low, high = np.where(is_at_goal, low, middle), np.where(is_at_goal, middle, high)
    return float(np.min(high[reaches], initial=np.inf))


def best_of(study: BatchStudy, trials: int) -> float:
    """Returns the expected steps to target of the best of ``trials`` trials: a geometric mean over interval midpoints.

    A trial reaches the target at the first evaluation with a low enough loss. The loss is a sum of squares of normal
    variables. It is approximated by the gamma distribution with the same first three moments. The noise of different
    evaluations is taken as independent.

    Returns:
      The steps, or NaN if more than 1 % of searches miss the target.
    """
    curvature, goal, steps = _curvature(study), study.targets[0].value, study.evaluations.astype(np.float64)
    rates = _rates(study)
    missed = np.ones((len(rates), len(steps)))
    for i in np.flatnonzero(rates < 2):  # larger rates diverge
        pull, spread = _parts(study, rates[i], steps[:, None], curvature)  # [steps, h]
        mean, variance = (spread + pull).sum(axis=1), 2 * (spread * (spread + 2 * pull)).sum(axis=1)
        skew = 8 * (spread**2 * (spread + 3 * pull)).sum(axis=1)
        least = mean - 2 * variance**2 / skew
        missed[i] = 1 - gammainc(4 * variance**3 / skew**2, np.maximum(goal - least, 0) * 2 * variance / skew)
    not_yet = np.cumprod(missed, axis=1).mean(axis=0) ** trials
    chance = -np.diff(np.append(1.0, not_yet))
    if chance.sum() < 0.99:
        return float("nan")
    before = np.append(0.5, steps[:-1])
    return float(np.exp(chance @ np.log((before + steps) / 2) / chance.sum()))


def critical_batch_size(study: BatchStudy, trials: int | None) -> float:
    """Returns the batch size, in examples, at which the perfect-scaling line meets the plateau.

    Args:
      study: the study, at any batch size.
      trials: number of trials for ``best_of``, or None for ``least_steps``.
    """
    variance = float(study.model_options["noise"]) ** 2
    least, most = (_with_noise(study, 1 / share) for share in (FEW, MANY))
    steps = [least_steps(one) if trials is None else best_of(one, trials) for one in (least, most)]
    return FEW * variance * steps[0] / steps[1]


def _with_noise(study: BatchStudy, variance: float) -> BatchStudy:
    """Returns the study at batch size 1, with the given gradient variance and a large enough budget."""
    options = {"noise": math.sqrt(variance)}
    budget = math.ceil(LONGEST * max(1.0, variance))
    return dataclasses.replace(study, batch_size=1, model_options=options, budget_steps=budget)


def _rates(study: BatchStudy) -> np.ndarray:
    """Returns learning rates at evenly spaced quantiles of their range."""
    if (study.dataset, study.model, study.optimizer) != ("noise", "quadratic", "sgd"):
        raise ValueError(f"no closed form for {study.dataset}, {study.model}, {study.optimizer}")
    return np.array([study.space["learning_rate"].at((i + 0.5) / RATES) for i in range(RATES)])


def _curvature(study: BatchStudy) -> np.ndarray:
    return 1 / np.arange(1, int(study.dataset_version) + 1)


def _expected(study: BatchStudy, rates: np.ndarray, steps: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Returns the expected loss after ``steps`` [n] at ``rates`` [n], or +inf if it diverges."""
    stable = rates < 2
    pull, spread = _parts(study, np.where(stable, rates, 1.0)[:, None], steps[:, None], curvature)
    return np.where(stable, (pull + spread).sum(axis=1), np.inf)


def _parts(
    study: BatchStudy, rate: float | np.ndarray, steps: np.ndarray, curvature: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the parts of the expected loss that are due to the starting point and to noise: [..., h] each."""
    variance = float(study.model_options["noise"]) ** 2 / study.batch_size
    remaining = (1 - rate * curvature) ** 2
    settled = rate**2 * variance * curvature / (1 - remaining)
    decay = remaining**steps
    return 0.5 * curvature * decay, 0.5 * curvature * settled * (1 - decay)
