"""What is worked out of the noisy quadratic, against its recursion and against simulated searches."""

import math
from typing import Any

import numpy as np
import pytest

from analysis.fitting import noisy_quadratic
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target

from ..conftest import plan

GOAL = 0.1
CURVATURE = 1 / np.arange(1, 101)


def study(batch_size: int = 16, noise: float = 1.0, **changes: Any) -> BatchStudy:
    fields: dict[str, Any] = {
        "dataset": "noise",
        "dataset_version": "100",
        "model": "quadratic",
        "model_options": {"noise": noise},
        "space": SearchSpace({"learning_rate": Range("LOG", 0.01, 10.0)}),
        "targets": (Target("validation_loss", GOAL),),
        "budget_steps": 20_000,
    }
    return plan(batch_size=batch_size, **fields | changes)


def first_at_goal(rate: float, batch_size: int, most: int) -> float:
    """Steps until the expected loss is at the goal, one after the other."""
    moments = np.ones(100)
    for step in range(1, most + 1):
        moments = (1 - rate * CURVATURE) ** 2 * moments + rate**2 * CURVATURE / batch_size
        if 0.5 * CURVATURE @ moments <= GOAL:
            return step
    return math.inf


@pytest.mark.parametrize("batch_size", [16, 256])
def test_expected_steps_are_those_of_the_recursion(batch_size: int) -> None:
    found = noisy_quadratic.least_steps(study(batch_size))
    steps = min(first_at_goal(rate, batch_size, 300) for rate in np.geomspace(0.05, 1.9, 120))
    assert steps - 1 < found <= steps


def test_an_expected_loss_that_never_gets_there() -> None:
    assert math.isinf(noisy_quadratic.least_steps(study(1, budget_steps=100)))


@pytest.mark.parametrize("batch_size", [8, 128])
def test_the_best_of_a_search_is_that_of_simulated_ones(batch_size: int) -> None:
    trials, searches = 8, 300
    planned = study(batch_size, budget_steps=2000, space=SearchSpace({"learning_rate": Range("LOG", 0.05, 2.0)}))
    rng = np.random.default_rng(0)
    rates = np.exp(rng.uniform(np.log(0.05), np.log(2.0), (trials * searches, 1)))
    grid, reached = planned.evaluations.tolist(), np.full(trials * searches, np.inf)
    theta, before = np.ones((trials * searches, 100)), 0.0
    for step in range(1, 600):
        noise = np.sqrt(CURVATURE / batch_size) * rng.standard_normal(theta.shape)
        theta -= rates * (CURVATURE * theta + noise)
        if step in grid:
            at_goal = 0.5 * theta**2 @ CURVATURE <= GOAL
            reached[at_goal & np.isinf(reached)] = (before or 0.5) / 2 + step / 2
            before = step
    best = reached.reshape(searches, trials).min(axis=1)
    assert np.isfinite(best).mean() > 0.99
    mean = np.exp(np.log(best[np.isfinite(best)]).mean())
    error = np.log(best[np.isfinite(best)]).std() / math.sqrt(searches)
    assert noisy_quadratic.best_of(planned, trials) == pytest.approx(mean, rel=0.05 + 2 * error)
    assert error < 0.05  # so that the line above can fail


def test_a_search_that_misses_too_often_has_no_best() -> None:
    assert math.isnan(noisy_quadratic.best_of(study(1, budget_steps=100), 32))


def test_the_knee_scales_with_the_noise() -> None:
    critical = noisy_quadratic.critical_batch_size(study(16), 32)
    assert critical == pytest.approx(37.7, rel=0.02)  # of learning rates from 0.01 on
    assert noisy_quadratic.critical_batch_size(study(256, noise=2.0), 32) == pytest.approx(4 * critical, rel=1e-6)
    assert noisy_quadratic.critical_batch_size(study(16), None) == pytest.approx(61.7, rel=0.01)


def test_nothing_is_claimed_of_other_workloads() -> None:
    with pytest.raises(ValueError, match="digits"):
        noisy_quadratic.least_steps(plan())
