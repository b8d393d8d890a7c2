import jax
import numpy as np
import pytest

from harness import streams


@pytest.mark.parametrize("examples", [1, 2, 1437, 5000, 60_000])
def test_an_epoch_visits_every_example_once(examples: int) -> None:
    _, key = streams.keys(jax.numpy.uint32(7))
    order = np.asarray(streams.epoch_order(key, jax.numpy.int32(3), examples))
    assert np.array_equal(np.sort(order), np.arange(examples))


def test_orders_are_uniform_enough_and_differ_by_epoch() -> None:
    _, key = streams.keys(jax.numpy.uint32(1))
    epochs = jax.numpy.arange(4000)
    orders = np.asarray(jax.vmap(lambda epoch: streams.epoch_order(key, epoch, 5))(epochs))
    # 120 permutations of 5; chi-squared with 119 degrees of freedom stays below 190 with probability 1 − 4e-5.
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 120
    assert np.sum((counts - 4000 / 120) ** 2 / (4000 / 120)) < 190
