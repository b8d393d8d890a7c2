"""Randomness of a trial: its initial parameters and its data order, pure functions of (seed, step)."""

import math

import jax
import jax.numpy as jnp

Array = jax.Array


def keys(seed: Array) -> tuple[Array, Array]:
    """The keys of a trial's initial parameters and of its data order, from its seed uint32[]."""
    init_key, order_key = jax.random.split(jax.random.key(seed))
    return init_key, order_key


def epoch_order(key: Array, epoch: Array, examples: int) -> Array:
    """The order in which an epoch visits the training set.

    Random bits above the index are sorted as one number, which is five times as fast on a CPU as sorting indices by
    random keys. Each round has 32 bits less the index's; rounds are added until ties, which keep their order, are
    rare: about n²/2 pairs over all bits, below one pair.

    Args:
      key: order key of the trial.
      epoch: int32[].
      examples: n, size of the training set; below 2^24.

    Returns:
      int32[n], a permutation of 0..n−1.
    """
    index_bits = max(1, math.ceil(math.log2(examples)))
    rounds = math.ceil(2 * index_bits / (32 - index_bits))
    mask = jnp.uint32((1 << index_bits) - 1)
    order = jnp.arange(examples, dtype=jnp.uint32)
    for round_key in jax.random.split(jax.random.fold_in(key, epoch), rounds):
        bits = jax.random.bits(round_key, (examples,), jnp.uint32)
        shuffled = jnp.sort((bits & ~mask) | jnp.arange(examples, dtype=jnp.uint32)) & mask
        order = order[shuffled]
    return order.astype(jnp.int32)
