"""Randomness of a trial: its initial parameters and its data order, pure functions of (seed, step)."""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array


def keys(seed: Array) -> tuple[Array, Array]:
    """The keys of a trial's initial parameters and of its data, from its seed uint32[].

    The words of a key are (purpose, seed): distinct without hashing, and the same under any default of JAX's.
    """
    init_key, data_key = (
        jax.random.wrap_key_data(jnp.stack([jnp.uint32(purpose), seed]), impl="threefry2x32") for purpose in (0, 1)
    )
    return init_key, data_key


def example_keys(seed: Array, step: Array, positions: Array) -> Array:
    """The keys of what is random in a step of training, such as dropout: one for each example.

    Args:
      seed: uint32[] of the trial.
      step: int32[], steps taken before.
      positions: int32[b], of the examples in the whole batch, so that the keys are the same however it is divided.
    """
    key = jax.random.wrap_key_data(jnp.stack([jnp.uint32(2), seed]), impl="threefry2x32")
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, step), positions)


def epoch_order(key: Array, epoch: Array, examples: int) -> Array:
    """The order in which an epoch visits the training set.

    Random bits above the index are sorted as one number, which is five times as fast on a CPU as sorting indices by
    random keys. A round has 32 random bits less those of the index; there are as many rounds as make ties, which keep
    their order, rare: below one pair expected among n²/2.

    Args:
      key: data key of the trial.
      epoch: int32[].
      examples: n, size of the training set; below 2^24.

    Returns:
      int32[n], a permutation of 0..n−1.
    """
    index_bits = (examples - 1).bit_length()
    rounds = max(1, math.ceil(math.log2(max(examples**2 / 2, 1)) / (32 - index_bits)))
    mask = jnp.uint32((1 << index_bits) - 1)
    index = jnp.arange(examples, dtype=jnp.uint32)
    bits = jax.random.bits(jax.random.fold_in(key, epoch), (rounds, examples), jnp.uint32)
    shuffles = [jnp.sort((bits[i] & ~mask) | index, stable=False) & mask for i in range(rounds)]
    return functools.reduce(lambda order, shuffle: order[shuffle], shuffles).astype(jnp.int32)
