"""Randomness of trials: the points of a search and the orders of epochs follow from seeds alone."""

from collections.abc import Callable

import jax
import numpy as np
import pytest

from harness.step import rng
from harness.trials import search
from results.plans.batch_study import BatchStudy


def test_a_longer_search_begins_with_a_shorter_one(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study()
    assert search.draw(study, range(64))[:16] == search.draw(study, range(16))
    assert search.draw(study, [5, 3]) == [search.draw(study, range(6))[i] for i in (5, 3)]
    assert search.draw(study, []) == []


def test_studies_share_no_points_and_no_seeds(make_study: Callable[..., BatchStudy]) -> None:
    drawn = [search.draw(make_study(batch_size=size), range(32)) for size in (32, 64)]
    rates = [{trial.metaparameters["learning_rate"] for trial in trials} for trials in drawn]
    assert not rates[0] & rates[1]
    assert len({trial.seed for trials in drawn for trial in trials}) == 64
    assert search.draw(make_study(pruning="exact"), range(32)) == drawn[1]


def test_points_fill_the_space(make_study: Callable[..., BatchStudy]) -> None:
    trials = search.draw(make_study(), range(64))
    octiles = np.floor(8 * np.log(np.array([t.metaparameters["learning_rate"] for t in trials]) / 1e-2) / np.log(300))
    assert np.all(np.bincount(octiles.astype(int), minlength=8) >= 6)


@pytest.mark.parametrize("examples", [1, 1437, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5000, 60_000))])
def test_an_epoch_visits_every_example_once(examples: int) -> None:
    _, key = rng.keys(jax.numpy.uint32(7))
    order = np.asarray(rng.epoch_order(key, jax.numpy.int32(3), examples))
    assert np.array_equal(np.sort(order), np.arange(examples))


def test_orders_are_uniform_enough_and_differ_by_epoch() -> None:
    _, key = rng.keys(jax.numpy.uint32(1))
    epochs = jax.numpy.arange(4000)
    orders = np.asarray(jax.vmap(lambda epoch: rng.epoch_order(key, epoch, 5))(epochs))
    # 120 permutations of 5; chi-squared with 119 degrees of freedom stays below 190 with probability 1 − 4e-5.
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 120
    assert np.sum((counts - 4000 / 120) ** 2 / (4000 / 120)) < 190
