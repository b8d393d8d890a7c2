"""The workload whose answer is known, through the whole pipeline: engine against a closed recursion in float64."""

from collections.abc import Callable

import numpy as np
import pytest

from harness.run import Record, Settings
from harness.runners import engine
from harness.trials import search
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target

DIMENSIONS = 100
RATE, MOMENTUM, STEPS = 0.2, 0.8, 80
CURVATURE = 1 / np.arange(1, DIMENSIONS + 1)


def expected_losses(momentum: float, noise: float, batch_size: int) -> np.ndarray:
    """Expected loss [STEPS] after 1, 2, … steps, by the second moments of (θ, v): v ← μ v + g, θ ← θ − α v."""
    moments = np.zeros((DIMENSIONS, 2, 2))
    moments[:, 0, 0] = 1.0
    step = np.empty((DIMENSIONS, 2, 2))
    step[:, 1] = np.stack([CURVATURE, np.full(DIMENSIONS, momentum)], axis=-1)
    step[:, 0] = np.array([1.0, 0.0]) - RATE * step[:, 1]
    push = np.array([-RATE, 1.0])
    shaken = noise**2 * CURVATURE[:, None, None] / batch_size * np.outer(push, push)
    losses = []
    for _ in range(STEPS):
        moments = step @ moments @ np.swapaxes(step, 1, 2) + shaken
        losses.append(0.5 * np.sum(CURVATURE * moments[:, 0, 0]))
    return np.array(losses)


def run(make_study: Callable[..., BatchStudy], momentum: float, noise: float, batch_size: int, replicas: int) -> Record:
    space = {"learning_rate": Range("DISCRETE", values=(RATE,)), "momentum": Range("DISCRETE", values=(momentum,))}
    study = make_study(
        dataset="noise",
        dataset_version="100",
        model="quadratic",
        model_options={"noise": noise},
        optimizer="momentum",
        batch_size=batch_size,
        space=SearchSpace(space),
        targets=(),
        budget_steps=STEPS,
    )
    return engine.run(study, search.draw(study, range(replicas)), Settings(lanes=min(replicas, 1024)))


@pytest.mark.parametrize(
    ("batch_size", "momentum"),
    [
        (8, MOMENTUM),
        *(pytest.param(size, 0.0, marks=pytest.mark.slow) for size in (1, 8, 64)),
        *(pytest.param(size, MOMENTUM, marks=pytest.mark.slow) for size in (1, 64)),
    ],
)
def test_the_mean_of_many_replicas_is_the_expected_loss(
    make_study: Callable[..., BatchStudy], momentum: float, batch_size: int
) -> None:
    replicas = 4096
    record = run(make_study, momentum, 1.0, batch_size, replicas)
    losses = record.metrics["validation_loss"].astype(np.float64).reshape(replicas, -1)
    steps = record.step.reshape(replicas, -1)[0]
    expected = expected_losses(momentum, 1.0, batch_size)[steps - 1]
    errors = losses.std(axis=0, ddof=1) / np.sqrt(replicas)
    assert len(steps) > 15
    assert np.all(np.abs(losses.mean(axis=0) - expected) < 4 * errors)
    assert np.all(errors < 0.05 * expected)  # so that the line above can fail


@pytest.mark.parametrize("momentum", [0.0, MOMENTUM])
@pytest.mark.parametrize("value", [2.0, 1.0, 0.5, 0.25])
def test_noiseless_steps_to_target_are_those_of_the_recursion(
    make_study: Callable[..., BatchStudy], momentum: float, value: float
) -> None:
    record = run(make_study, momentum, 0.0, 1, 1)
    expected = expected_losses(momentum, 0.0, 1)
    reached = Target("validation_loss", value).reached(record.metrics["validation_loss"])
    ours = record.step[np.argmax(reached)] if reached.any() else None
    theirs = [step for step in record.step if expected[step - 1] <= value]
    assert ours == (theirs[0] if theirs else None)
    np.testing.assert_allclose(record.metrics["validation_loss"], expected[record.step - 1], rtol=1e-5)
